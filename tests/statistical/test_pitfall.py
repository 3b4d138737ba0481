"""The regression with a kinked prior of Korattikara et al. (2014), section 6.4: what a test mends, at known figures.

Total variation of 10^5 draws. With 20 bins the exact test is 0.012 away, by chance alone; over data sets steps that
nothing tests were 0.29 to 0.44 away, AustereMH(0.1) 0.010 to 0.037 at 14.0 to 14.7 % of the rows, and AustereMH(0.5)
0.012 to 0.015 at one window. Limits leave room for half as much again, as draws of one data set and key may differ.
"""

import pytest
from benchmarks import pitfall

import tallmc as tm

CASES = {
    "AlwaysAccept()": (0.25, 0.48, 0.0, 0.0),
    "Exact()": (0.0, 0.02, 1.0, 1.0),
    "AustereMH(0.1, 500)": (0.0, 0.045, 0.135, 0.152),
    "AustereMH(0.5, 500)": (0.0, 0.03, 0.05, 0.05),
    "MHMinibatch(100)": (0.0, 0.03, 0.05, 0.15),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_a_test_mends(name):
    nearest, furthest, fewest, most = CASES[name]
    found = pitfall.measure(pitfall.posterior(0), pitfall.RULES[name])
    assert nearest <= found.distance <= furthest
    assert fewest <= found.rows / pitfall.NUM_ROWS <= most


@pytest.mark.slow
def test_the_audit_knows_which_run_was_wrong():
    wrong, right = (
        tm.audit(pitfall.measure(pitfall.posterior(0), pitfall.RULES[name], 5000).run, 200)
        for name in ("AlwaysAccept()", "AustereMH(0.1, 500)")
    )
    assert wrong.interval[0] > 0.2
    assert right.interval[1] < 0.15
