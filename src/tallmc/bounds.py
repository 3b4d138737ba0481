"""What a row can say at most: bounds on the change of its log likelihood, for the rules that need them."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, PyTree, Real

from tallmc.arithmetic import matvec
from tallmc.linear_predictor import Link

_NUM_ANGLES = 32
_ROWS_AT_A_TIME = 65_536
_SLACK = 1e-4


class Bounds(eqx.Module):
    """Bounds that hold for every row of the data."""

    @abc.abstractmethod
    def largest_change(self, position: PyTree, proposed: PyTree) -> Real[Array, ""]:
        """At least the largest |log likelihood at `proposed` - log likelihood at `position`| of any row."""


class RowBounds(Bounds):
    """Bounds of the form `constants[i] * reach(position, proposed)`, one constant a row.

    Rules that draw rows in proportion to what they can say need no more than this.
    """

    largest: eqx.AbstractVar[Real[Array, ""]]
    """The largest of the rows' constants."""
    mean: eqx.AbstractVar[Real[Array, ""]]
    """Their mean."""

    @abc.abstractmethod
    def constants(self, data: PyTree) -> np.ndarray:
        """Of every row, in order. Reads all of them."""

    @abc.abstractmethod
    def reach(self, position: PyTree, proposed: PyTree) -> Real[Array, ""]:
        """The factor that all rows share."""

    def largest_change(self, position: PyTree, proposed: PyTree) -> Real[Array, ""]:
        """Of the row with the largest constant."""
        reach = self.reach(position, proposed)
        return self.largest.astype(reach.dtype) * reach

    def mean_change(self, position: PyTree, proposed: PyTree) -> Real[Array, ""]:
        """At least the mean over all rows of their absolute changes."""
        reach = self.reach(position, proposed)
        return self.mean.astype(reach.dtype) * reach


class WeightedBounds(Bounds):
    """What a row can say once it is drawn in proportion to its constant and scaled by how often it comes.

    Args:
        rows: The bounds that rows are weighted by.
    """

    rows: RowBounds

    def largest_change(self, position: PyTree, proposed: PyTree) -> Real[Array, ""]:
        """The same for all rows: that is what such weights are for."""
        return self.rows.mean_change(position, proposed)


class SmoothBounds(RowBounds):
    """Bounds by derivatives: by first ones for a row's log likelihood, by higher ones for what an expansion leaves."""

    rank_one: eqx.AbstractVar[bool]
    """Whether a row's derivatives are powers of one linear form, as they are in regressions."""

    @abc.abstractmethod
    def derivative_bounds(self, order: int, data: PyTree, stretch: np.ndarray | None = None) -> np.ndarray | None:
        """At least the largest norm of each row's derivative of that order, at any position; None if unbounded.

        Args:
            order: 1, 2 or 3.
            data: All rows.
            stretch: If given, distances are measured in `coordinates`, where `position = stretch @ coordinates`.
        """

    def constants(self, data: PyTree) -> np.ndarray:
        """Largest gradients."""
        constants = self.derivative_bounds(1, data)
        if constants is None:
            raise ValueError("no bound on the first derivative of a row's log likelihood is known; use tm.Taylor")
        return constants

    def reach(self, position: PyTree, proposed: PyTree) -> Real[Array, ""]:
        """The distance."""
        difference = ravel_pytree(proposed)[0] - ravel_pytree(position)[0]
        return jnp.sqrt(jnp.sum(difference**2))

    def remainder(self, order: int, centre: Array, whiten: np.ndarray, data: PyTree) -> "RemainderBounds | None":
        """Bounds on what is left of each row's log ratio after a Taylor expansion; None if there are none.

        Args:
            order: Of the expansion, 1 or 2.
            centre: Where it was made, flat.
            whiten: From distances to coordinates in which the posterior is about as wide in all directions. Distances
                are measured in these, which makes bounds as tight for badly scaled columns as for standardised ones.
            data: All rows; they are read once.
        """
        constants = self.derivative_bounds(order + 1, data, np.linalg.inv(whiten))
        if constants is None:
            return None
        largest, mean = (jnp.asarray(value, centre.dtype) for value in (np.max(constants), np.mean(constants)))
        whiten_ = jnp.asarray(whiten, centre.dtype)
        return RemainderBounds(source=self, centre=centre, whiten=whiten_, largest=largest, mean=mean, order=order)


