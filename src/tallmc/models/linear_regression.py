"""Linear regression: a number for each row, its linear predictor plus normal noise of a known size."""

import math
from typing import ClassVar

import jax
from jaxtyping import Array, Real

from tallmc.frames import Table
from tallmc.models.columns import Numbers, positive_number
from tallmc.models.regression import regression, regressors
from tallmc.posterior import Posterior, Temperature
from tallmc.posterior.linear_predictor import Link, Outcomes, alike, number


class NormalLink(Link):
    """`-(y - z)^2 / (2 noise_sd^2)`.

    Args:
        noise_sd: Standard deviation of the noise. Changing it recompiles nothing.
    """

    concave: ClassVar = True
    proven: ClassVar = True
    noise_sd: Real[Array, ""]

    def __call__(self, z: Real[Array, "*rows"], y: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
        """Log likelihood, up to a constant."""
        return -(((y - z) / self.noise_sd.astype(z.dtype)) ** 2) / 2

    def mean(self, z: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
        """The linear predictor itself."""
        return z

    def draw(self, key: Array, z: Real[Array, ""]) -> Real[Array, ""]:
        """With normal noise."""
        return z + self.noise_sd.astype(z.dtype) * jax.random.normal(key, (), z.dtype)

    def left_out(self, y: Outcomes) -> float:
        """The same for every row: the normal density's constant."""
        del y
        return -math.log(float(self.noise_sd)) - math.log(2 * math.pi) / 2

    def largest_derivative(self, order: int, y: Outcomes) -> Outcomes | None:
        """A parabola: no bound on the slope, one curvature, and nothing after it."""
        if order == 1:
            return None
        return alike(y, 0 if order == 3 else number(self.noise_sd) ** -2)


def linear_regression(
    X: Table,
    y: Table = None,
    noise_sd: Numbers = 1.0,
    prior_precision: Numbers = 1.0,
    temperature: Temperature = 1.0,
    *,
    intercept: bool = False,
    standardise: bool = False,
) -> Posterior:
    """Bayesian linear regression with noise of known size; a position is one coefficient for each column of `X`.

    Row i has log likelihood `-(y_i - z_i)^2 / (2 noise_sd^2)`, with `z_i` the inner product of its columns and the
    coefficients. It is computed in the coefficients' precision, so float32 rows do for float64 chains. The posterior is
    normal and known in closed form, which makes it a touchstone for samplers; `tm.Taylor()` leaves nothing of its rows.

    Args:
        X: One line a row: an array, or a data frame, whose columns of labels become an indicator a level. Or a formula,
            such as "late ~ distance + C(carrier)", and `y` is then the frame. Or a dataset with `x` and `y`, alone; see
            `tm.ingest`.
        y: One number a row, or the name of the frame's column that has them.
        noise_sd: Standard deviation of the noise, in units of `y`.
        prior_precision: Of the centred normal prior: one number, or one for each coefficient; 0 is flat.
        temperature: Divides the log likelihood.
        intercept: Whether to put a column of ones first. Formulas have it unless they say `0 +`.
        standardise: Whether to bring columns to mean 0 and standard deviation 1. The prior is then about those columns;
            draws are reported for the columns as they came.

    Returns:
        The posterior of the coefficients.

    Example:
        >>> X = [[1.0, 0.2], [1.0, -1.3], [1.0, 0.7]]
        >>> linear_regression(X, [0.9, -0.4, 1.6], noise_sd=0.5).num_rows
        3
    """
    link = NormalLink(positive_number("noise_sd", noise_sd))
    rows = regressors(X, y, intercept=intercept, standardise=standardise)
    return regression(link, rows, prior_precision, temperature)
