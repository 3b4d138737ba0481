"""Bounds on what a Taylor expansion can leave of a row's log ratio."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree, Real

from tallmc.numerics.arithmetic import matvec
from tallmc.numerics.flat import as_device_array
from tallmc.posterior import Near, RowBounds, Rows, SmoothBounds

_NUM_ANGLES = 32  # of the grid on which the reach of a rank-one bound is looked for; the rise between is added
_SLACK = 1e-4  # relative, for the rounding of the reach itself


class WhitenedStep(NamedTuple):
    """A move in coordinates in which the posterior is about as wide in all directions.

    Args:
        difference: End less start.
        total: End plus start, both measured from the expansion's centre.
    """

    difference: Real[Array, " d"]
    total: Real[Array, " d"]


def whitened_step(whiten: Array, centre: Array, old: Array, new: Array) -> WhitenedStep:
    """Of two flat positions; neither part is a small difference of large numbers."""
    return WhitenedStep(matvec(whiten, new - old), matvec(whiten, (new - centre) + (old - centre)))


class RemainderBounds(RowBounds):
    """What a Taylor expansion at `centre` can leave of a row's log ratio.

    Along the way from `position` to `proposed`, the slope of what is left of row i is at most
    `constants[i] / order! * |distance from the centre|^order`. The integral of that is the bound. Bounds that hold near
    the centre only say nothing of a move with an end beyond: its reach is infinite, whichever end that is.
    """

    source: SmoothBounds
    centre: Real[Array, " d"]
    whiten: Real[Array, "d d"]
    largest: Real[Array, ""]
    mean: Real[Array, ""]
    radius: Real[Array, ""] | None  # None: everywhere
    order: int = eqx.field(static=True)
    rank_one: bool = eqx.field(static=True)

    @property
    def proven(self) -> bool:
        """If the bounds on the derivatives are."""
        return self.source.proven

    @classmethod
    def of(
        cls, source: SmoothBounds, order: int, centre: np.ndarray, whiten: np.ndarray, near: Near
    ) -> "RemainderBounds":
        """Bounds on what is left of each row's log ratio.

        Args:
            source: Bounds on the rows' derivatives.
            order: Of the expansion, 1 or 2.
            centre: Where it was made, flat.
            whiten: From distances to coordinates in which the posterior is about as wide in all directions. Distances
                are measured in these, which makes bounds as tight for badly scaled columns as for standardised ones.
            near: Bounds around the centre, for distances in these.
        """
        dtype, constants = centre.dtype, near.constants
        largest, mean = (as_device_array(value, dtype) for value in (constants.max(), constants.mean(dtype=float)))
        point, whiten_ = as_device_array(centre), as_device_array(whiten, dtype)
        radius = None if np.isinf(near.radius) else as_device_array(near.radius, dtype)
        return cls(
            source=source,
            centre=point,
            whiten=whiten_,
            largest=largest,
            mean=mean,
            radius=radius,
            order=order,
            rank_one=near.rank_one,
        )

    def constants(self, rows: Rows) -> np.ndarray:
        """Largest derivatives of the order after the expansion's, in units of the whitened coordinates."""
        stretch = np.linalg.inv(np.asarray(self.whiten, float))
        constants = self.source.derivative_bounds(self.order + 1, rows, stretch)
        if constants is None:
            raise ValueError(
                "bounds that were worked out around the expansion are known where that is made, and its rows must be "
                "weighed there: pass tm.Taylor(...) as control_variate to tm.sample"
            )
        return constants

    def reach(self, position: PyTree, proposed: PyTree) -> Real[Array, ""]:
        """Integral of `|distance|^order / order!`, for a row that looks where it changes most."""
        flat, new = ravel_pytree(position)[0], ravel_pytree(proposed)[0]
        return self.reach_of_step(whitened_step(self.whiten, self.centre, flat, new))

    def reach_of_step(self, move: WhitenedStep) -> Real[Array, ""]:
        """The same for a move whose whitened coordinates have been worked out already."""
        step, both = move
        start, end = (both - step) / 2, (both + step) / 2
        products = jnp.stack([start * start, end * end, step * step, start * step])
        near, far, length, along = jnp.sum(products, axis=1)
        triangle = _Triangle(jnp.sqrt(near), jnp.sqrt(far), jnp.sqrt(length), near + along, along, along + length)
        reach = (_rank_one_reach if self.rank_one else _norm_reach)(triangle, self.order)
        # What rounding can add to the difference of what is left at both ends, and take from the length between them.
        slack = 32 * float(jnp.finfo(reach.dtype).eps) * jnp.maximum(triangle.near, triangle.far) ** (self.order + 1)
        reach = reach * (1 + _SLACK) + slack
        if self.radius is None:
            return reach
        # The same for a move and its way back: both ends are looked at.
        return jnp.where(jnp.maximum(triangle.near, triangle.far) <= self.radius, reach, jnp.inf)


