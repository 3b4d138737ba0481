"""Tested steps along the gradient: the share of wrong directions, and that they lead to the optimum."""

import warnings

import numpy as np
import pytest
from benchmarks.angles import Recorder, full_update, share_of_wrong_directions

import tallmc as tm
from tests.controls import OwnDirection
from tests.regressions import problem, scipy_optimum

NUM_COLUMNS = 20


def near_the_optimum(test, num_tests, num_rows=20_000, spread=0.5, epsilon=0.05):
    X, y, _ = tm.models.generate_logistic(num_rows, NUM_COLUMNS)
    kind = tm.optimise.GradientStep()
    ours = tm.optimise.Logistic(X, y)
    return share_of_wrong_directions(ours, test, num_tests, spread, kind=kind, epsilon=epsilon)


def test_steps_keep_the_promise():
    """150 tested steps at epsilon 0.05: more than 15 wrong ones would have a chance below 0.004 if it were kept."""
    wrong, _ = near_the_optimum(tm.optimise.SplitHalves, 150)
    assert wrong * 150 <= 15


def test_a_test_along_its_own_direction_does_not():
    """Negative control: noise is long in 20 dimensions."""
    wrong, accepted = near_the_optimum(OwnDirection, 60)
    assert wrong > 0.2
    assert accepted == 1


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.5, 2.0, 10.0])
@pytest.mark.parametrize("name", ["logistic", "poisson", "probit"])
def test_from_any_distance(name, spread):
    kind = tm.optimise.GradientStep()
    wrong, _ = share_of_wrong_directions(problem(name), tm.optimise.SplitHalves, 1000, spread, kind=kind)
    assert wrong < 0.05


def wrong_in_whole_runs(test, num_runs):
    """Share of wrong directions and number of tested steps, from start to end of runs on columns of unlike scale."""
    X, y, _ = tm.models.generate_logistic(20_000, 10)
    X *= np.geomspace(0.3, 3, 10, dtype=np.float32)
    ours, kind, recorder = tm.optimise.Logistic(X, y), tm.optimise.GradientStep(), Recorder.of(test)
    options = {"init": np.full(10, 0.3), "epsilon": 0.05, "max_iterations": 40}
    for seed in range(num_runs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            tm.optimise.irls(ours, test=recorder, update=kind, seed=seed, **options)
    wrong = sum(step @ full_update(ours, position, kind) < 0 for position, step in recorder.seen)
    return wrong / len(recorder.seen), len(recorder.seen)


def test_in_whole_runs_rows_that_are_used_again_do_no_harm():
    """The position depends on rows that the next test uses again. Were the share of wrong ones
    epsilon, fewer than half as many would have a chance of 1e-3."""
    wrong, count = wrong_in_whole_runs(tm.optimise.SplitHalves, 120)
    assert count >= 550
    assert wrong < 0.025


def test_in_whole_runs_one_s_own_direction_is_often_wrong():
    """Negative control: it breaks the bar above."""
    assert wrong_in_whole_runs(OwnDirection, 40)[0] > 0.025


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["logistic", "probit", "poisson"])
def test_they_lead_to_the_optimum(name, dtype):
    found = tm.optimise.irls(problem(name, dtype), update=tm.optimise.GradientStep())
    assert found.converged
    np.testing.assert_allclose(found.position, scipy_optimum(problem(name)), rtol=1e-4, atol=1e-5)


def test_rows_grow_only_when_the_test_asks_and_the_last_passes_are_exact():
    X, y, _ = tm.models.generate_logistic(100_000, 5)
    found = tm.optimise.logistic(X * np.array([3, 1, 1, 1, 0.5], np.float32), y, update=tm.optimise.GradientStep())
    tested = found.rows_per_iteration[found.rows_per_iteration < 100_000]
    assert found.converged
    assert np.all(np.diff(tested) >= 0)
    assert np.sum(np.diff(tested) == 0) >= 3  # several steps from the same rows
    assert len(set(tested.tolist())) >= 2


def test_a_step_that_is_too_long_is_taken_back():
    X, y, _ = tm.models.generate_logistic(20_000, 4)
    found = tm.optimise.logistic(X, y, update=tm.optimise.GradientStep(step_size=500.0))
    assert found.converged


def test_the_mode_of_a_posterior():
    X, y, _ = tm.models.generate_logistic(20_000, 4)
    posterior = tm.models.logistic_regression(X, y)
    one, other = tm.optimise.mode(posterior, update=tm.optimise.GradientStep()), tm.optimise.mode(posterior)
    np.testing.assert_allclose(one.position, other.position, atol=2e-4)


X3, Y3 = np.ones((50, 1)), np.arange(50) % 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tm.optimise.GradientStep(step_size=0.0), "step_size must be a positive number"),
        (lambda: tm.optimise.GradientStep(growth=0.5), "growth must be a factor of at least 1"),
        (
            lambda: tm.optimise.logistic(X3, Y3, update=tm.optimise.GradientStep(), test=tm.optimise.Printed),
            "tests Newton's updates only",
        ),
    ],
)
def test_bad_input_names_the_fix(call, message):
    with pytest.raises(ValueError, match=message):
        call()
