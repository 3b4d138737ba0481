"""Interval Taylor jets: the first coefficients of a number along every straight line through a region.

Let a number depend on the position. Its jet bounds the coefficients 0 to 3 of t -> number(position + t direction), for
every position in a region and every direction of some set: all of unit length, or a few that are nearly the same, and
then coefficients keep their signs and can cancel.
"""

from collections.abc import Callable, Iterable
from functools import partial, reduce
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from tallmc.bounds.interval import (
    Interval,
    cubed,
    either,
    exactly,
    negative,
    outward,
    plus,
    scaled,
    square,
    times,
    where_known,
    within,
)


class Jet(NamedTuple):
    """Bounds on the coefficients along lines; each has the shape of the number.

    Args:
        value: Coefficient 0, the number itself.
        slope: Coefficient 1, the first derivative.
        bend: Coefficient 2, half of the second derivative.
        twist: Coefficient 3, a sixth of the third derivative.
    """

    value: Interval
    slope: Interval
    bend: Interval
    twist: Interval

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
        third: Of the third.
    """

    value: Interval
    first: Interval
    second: Interval
    third: Interval


def constant(value: Array) -> Jet:
    """A number that does not depend on the position."""
    zero = exactly(jnp.zeros_like(value))
    return Jet(exactly(value), zero, zero, zero)


def add(a: Jet, b: Jet) -> Jet:
    """The sum."""
    return Jet(*(plus(x, y) for x, y in zip(a, b, strict=True)))


def negate(a: Jet) -> Jet:
    """With its sign changed."""
    return Jet(*map(negative, a))


def scale(a: Jet, factor: Array) -> Jet:
    """The product with a number that is known."""
    return Jet(*(scaled(x, factor) for x in a))


def multiply(a: Jet, b: Jet) -> Jet:
    """The product, by the convolution of the coefficients."""
    return Jet(*(_total(times(a[k], b[order - k]) for k in range(order + 1)) for order in range(4)))


def squared(a: Jet) -> Jet:
    """The product with itself: tighter than that of two numbers of which nothing more is known."""
    two = jnp.asarray(2.0)
    return Jet(
        square(a.value),
        scaled(times(a.value, a.slope), two),
        plus(scaled(times(a.value, a.bend), two), square(a.slope)),
        scaled(plus(times(a.value, a.twist), times(a.slope, a.bend)), two),
    )


def compose(ranges: Callable[[Interval], Ranges], a: Jet) -> Jet:
    """A function of one number, by the chain rule.

    Args:
        ranges: Of the function and its derivatives on an interval.
        a: What it is applied to.
    """
    # An end that is not known leaves nothing known, also of derivatives that are the same everywhere.
    known = ~jnp.isnan(a.value.low + a.value.high)
    f = Ranges(*(where_known(part, known) for part in ranges(a.value)))
    bend = plus(times(f.first, a.bend), scaled(times(f.second, square(a.slope)), jnp.asarray(0.5)))
    cube = scaled(times(f.third, cubed(a.slope)), jnp.asarray(1 / 6))
    twist = plus(plus(times(f.first, a.twist), times(f.second, times(a.slope, a.bend))), cube)
    return Jet(f.value, times(f.first, a.slope), bend, twist)


def choose(condition: Array, a: Jet, b: Jet) -> Jet:
    """The first where a condition holds, else the second."""
    return Jet(*(Interval(*map(partial(jnp.where, condition), x, y)) for x, y in zip(a, b, strict=True)))


def tighter(a: Jet, b: Jet) -> Jet:
    """What two jets of the same number say together; where one knows nothing the other stands."""
    return Jet(*(within(x, y) for x, y in zip(a, b, strict=True)))


def across_a_kink(a: Jet, b: Jet, value: Interval) -> Jet:
    """One or the other of two numbers, where they are equal: continuous, with a slope, and nothing beyond that."""
    unknown = exactly(jnp.full_like(value.low, jnp.nan))
    return Jet(value, either(a.slope, b.slope), unknown, unknown)


def unknown_but(value: Interval) -> Jet:
    """A number of which nothing is known but where it lies."""
    unknown = exactly(jnp.full_like(value.low, jnp.nan))
    return Jet(value, unknown, unknown, unknown)


def mapped(function: Callable[[Array], Array], a: Jet) -> Jet:
    """A function that only moves numbers about, applied to all coefficients."""
    return Jet(*(Interval(function(x.low), function(x.high)) for x in a))


def added_up(function: Callable[[Array], Array], a: Jet) -> Jet:
    """A function that adds numbers up, of each coefficient; rounding is that of the sum of their sizes."""
    return Jet(*(outward(function(x.low), function(x.high), function(x.size)) for x in a))


def _total(parts: Iterable[Interval]) -> Interval:
    return reduce(plus, parts)
