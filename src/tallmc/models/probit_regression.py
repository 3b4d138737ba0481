"""Probit regression: a yes or no for each row, by whether a normal number falls below its linear predictor."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Real

from tallmc.frames import Table
from tallmc.models.columns import Numbers, check_binary
from tallmc.models.regression import regression, regressors
from tallmc.posterior import Posterior, Temperature
from tallmc.posterior.linear_predictor import Link, Outcomes


class ProbitLink(Link):
    """Outcomes 0 and 1: log likelihood `log Phi((2 y - 1) z)`, Phi being the standard normal distribution function."""

    concave: ClassVar = True
    proven: ClassVar = True
    binary: ClassVar = True

    def __call__(self, z: Real[Array, "*rows"], y: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
        """Log likelihood; it and its first three derivatives keep their digits in both tails."""
        return log_normal_cdf((2 * y - 1) * z)

    def mean(self, z: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
        """The chance of a one."""
        return jax.scipy.special.ndtr(z)

    def draw(self, key: Array, z: Real[Array, ""]) -> Real[Array, ""]:
        """0 or 1."""
        return jax.random.bernoulli(key, self.mean(z)).astype(z.dtype)

    def largest_derivative(self, order: int, y: Outcomes) -> float | None:
        """The slope grows with the distance of a surprise. The second derivative tends to -1 there; the third is
        largest at 1.0024, where it is 0.29572."""
        del y
        return (None, 1.0, 0.3)[order - 1]


def log_normal_cdf(z: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
    """`log Phi(z)`, in a form that can be differentiated three times without loss.

    Far below zero it is a parabola plus the logarithm of Mills' ratio `1 / (t + 1 / (t + 2 / (t + ...)))` at `t = -z`.
    All terms of that fraction are positive, and the parabola's derivatives are exact, so nothing cancels. (JAX's
    `log_ndtr` is good for values: in float32 its third derivative at -40 is 3 instead of 0.00003.)

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(log_normal_cdf(jnp.asarray(-30.0))), 2)
        -454.32
    """
    start, num_terms = (-4.0, 20) if jnp.finfo(z.dtype).bits > 32 else (-2.5, 8)
    far = z < start
    t = jnp.where(far, -z, -start)
    fraction = (jnp.sqrt(t * t + (4 * num_terms + 2)) - t) / 2  # about what the terms left out come to
    for k in range(num_terms, 0, -1):
        fraction = k / (t + fraction)
    tail = -t * t / 2 - jnp.log(t + fraction) - math.log(2 * math.pi) / 2
    near = jnp.where(far, jnp.zeros_like(z), z)
    # Not abs(near), which has no slope at zero, where many chains start.
    beyond = jax.scipy.special.erfc(jnp.where(near < 0, -near, near) * math.sqrt(0.5)) / 2
    return jnp.where(far, tail, jnp.where(near < 0, jnp.log(beyond), jnp.log1p(-beyond)))


def probit_regression(
    X: Table,
    y: Table = None,
    prior_precision: Numbers = 1.0,
    temperature: Temperature = 1.0,
    *,
    intercept: bool = False,
    standardise: bool = False,
) -> Posterior:
    """Bayesian probit regression; a position is one coefficient for each column of `X`.

    Row i has log likelihood `log Phi(z_i)` if `y_i` is 1 and `log Phi(-z_i)` if it is 0, with `z_i` the inner product
    of its columns and the coefficients. It is computed in the coefficients' precision, so float32 rows do for float64
    chains. The log likelihood of a row has no bounded slope, so rules that need bounds need `tm.Taylor` as well.

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
        >>> X = [[1.0, 0.2], [1.0, -1.3], [1.0, 0.7]]
        >>> probit_regression(X, [1, 0, 1]).num_rows
        3
    """
    rows = regressors(X, y, intercept=intercept, standardise=standardise)
    check_binary(rows.columns["y"], rows.outcome)
    return regression(ProbitLink(), rows, prior_precision, temperature)
