"""The optimiser on public data and on a million rows, against scikit-learn and statsmodels."""

import numpy as np
import pytest
import statsmodels.api as sm
from benchmarks import datasets
from sklearn.linear_model import LogisticRegression

import tallmc as tm


def needs(name):
    return pytest.mark.skipif(not datasets.available(name), reason=f"{datasets.FOLDER / name} is not there")


def distance(one, other):
    return np.linalg.norm(one - other) / np.linalg.norm(other)


@pytest.mark.slow
def test_a_million_rows_in_less_than_five_passes():
    X, y, _ = tm.models.generate_logistic(1_000_000, 50)
    found = tm.optimise.logistic(X, y, prior_precision=1.0)
    peer = LogisticRegression(fit_intercept=False, solver="newton-cholesky", tol=1e-12)
    wanted = peer.fit(X.astype(np.float64), y.astype(np.float64)).coef_[0]
    assert found.converged
    assert distance(found.position, wanted) < 1e-4
    assert found.passes < 5
    assert np.all(np.diff(found.rows_per_iteration) >= 0)
    assert found.rows_per_iteration[0] <= 1000


@pytest.mark.slow
def test_the_mode_of_a_million_rows_is_near_enough_for_control_variates():
    X, y, _ = tm.models.generate_logistic(1_000_000, 20)
    found = tm.optimise.mode(tm.models.logistic_regression(X, y))
    wanted = tm.optimise.logistic(X.astype(np.float64), y.astype(np.float64), prior_precision=1.0, tolerance=1e-6)
    assert found.converged
    assert found.passes < 5
    gap = np.asarray(found.position, np.float64) - wanted.position
    assert np.sqrt(gap @ wanted.hessian @ gap) < 3e-3


@pytest.mark.slow
@needs("mnist.npz")
def test_digits_three_against_the_rest():
    X, y, *_ = datasets.threes()
    found = tm.optimise.logistic(X, y)
    peer = LogisticRegression(C=np.inf, fit_intercept=False, solver="newton-cholesky", tol=1e-12)
    wanted = peer.fit(X.astype(np.float64), y.astype(np.float64)).coef_[0]
    assert found.converged
    assert distance(found.position, wanted) < 1e-4
    assert found.rows_per_iteration[0] < 2_000


@pytest.mark.slow
@needs("nycflights13.npz")
def test_flights_by_median_regression():
    X, y = datasets.flights()
    found = tm.optimise.least_absolute_deviation(X, y)
    wanted = sm.QuantReg(y, X).fit(q=0.5, max_iter=5000, p_tol=1e-8)
    assert found.converged
    assert distance(found.position, wanted.params) < 1e-4
    losses = [np.abs(y - X @ position).sum() for position in (found.position, wanted.params)]
    assert losses[0] <= losses[1] * (1 + 1e-7)
