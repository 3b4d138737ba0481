"""One row's bounds: the likelihood is traced, read from the position on, and its last coefficients are the bounds."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from tallmc.bounds.affine import Affine, whole_position
from tallmc.bounds.interval import up
from tallmc.bounds.reader import read
from tallmc.bounds.refusal import NotCoveredError
from tallmc.bounds.values import Guarded, as_jet, moves
from tallmc.numerics.double_precision import as_double, double_precision
from tallmc.numerics.flat import Unflatten
from tallmc.numerics.promotion import promoting

Likelihood = Callable[[PyTree, PyTree], Any]


def derivative_bounds_of_row(
    likelihood: Likelihood,
    unravel: Unflatten,
    centre: Float[Array, " d"],
    stretch: Float[Array, "d d"],
    radius: Float[Array, ""],
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
        row: One row.
    """
    doubles = tuple("float64" if np.issubdtype(kind, np.floating) else kind for kind in unravel.dtypes)
    finer = dataclasses.replace(unravel, dtypes=doubles)
    row = jax.tree.map(_finer, row)
    with promoting():
        closed = jax.make_jaxpr(lambda flat, row: likelihood(finer(flat), row))(centre, row)
        position = whole_position(centre, stretch, radius)
        (found,) = read(closed.jaxpr, closed.consts, [position, *jax.tree.leaves(row)])
        if not moves(found):
            return jnp.zeros(3)
        if isinstance(found, Guarded):
            raise NotCoveredError("stop_gradient")
        if isinstance(found, Affine):
            zero = jnp.zeros_like(found.offset)
            sizes = jnp.stack([found.length, zero, zero])
        else:
            jet = as_jet(found)
            sizes = jnp.stack([jet.slope, 2 * jet.bend.size, 6 * jet.twist])
    known = jnp.isfinite(sizes)
    return jnp.where(known, up(sizes), jnp.inf).reshape(3)


def why_not_covered(likelihood: Likelihood, unravel: Unflatten, size: int, row: PyTree) -> NotCoveredError | None:
    """The first operation of a likelihood for which there is no rule; None if all have one. Compiles nothing.

    Args:
        likelihood: Of one row.
        unravel: From a flat position to one that the likelihood takes.
        size: Of a flat position.
        row: Shapes of a row.
    """
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), row)
    with double_precision():

        def look(centre: Array, stretch: Array, radius: Array, row: PyTree) -> Array:
            return derivative_bounds_of_row(as_double(likelihood), unravel, centre, stretch, radius, row)

        doubles = (jax.ShapeDtypeStruct(shape, jnp.float64) for shape in ((size,), (size, size), ()))
        try:
            jax.eval_shape(look, *doubles, like)
        except NotCoveredError as error:
            return error
        except Exception as error:  # whatever the caller's function raises in float64, which nobody asked it to take
            said = " ".join(str(error).split())
            return NotCoveredError(f"it cannot be followed in float64, because JAX says: {said[:160]}")
    return None


def _finer(leaf: Array) -> Array:
    return leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
