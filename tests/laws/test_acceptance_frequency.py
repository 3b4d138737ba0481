"""Law: a rule accepts as often as its formula says, to the error its guarantee allows; a t-test, as its design says.

Each assertion compares a frequency of 40,000 independent tests with a probability, at 5 standard errors: 6e-7 false
alarms each, about 5e-5 for the file. Seeds are fixed.
"""

import numpy as np
import pytest

import tallmc as tm
from tallmc.reproduce.printed import PrintedMHMinibatch as Textbook
from tests.controls import Overconfident
from tests.registry import FEEDS, RULES, allowed_error, chance_to_accept
from tests.simulate import decide, exponential, normal, population

NUM_TESTS = 40_000


def excess_error(rule, feed, log_ratios, num_tests=NUM_TESTS, offset=0.0):
    """Distance from what the rule should do, beyond what guarantee and chance allow; positive is a failure."""
    frequency, _ = decide(rule, feed, log_ratios, num_tests, offset=offset)
    num_rows = len(log_ratios)
    log_ratio = float(np.sum(log_ratios)) * rule.promise.inverse_temperature(num_rows)
    spread = float(np.std(log_ratios)) * np.sqrt(num_rows)
    expected = chance_to_accept(rule, log_ratio + offset, spread, num_rows)
    chance = 5 * np.sqrt(max(expected * (1 - expected), 1 / num_tests) / num_tests)
    return abs(frequency - expected) - allowed_error(rule, len(log_ratios)) - chance


@pytest.mark.parametrize("name", RULES)
def test_acceptance_frequency_is_the_formula(name):
    """For bad, indifferent and good proposals; last, one that is good by its rows and bad by its prior."""
    rule = RULES[name]()  # one object for all, so that it compiles once
    for log_ratio, offset in ((-2.0, 0.0), (0.0, 0.0), (0.7, 0.0), (1.5, -2.0)):
        log_ratios = population(normal, num_rows=1013, variance=60.0, log_ratio=log_ratio)
        assert excess_error(rule, tm.InMemoryFeed, log_ratios, offset=offset) <= 0, (log_ratio, offset)


@pytest.mark.parametrize("feed", FEEDS)
@pytest.mark.parametrize("num_rows", [1, 101])
@pytest.mark.parametrize("name", ["exact", "mh_minibatch_small_windows", "austere_mh", "mh_sub_lhd_scan"])
def test_few_rows_are_no_special_case(name, num_rows, feed):
    log_ratios = population(normal, num_rows, variance=30.0, log_ratio=-0.5) if num_rows > 1 else np.array([-0.5])
    assert excess_error(RULES[name](), FEEDS[feed], log_ratios, num_tests=10_000) <= 0


@pytest.mark.parametrize("name", ["mh_minibatch_wide"])
def test_windows_and_uniform_indices_accept_equally_often(name):
    log_ratios = population(exponential, num_rows=20_011, variance=70.0, log_ratio=0.3)
    (windows, _), (indices, _) = (decide(RULES[name](), feed, log_ratios, NUM_TESTS) for feed in FEEDS.values())
    assert abs(windows - indices) < 5 * np.sqrt(2 * 0.25 / NUM_TESTS)


@pytest.mark.parametrize("log_ratio", [-1.5, 0.0, 1.5])
@pytest.mark.parametrize("variance_at_first_look", [0.5, 0.9])
def test_skewed_rows_do_not_bias_the_stopping(variance_at_first_look, log_ratio):
    """Exponential tails, windows of 50 rows: within 0.005 of the logistic function."""
    log_ratios = population(exponential, 100_003, 50 * variance_at_first_look, log_ratio)
    assert excess_error(tm.MHMinibatch(batch_size=50), tm.InMemoryFeed, log_ratios) <= 0


def test_the_textbook_rule_is_biased():
    """Negative control: the printed algorithm is off by 0.03, more than the law allows."""
    log_ratios = population(exponential, 100_003, 50 * 0.9, 0.0)
    assert excess_error(Textbook(batch_size=50), tm.InMemoryFeed, log_ratios) > 0


def test_a_rule_that_accepts_too_often_is_caught():
    """Negative control."""
    log_ratios = population(normal, num_rows=1013, variance=60.0, log_ratio=0.0)
    assert excess_error(Overconfident(batch_size=256), tm.InMemoryFeed, log_ratios) > 0


@pytest.mark.parametrize("name", RULES)
def test_every_rule_declares_what_it_promises(name):
    rule = RULES[name]()
    assert isinstance(rule.promise.guarantee, tm.Guarantee)
    assert rule.promise.reference
    assert 0 < rule.promise.best_acceptance < 1
