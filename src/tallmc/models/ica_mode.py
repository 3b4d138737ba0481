"""Where the posterior of an unmixing matrix has a mode, and how narrow it is there: one angle at a time."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from tallmc.models.columns import Numbers
from tallmc.models.ica import IcaLikelihood
from tallmc.posterior import Posterior

_MOST_STEPS = 200
_SMALLEST_STEP = 2.0**-20
_ROWS_AT_A_TIME = 65_536
# Of the curvature per row: 1e-4 is a standard deviation of 0.1 with 10,000 rows. Planes that are flatter, or curved the
# other way as at a saddle, are taken for that curved, so that no step turns by more than their slope allows.
_FLATTEST = 1e-4
_LONGEST_ANGLE = 0.5  # of a step in one plane, in radians: beyond it a parabola says little about a periodic function


class IcaMode(NamedTuple):
    """A mode of the posterior of `tm.models.ica`.

    Args:
        W: The unmixing matrix of whitened rows.
        angles: At (i, j), the posterior standard deviation of the angle between sources i and j, in radians, as the
            curvature there has it; a scale for `tm.StiefelWalk`. Its diagonal is zero.
        converged: Whether it was found: every angle to a hundredth of its standard deviation.
        rows_read: What it took.
    """

    W: Float[np.ndarray, "d d"]
    angles: Float[np.ndarray, "d d"]
    converged: bool
    rows_read: int


def ica_mode(posterior: Posterior, init: Numbers | None = None) -> IcaMode:
    """Climbs to a mode of the posterior of `tm.models.ica`, by Newton steps in all planes of two sources at once.

    Near a mode sources are nearly independent, and then what rotations in different planes do to the likelihood hardly
    depends on each other (Ablin, Cardoso and Gramfort, 2018): one slope and one curvature a plane will do. Steps that
    lead downwards are halved.

    Args:
        posterior: From `tm.models.ica`.
        init: Where to begin; the identity if left out. The nearest orthonormal matrix is taken.

    Returns:
        The mode, and the angles that scale `tm.StiefelWalk`.

    Example:
        >>> import tallmc as tm
        >>> rng = np.random.default_rng(0)
        >>> posterior = tm.models.ica(rng.laplace(size=(2000, 2)) @ np.array([[1.0, 0.5], [0.2, 1.0]]))
        >>> mode = ica_mode(posterior)
        >>> walk = tm.StiefelWalk(mode.angles, reflections=0)
        >>> bool(tm.amari_distance(mode.W, mode.W) < 1e-6), mode.converged
        (True, True)
    """
    if not isinstance(posterior.log_likelihood, IcaLikelihood):
        raise ValueError("ica_mode is for posteriors of tm.models.ica; for others use tm.optimise.mode")
    rows = np.asarray(posterior.data)
    W = _orthonormal(np.eye(rows.shape[1]) if init is None else np.asarray(init, float))
    temperature, step, looks, converged = float(posterior.temperature), 1.0, 1, False
    here = _look(rows, W)
    while looks < _MOST_STEPS and step > _SMALLEST_STEP:
        curvature = np.maximum(-here.curvature, _FLATTEST * len(rows))
        angles = np.clip(here.slope / curvature, -_LONGEST_ANGLE, _LONGEST_ANGLE)
        if converged := bool(np.all(np.abs(angles) <= 0.01 * np.sqrt(temperature / curvature))):
            break
        there_W = _turned(W, step * angles)
        there, looks = _look(rows, there_W), looks + 1
        if there.height < here.height:
            step /= 2
            continue
        W, here, step = there_W, there, min(1.0, 2 * step)
    angles = np.sqrt(temperature / np.maximum(-here.curvature, _FLATTEST * len(rows)))
    return IcaMode(W.astype(rows.dtype), angles * (1 - np.eye(len(W))), converged, looks * len(rows))


class _Look(NamedTuple):
    """Sums over all rows: log likelihood, and its first two derivatives by the angle of each plane."""

    height: float
    slope: np.ndarray
    curvature: np.ndarray


def _look(rows: np.ndarray, W: np.ndarray) -> _Look:
    """With f = y - 2 log(1 + e^y), source y_i turns towards y_j, and y_j away from y_i.

    The slope is the sum of `f'(y_i) y_j - f'(y_j) y_i`, and the curvature that of `f''(y_i) y_j^2 - f'(y_i) y_i` and
    the same with i and j exchanged.
    """
    height, mixed, bent, own = 0.0, 0.0, 0.0, 0.0
    for sources in _sources(rows, W):
        steep = -np.tanh(sources / 2)
        height += float(np.sum(-np.abs(sources) - 2 * np.log1p(np.exp(-np.abs(sources)))))
        mixed = mixed + steep.T @ sources
        bent = bent - (1 - steep**2).T @ sources**2 / 2
        own = own + np.sum(steep * sources, axis=0)
    mixed, bent, own = np.asarray(mixed), np.asarray(bent), np.asarray(own)
    return _Look(height, mixed - mixed.T, bent + bent.T - (own[:, None] + own[None]))


def _sources(rows: np.ndarray, W: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), _ROWS_AT_A_TIME):
        yield np.asarray(rows[start : start + _ROWS_AT_A_TIME], float) @ W.T


def _turned(W: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """By the Cayley transform of a skew matrix, as `tm.StiefelWalk` turns, and cleared of rounding."""
    one = np.eye(len(W))
    return _orthonormal(np.linalg.solve(one - angles / 2, (one + angles / 2) @ W))


def _orthonormal(W: np.ndarray) -> np.ndarray:
    """The nearest such matrix."""
    left, _, right = np.linalg.svd(W)
    return left @ right
