"""Law: a bounded rule decides otherwise than the exact test as rarely as it says.

Rules that draw the same level from the same key are asked the same questions, so decisions are compared one by one.
Thresholds are 4 standard errors: 6e-5 false alarms each, both sides together. Seeds are fixed.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tests.registry import real
from tests.simulate import decisions, exponential, normal, population, rare

NUM_TESTS = 10_000


def wrong_share(rule, feed, log_ratios, num_tests=NUM_TESTS, seed=0):
    """Share of decisions unlike the exact ones, and mean share of the rows read; the shuffle has the same seed."""
    decided, rows = decisions(rule, feed, log_ratios, num_tests, seed)
    exact, _ = decisions(tm.Exact(), feed, log_ratios, num_tests, seed)
    return np.mean(decided != exact), np.mean(rows) / len(log_ratios)


def standard_error(share, num_tests):
    return np.sqrt(share * (1 - share) / num_tests)


@pytest.mark.parametrize("draw", [normal, exponential])
@pytest.mark.parametrize("num_rows", [1, 1013])
def test_austere_without_error_decides_as_exact_one_by_one(draw, num_rows):
    log_ratios = population(draw, num_rows, 60.0, -0.5) if num_rows > 1 else np.array([-0.5])
    assert wrong_share(tm.AustereMH(epsilon=0.0, batch_size=100), tm.InMemoryFeed, log_ratios)[0] == 0


def test_austere_without_error_is_the_exact_chain():
    rows = np.asarray(real(np.random.default_rng(0).normal(size=2000)))
    posterior = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, rows, temperature=10.0)
    chains = [
        tm.sample(posterior, tm.MetropolisHastings(tm.RandomWalk(0.2), rule), init=0.0, num_samples=300).samples
        for rule in (tm.Exact(batch_size=100), tm.AustereMH(epsilon=0.0, batch_size=100))
    ]
    np.testing.assert_array_equal(*chains)


@pytest.mark.parametrize(
    ("epsilon", "boundary", "log_ratio", "spread"),
    [(0.05, 0.5, -1.0, 2.0), (0.1, 1.0, 0.5, 1.0), (0.2, 0.75, 0.0, 0.5)],
)
def test_austere_errs_as_often_as_the_design_predicts(epsilon, boundary, log_ratio, spread):
    """On rows in a fresh random order for every test, as the theory has it; 4,000 tests."""
    num_rows, batch_size, num_tests = 4000, 200, 4000
    log_ratios = population(normal, num_rows, spread**2 * num_rows, log_ratio)
    rule = tm.AustereMH(epsilon, batch_size, boundary)
    wrong, read = wrong_share(rule, tm.IndexedFeed, log_ratios, num_tests)
    expected = tm.design.acceptance_error(log_ratio, spread, batch_size / num_rows, epsilon, boundary)
    assert abs(wrong - expected.wrong_decisions) < 4 * standard_error(expected.wrong_decisions, num_tests)
    assert abs(read - expected.data_fraction) < 0.02
    assert wrong <= rule.promise.largest_error(num_rows)


@pytest.mark.parametrize(("num_rows", "num_tests"), [(12_214, 4000), (100_000, 1500)])
def test_the_default_feed_errs_as_the_design_predicts_whatever_the_shuffle(num_rows, num_tests):
    """Eight shuffles. Whole windows of one shuffle would do as that shuffle happens to have them, all run long."""
    log_ratios = population(normal, num_rows, 2.0**2 * num_rows, -1.0)
    expected = tm.design.acceptance_error(-1.0, 2.0, 500 / num_rows, epsilon=0.05).wrong_decisions
    rule = tm.AustereMH(0.05, 500)
    wrong = np.array([wrong_share(rule, tm.InMemoryFeed, log_ratios, num_tests, seed)[0] for seed in range(8)])
    assert np.all(np.abs(wrong - expected) < 4 * standard_error(expected, num_tests))


def test_per_step_settings_keep_the_error():
    log_ratios = population(normal, 2000, 4.0 * 2000, -0.5)
    wrong, read = wrong_share(tm.AustereMHPerStep(max_error=0.05, batch_size=100), tm.InMemoryFeed, log_ratios)
    assert wrong <= 0.05 + 4 * np.sqrt(0.05 / NUM_TESTS)
    assert wrong > 0.005  # it does use the error it is given
    assert read == 1  # and reads every row


@pytest.mark.parametrize("inequality", ["bernstein", "serfling"])
@pytest.mark.parametrize(("draw", "spread"), [(exponential, 0.05), (rare, 0.02)])
def test_sub_lhd_errs_less_than_delta_whatever_the_rows(draw, spread, inequality):
    log_ratios = population(draw, 5003, spread**2 * 5003, -1.5)
    largest = real(np.max(np.abs(log_ratios)))
    rule = tm.MHSubLhd(delta=0.05, batch_size=100, bound=lambda position, proposed: largest, inequality=inequality)
    wrong, read = wrong_share(rule, tm.InMemoryFeed, log_ratios)
    assert wrong < 0.05
    assert read < 0.8


def test_a_scan_decides_as_a_bound_does():
    log_ratios = population(exponential, 5003, 0.05**2 * 5003, -1.5)
    largest = jnp.max(jnp.abs(real(log_ratios)))
    bounded, rows = decisions(
        tm.MHSubLhd(batch_size=100, bound=lambda position, proposed: largest), tm.InMemoryFeed, log_ratios, 2000
    )
    scanned, all_rows = decisions(tm.MHSubLhd(batch_size=100, bound="scan"), tm.InMemoryFeed, log_ratios, 2000)
    np.testing.assert_array_equal(bounded, scanned)
    assert np.mean(rows) < 4_000
    assert np.all(all_rows == 5003)


@pytest.mark.parametrize(
    "rule",
    [
        tm.AustereMH(epsilon=0.01, batch_size=100),
        tm.MHSubLhd(delta=0.05, batch_size=100, bound=lambda position, proposed: jnp.zeros_like(position)),
    ],
)
def test_rare_rows_fool_a_t_test_and_a_bound_that_is_none(rule):
    """Negative control: where one row in a thousand decides, both are wrong more often than 5 %."""
    log_ratios = population(rare, 5003, 0.2**2 * 5003, -1.5)
    assert wrong_share(rule, tm.InMemoryFeed, log_ratios)[0] > 0.05


class Contiguous(tm.InMemoryFeed):
    """Whole windows, as where there are many: any of them may be the first, the partial one too."""

    @classmethod
    def of(cls, rows, needs, model):
        return tm.InMemoryFeed(rows.num_rows, needs.batch_size, every_row=True)


@pytest.mark.parametrize("rule", [tm.AustereMH(0.2, 500), tm.AustereMHPerStep(0.2, 500)])
def test_a_partial_window_is_no_look(rule):
    """1,020 rows: one test in three begins with the window of 20 rows."""
    log_ratios = population(normal, 1020, 1.0, -3.0)
    _, rows = decisions(rule, Contiguous, log_ratios, 300)
    assert np.all(rows >= 500)
    assert isinstance(rule, tm.AustereMHPerStep) or 50 < np.sum(rows == 520) < 150
