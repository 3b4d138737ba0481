"""Interval arithmetic in float64 that rounds outward: what comes out holds whatever went in could have been.

Intervals are elementwise. An end that is not a number stands for "nothing is known", and stays one through all that
follows: NumPy's minimum and maximum hand it on, and no rule here chooses between a number and such an end.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

# By how much an end is moved outward, relative to what it was worked out from. An operation rounds by 1.1e-16, the sum
# of 4,096 terms by 9e-13 of the sum of their sizes, and XLA's functions in float64 by some units in the last place.
ROUNDING = 2e-12
# The same for what underflows: XLA flushes what is smaller than 2.2e-308 to zero.
_UNDERFLOW = 1e-290


class Interval(NamedTuple):
    """All numbers from `low` to `high`, both included."""

    low: Float[Array, "..."]
    high: Float[Array, "..."]

    @property
    def size(self) -> Float[Array, "..."]:
        """The largest absolute value in it."""
        return jnp.maximum(jnp.abs(self.low), jnp.abs(self.high))


def outward(low: Array, high: Array, terms: Array | None = None) -> Interval:
    """Both ends moved by what rounding can have done to them.

    Args:
        low: As it was worked out.
        high: The same.
        terms: Sizes of what was added up, where that may be more than what came out.
    """
    size = jnp.maximum(jnp.abs(low), jnp.abs(high)) if terms is None else terms
    slack = ROUNDING * size + _UNDERFLOW
    return Interval(low - slack, high + slack)


def up(size: Array) -> Array:
    """A size that is not too small whatever rounding did."""
    return size * (1 + ROUNDING) + _UNDERFLOW


def exactly(value: Array) -> Interval:
    """A number that is known."""
    return Interval(value, value)


def plus(a: Interval, b: Interval) -> Interval:
    """The sum."""
    return outward(a.low + b.low, a.high + b.high)


def negative(a: Interval) -> Interval:
    """The same with its sign changed."""
    return Interval(-a.high, -a.low)


def times(a: Interval, b: Interval) -> Interval:
    """The product."""
    products = (a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high)
    low = jnp.minimum(jnp.minimum(products[0], products[1]), jnp.minimum(products[2], products[3]))
    high = jnp.maximum(jnp.maximum(products[0], products[1]), jnp.maximum(products[2], products[3]))
    return outward(low, high)


def scaled(a: Interval, factor: Array) -> Interval:
    """The product with a number."""
    one, other = a.low * factor, a.high * factor
    return outward(jnp.minimum(one, other), jnp.maximum(one, other))


def square(a: Interval) -> Interval:
    """Of one number, which is no product of two: it is never negative."""
    one, other = a.low * a.low, a.high * a.high
    # Where a number that is not known stands in the way it must come out, not the zero.
    holds_zero = (a.low <= 0) & (a.high >= 0)
    least = jnp.where(holds_zero, jnp.zeros_like(one), jnp.minimum(one, other))
    found = outward(least, jnp.maximum(one, other))
    return Interval(jnp.maximum(found.low, 0.0), found.high)


def cubed(a: Interval) -> Interval:
    """The third power, which grows."""
    return outward(a.low * a.low * a.low, a.high * a.high * a.high)


def either(a: Interval, b: Interval) -> Interval:
    """All that lies in one or the other, or between."""
    return Interval(jnp.minimum(a.low, b.low), jnp.maximum(a.high, b.high))


def around_zero(size: Array) -> Interval:
    """All numbers of at most this size."""
    return Interval(-size, size)


def within(a: Interval, b: Interval) -> Interval:
    """What two intervals of the same number have in common; one that is not known gives way to the other."""
    return Interval(jnp.fmax(a.low, b.low), jnp.fmin(a.high, b.high))


def where_known(a: Interval, condition: Array) -> Interval:
    """The interval where a condition holds, and "nothing is known" elsewhere."""
    return Interval(jnp.where(condition, a.low, jnp.nan), jnp.where(condition, a.high, jnp.nan))
