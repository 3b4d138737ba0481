"""Robust regression: a number for each row, its linear predictor plus noise with heavy tails."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Real

from tallmc.frames import Table
from tallmc.models.columns import Numbers, positive_number
from tallmc.models.regression import regression, regressors
from tallmc.posterior import Posterior, Temperature
from tallmc.posterior.linear_predictor import Link, Outcomes, alike, number


class StudentLink(Link):
    """`-(n + 1) / 2 log(1 + u^2)`, where `u = (y - z) / (scale sqrt(n))` and n is the degrees of freedom.

    Args:
        scale: Of the noise. Changing it recompiles nothing.
        degrees_of_freedom: Of the noise. Changing them recompiles nothing.
    """

    proven: ClassVar = True
    scale: Real[Array, ""]
    degrees_of_freedom: Real[Array, ""]

    def __call__(self, z: Real[Array, "*rows"], y: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
        """Log likelihood, up to a constant."""
        scale, degrees = self.scale.astype(z.dtype), self.degrees_of_freedom.astype(z.dtype)
        return -(degrees + 1) / 2 * jnp.log1p(((y - z) / scale) ** 2 / degrees)

    def mean(self, z: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
        """The linear predictor itself; with one degree of freedom or fewer it is the median, for there is no mean."""
        return z

    def draw(self, key: Array, z: Real[Array, ""]) -> Real[Array, ""]:
        """With noise of Student's t distribution."""
        return z + self.scale.astype(z.dtype) * jax.random.t(key, self.degrees_of_freedom.astype(z.dtype), (), z.dtype)

    def left_out(self, y: Outcomes) -> float:
        """The same for every row: the constant of Student's density."""
        del y
        degrees, scale = float(self.degrees_of_freedom), float(self.scale)
        gammas = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
        return gammas - math.log(degrees * math.pi) / 2 - math.log(scale)

    def largest_derivative(self, order: int, y: Outcomes) -> Outcomes:
        """In u and without the factor n + 1, derivatives are largest at u = 1, 0 and sqrt(2) - 1."""
        largest = (1 / 2, 1.0, (3 + 2 * math.sqrt(2)) / 4)[order - 1]
        degrees = number(self.degrees_of_freedom)
        unit = number(self.scale) * degrees**0.5
        return alike(y, (degrees + 1) * largest / unit**order)


def robust_regression(
    X: Table,
    y: Table = None,
    scale: Numbers = 1.0,
    degrees_of_freedom: Numbers = 4.0,
    prior_precision: Numbers = 1.0,
    temperature: Temperature = 1.0,
    *,
    intercept: bool = False,
    standardise: bool = False,
) -> Posterior:
    """Bayesian regression that outliers cannot pull far; a position is one coefficient for each column of `X`.

    The noise has Student's t distribution: row i has log likelihood `-(n + 1) / 2 log(1 + (y_i - z_i)^2 / (n scale^2))`
    with `z_i` the inner product of its columns and the coefficients, n being the degrees of freedom. It is computed in
    the coefficients' precision, so float32 rows do for float64 chains. A posterior of few rows can have several modes.

    Args:
        X: One line a row: an array, or a data frame, whose columns of labels become an indicator a level. Or a formula,
            such as "late ~ distance + C(carrier)", and `y` is then the frame. Or a dataset with `x` and `y`, alone; see
            `tm.ingest`.
        y: One number a row, or the name of the frame's column that has them.
        scale: Of the noise, in units of `y`; that of most rows, as outliers hardly count.
        degrees_of_freedom: Of the noise: the fewer, the heavier its tails. 1 is Cauchy's distribution.
        prior_precision: Of the centred normal prior: one number, or one for each coefficient; 0 is flat.
        temperature: Divides the log likelihood.
        intercept: Whether to put a column of ones first. Formulas have it unless they say `0 +`.
        standardise: Whether to bring columns to mean 0 and standard deviation 1. The prior is then about those columns;
            draws are reported for the columns as they came.

    Returns:
        The posterior of the coefficients.

    Example:
        >>> X = [[1.0, 0.2], [1.0, -1.3], [1.0, 0.7]]
        >>> robust_regression(X, [0.9, -0.4, 16.0], scale=0.5).num_rows
        3
    """
    link = StudentLink(positive_number("scale", scale), positive_number("degrees_of_freedom", degrees_of_freedom))
    rows = regressors(X, y, intercept=intercept, standardise=standardise)
    return regression(link, rows, prior_precision, temperature)
