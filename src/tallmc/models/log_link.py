"""Counts whose mean is the exponential of the linear predictor: the usual Poisson regression."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Real

from tallmc.models.softplus_link import minus_log_factorial
from tallmc.posterior.linear_predictor import Link, Outcomes


class LogLink(Link):
    """Counts with mean `exp(z)`: a row has log likelihood `y z - exp(z)`.

    This is the canonical link, that of statsmodels and of R's `glm`. Its derivatives grow without end, so there are no
    bounds on what a row can say that hold everywhere. `MHSS` and `TunaMH` use such as hold near the mode, which are
    worked out for them (`tm.bounds_of`); `MHSubLhd` cannot be used with it.

    Example:
        >>> import jax.numpy as jnp
        >>> float(LogLink()(jnp.asarray(0.0), jnp.asarray(2.0)))
        -1.0
    """

    concave: ClassVar = True
    proven: ClassVar = True

    def __call__(self, z: Real[Array, "*rows"], y: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
        """Log likelihood of the count `y` at linear predictor `z`, without the constant `log(y!)`."""
        return y * z - jnp.exp(z)

    def mean(self, z: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
        """Expected counts."""
        return jnp.exp(z)

    def draw(self, key: Array, z: Real[Array, ""]) -> Real[Array, ""]:
        """A count."""
        return jax.random.poisson(key, self.mean(z)).astype(z.dtype)

    def left_out(self, y: Outcomes) -> Outcomes:
        """`-log(y!)`."""
        return minus_log_factorial(y)

    def largest_derivative(self, order: int, y: Outcomes) -> None:
        """None for every order: an exponential has no largest derivative."""
        del order, y
        return None
