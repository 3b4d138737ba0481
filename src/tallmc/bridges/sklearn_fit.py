"""What all estimators share: from columns and outcomes to draws of coefficients."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Real
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from tallmc.models.columns import NormalPrior
from tallmc.models.regression import regression
from tallmc.posterior import Posterior
from tallmc.posterior.linear_predictor import Link
from tallmc.run import Run
from tallmc.setup import sample

# Rows up to which data are filled up to a power of two, columns as well, so that all folds of a cross-validation share
# their programs: a program takes some ten seconds to compile, and a fit of so few rows a twentieth of a second.
_FEW_ROWS = 4096
_FEWEST_ROWS, _FEWEST_COLUMNS = 32, 4
_DRAWS_TO_PREDICT = 1000  # Monte Carlo error of 3 % of a posterior standard deviation; all draws would take longer
_NUMBERS_AT_ONCE = 2**24  # rows times draws


class BayesianRegression(BaseEstimator):
    """A regression fitted by draws of its coefficients. Subclasses say which link, and what is predicted.

    Their settings are kept as they come and looked at in `fit`, as scikit-learn has it.
    """

    def __getstate__(self) -> dict[str, Any]:
        """Without the run, whose programs belong to this process: what predicts is kept."""
        state: Any = BaseEstimator.__getstate__(self)
        return {name: value for name, value in state.items() if name != "run_"}

    def _draw(self, link: Link, X: np.ndarray, y: np.ndarray) -> None:
        """Samples, and keeps the draws: `coef_draws_` (draws, columns) and `intercept_draws_`."""
        given: Any = self
        _check_settings(given)
        intercept = np.ones((len(X), 1 if given.fit_intercept else 0), X.dtype)
        precision = np.concatenate(
            [
                _precisions("prior_precision", given.prior_precision, X.shape[1]),
                _precisions("intercept_precision", given.intercept_precision, intercept.shape[1]),
            ]
        )
        posterior, size = _posterior(link, np.hstack([X, intercept]), y, precision), X.shape[1]
        self.run_ = sample(
            posterior,
            given.kernel,
            num_samples=given.num_samples,
            num_warmup=given.num_warmup,
            num_chains=given.num_chains,
            rng_key=int(check_random_state(given.random_state).randint(2**31 - 1)),
            progress=given.progress,
        )
        draws = _draws_of(self.run_)
        self.coef_draws_ = draws[:, :size]
        self.intercept_draws_ = draws[:, size] if given.fit_intercept else np.zeros(len(draws))
        self.doubts_ = self.run_.doubts

    def _predictors(self, X: np.ndarray) -> "list[tuple[slice, np.ndarray]]":
        """Linear predictors by row and draw, so many rows at a time."""
        step = max(1, len(self.coef_draws_) // _DRAWS_TO_PREDICT)
        coefficients, intercepts = self.coef_draws_[::step], self.intercept_draws_[::step]
        block = max(1, _NUMBERS_AT_ONCE // len(intercepts))
        parts = [slice(start, start + block) for start in range(0, len(X), block)]
        return [(part, X[part] @ coefficients.T + intercepts) for part in parts]

    def _moments(self, X: np.ndarray, function: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance over draws of a function of the linear predictor, for each row."""
        mean, variance = np.empty(len(X)), np.empty(len(X))
        for part, z in self._predictors(X):
            values = function(z)
            mean[part], variance[part] = values.mean(1), values.var(1)
        return mean, variance


class _Weighted(eqx.Module):
    """A link of rows some of which are not there: they have weight zero.

    Args:
        link: Of a linear predictor.
    """

    link: Link

    def __call__(self, coefficients: Real[Array, " columns"], row: PyTree) -> Real[Array, ""]:
        """Log likelihood of one row."""
        x, y, weight = (row[name].astype(coefficients.dtype) for name in ("x", "y", "weight"))
        return weight * self.link(x @ coefficients, y)


def _posterior(link: Link, X: np.ndarray, y: np.ndarray, precision: np.ndarray) -> Posterior:
    """Of one coefficient for each column, and perhaps of more that are filled up."""
    finest = jnp.result_type(float)
    X, y, precision = X.astype(finest), y.astype(finest), precision.astype(finest)
    rows, columns = X.shape
    if rows > _FEW_ROWS:
        return regression(link, {"x": X, "y": y}, precision, 1.0)
    more_rows = _filled(rows, _FEWEST_ROWS) - rows
    more_columns = _filled(columns, _FEWEST_COLUMNS) - columns
    data = {
        "x": np.pad(X, ((0, more_rows), (0, more_columns))),
        "y": np.pad(y, (0, more_rows)),
        "weight": np.pad(np.ones_like(y), (0, more_rows)),
    }
    # Coefficients of columns that are not there are drawn from a prior of their own, and left out.
    prior = NormalPrior(jnp.asarray(np.pad(precision, (0, more_columns), constant_values=1)))
    return Posterior(_Weighted(link), data, prior, start=np.zeros(columns + more_columns, finest))


def _filled(count: int, fewest: int) -> int:
    return max(fewest, 1 << (count - 1).bit_length())


def _draws_of(run: Run) -> np.ndarray:
    draws = np.asarray(run.samples, float)
    return draws.reshape(-1, draws.shape[-1])


def _precisions(name: str, value: Any, count: int) -> np.ndarray:
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        array = np.asarray(np.nan)
    if array.shape not in ((), (count,)) or not (np.isfinite(array).all() and (array >= 0).all()):
        raise ValueError(f"{name} must be one number of at least 0, or one for each of {count} columns, got {value!r}")
    return np.broadcast_to(array, (count,)).astype(float)


def _check_settings(estimator: Any) -> None:
    if not isinstance(estimator.fit_intercept, bool | np.bool_):
        raise ValueError(f"fit_intercept must be True or False, got {estimator.fit_intercept!r}")
