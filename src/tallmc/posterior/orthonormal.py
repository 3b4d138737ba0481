"""Matrices with orthonormal columns: how far one is from that, and the prior that is uniform on them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree, Real

# Entries of the product of a matrix's transpose with itself may be off by this much. Rounding to float32 alone makes
# 1e-6 at a thousand rows, and a matrix that was written to a file with five digits 1e-4; one that nobody has made
# orthonormal is off by far more.
TOLERANCE = 1e-3


class OrthonormalColumns(eqx.Module):
    """The uniform (Haar) prior on matrices with orthonormal columns, up to a constant: minus infinity elsewhere.

    Every array of a position must be a matrix with orthonormal columns, or a vector of length one.

    Example:
        >>> import jax.numpy as jnp
        >>> prior = OrthonormalColumns()
        >>> float(prior(jnp.eye(3))), float(prior(2 * jnp.eye(3)))
        (0.0, -inf)
    """

    def __call__(self, position: PyTree) -> Real[Array, ""]:
        """Zero where the columns are orthonormal."""
        inside = jnp.bool_(True)
        for leaf in jax.tree.leaves(position):
            inside = inside & _orthonormal(leaf)
        return jnp.where(inside, 0.0, -jnp.inf)


def _orthonormal(leaf: Array) -> Bool[Array, ""]:
    columns = leaf.reshape(leaf.shape[0], -1)
    # Sums of products and no matrix product: a part of a loop that is compiled in one piece.
    products = jnp.sum(columns[:, :, None] * columns[:, None, :], axis=0)
    return jnp.all(jnp.abs(products - jnp.eye(columns.shape[1], dtype=columns.dtype)) <= TOLERANCE)


def orthonormality_error(matrix: Any) -> float:
    """The largest entry of `|W^T W - I|`, on the host and in double precision.

    Example:
        >>> orthonormality_error(np.array([[0.0, 1.0], [-1.0, 0.0], [0.0, 0.0]]))
        0.0
    """
    columns = np.asarray(matrix, float)
    columns = columns.reshape(len(columns), -1)
    return float(np.max(np.abs(columns.T @ columns - np.eye(columns.shape[1]))))
