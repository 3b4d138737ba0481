"""Logistic regression: a yes or no for each row, more or less likely by its columns."""

import math
from typing import ClassVar

import jax
import numpy as np
from jaxtyping import Array, Real

from tallmc.frames import Table
from tallmc.models.columns import Numbers, check_binary
from tallmc.models.regression import regression, regressors
from tallmc.posterior import Posterior, Temperature
from tallmc.posterior.linear_predictor import Link, Outcomes


class LogisticLink(Link):
    """Outcomes 0 and 1: a row has log likelihood `y z - log(1 + exp(z))` at linear predictor `z`."""

    concave: ClassVar = True
    proven: ClassVar = True
    binary: ClassVar = True

    def __call__(self, z: Real[Array, "*rows"], y: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
        """Log likelihood, in the form that loses no digits where it is near zero."""
        return -jax.nn.softplus((1 - 2 * y) * z)

    def mean(self, z: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
        """The chance of a one."""
        return jax.nn.sigmoid(z)

    def draw(self, key: Array, z: Real[Array, ""]) -> Real[Array, ""]:
        """0 or 1."""
        return jax.random.bernoulli(key, self.mean(z)).astype(z.dtype)

    def largest_derivative(self, order: int, y: Outcomes) -> float:
        """The chance of a one lies between 0 and 1, its derivatives within 1/4 and sqrt(3) / 18."""
        del y
        return (1.0, 0.25, math.sqrt(3) / 18)[order - 1]


def logistic_regression(
    X: Table,
    y: Table = None,
    prior_precision: Numbers = 1.0,
    temperature: Temperature = 1.0,
    *,
    intercept: bool = False,
    standardise: bool = False,
) -> Posterior:
    """Bayesian logistic regression; a position is one coefficient for each column of `X`.

    Row i has log likelihood `y_i z_i - log(1 + exp(z_i))` with `z_i` the inner product of its columns and the
    coefficients. It is computed in the coefficients' precision, so float32 rows do for float64 chains.

    Args:
        X: One line a row: an array, or a data frame, whose columns of labels become an indicator a level. Or a formula,
            such as "late ~ distance + C(carrier)", and `y` is then the frame. Or a dataset with `x` and `y`, alone; see
            `tm.ingest`.
        y: 0 or 1 for each row, or the name of the frame's column that has them.
        prior_precision: Of the centred normal prior: one number, or one for each coefficient; 0 is flat.
        temperature: Divides the log likelihood.
        intercept: Whether to put a column of ones first. Formulas have it unless they say `0 +`.
        standardise: Whether to bring columns to mean 0 and standard deviation 1. The prior is then about those columns;
            draws are reported for the columns as they came.

    Returns:
        The posterior of the coefficients.

    Example:
        >>> X, y, coefficients = generate_logistic(num_rows=1000, num_columns=3)
        >>> logistic_regression(X, y).num_rows
        1000
    """
    rows = regressors(X, y, intercept=intercept, standardise=standardise)
    check_binary(rows.columns["y"], rows.outcome)
    return regression(LogisticLink(), rows, prior_precision, temperature)


def generate_logistic(num_rows: int, num_columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws rows of a logistic regression, for demonstrations and benchmarks.

    Args:
        num_rows: Rows.
        num_columns: Columns: an intercept of ones, then standard normal ones.
        seed: Of the random numbers.

    Returns:
        `X` in float32, `y`, and the coefficients behind them.

    Example:
        >>> X, y, coefficients = generate_logistic(num_rows=5, num_columns=3)
        >>> X.shape, y.shape, coefficients.shape
        ((5, 3), (5,), (3,))
    """
    if num_rows < 1 or num_columns < 1:
        raise ValueError(f"num_rows and num_columns must be at least 1, got {num_rows} and {num_columns}")
    generator = np.random.default_rng(seed)
    coefficients = (generator.normal(size=num_columns) / np.sqrt(num_columns)).astype(np.float32)
    X = generator.standard_normal((num_rows, num_columns), np.float32)
    X[:, 0] = 1
    chance = 1 / (1 + np.exp(-X @ coefficients))
    y = (generator.random(num_rows, np.float32) < chance).astype(np.float32)
    return X, y, coefficients
