"""Bounds for likelihoods of a linear predictor."""

import functools
import os
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Real

from tallmc.numerics.flat import as_device_array
from tallmc.numerics.threads import one_blas_thread
from tallmc.posterior import Rows, SmoothBounds
from tallmc.posterior.linear_predictor import Link

_ROWS_AT_A_TIME = 16_384  # a block of some 20 columns stays in the cache from one operation to the next


class LinearBounds(SmoothBounds):
    """Bounds for a likelihood of a linear predictor, from those on the derivatives of its link.

    Args:
        link: The link.
        rows: With columns `x` and outcomes `y`.
    """

    link: Link
    largest: Real[Array, ""]
    mean: Real[Array, ""]
    rank_one: bool = eqx.field(static=True)

    def __init__(self, link: Link, rows: Rows):
        self.link, self.rank_one = link, True
        lengths = self.derivative_bounds(1, rows)
        largest, mean = (np.inf, np.inf) if lengths is None else (np.max(lengths), np.mean(lengths))
        self.largest, self.mean = (as_device_array(value, jnp.result_type(float)) for value in (largest, mean))

    @property
    def proven(self) -> bool:
        """If the link is one of the library's own, whose derivatives were worked out by hand."""
        return self.link.proven

    def derivative_bounds(self, order: int, rows: Rows, stretch: np.ndarray | None = None) -> np.ndarray | None:
        """The bounds of the link's derivatives, times powers of the rows' lengths."""
        if self.link.largest_derivative(order, np.ones(1, np.float32)) is None:
            return None
        constants = rows.one_each(np.float32)
        starts = range(0, rows.num_rows, _ROWS_AT_A_TIME)

        def one_block(start: int, block: PyTree) -> None:
            x, y = np.asarray(block["x"]), np.asarray(block["y"])
            x = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
            x = x if stretch is None else x @ stretch.astype(x.dtype)
            bound = self.link.largest_derivative(order, y.astype(np.float32, copy=False))
            lengths = np.sqrt(np.einsum("ij,ij->i", x, x))
            # Not by `**`, which takes as long as the matrix product.
            powers = functools.reduce(np.multiply, [lengths] * order)
            constants[start : start + len(y)] = np.asarray(bound) * powers

        # In threads of our own: half of the work is not that of a matrix product.
        with ThreadPoolExecutor(os.cpu_count()) as pool, one_blas_thread():
            list(pool.map(one_block, starts, rows.blocks(_ROWS_AT_A_TIME)))
        # Lengths are computed in the data's precision; a bound must hold all the same.
        constants *= np.float32(1 + 1e-5)
        return constants
