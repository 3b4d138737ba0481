"""The dynamic programme against published figures and simulation, and what is built on it."""

import time

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

import tallmc as tm
from tallmc.acceptance.austere_mh import normal_quantile, student_quantile
from tests.registry import real

# Error and expected share of the rows: Pocock boundary, first fraction 0.05, mu_std 0, 0.5, 1, 2, 5.
TABLE = {
    0.01: ([0.0838, 0.0282, 0.0141, 0.0047, 0.0003], [0.9073, 0.8504, 0.7228, 0.5002, 0.1991]),
    0.05: ([0.2820, 0.1301, 0.0758, 0.0311, 0.0030], [0.6525, 0.5909, 0.4875, 0.3264, 0.1329]),
    0.1: ([0.4108, 0.2338, 0.1508, 0.0705, 0.0087], [0.4360, 0.3977, 0.3350, 0.2334, 0.1052]),
    0.2: ([0.4928, 0.3661, 0.2741, 0.1551, 0.0271], [0.1930, 0.1847, 0.1685, 0.1353, 0.0789]),
}


@pytest.mark.parametrize("epsilon", TABLE)
def test_error_and_data_use_are_the_reference_ones_to_four_digits(epsilon):
    test = tm.design.sequential_test([0.0, 0.5, 1.0, 2.0, 5.0], first_fraction=0.05, epsilon=epsilon)
    np.testing.assert_allclose(test.error, TABLE[epsilon][0], atol=5.1e-5)
    np.testing.assert_allclose(test.data_fraction, TABLE[epsilon][1], atol=5.1e-5)


@pytest.mark.parametrize(
    ("epsilon", "batch_size", "error", "looks"),
    [
        (0.001, 50, 0.03126, 251.35),
        (0.001, 500, 0.01284, 25.65),
        (0.05, 50, 0.43297, 94.59),
        (0.2, 500, 0.49604, 4.116),
    ],
)
def test_published_errors_of_13000_rows(epsilon, batch_size, error, looks):
    """Published figures rest on 100 bins, which costs them their third digit where looks are many."""
    test = tm.design.sequential_test(0.0, batch_size / 13_000, epsilon)
    np.testing.assert_allclose(test.error, error, rtol=6e-3)
    np.testing.assert_allclose(test.data_fraction * 13_000 / batch_size, looks, rtol=1e-3)


@pytest.mark.parametrize(
    ("mu_std", "first_fraction", "epsilon", "boundary"),
    [(1.0, 0.05, 0.1, 1.0), (3.0, 0.02, 0.2, 0.75), (0.3, 0.1, 0.3, 0.5)],
)
def test_simulated_walks_agree(mu_std, first_fraction, epsilon, boundary):
    """400,000 random walks; 5 standard errors, 6e-7 false alarms each."""
    num_walks, generator = 400_000, np.random.default_rng(1)
    share = first_fraction * np.arange(1, round(1 / first_fraction))
    clock = share / (1 - share)
    at, going, wrong, read = np.zeros(num_walks), np.ones(num_walks, bool), 0, np.ones(num_walks)
    for look, step in enumerate(np.diff(clock, prepend=0.0)):
        at += mu_std * step + np.sqrt(step) * generator.normal(size=num_walks)
        edge = ndtri(1 - epsilon) * share[look] ** (0.5 - boundary) * np.sqrt(clock[look])
        stops = going & (np.abs(at) > edge)
        wrong += np.sum(stops & (at < 0))
        read[stops] = share[look]
        going &= ~stops
    test = tm.design.sequential_test(mu_std, first_fraction, epsilon, boundary)
    assert abs(wrong / num_walks - test.error) < 5 * np.sqrt(test.error / num_walks)
    assert abs(read.mean() - test.data_fraction) < 5 * read.std() / np.sqrt(num_walks)


def test_the_dynamic_programme_is_quick():
    """Under 50 ms a call; each of these is new to it."""
    tm.design.sequential_test(0.5, 0.05, 0.05)
    seconds = []
    for epsilon in (0.0123, 0.0234, 0.0345):
        started = time.perf_counter()
        tm.design.sequential_test(0.5, 0.005, epsilon)
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 0.05


def test_the_ends_of_the_range():
    assert tm.design.sequential_test(1.0, 0.05, 0.0).error == 0
    assert tm.design.sequential_test(1.0, 0.05, 0.0).data_fraction == 1
    assert tm.design.sequential_test(1.0, 1.0, 0.1).error == 0
    first_look_decides = tm.design.sequential_test(1.0, 0.05, 0.5)
    np.testing.assert_allclose(first_look_decides.error, stats.norm.cdf(-np.sqrt(0.05 / 0.95)), rtol=1e-6)
    np.testing.assert_allclose(first_look_decides.data_fraction, 0.05)


@pytest.mark.parametrize("boundary", [0.5, 1.0])
def test_clear_cases_are_decided_at_the_first_look_that_can(boundary):
    test = tm.design.sequential_test([300.0, 3000.0, 30_000.0], 0.002, 0.001, boundary)
    np.testing.assert_allclose(test.error, 0, atol=1e-12)
    assert np.all((test.data_fraction >= 0.002 - 1e-12) & (test.data_fraction < 0.02))
    np.testing.assert_allclose(test.data_fraction[-1], 0.002)


