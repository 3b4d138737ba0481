"""Running mean, variance and skewness of a stream of windows, without sums of squares."""

import equinox as eqx
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Int, Real

from tallmc.numerics.arithmetic import ordered_sum, rounded


class Moments(eqx.Module):
    """Mean, and sums of squared and cubed deviations from it (Welford; merged as in Chan et al.).

    Kept in one array, for a compiled loop pays for every array it carries.

    Args:
        packed: Count, mean, sum of squares, sum of cubes.
    """

    packed: Real[Array, "4"]

    @classmethod
    def empty(cls, dtype: DTypeLike) -> "Moments":
        """The moments before any number was seen: all zero. Merging them with others changes nothing."""
        return cls(jnp.zeros(4, dtype))

    @classmethod
    def of(cls, values: Real[Array, " n"], valid: Bool[Array, " n"], count: Int[Array, ""]) -> "Moments":
        """The moments of the `count` valid ones among `values`."""
        if not values.size:
            return cls.empty(values.dtype)
        # Deviations from any one value cancel as little as deviations from the mean, and need no second pass.
        pivot = values[0]
        deviations = jnp.where(valid, values - pivot, 0)
        squares = rounded(deviations * deviations)
        total, total_squares = ordered_sum(deviations), ordered_sum(squares)
        total_cubes = ordered_sum(rounded(squares * deviations))
        number = count.astype(values.dtype)
        shift = rounded(total / jnp.maximum(number, 1))
        spread = jnp.maximum(total_squares - rounded(shift * total), 0)  # rounding must not make a variance negative
        cubes = total_cubes - rounded(3 * shift * total_squares) + rounded(2 * shift * shift * total)
        return cls(jnp.stack([number, pivot + shift, spread, cubes]))

    count = property(lambda self: self.packed[0], doc="How many numbers were seen, as a float.")
    mean = property(lambda self: self.packed[1], doc="Mean of the numbers; 0 if there are none.")
    squares = property(lambda self: self.packed[2], doc="Sum of squared deviations from the mean.")
    cubes = property(lambda self: self.packed[3], doc="Sum of cubed deviations from the mean.")

    def only_if(self, condition: Bool[Array, ""]) -> "Moments":
        """These moments if the condition holds, else those of no numbers at all."""
        return Moments(jnp.where(condition, self.packed, 0))

    def merge(self, other: "Moments") -> "Moments":
        """The moments of the numbers of both, as if they had been seen in one go."""
        count = self.count + other.count
        share = other.count / jnp.maximum(count, 1)
        gap = other.mean - self.mean
        spread = rounded(gap * gap * self.count * share)
        cross = rounded((1 - share) * other.squares) - rounded(share * self.squares)
        cubes = self.cubes + other.cubes + rounded(spread * gap * (1 - 2 * share)) + rounded(3 * gap * cross)
        squares = self.squares + other.squares + spread
        return Moments(jnp.stack([count, self.mean + rounded(gap * share), squares, cubes]))

    @property
    def variance(self) -> Real[Array, ""]:
        """Unbiased sample variance, with `count - 1` in the denominator; 0 if there are fewer than two numbers."""
        return self.squares / jnp.maximum(self.count - 1, 1)

    @property
    def skewness(self) -> Real[Array, ""]:
        """Third central moment in units of the standard deviation; zero if nothing varies."""
        varies = self.squares > jnp.finfo(self.packed.dtype).tiny
        spread = jnp.where(varies, self.squares, 1)
        return jnp.where(varies, self.cubes / spread * (jnp.sqrt(self.count) / jnp.sqrt(spread)), 0)
