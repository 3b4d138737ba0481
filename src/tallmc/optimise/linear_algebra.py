"""Factorisations that say when a matrix is not fit to be solved with."""

import functools

import numpy as np

from tallmc.optimise.contract import Sums


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


def solve_downhill(curvature: np.ndarray, right: np.ndarray, finest: float) -> np.ndarray:
    """Solves with the matrix if it is positive definite, else with its eigenvalues made so.

    Negative eigenvalues change sign and tiny ones are raised to a millionth of the largest. The step then goes down
    along every eigenvector, and not far where the loss is flat.
    """
    try:
        return solve(curvature, right, finest)
    except Degenerate:
        values, vectors = np.linalg.eigh(curvature)
        values = np.maximum(np.abs(values), max(1e-6 * np.max(np.abs(values)), np.finfo(float).tiny))
        return vectors @ ((vectors.T @ right) / values)


def update(sums: Sums, finest: float, *, convex: bool) -> np.ndarray:
    """The Newton step `curvature^-1 score`; where the problem is not convex, bent so that it goes downhill."""
    assert sums.curvature is not None
    return (solve if convex else solve_downhill)(sums.curvature, sums.score, finest)