class _Triangle(NamedTuple):
    """The centre and both ends of a move: lengths of the sides, and inner products."""

    near: Array  # from the centre to the start
    far: Array  # from the centre to the end
    length: Array  # from the start to the end
    ends: Array  # start times end
    start_step: Array
    end_step: Array


def _norm_reach(triangle: _Triangle, order: int) -> Array:
    """Derivatives of any form: along the segment the distance is at most its mean at the ends, and its square is a
    quadratic that can be integrated."""
    near, far, length = triangle.near, triangle.far, triangle.length
    if order == 1:
        return length * (near + far) / 2
    return length * (near * near + triangle.ends + far * far) / 6


def _rank_one_reach(triangle: _Triangle, order: int) -> Array:
    """Powers of one linear form.

    A row with unit vector x sees the segment as the interval from A = x·start to B = x·end, where |u|^order integrates
    to |B^(order+1) - A^(order+1)| / (order + 1), signs kept. The largest such value over x is that over the plane of
    both ends: a function of one angle, evaluated on a grid, plus what it can rise between two points of the grid.
    """
    near, far = triangle.near, triangle.far
    cosine = jnp.clip(triangle.ends / jnp.maximum(near * far, jnp.finfo(near.dtype).tiny), -1, 1)
    # Angles are measured from the bisector of both ends: then a move and its way back have the same bound to the last
    # digit, as detailed balance wants.
    half_cosine, half_sine = jnp.sqrt((1 + cosine) / 2), jnp.sqrt((1 - cosine) / 2)
    angles = np.pi * np.arange(_NUM_ANGLES) / _NUM_ANGLES
    across, along = (jnp.asarray(values, near.dtype) for values in (np.cos(angles), np.sin(angles)))
    seen_start = near * (half_cosine * across - half_sine * along)
    seen_end = far * (half_cosine * across + half_sine * along)

    def signed_power(u: Array) -> Array:
        return u * jnp.abs(u) if order == 1 else u * u * u

    largest = jnp.max(jnp.abs(signed_power(seen_end) - signed_power(seen_start)))
    # Between grid points: an eighth of the spacing squared times the largest second derivative.
    rise = (np.pi / _NUM_ANGLES) ** 2 / 8 * (2.0 if order == 1 else 3.0) * (near ** (order + 1) + far ** (order + 1))
    on_grid = (largest + rise) / (1 if order == 1 else 2) / (order + 1)
    return jnp.minimum(on_grid, _cosine_reach(triangle, order))


def _cosine_reach(triangle: _Triangle, order: int) -> Array:
    """The same, from the angles between step and distances (Prado, Nemeth & Sherlock); tight for short steps."""
    tiny = jnp.finfo(triangle.length.dtype).tiny

    def factor(inner: Array, distance: Array) -> Array:
        cosine = jnp.minimum(jnp.abs(inner) / jnp.maximum(distance * triangle.length, tiny), 1)
        if order == 1:
            return distance * (1 + cosine) / 2
        s = jnp.sqrt(2 + cosine * cosine / 4) - cosine / 2
        base = 2 + cosine * s
        return distance * distance * base * jnp.sqrt(base) / (s * 3**1.5)

    both = factor(triangle.start_step, triangle.near) + factor(triangle.end_step, triangle.far)
    return triangle.length * both / (2 if order == 1 else 4)
