"""Factorisations that say when a matrix is not fit to be solved with."""

import functools

import numpy as np

from tallmc.optimise.contract import Sums

# Share of the largest diagonal element below which one counts as zero. A judgement: columns whose units differ by a
# factor of 1e8 have diagonals that differ by 1e16, and single precision can hold no such pair of coefficients.
_SMALLEST = 1e-20


class Degenerate(Exception):
    """A curvature matrix that is singular to rounding.

    Args:
        matrix: Scaled to a unit diagonal; or which of its diagonal elements are not positive.
    """

    def __init__(self, matrix: np.ndarray):
        super().__init__("coordinates are linearly dependent")
        self._matrix = matrix

    @functools.cached_property
    def columns(self) -> list[int]:
        """Coordinates that take part in the dependency; takes a decomposition to find."""
        if self._matrix.ndim == 1:
            return np.flatnonzero(self._matrix).tolist()
        vector = np.abs(np.linalg.eigh(self._matrix)[1][:, 0])
        return np.flatnonzero(vector > 0.1 * vector.max()).tolist()


def solve(curvature: np.ndarray, right: np.ndarray, finest: float) -> np.ndarray:
    """Solves with a positive definite matrix, or raises `Degenerate`.

    The matrix is first scaled to a unit diagonal. A pivot is then the share of a coordinate that the ones before it
    leave unexplained, and can be held against the rounding error of the rows.
    """
    diagonal = np.diag(curvature)
    if not np.all(np.isfinite(curvature)) or np.any(diagonal <= 0):
        raise Degenerate(~(diagonal > 0))
    scale = 1 / np.sqrt(diagonal)
    scaled = curvature * scale[:, None] * scale
    # Rounding errors of single rows average out in the sums; thirty of them is far more than is left of them.
    smallest = 30 * finest
    try:
        # NumPy's, not SciPy's: that has a BLAS of its own, whose threads `one_blas_thread` need not know of.
        factor = np.linalg.cholesky(scaled)
    except np.linalg.LinAlgError:
        raise Degenerate(scaled) from None
    if np.min(np.diag(factor)) ** 2 < smallest:
        raise Degenerate(scaled)
    return scale * np.linalg.solve(factor.T, np.linalg.solve(factor, scale * right))


def solve_downhill(
    curvature: np.ndarray, right: np.ndarray, finest: float, units: np.ndarray | None = None
) -> np.ndarray:
    """Solves with the matrix if it is positive definite, else with its eigenvalues made so.

    Negative eigenvalues change sign and tiny ones are raised to a millionth of the largest. The step then goes down
    along every eigenvector, and not far where the loss is flat.

    Args:
        curvature: The matrix.
        right: What it is solved for.
        finest: Relative rounding error of one row's arithmetic.
        units: Of the coordinates, in which eigenvalues are compared: in odd units of their own, some would be taken for
            flat directions and hardly move. All 1 if left out.
    """
    try:
        return solve(curvature, right, finest)
    except Degenerate:
        scale = np.ones(len(curvature)) if units is None else units
        values, vectors = np.linalg.eigh(curvature * scale[:, None] * scale)
        values = np.maximum(np.abs(values), max(1e-6 * np.max(np.abs(values)), np.finfo(float).tiny))
        return scale * (vectors @ ((vectors.T @ (scale * right)) / values))


def units_of(curvature: np.ndarray) -> np.ndarray:
    """Units of the coordinates in which the diagonal of a matrix is 1 in size."""
    sizes = np.abs(np.diag(curvature))
    return 1 / np.sqrt(np.maximum(sizes, max(_SMALLEST * np.max(sizes), np.finfo(float).tiny)))


def update(sums: Sums, finest: float, *, convex: bool, units: np.ndarray | None = None) -> np.ndarray:
    """The Newton step `curvature^-1 score`; where the problem is not convex, bent so that it goes downhill."""
    assert sums.curvature is not None
    if convex:
        return solve(sums.curvature, sums.score, finest)
    return solve_downhill(sums.curvature, sums.score, finest, units)
