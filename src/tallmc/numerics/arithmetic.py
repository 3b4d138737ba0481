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
    return _by_lanes(matrix, vector) if jax.default_backend() == "cpu" else matrix @ vector


def row_products(rows: Real[Array, "m n"], vector: Real[Array, " n"]) -> Real[Array, " m"]:
    """The inner products of a few rows with a vector.

    On a GPU not as a matrix product: where each chain has its own rows, that is slow.
    """
    return _by_lanes(rows, vector) if jax.default_backend() == "cpu" else jnp.sum(rows * vector[None], axis=1)


def _by_lanes(matrix: Real[Array, "m n"], vector: Real[Array, " n"]) -> Real[Array, " m"]:
    """Eight running sums for each row, which a CPU adds at once; a single one would wait for each addition to end.

    Of many rows plain sums: loops over those are not compiled into one piece, and XLA knows how to share them out.
    """
    whole = matrix.shape[1] // _LANES * _LANES
    if whole < 2 * _LANES or matrix.shape[0] > _MANY_ROWS:
        return jnp.sum(matrix * vector[None], axis=1)
    lanes = jnp.sum(
        matrix[:, :whole].reshape(-1, whole // _LANES, _LANES) * vector[:whole].reshape(1, -1, _LANES), axis=1
    )
    lanes = lanes[:, :4] + lanes[:, 4:]
    lanes = lanes[:, :2] + lanes[:, 2:]
    return lanes[:, 0] + lanes[:, 1] + jnp.sum(matrix[:, whole:] * vector[whole:][None], axis=1)
