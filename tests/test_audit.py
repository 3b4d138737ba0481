"""The interval of an audit holds what it should, and never claims more than its replays can tell."""

import numpy as np
import pytest

import tallmc as tm
from tallmc.diagnostics.audit import Audit, _root_mean_square, _share_interval
from tallmc.setup.conclude import _TOLERATED_ERROR, _objections
from tests.registry import real


def test_the_interval_of_a_perfect_rule_is_never_empty():
    """Frequencies of a right rule, 64 steps of 200 tests: the upper end is above zero every time."""
    generator = np.random.default_rng(0)
    for _ in range(200):
        probability = generator.uniform(0.2, 0.8, 64)
        rate, (low, high) = _root_mean_square(generator.binomial(200, probability) / 200, probability, 200)
        assert low <= rate <= high
        assert 0.005 < high < 0.05


def test_the_interval_holds_the_error_of_a_wrong_rule():
    """True error 0.05: missed in at most 9 of 100 audits (more than that is one chance in 30)."""
    generator, missed = np.random.default_rng(1), 0
    for _ in range(100):
        probability = generator.uniform(0.2, 0.8, 64)
        wrong = probability + 0.05 * np.sign(generator.normal(size=64))
        _, (low, high) = _root_mean_square(generator.binomial(200, wrong) / 200, probability, 200)
        missed += not low <= 0.05 <= high
    assert missed <= 9


def test_decisions_on_all_rows_are_never_reversed_and_bold_ones_are():
    """The very questions of the run are asked again: with its levels, its prior and its proposals' ratios. A bold test
    errs at about one step in ten; fewer than 1 in 50 among 256 would be chance once in 100,000 times."""
    rows = np.asarray(real(np.random.default_rng(0).normal(0.3, 1.0, size=3000)))
    posterior = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, rows, lambda mean: -20 * mean**2, 100.0)
    proposal = tm.CrankNicolson(np.array(0.3), np.array([[0.3]]), 0.8)
    found = {
        rule: tm.audit(tm.sample(posterior, tm.MetropolisHastings(proposal, rule), init=0.2, num_samples=300), 256)
        for rule in (tm.Exact(), tm.AustereMH(0.4, 50))
    }
    exact, bold = found.values()
    assert exact.error_rate == 0
    assert bold.error_rate > 0.02


def audit_of(rate, interval):
    nothing = np.zeros(0)
    return Audit(rate, interval, "share of wrong decisions", nothing, nothing, nothing, 0)


def test_what_may_be_chance_is_no_objection():
    """1.1 % against a limit of 1 %, of an audit that cannot tell 1.1 % from none; and an error beyond chance."""
    assert _objections(audit_of(0.011, (0.0, 0.04))) == ()
    assert _objections(audit_of(0.011, (0.0099, 0.012))) == ()
    (said,) = _objections(audit_of(0.05, (0.02, 0.09)))
    assert "do not stand up" in said


@pytest.mark.parametrize("kind", ["share", "root mean square"])
def test_right_runs_are_hardly_ever_objected_to(kind):
    """1,000 audits of 64 steps of rules that err just as much as is tolerated. A 95 % interval lies above the truth
    once in 40; more than 45 of 1,000 are chance once in 5,000. Point estimates would object to every third."""
    generator, objections, points = np.random.default_rng(2), 0, 0
    for _ in range(1000):
        if kind == "share":
            errors = generator.random(64) < _TOLERATED_ERROR
            rate, interval = float(np.mean(errors)), _share_interval(errors)
        else:
            probability = generator.uniform(0.2, 0.8, 64)
            wrong = probability + _TOLERATED_ERROR * np.sign(generator.normal(size=64))
            rate, interval = _root_mean_square(generator.binomial(100, wrong) / 100, probability, 100)
        objections += len(_objections(audit_of(rate, interval)))
        points += rate > _TOLERATED_ERROR
    assert objections <= 45
    assert points > 200
