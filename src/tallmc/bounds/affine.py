"""Numbers that are affine in the position: a matrix and an offset, so that their ranges are those of the ellipsoid."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tallmc.bounds.interval import Interval, around_zero, exactly, outward, up
from tallmc.bounds.jet import Jet

# By how much an offset, or the length of a row of the matrix, may be off, relative to the sizes of what was added up:
# at most 4,096 coordinates, each rounded by 1.1e-16, in every one of a few sums after each other.
_NOISE = 1e-11


class Affine(NamedTuple):
    """`offset + matrix @ z` for all |z| <= radius, where z are the coordinates in which the region is a ball.

    Args:
        offset: At the centre.
        matrix: With the coordinates along its last axis.
        terms: At least the sum of the sizes of what offset and, times the radius, a row were added up from.
        radius: Of the region.
        direction: Where directions lie, coordinate by coordinate; None: all of unit length.
    """

    offset: Float[Array, "..."]
    matrix: Float[Array, "... d"]
    terms: Float[Array, "..."]
    radius: Float[Array, ""]
    direction: Interval | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the number."""
        return self.offset.shape

    @property
    def length(self) -> Array:
        """At least the largest change for a step of unit length."""
        return up(jnp.sqrt(jnp.sum(self.matrix * self.matrix, axis=-1))) + _NOISE * self.terms / self.radius

    @property
    def value(self) -> Interval:
        """Where it lies in the region."""
        reach = up(self.length * self.radius) + _NOISE * self.terms
        return Interval(self.offset - reach, self.offset + reach)

    @property
    def slope(self) -> Interval:
        """Its change along directions of unit length."""
        if self.direction is None:
            return around_zero(self.length)
        ends = self.matrix * self.direction.low, self.matrix * self.direction.high
        low, high = (jnp.sum(end, axis=-1) for end in (jnp.minimum(*ends), jnp.maximum(*ends)))
        noise = up(_NOISE * self.terms / self.radius)
        found = outward(low, high, jnp.sum(jnp.maximum(jnp.abs(ends[0]), jnp.abs(ends[1])), axis=-1))
        return Interval(found.low - noise, found.high + noise)

    @property
    def jet(self) -> Jet:
        """Along a line it has no bend."""
        zero = exactly(jnp.zeros_like(self.offset))
        return Jet(self.value, self.slope, zero, zero)


def whole_position(centre: Array, stretch: Array, radius: Array) -> Affine:
    """The position itself: `centre + stretch @ z`."""
    lengths = jnp.sqrt(jnp.sum(stretch * stretch, axis=1))
    return Affine(centre, stretch, jnp.abs(centre) + radius * lengths, radius)


def add(a: Affine, b: Affine) -> Affine:
    """The sum."""
    return a._replace(offset=a.offset + b.offset, matrix=a.matrix + b.matrix, terms=a.terms + b.terms)


def shift(a: Affine, by: Array) -> Affine:
    """The sum with a number that is known."""
    return a._replace(offset=a.offset + by, terms=a.terms + jnp.abs(by))


def scale(a: Affine, factor: Array) -> Affine:
    """The product with a number that is known."""
    offset, matrix, terms = a.offset * factor, a.matrix * factor[..., None], a.terms * jnp.abs(factor)
    return a._replace(offset=offset, matrix=matrix, terms=terms)


def negate(a: Affine) -> Affine:
    """With its sign changed."""
    return a._replace(offset=-a.offset, matrix=-a.matrix)


def mapped(function: Callable[[Array], Array], a: Affine) -> Affine:
    """A function that moves numbers about or adds them up."""
    along = jax.vmap(function, in_axes=-1, out_axes=-1)
    return a._replace(offset=function(a.offset), matrix=along(a.matrix), terms=function(a.terms))


def contracted(a: Affine, with_offset: Callable[[Array], Array], with_sizes: Callable[[Array], Array]) -> Affine:
    """A product of matrices with one that is known.

    Args:
        a: The factor that is not.
        with_offset: Multiplies by what is known.
        with_sizes: Multiplies by the sizes of what is known.
    """
    along = jax.vmap(with_offset, in_axes=-1, out_axes=-1)
    return a._replace(offset=with_offset(a.offset), matrix=along(a.matrix), terms=with_sizes(a.terms))


def choose(condition: Array, a: Affine, b: Affine) -> Affine:
    """The first where a condition holds, else the second."""

    def pick(x: Array, y: Array) -> Array:
        return jnp.where(condition, x, y)

    matrix = jnp.where(condition[..., None], a.matrix, b.matrix)
    return a._replace(offset=pick(a.offset, b.offset), matrix=matrix, terms=pick(a.terms, b.terms))


def without_position(value: Array, like: Affine) -> Affine:
    """A number that is known, as an affine one."""
    matrix = jnp.zeros((*value.shape, like.matrix.shape[-1]), value.dtype)
    return Affine(value, matrix, jnp.abs(value), like.radius, like.direction)
