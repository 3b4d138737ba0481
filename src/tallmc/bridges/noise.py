"""A size of the noise where nobody gave one: what least squares leave of the outcomes."""

import numpy as np

_LEAST_NOISE = 1e-3  # of the spread of y, where a fit leaves less: as many columns as rows leave nothing at all
_NORMAL = 1.4826  # standard deviations in the median size of normal noise


def noise_left(columns: np.ndarray, y: np.ndarray, *, robust: bool = False) -> float:
    """Standard deviation of the noise, or that of most rows if it is to be robust.

    Args:
        columns: Of the regression, that of an intercept among them.
        y: Outcomes.
        robust: Whether outliers are to count for nothing.

    Example:
        >>> round(noise_left(np.ones((4, 1)), np.array([0.0, 0.0, 2.0, 2.0])), 3)
        1.155
    """
    columns, y = np.asarray(columns, float), np.asarray(y, float)
    gram, slope = columns.T @ columns, columns.T @ y  # as small as there are columns, however many rows
    left = y - columns @ np.linalg.lstsq(gram, slope, rcond=None)[0]
    degrees = max(len(y) - columns.shape[1], 1)
    found = _NORMAL * float(np.median(np.abs(left))) if robust else float(np.sqrt(np.sum(left**2) / degrees))
    spread = float(np.std(y))
    return max(found, _LEAST_NOISE * spread) if spread > 0 else max(found, 1.0)