def test_error_of_the_acceptance_probability_is_the_reference_one():
    """10,000 rows, windows of 500, log ratio -1, spread 2: +0.0541."""
    found = tm.design.acceptance_error(-1.0, 2.0, first_fraction=0.05, epsilon=0.05)
    assert abs(found.error - 0.0541) < 5e-5


@pytest.mark.parametrize(("log_ratio", "spread"), [(0.5, 0.3), (-3.0, 20.0), (0.0, 0.01), (-2.0, 200.0)])
def test_quadrature_is_the_mean_over_uniform_numbers(log_ratio, spread):
    """Midpoints of a million slices of the unit interval."""
    minus_log = -np.log((np.arange(1_000_000) + 0.5) / 1_000_000)
    mu_std = (log_ratio + minus_log) / spread
    grid = np.sinh(np.linspace(0, np.arcsinh(np.abs(mu_std).max()), 400))
    test = tm.design.sequential_test(grid, 0.05, 0.1)
    wrong = np.interp(np.abs(mu_std), grid, test.error)
    found = tm.design.acceptance_error(log_ratio, spread, 0.05, 0.1)
    np.testing.assert_allclose(found.wrong_decisions, wrong.mean(), atol=2e-4)
    np.testing.assert_allclose(found.error, np.mean(np.where(mu_std < 0, wrong, -wrong)), atol=2e-4)
    np.testing.assert_allclose(
        found.data_fraction, np.interp(np.abs(mu_std), grid, test.data_fraction).mean(), atol=2e-4
    )


def test_the_bound_on_the_stationary_distribution():
    assert tm.design.stationary_error(0.01, 0.9) == pytest.approx(0.1)
    assert tm.design.stationary_error(0.5, 0.99) == 1


@pytest.mark.parametrize("max_error", [0.01, 0.1])
def test_the_worst_case_design_is_within_the_error_and_no_other_is_cheaper(max_error):
    candidates = tm.design.worst_case_candidates(max_error, 20_000)
    rule = tm.design.worst_case(max_error, 20_000)
    assert rule.promise.largest_error(20_000) <= max_error
    assert all(candidate.error <= max_error for candidate in candidates)
    chosen = tm.design.sequential_test(0.0, rule.batch_size / 20_000, rule.epsilon, rule.boundary)
    assert chosen.data_fraction <= 1.002 * min(candidate.data_fraction for candidate in candidates)
    # The constraint is used: a little more epsilon would break it.
    assert tm.design.sequential_test(0.0, rule.batch_size / 20_000, 1.1 * rule.epsilon, rule.boundary).error > max_error


def test_the_average_design_reads_less_and_keeps_its_error():
    rows = np.asarray(real(np.random.default_rng(0).normal(size=20_000)))
    posterior = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, rows, temperature=20.0)
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.05), tm.AustereMH(0.05, 500))
    trial = tm.sample(posterior, kernel, init=0.0, num_samples=100, num_warmup=200, num_chains=1)
    rule, cautious = tm.design.average(0.01, posterior, trial), tm.design.worst_case(0.01, 20_000)
    moments = tm.design.trial_moments(posterior, trial)

    def on_moves(rule):
        return tm.design.acceptance_error(
            moments.log_ratio, moments.spread, rule.batch_size / 20_000, rule.epsilon, rule.boundary
        )

    assert np.mean(np.abs(on_moves(rule).error)) <= 0.01
    assert np.mean(on_moves(rule).data_fraction) < 0.8 * np.mean(on_moves(cautious).data_fraction)


def test_moments_of_moves_are_those_of_all_rows():
    rows = np.asarray(real(np.random.default_rng(0).exponential(size=20_001)))
    posterior = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, rows, lambda mean: -mean, temperature=7.0)
    start, end = real([0.0, 1.0]), real([0.3, 0.9])
    found = tm.design.trial_moments(posterior, (start, end))
    one_by_one = tm.design.trial_moments(posterior, [(start[0], end[0]), (start[1], end[1])])
    np.testing.assert_array_equal(found.log_ratio, one_by_one.log_ratio)
    for move in range(2):
        log_ratios = 0.5 / 7 * ((rows - float(start[move])) ** 2.0 - (rows - float(end[move])) ** 2.0)
        np.testing.assert_allclose(found.log_ratio[move], log_ratios.sum() + float(start[move] - end[move]), rtol=1e-3)
        np.testing.assert_allclose(found.spread[move], log_ratios.std() * np.sqrt(len(rows)), rtol=1e-4)
        np.testing.assert_allclose(found.skewness[move], stats.skew(log_ratios), rtol=1e-3)
        np.testing.assert_allclose(found.kurtosis[move], stats.kurtosis(log_ratios), rtol=1e-3)


@pytest.mark.parametrize("degrees", [19, 99, 499, 10_000])
@pytest.mark.parametrize("epsilon", [0.2, 0.05, 0.01, 0.001, 1e-4])
def test_the_expansion_of_students_quantile(degrees, epsilon):
    quantile = student_quantile(real(normal_quantile(epsilon)), real(1 / degrees))
    np.testing.assert_allclose(quantile, stats.t.isf(epsilon, degrees), rtol=3e-5)