class Lipschitz(SmoothBounds):
    """A row's log likelihood changes by at most `constant` times the distance.

    Args:
        constant: Largest gradient norm of any row's log likelihood, at any position.

    Example:
        >>> import jax.numpy as jnp
        >>> float(Lipschitz(2.0).largest_change(jnp.array([0.0, 0.0]), jnp.array([3.0, 4.0])))
        10.0
    """

    largest: Real[Array, ""]
    mean: Real[Array, ""]
    rank_one: bool = eqx.field(static=True)

    def __init__(self, constant: float | Array):
        if isinstance(constant, float | int) and not constant >= 0:
            raise ValueError(f"constant must not be negative, got {constant}")
        self.largest = self.mean = jnp.asarray(constant, jnp.result_type(float))
        self.rank_one = False

    def derivative_bounds(self, order: int, data: PyTree, stretch: np.ndarray | None = None) -> np.ndarray | None:
        """One number for all rows; nothing is known of higher derivatives."""
        if order > 1:
            return None
        factor = 1.0 if stretch is None else np.linalg.norm(stretch, 2)
        return np.full(len(jax.tree.leaves(data)[0]), float(self.largest) * factor)


class DerivativeBounds(SmoothBounds):
    """Bounds on the derivatives of each row's log likelihood, for a likelihood of your own.

    Args:
        first: Largest gradient norm at any position: one number for each row, or one for all; None if unbounded.
        second: The same for the largest absolute eigenvalue of the Hessian.
        third: The same for the norm of the third derivative, the largest |third derivative along a unit vector|.

    Example:
        >>> import jax.numpy as jnp
        >>> bounds = DerivativeBounds(first=jnp.array([1.0, 3.0]))
        >>> float(bounds.largest_change(jnp.array([0.0]), jnp.array([2.0])))
        6.0
    """

    first: Real[Array, "..."] | None
    second: Real[Array, "..."] | None
    third: Real[Array, "..."] | None
    largest: Real[Array, ""]
    mean: Real[Array, ""]
    rank_one: bool = eqx.field(static=True)

    def __init__(self, first: ArrayLike | None = None, second: ArrayLike | None = None, third: ArrayLike | None = None):
        named = {"first": first, "second": second, "third": third}
        for name, bound in named.items():
            if bound is not None and not (np.all(np.isfinite(bound)) and np.all(np.asarray(bound) >= 0)):
                raise ValueError(f"{name} must hold finite numbers of at least 0; None stands for no bound")
        self.first, self.second, self.third = (
            None if bound is None else jnp.asarray(bound, jnp.result_type(float)) for bound in named.values()
        )
        changes = jnp.asarray(jnp.inf, jnp.result_type(float)) if self.first is None else self.first
        self.largest, self.mean = jnp.max(changes), jnp.mean(changes)
        self.rank_one = False

    def derivative_bounds(self, order: int, data: PyTree, stretch: np.ndarray | None = None) -> np.ndarray | None:
        """As given, stretched if need be."""
        bound = (self.first, self.second, self.third)[order - 1]
        if bound is None:
            return None
        num_rows = len(jax.tree.leaves(data)[0])
        if bound.shape not in ((), (num_rows,)):
            raise ValueError(f"a bound has shape {bound.shape}; pass one number, or {num_rows} of them, one a row")
        factor = 1.0 if stretch is None else np.linalg.norm(stretch, 2) ** order
        return np.broadcast_to(np.asarray(bound, float), (num_rows,)) * factor


