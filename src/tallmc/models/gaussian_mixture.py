"""A mixture of two normal distributions that share a parameter: small, and hard for a sampler to cross."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Real

from tallmc.models.columns import NormalPrior, Numbers, float_column
from tallmc.numerics.flat import as_device_array
from tallmc.posterior import Posterior, Temperature
from tallmc.posterior.bounds import Bounds

_TRUE_POSITION = (0.0, 1.0)
_COMPONENT_VARIANCE = 2.0
_BOUND_POINTS = 256


class _LogLikelihood(eqx.Module):
    variance: Real[Array, ""]

    def __call__(self, position: Real[Array, " 2"], row: Real[Array, ""]) -> Real[Array, ""]:
        x, variance = row.astype(position.dtype), self.variance.astype(position.dtype)
        first, second = position[0], position[0] + position[1]
        return jnp.logaddexp(-((x - first) ** 2) / (2 * variance), -((x - second) ** 2) / (2 * variance))


class _Bounds(Bounds):
    """The log ratio of two positions is a smooth function of x: its largest value on a grid, and its slope between."""

    variance: Real[Array, ""]
    grid: Real[Array, " points"]

    def largest_change(self, position: Real[Array, " 2"], proposed: Real[Array, " 2"]) -> Real[Array, ""]:
        """Of any x between the smallest and the largest row."""
        likelihood = jax.vmap(_LogLikelihood(self.variance), in_axes=(None, 0))
        change = jnp.abs(likelihood(proposed, self.grid) - likelihood(position, self.grid))
        # Squares of x cancel. What is left has, at each position, a slope between the two means over the variance.
        means = jnp.stack([position[0], position[0] + position[1], proposed[0], proposed[0] + proposed[1]])
        slope = jnp.max(jnp.abs(means[:2, None] - means[None, 2:])) / self.variance.astype(means.dtype)
        spacing = (self.grid[1] - self.grid[0]).astype(means.dtype)
        return jnp.max(change) + slope * spacing / 2


def gaussian_mixture(
    x: Numbers,
    temperature: Temperature = 1.0,
    component_variance: Numbers = _COMPONENT_VARIANCE,
    prior_variance: Numbers = (10.0, 1.0),
) -> Posterior:
    """The two-component mixture of Welling & Teh (2011) and Seita et al. (2018, section 6.1).

    A position is `(t1, t2)`; rows are drawn half from N(t1, v) and half from N(t1 + t2, v), v being the component
    variance. Data made at (0, 1) has a second mode near (1, -1). Constant terms are left out.

    Args:
        x: One number a row.
        temperature: Divides the log likelihood.
        component_variance: Variance of either component.
        prior_variance: Variances of the centred normal priors on `t1` and `t2`.

    Returns:
        The posterior of `(t1, t2)`.

    Example:
        >>> gaussian_mixture(generate_mixture(1000), temperature=10.0).num_rows
        1000
    """
    variances = np.asarray(prior_variance, float)
    if variances.shape != (2,):
        raise ValueError(f"prior_variance must be two numbers, for t1 and t2, got {prior_variance}")
    for name, values in (("component_variance", component_variance), ("prior_variance", variances)):
        if not (np.all(np.isfinite(values)) and np.all(np.asarray(values) > 0)):
            raise ValueError(f"{name} must be positive, got {values}")
    likelihood = _LogLikelihood(as_device_array(component_variance, jnp.result_type(float)))
    prior = NormalPrior(as_device_array(1 / variances, jnp.result_type(float)))
    column = float_column("x", x, 1)
    lowest, highest = (float(column.min()), float(column.max())) if column.size else (0.0, 0.0)
    bounds = _Bounds(likelihood.variance, jnp.linspace(lowest, highest, _BOUND_POINTS, dtype=jnp.result_type(float)))
    return Posterior(likelihood, column, prior, temperature, bounds)


def generate_mixture(num_rows: int, seed: int = 0) -> np.ndarray:
    """Draws rows of the mixture at (0, 1), for demonstrations and benchmarks.

    Args:
        num_rows: Rows.
        seed: Of the random numbers.

    Returns:
        One float32 number a row.

    Example:
        >>> generate_mixture(5).shape
        (5,)
    """
    if num_rows < 1:
        raise ValueError(f"num_rows must be at least 1, got {num_rows}")
    generator = np.random.default_rng(seed)
    first, difference = _TRUE_POSITION
    means = first + difference * generator.integers(0, 2, num_rows)
    return generator.normal(means, np.sqrt(_COMPONENT_VARIANCE)).astype(np.float32)
