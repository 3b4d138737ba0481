"""Cholesky factors that callers pass."""

import numpy as np


def check_factor(name: str, factor: np.ndarray) -> None:
    """Raises `ValueError` unless this is a lower Cholesky factor."""
    if factor.ndim != 2 or factor.shape[0] != factor.shape[1]:
        raise ValueError(f"{name} must be a square matrix, but its shape is {factor.shape}")
    if not np.all(np.isfinite(factor)):
        raise ValueError(f"{name} must be finite")
    if not (np.all(np.triu(factor, 1) == 0) and np.all(np.diag(factor) > 0)):
        raise ValueError(
            f"{name} must be a lower Cholesky factor with a positive diagonal: pass numpy.linalg.cholesky(covariance)"
        )
