"""Poisson regression: a count for each row, whose mean is a smooth ramp of its linear predictor."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Real

from tallmc.models.columns import Numbers, refuse_nan
from tallmc.models.regression import regression, regression_columns
from tallmc.posterior import Posterior
from tallmc.posterior.linear_predictor import Link

_NUM_TERMS = 10  # of a series in powers of at most 0.025: enough for float64


class PoissonLink(Link):
    """`y log(mean) - mean`, where `mean = log(1 + exp(z))`."""

    concave: ClassVar = True

    def __call__(self, z: Real[Array, "*rows"], y: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
        """Log likelihood, less `log(y!)`."""
        return y * log_softplus(z) - jax.nn.softplus(z)

    def largest_derivative(self, order: int, y: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
        """Both terms at their largest.

        The logarithm of the mean has derivatives within 1, 0.16710 and 0.060913 (at minus infinity, 0.49498 and
        -1.0206); the mean has those of logistic regression. First derivatives have opposite signs. The others are
        largest at different `z`, so that their sum is up to 2 % above the true bound.
        """
        if order == 1:
            return jnp.maximum(y, 1)
        mean, log_mean = ((0.25, 0.168), (math.sqrt(3) / 18, 0.061))[order - 2]
        return mean + log_mean * y


def log_softplus(z: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
    """`log(log(1 + exp(z)))`, in a form that can be differentiated three times without loss.

    Below -1 it is `z` plus the logarithm of `log(1 + u) / u`, `u = exp(z)`, from the series of `2 atanh(u / (2 + u))`.
    It goes to `z`, where the plain logarithm goes to that of zero.

    Example:
        >>> import jax.numpy as jnp
        >>> float(log_softplus(jnp.asarray(-200.0)))
        -200.0
    """
    below = z < -1
    u = jnp.exp(jnp.where(below, z, -jnp.ones_like(z)))
    square = (u / (2 + u)) ** 2
    series = jnp.zeros_like(z)
    for k in range(_NUM_TERMS, 0, -1):
        series = (series + 1 / (2 * k + 1)) * square
    plain = jnp.log(jax.nn.softplus(jnp.where(below, jnp.zeros_like(z), z)))
    return jnp.where(below, z - jnp.log1p(u / 2) + jnp.log1p(series), plain)


def poisson_regression(
    X: Numbers, y: Numbers, prior_precision: Numbers = 1.0, temperature: float | Array = 1.0
) -> Posterior:
    """Bayesian regression of counts; a position is one coefficient for each column of `X`.

    Row i counts `y_i` events where `log(1 + exp(z_i))` are expected, with `z_i` the inner product of its columns and
    the coefficients: an exponential for rare events, a straight line for frequent ones. Under such a mean, unlike an
    exponential one, a row can say only so much about a step, so rules that need bounds have them. The log likelihood is
    less `log(y_i!)`, and computed in the coefficients' precision, so float32 rows do for float64 chains.

    Args:
        X: One line a row. Add a column of ones for an intercept.
        y: A count for each row.
        prior_precision: Of the centred normal prior: one number, or one for each coefficient; 0 is flat.
        temperature: Divides the log likelihood.

    Returns:
        The posterior of the coefficients.

    Example:
        >>> X = [[1.0, 0.2], [1.0, -1.3], [1.0, 0.7]]
        >>> poisson_regression(X, [2, 0, 3]).num_rows
        3
    """
    columns = regression_columns(X, y)
    _check_counts(columns["y"])
    return regression(PoissonLink(), columns, prior_precision, temperature)


def _check_counts(y: Array | np.ndarray) -> None:
    if not bool(((y >= 0) & (y < np.inf) & (y == y.round())).all()):
        refuse_nan("y must hold only whole numbers of at least 0", y)
        raise ValueError("y must hold only whole numbers of at least 0; pass counts, not rates or logarithms of counts")
