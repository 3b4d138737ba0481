"""The interval of an audit holds what it should, and never claims more than its replays can tell."""

import numpy as np

from tallmc.diagnostics.audit import _root_mean_square


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
