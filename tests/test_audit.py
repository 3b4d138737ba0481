"""The interval of an audit holds what it should, and never claims more than its replays can tell."""

import numpy as np

import tallmc as tm
from tallmc.diagnostics.audit import _root_mean_square
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
