"""What a sequential test does to the acceptance probability of a move, and that to the stationary distribution."""

import dataclasses
import functools

import numpy as np
from jaxtyping import ArrayLike

from tallmc.acceptance.sequential_test import check_boundary, check_epsilon, check_first_fraction, sequential_test

_DRIFT_POINTS = 128
_PANELS = np.array([0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, np.inf])  # in mu_std, away from the hardest case
_LONGEST = 40.0  # -log(uniform) is beyond this with probability 4e-18
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(12)


@dataclasses.dataclass(frozen=True)
class AcceptanceError:
    """What to expect of a move; each an array like the moves.

    Args:
        error: Acceptance probability of the sequential test less that of the exact test.
        wrong_decisions: Chance that its decision differs from the exact one. Wrong acceptances and wrong rejections
            partly cancel in `error`, but not here.
        data_fraction: Expected share of the rows read.
    """

    error: np.ndarray | float
    wrong_decisions: np.ndarray | float
    data_fraction: np.ndarray | float


def acceptance_error(
    log_ratio: ArrayLike, spread: ArrayLike, first_fraction: float, epsilon: float, boundary: float = 0.5
) -> AcceptanceError:
    """Error of the acceptance probability of a move (Korattikara et al., 2014, equation 6), by quadrature.

    Args:
        log_ratio: Log acceptance ratio over all rows, prior and proposal included.
        spread: Standard deviation of a row's log ratio, times the square root of the number of rows.
        first_fraction: Batch size over the number of rows.
        epsilon: Error allowed to one look.
        boundary: Exponent of Wang and Tsiatis.

    Returns:
        `.error`, `.wrong_decisions` and `.data_fraction`.

    Example:
        >>> print(f"{acceptance_error(-1.0, 2.0, first_fraction=0.05, epsilon=0.05).error:+.4f}")
        +0.0541
    """
    check_first_fraction(first_fraction)
    check_epsilon(epsilon)
    check_boundary(boundary)
    log_ratio, spread = np.broadcast_arrays(np.asarray(log_ratio, float), np.asarray(spread, float))
    if not (np.all(np.isfinite(log_ratio)) and np.all(np.isfinite(spread)) and np.all(spread >= 0)):
        raise ValueError("log_ratio and spread must be finite, and spread not negative")
    curves = curves_of(float(first_fraction), float(epsilon), float(boundary))
    # With -log(uniform) = s the standardised mean is (log_ratio + s) / spread: the sign changes at s = -log_ratio,
    # wrong decisions accept below it and reject above.
    size = np.maximum(spread, 1e-12)[..., None]
    turn = np.clip(-log_ratio, 0, _LONGEST)[..., None]
    accepting, accepting_weight = _nodes(np.zeros_like(turn), turn, size, towards_end=True)
    rejecting, rejecting_weight = _nodes(turn, np.full_like(turn, _LONGEST), size, towards_end=False)
    wrong, fraction = [], []
    for s, weight in ((accepting, accepting_weight), (rejecting, rejecting_weight)):
        error, read = curves(np.abs(log_ratio[..., None] + s) / size)
        wrong.append(np.sum(weight * np.exp(-s) * error, axis=-1))
        fraction.append(np.sum(weight * np.exp(-s) * read, axis=-1))
    return AcceptanceError((wrong[0] - wrong[1])[()], (wrong[0] + wrong[1])[()], (fraction[0] + fraction[1])[()])


def stationary_error(largest_error: float, contraction: float) -> float:
    """Bound on the total variation between posterior and stationary distribution (Korattikara et al., Theorem 1).

    Args:
        largest_error: Largest error of an acceptance probability; `rule.promise.largest_error(num_rows)` is one, and
            the largest `acceptance_error` of all moves a smaller one.
        contraction: Factor by which one exact step brings any distribution nearer to the posterior, in [0, 1);
            `tm.design.contraction` of a chain with few states.

    Returns:
        `largest_error / (1 - contraction)`, at most 1.

    Example:
        >>> print(f"{stationary_error(0.001, contraction=0.9):.3f}")
        0.010
    """
    if not 0 <= contraction < 1:
        raise ValueError(f"contraction must lie in [0, 1), got {contraction}")
    if not largest_error >= 0:
        raise ValueError(f"largest_error must not be negative, got {largest_error}")
    return min(1.0, largest_error / (1 - contraction))


def _nodes(start: np.ndarray, end: np.ndarray, size: np.ndarray, *, towards_end: bool) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre points between start and end, in panels that are fine where the standardised mean is small."""
    length = end - start
    # One more break where exp(-s) has fallen, for spreads so large that the panels do not see it.
    breaks = np.sort(np.concatenate([np.minimum(_PANELS * size, length), np.minimum(5.0, length)], axis=-1), axis=-1)
    left, width = breaks[..., :-1, None], np.diff(breaks, axis=-1)[..., None]
    distance = (left + width * (_POINTS + 1) / 2).reshape(*breaks.shape[:-1], -1)
    weight = (width * _WEIGHTS / 2 * np.ones_like(left)).reshape(distance.shape)
    return (end - distance if towards_end else start + distance), weight


class _Curves:
    """Error and data use of a test as functions of mu_std, by splines."""

    def __init__(self, first_fraction: float, epsilon: float, boundary: float):
        from scipy.interpolate import CubicSpline
        from scipy.special import ndtri

        strictest = max(-float(ndtri(epsilon)), 0.0) * first_fraction ** (0.5 - boundary) if epsilon > 0 else 0.0
        self.furthest = (strictest + _LONGEST / 5) / np.sqrt(first_fraction)
        grid = np.linspace(0.0, np.arcsinh(self.furthest), _DRIFT_POINTS)
        test = sequential_test(np.sinh(grid), first_fraction, epsilon, boundary)
        self.splines = CubicSpline(grid, np.stack([test.error, test.data_fraction], axis=-1))

    def __call__(self, mu_std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values = self.splines(np.arcsinh(np.minimum(mu_std, self.furthest)))
        return np.maximum(values[..., 0], 0.0), values[..., 1]


@functools.lru_cache(maxsize=512)
def curves_of(first_fraction: float, epsilon: float, boundary: float) -> _Curves:
    """Error and data use of a test as functions of mu_std, worked out once."""
    return _Curves(first_fraction, epsilon, boundary)
