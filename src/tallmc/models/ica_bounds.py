"""What a whitened row can say of an unmixing matrix: bounds on the derivatives of its log likelihood."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Real

from tallmc.numerics.flat import as_device_array
from tallmc.posterior import Rows, SmoothBounds

_ROWS_AT_A_TIME = 65_536
# With t = tanh(y / 2) the derivatives of f(y) = -log(4 cosh(y / 2)^2) are -t, -(1 - t^2) / 2 and t (1 - t^2) / 2; the
# last is largest where t^2 is a third.
_LARGEST = (1.0, 1 / 2, 1 / (3 * np.sqrt(3)))


class IcaBounds(SmoothBounds):
    """Bounds for `tm.models.ica`, from those on the derivatives of one source's log density.

    Along a direction U of length one the m-th derivative of row x is `sum_j f^(m)(w_j x) (u_j x)^m`. Over all U that is
    at most the largest `f^(m)` times `|x|^m` for m of 2 and 3, and `sqrt(d) |x|` for m = 1.

    Args:
        rows: Whitened.
    """

    largest: Real[Array, ""]
    mean: Real[Array, ""]
    rank_one: bool = eqx.field(static=True)

    def __init__(self, rows: Rows):
        self.rank_one = False
        constants = self.derivative_bounds(1, rows)
        self.largest, self.mean = (
            as_device_array(value, jnp.result_type(float)) for value in (constants.max(), constants.mean(dtype=float))
        )

    @property
    def proven(self) -> bool:
        """They were worked out by hand."""
        return True

    def derivative_bounds(self, order: int, rows: Rows, stretch: np.ndarray | None = None) -> np.ndarray:
        """Powers of the rows' lengths."""
        constants, start = np.empty(rows.num_rows, np.float32), 0
        factor = _LARGEST[order - 1] * (1.0 if stretch is None else np.linalg.norm(stretch, 2) ** order)
        for block in rows.blocks(_ROWS_AT_A_TIME):
            squares = _squared_lengths(block)
            shared = np.sqrt(np.shape(block)[1]) if order == 1 else 1.0
            # A bound must hold after it is rounded, too.
            constants[start : start + len(squares)] = factor * shared * squares ** (order / 2) * (1 + 1e-5)
            start += len(squares)
        return constants


def _squared_lengths(block: PyTree) -> np.ndarray:
    x = np.asarray(block, float)
    return np.einsum("ij,ij->i", x, x)
