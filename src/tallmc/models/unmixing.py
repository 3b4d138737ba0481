"""Unmixing matrices, whose rows have no order and no sign: how far two are apart, and how to bring them in line."""

import numpy as np
from jaxtyping import Float

from tallmc.models.columns import Numbers


def amari_distance(W: Numbers, true_W: Numbers) -> Float[np.ndarray, "..."]:
    """How far an unmixing matrix is from the true one, in whatever order and sign its rows are (Amari et al., 1996).

    With `P = W true_W^-1` of size d, `1 / (2 d)` times the sum over rows of `sum_j |p_ij| / max_j |p_ij| - 1` and the
    same over columns. 0 if both find the same sources, at most `d - 1`. Amari et al. leave out the factor `1 / (2 d)`,
    which makes it a mean over sources (Bach and Jordan, 2002).

    Args:
        W: Unmixing matrices, such as all draws of a run; leading axes are kept.
        true_W: One, of the same kind of rows (both of whitened rows, or both of raw ones).

    Returns:
        A number for each matrix.

    Example:
        >>> float(amari_distance([[0.0, -2.0], [1.0, 0.0]], np.eye(2)))
        0.0
        >>> float(amari_distance([[1.0, 1.0], [-1.0, 1.0]], np.eye(2)))
        1.0
    """
    found, true = _matrices(W, true_W)
    size = np.abs(np.linalg.solve(true.T, np.swapaxes(found, -1, -2)))  # its columns are the rows of P
    by_column, by_row = (np.sum(size.sum(axis=axis) / size.max(axis=axis) - 1, axis=-1) for axis in (-1, -2))
    return np.asarray((by_row + by_column) / (2 * true.shape[0]))


def aligned(W: Numbers, reference: Numbers) -> Float[np.ndarray, "... d d"]:
    """Unmixing matrices with their rows put in the order and given the signs that fit a reference best.

    After that means and spreads of entries are those of one of the posterior's equal copies, if the draws are nearer to
    the reference than the copies are to each other.

    Args:
        W: Unmixing matrices with orthonormal rows, such as all draws of a run; leading axes are kept.
        reference: One of them, such as the last draw.

    Example:
        >>> aligned([[0.0, -1.0], [1.0, 0.0]], np.eye(2)).tolist()
        [[1.0, 0.0], [-0.0, 1.0]]
    """
    from scipy.optimize import linear_sum_assignment

    found, wanted = _matrices(W, reference)
    flat = found.reshape(-1, *found.shape[-2:])
    likeness = wanted @ np.swapaxes(flat, -1, -2)  # of each wanted row with each row found
    order = np.stack([linear_sum_assignment(-np.abs(one))[1] for one in likeness])[:, :, None]
    sign = np.where(np.take_along_axis(likeness, order, axis=2) < 0, -1.0, 1.0)
    return (np.take_along_axis(flat, order, axis=1) * sign).reshape(found.shape)


def _matrices(W: Numbers, other: Numbers) -> tuple[np.ndarray, np.ndarray]:
    found, one = np.asarray(W, float), np.asarray(other, float)
    if one.ndim != 2 or one.shape[0] != one.shape[1]:
        raise ValueError(f"the matrix to compare with must be one square matrix, but its shape is {one.shape}")
    if found.shape[-2:] != one.shape:
        raise ValueError(
            f"unmixing matrices of shape {found.shape[-2:]} cannot be compared with one of shape {one.shape}; pass "
            "draws with their matrices along the last two axes"
        )
    return found, one
