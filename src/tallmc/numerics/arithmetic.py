"""Sums and products whose rounding does not depend on how they are compiled.

A chain alone must be, bit for bit, the chain it is among others, and in either driver. Compilers reorder reductions
and fuse products with sums, differently in different loops; what is written here they leave alone.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Real

_LANES = 8
_MANY_ROWS = 256


def ordered_sum(values: Real[Array, " n"]) -> Real[Array, ""]:
    """Sum in a fixed order: eight running sums, then halves added to halves."""
    padded = jnp.pad(values, (0, -values.shape[0] % _LANES))
    lanes = jnp.sum(padded.reshape(-1, _LANES), axis=0)
    lanes = lanes[:4] + lanes[4:]
    lanes = lanes[:2] + lanes[2:]
    return lanes[0] + lanes[1]


def rounded(product: Real[Array, "..."]) -> Real[Array, "..."]:
    """A product (or quotient) that is about to be added to something, safe from being fused with that addition.

    A minimum with the largest number there is changes nothing but stands in the compiler's way.
    """
    return jnp.minimum(product, jnp.finfo(product.dtype).max)


def matvec(matrix: Real[Array, "m n"], vector: Real[Array, " n"]) -> Real[Array, " m"]:
    """A matrix that all chains share, times a vector."""
    return _by_lanes(matrix, vector, in_turn=True) if jax.default_backend() == "cpu" else matrix @ vector


def row_products(rows: Real[Array, "m n"], vector: Real[Array, " n"]) -> Real[Array, " m"]:
    """The inner products of a few rows with a vector.

    On a GPU not as a matrix product: where each chain has its own rows, that is slow.
    """
    return _by_lanes(rows, vector) if jax.default_backend() == "cpu" else jnp.sum(rows * vector[None], axis=1)


def _by_lanes(matrix: Real[Array, "m n"], vector: Real[Array, " n"], *, in_turn: bool = False) -> Real[Array, " m"]:
    """Eight running sums for each row, which a CPU adds at once; a single one would wait for each addition to end.

    Of many rows plain sums: loops over those are not compiled into one piece, and XLA knows how to share them out.

    Args:
        matrix: Its rows are long, or few.
        vector: What they are multiplied by.
        in_turn: Whether eight columns of all rows are added after the other, by a loop. What a loop is given is worked
            out before it. Into a plain sum of more than two products XLA moves what the vector is worked out from, once
            for each row of the matrix: of 50 normal numbers, 50 times the quantile function of each, half of a step.
    """
    whole = matrix.shape[1] // _LANES * _LANES
    if whole < 2 * _LANES or matrix.shape[0] > _MANY_ROWS:
        return jnp.sum(matrix * vector[None], axis=1)
    columns, parts = matrix[:, :whole].reshape(-1, whole // _LANES, _LANES), vector[:whole].reshape(-1, _LANES)
    if in_turn and whole > 2 * _LANES:
        start = jnp.zeros((matrix.shape[0], _LANES), jnp.result_type(matrix, vector))
        lanes = jax.lax.fori_loop(0, len(parts), lambda i, lanes: lanes + columns[:, i] * parts[i][None], start)
    else:
        lanes = jnp.sum(columns * parts[None], axis=1)
    lanes = lanes[:, :4] + lanes[:, 4:]
    lanes = lanes[:, :2] + lanes[:, 2:]
    return lanes[:, 0] + lanes[:, 1] + jnp.sum(matrix[:, whole:] * vector[whole:][None], axis=1)


def matrix_product(left: Real[Array, "m n"], right: Real[Array, "n k"]) -> Real[Array, "m k"]:
    """A product of small matrices of one chain's own: terms are added one after the other, whoever compiles it."""

    def add(index: Array, total: Array) -> Array:
        column = jax.lax.dynamic_index_in_dim(left, index, 1, keepdims=True)
        row = jax.lax.dynamic_index_in_dim(right, index, 0, keepdims=True)
        return total + rounded(column * row)

    start = jnp.zeros((left.shape[0], right.shape[1]), right.dtype)
    return jax.lax.fori_loop(0, left.shape[1], add, start)


def solved_by_elimination(system: Real[Array, "n n"], right: Real[Array, "n k"]) -> Real[Array, "n k"]:
    """The solution of a small linear system that needs no pivots, by Gauss-Jordan elimination.

    Factorisations are calls of a library, which cannot be part of a loop that is compiled in one piece. Without pivots
    a system must be one whose symmetric part is positive definite.
    """
    size = system.shape[0]
    places = jnp.arange(size, dtype=jnp.int32)

    def eliminate(index: Array, both: Array) -> Array:
        row = jax.lax.dynamic_index_in_dim(both, index, 0, keepdims=True)
        column = jax.lax.dynamic_index_in_dim(both, index, 1, keepdims=True)
        row = rounded(row / jax.lax.dynamic_index_in_dim(row, index, 1, keepdims=True))
        return jnp.where((places == index)[:, None], row, both - rounded(column * row))

    both = jax.lax.fori_loop(0, size, eliminate, jnp.concatenate([system, right], axis=1))
    return both[:, size:]
