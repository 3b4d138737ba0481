"""Bounds for likelihoods of a linear predictor."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Real

from tallmc.posterior import Rows, SmoothBounds
from tallmc.posterior.linear_predictor import Link

_ROWS_AT_A_TIME = 65_536  # large: each block is one matrix product, and has a Python loop around it


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
        self.largest, self.mean = (jnp.asarray(value, jnp.result_type(float)) for value in (largest, mean))

    def derivative_bounds(self, order: int, rows: Rows, stretch: np.ndarray | None = None) -> np.ndarray | None:
        """The bounds of the link's derivatives, times powers of the rows' lengths."""
        if self.link.largest_derivative(order, jnp.ones(1)) is None:
            return None
        parts = []
        for block in rows.blocks(_ROWS_AT_A_TIME):
            x, y = block["x"], block["y"]
            x = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
            x = x if stretch is None else x @ stretch.astype(x.dtype)
            bound = np.asarray(self.link.largest_derivative(order, jnp.asarray(y, jnp.result_type(float))), float)
            parts.append(bound * np.einsum("ij,ij->i", x, x).astype(float) ** (order / 2))
        # Lengths are computed in the data's precision; a bound must hold all the same.
        return np.concatenate(parts) * (1 + 1e-5)
