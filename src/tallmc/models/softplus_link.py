"""Counts whose mean is a smooth ramp of the linear predictor: near 0 an exponential, far above it a straight line."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Real

from tallmc.posterior.linear_predictor import Link, Outcomes

_NUM_TERMS = 10  # of a series in powers of at most 0.025: enough for float64


class SoftplusLink(Link):
    """Counts with mean `log(1 + exp(z))`: a row has log likelihood `y log(mean) - mean`.

    Every derivative of a row is bounded, so rules that need bounds have them. For `z` well below 0 the mean is nearly
    `exp(z)`, as under `LogLink`; for `z` well above 0 it is nearly `z` itself.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(SoftplusLink()(jnp.asarray(0.0), jnp.asarray(2.0))), 3)
        -1.426
    """

    concave: ClassVar = True
    proven: ClassVar = True

    def __call__(self, z: Real[Array, "*rows"], y: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
        """Log likelihood of the count `y` at linear predictor `z`, without the constant `log(y!)`."""
        return y * log_softplus(z) - jax.nn.softplus(z)

    def mean(self, z: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
        """Expected counts."""
        return jax.nn.softplus(z)

    def draw(self, key: Array, z: Real[Array, ""]) -> Real[Array, ""]:
        """A count."""
        return jax.random.poisson(key, self.mean(z)).astype(z.dtype)

    def left_out(self, y: Outcomes) -> Outcomes:
        """`-log(y!)`."""
        return minus_log_factorial(y)

    def largest_derivative(self, order: int, y: Outcomes) -> Outcomes:
        """Both terms at their largest.

        The logarithm of the mean has derivatives within 1, 0.16710 and 0.060913 (at minus infinity, 0.49498 and
        -1.0206); the mean has those of logistic regression. First derivatives have opposite signs. The others are
        largest at different `z`, so that their sum is up to 2 % above the true bound.
        """
        if order == 1:
            return np.maximum(y, 1)
        mean, log_mean = ((0.25, 0.168), (math.sqrt(3) / 18, 0.061))[order - 2]
        return mean + log_mean * y


def minus_log_factorial(y: Outcomes) -> Outcomes:
    """Of counts, on the host.

    Example:
        >>> minus_log_factorial(np.asarray([0.0, 3.0])).round(3).tolist()
        [0.0, -1.792]
    """
    from scipy.special import gammaln

    return -gammaln(np.asarray(y, float) + 1) + 0.0


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
