"""One row's bounds: the likelihood is traced, read from the position on, and its last coefficients are the bounds."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from tallmc.bounds.affine import Affine, whole_position
from tallmc.bounds.interval import Interval, up
from tallmc.bounds.reader import read
from tallmc.bounds.refusal import NotCoveredError
from tallmc.bounds.values import Guarded, as_jet, moves
from tallmc.numerics.double_precision import as_double, double_precision
from tallmc.numerics.flat import Unflatten
from tallmc.numerics.promotion import promoting
from tallmc.posterior.predictors import predictors_of

Likelihood = Callable[[PyTree, PyTree], Any]

# Parts of the half circle of directions, where a row knows the position through two numbers: within a part the signs of
# coefficients are known, and terms that cancel do so. A judgement: parts of 11 degrees.
_SECTORS = 16
_FEW = 2  # numbers up to which directions are looked at part by part; for three there would be hundreds


def derivative_bounds_of_row(
    likelihood: Likelihood,
    unravel: Unflatten,
    centre: Float[Array, " d"],
    stretch: Float[Array, "d d"],
    radius: Float[Array, ""],
    pieces: Int[Array, ""],
    row: PyTree,
) -> Float[Array, "3"]:
    """At least the largest first, second and third derivative of a row's log likelihood, along any unit direction.

    Positions are `centre + stretch @ z` with |z| at most the radius, and lengths of directions are those of z. Where
    nothing is known it is infinite. To be called where JAX computes in float64.

    Args:
        likelihood: Of one row.
        unravel: From a flat position to one that the likelihood takes.
        centre: Middle of the region.
        stretch: From the coordinates z.
        radius: Of the region.
        pieces: Into which the range of each number is cut through which a row knows the position, if there are only one
            or two: what intervals lose by forgetting that two numbers depend on each other falls as fast.
        row: One row.
    """
    finer, row = _finer(unravel), jax.tree.map(_finer_leaf, row)
    position = whole_position(centre, stretch, radius)
    with promoting():

        def of_flat(flat: Array, row: PyTree) -> Any:
            return likelihood(finer(flat), row)

        found = predictors_of(likelihood, finer, centre, row) if len(centre) > 1 else None
        if found is not None and found.count <= _FEW:
            seen = _read(found.at, position, row)
            if isinstance(seen, Affine):
                return _part_by_part(found.link, seen, pieces, row)
        if len(centre) <= _FEW:
            return _part_by_part(of_flat, position, pieces, row)
        return _sizes(_read(of_flat, position, row))


def why_not_covered(likelihood: Likelihood, unravel: Unflatten, size: int, row: PyTree) -> NotCoveredError | None:
    """The first operation of a likelihood for which there is no rule; None if all have one. Compiles nothing.

    Args:
        likelihood: Of one row.
        unravel: From a flat position to one that the likelihood takes.
        size: Of a flat position.
        row: Shapes of a row.
    """
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), row)
    with double_precision(), promoting():
        double, finer = as_double(likelihood), _finer(unravel)

        def look(centre: Array, stretch: Array, radius: Array, row: PyTree) -> Array:
            row = jax.tree.map(_finer_leaf, row)
            position = whole_position(centre, stretch, radius)
            return _sizes(_read(lambda flat, row: double(finer(flat), row), position, row))

        doubles = (jax.ShapeDtypeStruct(shape, jnp.float64) for shape in ((size,), (size, size), ()))
        try:
            jax.eval_shape(look, *doubles, like)
        except NotCoveredError as error:
            return error
        except Exception as error:  # whatever the caller's function raises in float64, which nobody asked it to take
            said = " ".join(str(error).split())
            return NotCoveredError(f"what cannot be followed in float64, because JAX says: {said[:160]}")
    return None


def _read(function: Callable[[Array, PyTree], Any], first: Affine, row: PyTree) -> Any:
    closed = jax.make_jaxpr(function)(first.offset, row)
    (found,) = read(closed.jaxpr, closed.consts, [first, *jax.tree.leaves(row)])
    return found


def _part_by_part(
    function: Callable[[Array, PyTree], Any], seen: Affine, pieces: Int[Array, ""], row: PyTree
) -> Float[Array, "3"]:
    """Of a function of one or two numbers: the largest over all parts of the region and of the directions.

    The numbers fill an ellipse, whatever the number of coordinates: the image of a disc of as many dimensions as there
    are numbers.
    """
    alone, two = seen._replace(matrix=_square_factor(seen.matrix)), len(seen.offset) == 2
    low, high = map(jnp.asarray, _sectors() if two else (np.ones((1, 1)), np.ones((1, 1))))
    # Squares are put into discs, which are wider by the root of two; one piece is the disc itself.
    share = jnp.where(pieces > 1, math.sqrt(2) if two else 1.0, 1.0) / pieces

    def one(number: Array, worst: Array) -> Array:
        at = jnp.stack([number % pieces, number // pieces]) if two else number[None]
        place = (2 * at + 1) / pieces - 1.0
        piece = alone._replace(offset=alone.offset + alone.matrix @ (place * alone.radius), radius=alone.radius * share)

        # Directions side by side: where numbers lie, and ranges of functions there, are then worked out only once.
        def along(low: Array, high: Array) -> Array:
            return _sizes(_read(function, piece._replace(direction=Interval(low, high)), row))

        return jnp.maximum(worst, jnp.max(jax.vmap(along)(low, high), axis=0))

    return jax.lax.fori_loop(0, pieces ** (2 if two else 1), one, jnp.zeros(3))


def _square_factor(matrix: Float[Array, "m d"]) -> Float[Array, "m m"]:
    """Lower triangular, with the same inner products of its rows; for one row or two."""
    first = matrix[0]
    length = jnp.sqrt(jnp.sum(first * first))
    if len(matrix) == 1:
        return length[None, None]
    unit = jnp.where(length > 0, first / jnp.where(length > 0, length, 1.0), 0.0)
    along = jnp.sum(matrix[1] * unit)
    across = jnp.sqrt(jnp.sum((matrix[1] - along * unit) ** 2))
    return jnp.stack([jnp.stack([length, jnp.zeros_like(length)]), jnp.stack([along, across])])


def _sectors() -> tuple[np.ndarray, np.ndarray]:
    """Boxes, by their corners, that hold half of all directions: the others' derivatives differ by signs alone."""
    edges = np.pi * np.arange(_SECTORS + 1) / _SECTORS
    ends = np.stack([np.cos(edges), np.sin(edges)], axis=1)  # no sector has a turning point within, only at its ends
    low, high = np.minimum(ends[:-1], ends[1:]), np.maximum(ends[:-1], ends[1:])
    return low - 1e-12, high + 1e-12


def _sizes(found: Any) -> Float[Array, "3"]:
    """Of the derivatives of what was read; infinite where nothing is known."""
    if not moves(found):
        return jnp.zeros(3)
    if isinstance(found, Guarded):
        raise NotCoveredError("stop_gradient", found.guards[0][0][1])
    jet = as_jet(found)
    sizes = jnp.stack([math.factorial(order) * part.size for order, part in enumerate(jet[1:], start=1)])
    return jnp.where(jnp.isfinite(sizes), up(sizes), jnp.inf).reshape(3)


def _finer(unravel: Unflatten) -> Unflatten:
    doubles = tuple("float64" if np.issubdtype(kind, np.floating) else kind for kind in unravel.dtypes)
    return dataclasses.replace(unravel, dtypes=doubles)


def _finer_leaf(leaf: Array) -> Array:
    return leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