class LinearBounds(SmoothBounds):
    """Bounds for a likelihood of a linear predictor, from those on the derivatives of its link.

    Args:
        link: The link.
        data: Columns `x` and outcomes `y`.
    """

    link: Link
    largest: Real[Array, ""]
    mean: Real[Array, ""]
    rank_one: bool = eqx.field(static=True)

    def __init__(self, link: Link, data: dict[str, Array | np.ndarray]):
        self.link, self.rank_one = link, True
        lengths = self.derivative_bounds(1, data)
        largest, mean = (np.inf, np.inf) if lengths is None else (np.max(lengths), np.mean(lengths))
        self.largest, self.mean = (jnp.asarray(value, jnp.result_type(float)) for value in (largest, mean))

    def derivative_bounds(self, order: int, data: PyTree, stretch: np.ndarray | None = None) -> np.ndarray | None:
        """Those of the link, times powers of the rows' lengths."""
        if self.link.largest_derivative(order, jnp.ones(1)) is None:
            return None
        parts = []
        for start in range(0, len(data["y"]), _ROWS_AT_A_TIME):
            x, y = (np.asarray(data[name][start : start + _ROWS_AT_A_TIME]) for name in ("x", "y"))
            x = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
            x = x if stretch is None else x @ stretch.astype(x.dtype)
            bound = np.asarray(self.link.largest_derivative(order, jnp.asarray(y, jnp.result_type(float))), float)
            parts.append(bound * np.einsum("ij,ij->i", x, x).astype(float) ** (order / 2))
        # Lengths are computed in the data's precision; a bound must hold all the same.
        return np.concatenate(parts) * (1 + 1e-5)


class RemainderBounds(RowBounds):
    """What a Taylor expansion at `centre` can leave of a row's log ratio.

    Along the way from `position` to `proposed`, the slope of what is left of row i is at most
    `constants[i] / order! * |distance from the centre|^order`. The integral of that is the bound.
    """

    source: SmoothBounds
    centre: Real[Array, " d"]
    whiten: Real[Array, "d d"]
    largest: Real[Array, ""]
    mean: Real[Array, ""]
    order: int = eqx.field(static=True)

    def constants(self, data: PyTree) -> np.ndarray:
        """Largest derivatives of the order after the expansion's, in units of the whitened coordinates."""
        stretch = np.linalg.inv(np.asarray(self.whiten, float))
        constants = self.source.derivative_bounds(self.order + 1, data, stretch)
        assert constants is not None
        return constants

    def reach(self, position: PyTree, proposed: PyTree) -> Real[Array, ""]:
        """Integral of `|distance|^order / order!`, for a row that looks where it changes most."""
        return self.reach_of(whitened(self.whiten, self.centre, ravel_pytree(position)[0], ravel_pytree(proposed)[0]))

    def reach_of(self, between: tuple[Array, Array]) -> Real[Array, ""]:
        """The same for whitened coordinates, their difference and their sum, that have been worked out already."""
        step, both = between
        start, end = (both - step) / 2, (both + step) / 2
        products = jnp.stack([start * start, end * end, step * step, start * step])
        near, far, length, along = jnp.sum(products, axis=1)
        triangle = _Triangle(jnp.sqrt(near), jnp.sqrt(far), jnp.sqrt(length), near + along, along, along + length)
        reach = (_rank_one_reach if self.source.rank_one else _norm_reach)(triangle, self.order)
        # What rounding can add to the difference of what is left at both ends, and take from the length between them.
        slack = 32 * float(jnp.finfo(reach.dtype).eps) * jnp.maximum(triangle.near, triangle.far) ** (self.order + 1)
        return reach * (1 + _SLACK) + slack


def whitened(whiten: Array, centre: Array, old: Array, new: Array) -> tuple[Array, Array]:
    """Difference and sum of the whitened coordinates of two flat positions, neither as a small difference of others."""
    return matvec(whiten, new - old), matvec(whiten, (new - centre) + (old - centre))


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
