"""What a row can say at most: bounds on the change of its log likelihood, for the rules that need them."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, PyTree, Real

from tallmc.numerics.flat import Unflatten, as_device_array
from tallmc.posterior.model import Model
from tallmc.posterior.rows import Rows


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
    """The mean of the rows' constants."""

    @property
    def proven(self) -> bool:
        """Whether they follow from what the library itself knows of the likelihood; others are tried on some rows."""
        return False

    @abc.abstractmethod
    def constants(self, rows: Rows) -> np.ndarray:
        """One for every row, in their order. Reads all of them."""

    @abc.abstractmethod
    def reach(self, position: PyTree, proposed: PyTree) -> Real[Array, ""]:
        """The factor that the constants of all rows are multiplied by, for a move."""

    def largest_change(self, position: PyTree, proposed: PyTree) -> Real[Array, ""]:
        """The reach times the largest constant."""
        reach = self.reach(position, proposed)
        return self.largest.astype(reach.dtype) * reach

    def mean_change(self, position: PyTree, proposed: PyTree) -> Real[Array, ""]:
        """At least the mean over all rows of their absolute changes."""
        reach = self.reach(position, proposed)
        return self.mean.astype(reach.dtype) * reach


class Place(NamedTuple):
    """Where bounds are wanted, and of what.

    Args:
        model: With the likelihood.
        unravel: From a flat position to one that the likelihood takes.
        centre: Flat.
        stretch: Distances are measured in coordinates in which positions are `centre + stretch @ coordinates`.
        order: Of the derivative.
        rows: All rows.
    """

    model: Model
    unravel: Unflatten
    centre: np.ndarray
    stretch: np.ndarray
    order: int
    rows: Rows


class Near(NamedTuple):
    """Bounds around a place.

    Args:
        constants: One for each row; infinite where nothing is known.
        radius: Distance from the centre up to which they hold; infinite if they hold everywhere.
        rank_one: Whether a row's derivatives are powers of one linear form.
    """

    constants: np.ndarray
    radius: float
    rank_one: bool


class SmoothBounds(RowBounds):
    """Bounds by derivatives: by first ones for a row's log likelihood, by higher ones for what an expansion leaves."""

    rank_one: eqx.AbstractVar[bool]
    """Whether a row's derivatives are powers of one linear form, as they are in regressions."""

    @abc.abstractmethod
    def derivative_bounds(self, order: int, rows: Rows, stretch: np.ndarray | None = None) -> np.ndarray | None:
        """At least the largest norm of each row's derivative of that order, at any position; None if unbounded.

        Args:
            order: 1, 2 or 3.
            rows: All rows, read once at most.
            stretch: If given, distances are measured in `coordinates`, where `position = stretch @ coordinates`.
        """

    def near(self, place: Place) -> Near | None:
        """Around a place: as everywhere, unless more is known there."""
        constants = self.derivative_bounds(place.order, place.rows, place.stretch)
        return None if constants is None else Near(constants, np.inf, self.rank_one)

    def constants(self, rows: Rows) -> np.ndarray:
        """The largest gradient of each row."""
        constants = self.derivative_bounds(1, rows)
        if constants is None:
            raise ValueError("no bound on the first derivative of a row's log likelihood is known; use tm.Taylor")
        return constants

    def reach(self, position: PyTree, proposed: PyTree) -> Real[Array, ""]:
        """The distance between both positions."""
        difference = ravel_pytree(proposed)[0] - ravel_pytree(position)[0]
        return jnp.sqrt(jnp.sum(difference**2))


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
        self.largest = self.mean = as_device_array(constant, jnp.result_type(float))
        self.rank_one = False

    def derivative_bounds(self, order: int, rows: Rows, stretch: np.ndarray | None = None) -> np.ndarray | None:
        """One number for all rows; nothing is known of higher derivatives."""
        if order > 1:
            return None
        factor = 1.0 if stretch is None else np.linalg.norm(stretch, 2)
        return np.full(rows.num_rows, float(self.largest) * factor)


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
            None if bound is None else as_device_array(bound, jnp.result_type(float)) for bound in named.values()
        )
        changes = jnp.asarray(jnp.inf, jnp.result_type(float)) if self.first is None else self.first
        self.largest, self.mean = jnp.max(changes), jnp.mean(changes)
        self.rank_one = False

    def derivative_bounds(self, order: int, rows: Rows, stretch: np.ndarray | None = None) -> np.ndarray | None:
        """The bounds as they were given, for distances in other coordinates if need be."""
        bound = (self.first, self.second, self.third)[order - 1]
        if bound is None:
            return None
        num_rows = rows.num_rows
        if bound.shape not in ((), (num_rows,)):
            raise ValueError(f"a bound has shape {bound.shape}; pass one number, or {num_rows} of them, one a row")
        factor = 1.0 if stretch is None else np.linalg.norm(stretch, 2) ** order
        return np.broadcast_to(np.asarray(bound, float), (num_rows,)) * factor
