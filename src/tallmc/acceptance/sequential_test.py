"""How often a sequential test is wrong and how much data it reads, without running it (Korattikara et al., 2014).

The test looks at growing shares of the rows and stops when the standardised mean leaves a boundary. In the time
t = share / (1 - share) the scaled partial sums of rows drawn without replacement are a Brownian motion whose drift is
`mu_std`. Where it is at time t, and nothing else, says how likely it got there without leaving the boundary at an
earlier look: the way between two known points does not depend on the drift. So this chance is passed from look to look
by quadrature once, and serves for every `mu_std`.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import ArrayLike

_SPACING = 1.5  # quadrature points for each standard deviation of a step: enough for six digits
_FEWEST_POINTS = 12
_POINTS_OUTSIDE = 16
_MOST_LOOKS = 20_000
_REACH = 8.0  # standard deviations beyond the boundary at which a walk can end up in one step


@dataclasses.dataclass(frozen=True)
class SequentialTest:
    """What to expect of a sequential test; each an array like `mu_std`.

    Args:
        error: Chance to decide against the sign of the mean over all rows.
        data_fraction: Expected share of the rows read.
    """

    error: np.ndarray | float
    data_fraction: np.ndarray | float


def sequential_test(
    mu_std: ArrayLike | Sequence[float], first_fraction: float, epsilon: float, boundary: float = 0.5
) -> SequentialTest:
    """Error and expected data use of a sequential test, by dynamic programming.

    Args:
        mu_std: Mean over all rows of what is tested, times sqrt(rows - 1), over its standard deviation. 0 is the
            hardest case: there the error is half the chance to stop before all rows have been read.
        first_fraction: Share of the rows in the first look and between any two looks: batch_size / rows.
        epsilon: Error allowed to a single look.
        boundary: Exponent of Wang and Tsiatis (1987): 0.5 (Pocock) asks for the same confidence at every look, 1
            (O'Brien and Fleming) for more at early ones.

    Returns:
        `.error` and `.data_fraction`.

    Example:
        >>> test = sequential_test(mu_std=1.0, first_fraction=0.05, epsilon=0.05)
        >>> print(f"{test.error:.4f} {test.data_fraction:.4f}")
        0.0758 0.4875
    """
    check_first_fraction(first_fraction)
    check_epsilon(epsilon)
    check_boundary(boundary)
    drift = np.abs(np.asarray(mu_std, float))
    if not np.all(np.isfinite(drift)):
        raise ValueError("mu_std must be finite")
    walk = _walk(float(first_fraction), float(epsilon), float(boundary))
    error, going_on = walk.at_drift(drift.ravel())
    unread = np.diff(np.append(walk.share, 1.0))
    fraction = walk.share[0] + going_on @ unread if len(walk.share) else np.ones(drift.size)
    return SequentialTest(error.reshape(drift.shape)[()], fraction.reshape(drift.shape)[()])


def check_epsilon(epsilon: float) -> None:
    """Raises `ValueError` unless this can be the error of one look."""
    if not 0 <= epsilon < 1:
        raise ValueError(
            f"epsilon must lie in [0, 1), got {epsilon}; it is the error allowed to one look, such as 0.05, and 0 asks "
            "for all rows"
        )


def check_boundary(boundary: float) -> None:
    """Raises `ValueError` unless this can be the exponent of a boundary."""
    if not 0.5 <= boundary <= 1:
        raise ValueError(
            f"boundary must lie between 0.5 (Pocock: every look alike) and 1 (O'Brien-Fleming: early looks stricter), "
            f"got {boundary}"
        )


def check_first_fraction(first_fraction: float) -> None:
    """Raises `ValueError` unless this is a share of the rows."""
    if not 0 < first_fraction <= 1:
        raise ValueError(f"first_fraction must lie in (0, 1], got {first_fraction}; it is batch_size / rows")


@dataclasses.dataclass(frozen=True)
class _Walk:
    """Chances not to have stopped before, at quadrature points; one line a look, the last look (all rows) left out.

    By symmetry only points above zero are kept: `inside` the boundary, where a walk goes on, and `outside`, where it
    stops. Chances are already multiplied by the weights of their points.
    """

    share: np.ndarray
    time: np.ndarray
    inside: np.ndarray
    chance_inside: np.ndarray
    outside: np.ndarray
    chance_outside: np.ndarray

    def at_drift(self, drift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each drift: the chance to stop below zero, and the chance to go on after each look."""
        error, going_on = np.zeros(drift.shape), np.zeros((drift.size, len(self.time)))
        time = self.time[:, None]

        def density(at: np.ndarray) -> np.ndarray:
            return np.exp(-(at * at) / (2 * time)) / np.sqrt(2 * math.pi * time)

        for i, m in enumerate(drift):
            error[i] = np.sum(self.chance_outside * density(self.outside + m * time))
            both = density(self.inside - m * time) + density(self.inside + m * time)
            going_on[i] = np.sum(self.chance_inside * both, axis=1)
        return error, going_on


@functools.lru_cache(maxsize=32)
def _walk(first_fraction: float, epsilon: float, boundary: float) -> _Walk:
    from scipy.special import ndtri

    num_looks = math.ceil(1 / first_fraction - 1e-9)
    if num_looks > _MOST_LOOKS:
        raise ValueError(f"{num_looks} looks are too many to work out; take batches of at least rows / {_MOST_LOOKS}")
    # The last look sees all rows and makes no error. No look before it happens at confidence 1.
    share = first_fraction * np.arange(1, num_looks) if epsilon > 0 else np.empty(0)
    time = share / (1 - share)
    step = np.sqrt(np.diff(time, prepend=0.0))
    edge = max(float(ndtri(1 - epsilon)), 0.0) * share ** (0.5 - boundary) * np.sqrt(time) if epsilon > 0 else time

    # Given where the walk is at a look, at the look before it was at a normal place with this mean and spread.
    shrinkage = time[:-1] / time[1:]
    spread = step[1:] * np.sqrt(shrinkage)
    num_points = _FEWEST_POINTS + math.ceil(_SPACING * np.max(edge[:-1] / spread, initial=0.0))
    unit, weight = _gauss_legendre(num_points)
    unit_out, weight_out = _gauss_legendre(_POINTS_OUTSIDE)
    inside, outside = np.outer(edge, unit), edge[:, None] + np.outer(_REACH * step, unit_out)
    points = np.concatenate([inside, outside], axis=1)
    weights = np.concatenate([np.outer(edge, weight), np.outer(_REACH * step, weight_out)], axis=1)

    chance = np.ones_like(points)
    for look in range(1, len(share)):
        scale = math.sqrt(2) * spread[look - 1]
        target, source = points[look] * (shrinkage[look - 1] / scale), inside[look - 1] / scale
        near, far = target[:, None] - source, target[:, None] + source
        before = weights[look - 1, :num_points] * chance[look - 1, :num_points]
        chance[look] = (np.exp(-(near * near)) + np.exp(-(far * far))) @ before / (scale * math.sqrt(math.pi))
    chance *= weights
    return _Walk(share, time, inside, chance[:, :num_points], outside, chance[:, num_points:])


@functools.lru_cache(maxsize=64)
def _gauss_legendre(num_points: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights on (0, 1)."""
    points, weights = np.polynomial.legendre.leggauss(num_points)
    return (points + 1) / 2, weights / 2
