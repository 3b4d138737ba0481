"""Sums and products whose rounding does not depend on how they are compiled.

A chain alone must be, bit for bit, the chain it is among others, and in either driver. Compilers reorder reductions
and fuse products with sums, differently in different loops; what is written here they leave alone.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Real

_LANES = 8
_LARGEST_INLINE_PRODUCT = 1024


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
    """A matrix times a vector.

    On a CPU, if it is large, as sums of products: these compile into the loop around them, where a large matrix product
    is a call to a library, which the loop of a chain cannot be made of (see `run/native.py`).
    """
    if jax.default_backend() == "cpu" and matrix.size > _LARGEST_INLINE_PRODUCT:
        return jnp.sum(matrix * vector[None], axis=1)
    return matrix @ vector
