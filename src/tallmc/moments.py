"""Running mean, variance and skewness of a stream of windows, without sums of squares."""

import equinox as eqx
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Int, Real

_LANES = 8


def ordered_sum(values: Real[Array, "*k n"]) -> Real[Array, "*k"]:
    """Sum over the last axis in a fixed order: eight running sums, then halves added to halves.

    A compiler may reorder a plain reduction, differently for one chain than for many. This order is part of the
    program, so that a chain alone is, bit for bit, the chain it is among others; and it rounds less.
    """
    padding = -values.shape[-1] % _LANES
    values = jnp.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, padding)])
    lanes = jnp.sum(values.reshape(*values.shape[:-1], -1, _LANES), axis=-2)
    lanes = lanes[..., :4] + lanes[..., 4:]
    lanes = lanes[..., :2] + lanes[..., 2:]
    return lanes[..., 0] + lanes[..., 1]


class Moments(eqx.Module):
    """Mean, and sums of squared and cubed deviations from it (Welford; merged as in Chan et al.).

    Kept in one array, for a compiled loop pays for every array it carries.

    Args:
        packed: Count, mean, sum of squares, sum of cubes.
    """

    packed: Real[Array, "4"]

    @classmethod
    def empty(cls, dtype: DTypeLike) -> "Moments":
        """The moments of nothing."""
        return cls(jnp.zeros(4, dtype))

    @classmethod
    def of(cls, values: Real[Array, " n"], valid: Bool[Array, " n"], count: Int[Array, ""]) -> "Moments":
        """The moments of the `count` valid ones among `values`."""
        # Deviations from any one value cancel as little as deviations from the mean, and need no second pass.
        pivot = values[0]
        deviations = jnp.where(valid, values - pivot, 0)
        squares = deviations * deviations
        sums = ordered_sum(jnp.stack([deviations, squares, squares * deviations]))
        number = count.astype(values.dtype)
        shift = sums[0] / jnp.maximum(number, 1)
        spread = sums[1] - shift * sums[0]
        cubes = sums[2] - 3 * shift * sums[1] + 2 * shift * shift * sums[0]
        return cls(jnp.stack([number, pivot + shift, spread, cubes]))

    count = property(lambda self: self.packed[0], doc="How many.")
    mean = property(lambda self: self.packed[1], doc="Their mean.")
    squares = property(lambda self: self.packed[2], doc="Sum of squared deviations from the mean.")
    cubes = property(lambda self: self.packed[3], doc="Sum of cubed deviations from the mean.")

    def only_if(self, condition: Bool[Array, ""]) -> "Moments":
        """These moments, or those of nothing."""
        return Moments(jnp.where(condition, self.packed, 0))

    def merge(self, other: "Moments") -> "Moments":
        """The moments of both together."""
        count = self.count + other.count
        share = other.count / jnp.maximum(count, 1)
        gap = other.mean - self.mean
        spread = gap * gap * self.count * share
        cross = 3 * gap * ((1 - share) * other.squares - share * self.squares)
        cubes = self.cubes + other.cubes + spread * gap * (1 - 2 * share) + cross
        squares = self.squares + other.squares + spread
        return Moments(jnp.stack([count, self.mean + gap * share, squares, cubes]))

    @property
    def variance(self) -> Real[Array, ""]:
        """Unbiased sample variance."""
        return self.squares / jnp.maximum(self.count - 1, 1)

    @property
    def skewness(self) -> Real[Array, ""]:
        """Third central moment in units of the standard deviation; zero if nothing varies."""
        spread = jnp.maximum(self.squares, jnp.finfo(self.packed.dtype).tiny)
        return self.cubes * jnp.sqrt(self.count / spread) / spread
