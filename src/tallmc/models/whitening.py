"""Whitening: a linear map after which columns have mean 0, variance 1 and no correlation. It remembers itself."""

import equinox as eqx
import numpy as np
from jaxtyping import Float, Real

from tallmc.models.columns import Numbers, float_column

_ROWS_AT_A_TIME = 65_536
# Standard deviation of some combination of columns, each of variance 1, below which they count as collinear: columns in
# float32 that depend on each other leave 1e-7.
_FLATTEST = 1e-6


class Whitening(eqx.Module):
    """Takes rows to a scale on which their mean is 0 and their covariance the identity, and unmixing matrices back.

    Columns are brought to variance 1 first, and then to no correlation by the inverse square root of their
    correlations: that changes them as little as whitening can, does not depend on their units, and unlike a map made of
    eigenvectors it is the same on every machine.

    Args:
        mean: Of the rows that it was made from.
        matrix: What a row, less that mean, is multiplied by.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(1000, 2)) @ np.array([[2.0, 1.0], [0.0, 1.0]]) + 5
        >>> whitening = Whitening.of(X)
        >>> np.allclose(np.cov(whitening.apply(X).T, bias=True), np.eye(2))
        True
    """

    mean: Float[np.ndarray, " columns"]
    matrix: Float[np.ndarray, "columns columns"]

    @classmethod
    def of(cls, X: Numbers) -> "Whitening":
        """The whitening of these rows, worked out in double precision.

        Args:
            X: One line a row, one column a recording.
        """
        rows = np.asarray(float_column("X", X, 2))
        num_rows, size = rows.shape
        if size == 0:
            raise ValueError("X has no columns; pass one for each recording")
        mean = sum((block.sum(axis=0) for block in _blocks(rows)), np.zeros(size)) / num_rows
        covariance = sum(((block - mean).T @ (block - mean) for block in _blocks(rows)), np.zeros((size, size)))
        if not np.all(np.isfinite(covariance)):
            raise ValueError("X holds NaN or infinity; drop or fill such rows first")
        spread = np.sqrt(np.diag(covariance) / num_rows)
        unit = np.where(spread > 0, spread, 1)
        variances, directions = np.linalg.eigh(covariance / num_rows / np.outer(unit, unit))
        if not variances[0] > _FLATTEST**2:
            raise ValueError(
                "X cannot be whitened: some combination of its columns does not vary. Drop columns that are constant "
                "or follow from others, and give at least as many rows as columns"
            )
        return cls(mean, (directions / np.sqrt(variances)) @ directions.T / spread)

    def apply(self, X: Numbers) -> Real[np.ndarray, "rows columns"]:
        """Rows, also new ones, on the whitened scale, in the precision of `X`."""
        rows = np.asarray(float_column("X", X, 2))
        if rows.shape[1] != len(self.mean):
            raise ValueError(f"X has {rows.shape[1]} columns but was whitened with {len(self.mean)}; pass the same")
        white = np.empty(rows.shape, rows.dtype)
        for start, block in zip(range(0, len(rows), _ROWS_AT_A_TIME), _blocks(rows), strict=True):
            white[start : start + len(block)] = (block - self.mean) @ self.matrix.T
        return white

    def unmixing(self, W: Real[np.ndarray, "*draws k columns"]) -> Real[np.ndarray, "*draws k columns"]:
        """Unmixing matrices of rows as they were before whitening, such as those of all of `run.samples`."""
        return np.asarray(W, float) @ self.matrix

    def sources(self, W: Real[np.ndarray, "k columns"], X: Numbers) -> Real[np.ndarray, "rows k"]:
        """What one unmixing matrix of whitened rows makes of rows, also new ones, as they were before whitening."""
        return self.apply(X) @ np.asarray(W).T


def _blocks(rows: Real[np.ndarray, "rows columns"]):
    """As many rows at a time as fit into a cache, in double precision."""
    for start in range(0, len(rows), _ROWS_AT_A_TIME):
        yield np.asarray(rows[start : start + _ROWS_AT_A_TIME], float)
