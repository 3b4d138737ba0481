"""Interval Taylor jets: the first coefficients of a number along every straight line through a region.

Let a number depend on the position. Its jet bounds the coefficients 0 to 3 of t -> number(position + t direction), for
every position in a region and every direction of at most unit length. With a direction its opposite is meant too, and
the coefficients 1 and 3 then change their sign: of these a bound on the size says everything.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from tallmc.bounds.interval import Interval, exactly, negative, outward, plus, scaled, square, times, up, where_known, within


class Jet(NamedTuple):
    """Bounds on the coefficients along lines; each has the shape of the number.

    Args:
        value: Coefficient 0, the number itself.
        slope: At least the size of coefficient 1.
        bend: Coefficient 2, half of the second derivative.
        twist: At least the size of coefficient 3, a sixth of the third derivative.
    """

    value: Interval
    slope: Float[Array, "..."]
    bend: Interval
    twist: Float[Array, "..."]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the number."""
        return self.value.low.shape


class Ranges(NamedTuple):
    """Where a function of one number and its derivatives lie, on an interval of that number.

    Args:
        value: Of the function.
        first: Of its derivative.
        second: Of the second derivative.
        third: At least the size of the third.
    """

    value: Interval
    first: Interval
    second: Interval
    third: Array


def constant(value: Array) -> Jet:
    """A number that does not depend on the position."""
    zero = jnp.zeros_like(value)
    return Jet(exactly(value), zero, exactly(zero), zero)


def add(a: Jet, b: Jet) -> Jet:
    """The sum."""
    return Jet(plus(a.value, b.value), up(a.slope + b.slope), plus(a.bend, b.bend), up(a.twist + b.twist))


def negate(a: Jet) -> Jet:
    """With its sign changed."""
    return Jet(negative(a.value), a.slope, negative(a.bend), a.twist)


def scale(a: Jet, factor: Array) -> Jet:
    """The product with a number that is known."""
    size = jnp.abs(factor)
    return Jet(scaled(a.value, factor), up(a.slope * size), scaled(a.bend, factor), up(a.twist * size))


def multiply(a: Jet, b: Jet) -> Jet:
    """The product, by the convolution of the coefficients."""
    across = up(a.slope * b.slope)
    bend = plus(plus(times(a.value, b.bend), times(b.value, a.bend)), Interval(-across, across))
    slope = a.value.size * b.slope + b.value.size * a.slope
    twist = (
        a.value.size * b.twist + b.value.size * a.twist + a.slope * b.bend.size + b.slope * a.bend.size
    )
    return Jet(times(a.value, b.value), up(slope), bend, up(twist))


def squared(a: Jet) -> Jet:
    """The product with itself: tighter than that of two numbers of which nothing more is known."""
    bend = plus(scaled(times(a.value, a.bend), jnp.asarray(2.0)), _from_zero(up(a.slope * a.slope)))
    twist = 2 * (a.value.size * a.twist + a.slope * a.bend.size)
    return Jet(square(a.value), up(2 * a.value.size * a.slope), bend, up(twist))


def compose(ranges: Callable[[Interval], Ranges], a: Jet) -> Jet:
    """A function of one number, by the chain rule.

    Args:
        ranges: Of the function and its derivatives on an interval.
        a: What it is applied to.
    """
    # An end that is not known leaves nothing known, also of derivatives that are the same everywhere.
    known = ~jnp.isnan(a.value.low + a.value.high)
    found = ranges(a.value)
    f = Ranges(*(where_known(part, known) for part in found[:3]), jnp.where(known, found.third, jnp.nan))
    curved = scaled(times(f.second, _from_zero(up(a.slope * a.slope))), jnp.asarray(0.5))
    bend = plus(times(f.first, a.bend), curved)
    twist = f.first.size * a.twist + f.second.size * a.slope * a.bend.size + f.third * a.slope**3 / 6
    return Jet(f.value, up(f.first.size * a.slope), bend, up(twist))


def choose(condition: Array, a: Jet, b: Jet) -> Jet:
    """The first where a condition holds, else the second."""

    def pick(x: Array, y: Array) -> Array:
        return jnp.where(condition, x, y)

    return Jet(
        Interval(pick(a.value.low, b.value.low), pick(a.value.high, b.value.high)),
        pick(a.slope, b.slope),
        Interval(pick(a.bend.low, b.bend.low), pick(a.bend.high, b.bend.high)),
        pick(a.twist, b.twist),
    )


def tighter(a: Jet, b: Jet) -> Jet:
    """What two jets of the same number say together; where one knows nothing the other stands."""
    return Jet(
        within(a.value, b.value), jnp.fmin(a.slope, b.slope), within(a.bend, b.bend), jnp.fmin(a.twist, b.twist)
    )


def across_a_kink(a: Jet, b: Jet, value: Interval) -> Jet:
    """One or the other of two numbers, where they are equal: continuous, with a slope, and nothing beyond that."""
    unknown = jnp.full_like(a.slope, jnp.nan)
    return Jet(value, jnp.maximum(a.slope, b.slope), Interval(unknown, unknown), unknown)


def mapped(function: Callable[[Array], Array], a: Jet) -> Jet:
    """A function that only moves numbers about, or adds up some without rounding, applied to all coefficients."""
    return Jet(
        Interval(function(a.value.low), function(a.value.high)),
        function(a.slope),
        Interval(function(a.bend.low), function(a.bend.high)),
        function(a.twist),
    )


def added_up(function: Callable[[Array], Array], a: Jet) -> Jet:
    """A function that adds numbers up, of each coefficient; rounding is that of the sum of their sizes."""

    def interval(x: Interval) -> Interval:
        return outward(function(x.low), function(x.high), function(x.size))

    return Jet(interval(a.value), up(function(a.slope)), interval(a.bend), up(function(a.twist)))


def _from_zero(size: Array) -> Interval:
    return Interval(jnp.zeros_like(size), size)
