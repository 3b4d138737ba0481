"""What rows say of each column of a regression where all coefficients are zero, in one pass."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tallmc.numerics.programs import program
from tallmc.posterior.linear_predictor import Link
from tallmc.posterior.rows import Rows

_ROWS_AT_ONCE = 65_536


class AtZero(NamedTuple):
    """Of each column, sums over all rows.

    Args:
        slope: Derivative of the log likelihood along it.
        bend: Minus the second derivative, at its largest anywhere.
    """

    slope: Float[np.ndarray, " columns"]
    bend: Float[np.ndarray, " columns"]

    @property
    def gain(self) -> Float[np.ndarray, " columns"]:
        """By how much, at least, the log likelihood rises along each column from zero to its maximum."""
        return np.where(self.bend > 0, self.slope**2 / np.where(self.bend > 0, 2 * self.bend, 1), 0.0)


def at_zero(link: Link, rows: Rows) -> AtZero | None:
    """Reads all rows once, columns `x` and outcomes `y`; None if second derivatives of the link are not bounded.

    Args:
        link: Log likelihood by the linear predictor.
        rows: Of a regression.
    """
    slope, bend = np.zeros((2, rows.like["x"].shape[0]))
    for block in rows.blocks(_ROWS_AT_ONCE):
        x, y = np.asarray(block["x"], float), np.asarray(block["y"])
        curvature = link.largest_derivative(2, y)
        if curvature is None:
            return None
        slope += np.asarray(_slopes(link, y.astype(jnp.result_type(float))), float) @ x
        bend += np.broadcast_to(np.asarray(curvature, float), y.shape) @ (x * x)
    return AtZero(slope, bend)


@program
def _slopes(link: Link, y: Array) -> Array:
    return jax.vmap(jax.grad(link))(jnp.zeros_like(y), y)
