"""The optimiser where there is no optimum, or more than one: plain words, never NaN."""

import numpy as np
import pytest

import tallmc as tm
from tests.regressions import NUM_ROWS, PROBLEMS, features, scipy_optimum, targets


class TestDegenerate:
    """No finite or no single optimum: a message, never NaN."""

    X = features(3_000, 3)

    def test_separable_rows(self):
        y = (self.X[:, 1] > 0).astype(float)
        with pytest.warns(RuntimeWarning, match=r"no finite optimum.*prior_precision"):
            found = tm.optimise.logistic(self.X, y)
        assert not found.converged
        assert np.all(np.isfinite(found.position))
        assert tm.optimise.logistic(self.X, y, prior_precision=1.0).converged

    @pytest.mark.parametrize("name", ["logistic", "probit", "poisson", "softplus_poisson"])
    def test_a_column_that_only_one_outcome_has(self, name):
        X = np.column_stack([self.X, np.arange(3_000) % 10 == 0])
        y = np.where(X[:, 3] > 0, 0, targets(name, self.X))
        with pytest.warns(RuntimeWarning, match=r"no finite optimum.*3"):
            found = tm.optimise.irls(PROBLEMS[name](X, y))
        assert np.all(np.isfinite(found.position))
        assert tm.optimise.irls(PROBLEMS[name](X, y, prior_precision=1.0)).converged

    def test_few_rows_that_are_separable_when_all_are_not(self):
        X, y, _ = tm.models.generate_logistic(50_000, 8)
        # Some fifty rows decide: the rest is almost certain.
        y = np.where(np.random.default_rng(0).random(50_000) < 1e-3, 1 - (X[:, 1] > 0), X[:, 1] > 0).astype(np.float32)
        found = tm.optimise.logistic(X, y)
        assert found.converged
        np.testing.assert_allclose(found.position, scipy_optimum(tm.optimise.Logistic(X.astype(float), y)), atol=2e-3)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize(
        "extra",
        [lambda X: X[:, 1] - 2 * X[:, 2], lambda X: np.zeros(len(X)), lambda X: np.full(len(X), 3.0)],
        ids=["collinear", "zero", "second constant"],
    )
    def test_columns_that_cannot_be_told_apart(self, extra, dtype):
        X = np.column_stack([self.X, extra(self.X)]).astype(dtype)
        y = targets("logistic", self.X)
        with pytest.raises(ValueError, match=r"coordinates \[.*3\] cannot be told apart"):
            tm.optimise.logistic(X, y)
        assert tm.optimise.logistic(X, y, prior_precision=1.0).converged

    def test_a_constant_column_alone_is_an_intercept(self):
        X, y = features(3_000, 3), targets("logistic", features(3_000, 3))
        X[:, 0] = 7
        assert tm.optimise.logistic(X, y).converged

    def test_a_column_that_is_zero_in_almost_every_row(self):
        X = np.column_stack([features(), np.arange(NUM_ROWS) % 1000 == 0])
        found = tm.optimise.logistic(X, targets("logistic", X[:, :-1]))
        assert found.converged

    def test_residuals_that_are_all_zero(self):
        y = self.X @ np.array([1.0, 2.0, -1.0])
        found = tm.optimise.least_absolute_deviation(self.X, y)
        np.testing.assert_allclose(found.position, [1, 2, -1], atol=1e-6)
        assert found.converged

    def test_many_residuals_of_zero(self):
        y = np.round(np.random.default_rng(0).exponential(2, 30_001))
        ours = tm.optimise.LeastAbsoluteDeviation(np.ones((30_001, 1)), y)
        assert abs(tm.optimise.irls(ours).position[0] - np.median(y)) < ours.floor

    def test_a_constant_target(self):
        found = tm.optimise.least_absolute_deviation(self.X, np.full(3_000, 4.0))
        np.testing.assert_allclose(found.position, [4, 0, 0], atol=1e-6)

    def test_a_start_far_away_is_reached_by_halved_steps(self):
        X = features()
        y = targets("poisson", X)
        found = tm.optimise.poisson(X, y, init=np.array([-12.0, 0, 0, 0, 0, 0]))
        assert found.converged
        np.testing.assert_allclose(found.position, tm.optimise.poisson(X, y).position, rtol=1e-3, atol=1e-4)
