"""What a sequential test does to a conditional probability of Gibbs sampling, and that to what is drawn."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import ArrayLike

from tallmc.acceptance.sequential_test import check_boundary, check_epsilon, check_first_fraction
from tallmc.design.acceptance_error import curves_of

_PANELS = np.array([0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, np.inf])  # in mu_std, away from the hardest case
_REACH = 40.0  # a logistic number is further out with probability 8e-18
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(12)


@dataclasses.dataclass(frozen=True)
class ConditionalError:
    """What to expect of the update of a binary variable; each an array like the log odds.

    Args:
        error: Chance that the variable is given its second value, less the conditional probability of that.
        wrong_decisions: Chance that it is given another value than all factors would give it.
        data_fraction: Expected share of the variable's factors that are read.
    """

    error: np.ndarray | float
    wrong_decisions: np.ndarray | float
    data_fraction: np.ndarray | float


def conditional_error(
    log_odds: ArrayLike | Sequence[float],
    spread: ArrayLike,
    first_fraction: float,
    epsilon: float,
    boundary: float = 0.5,
) -> ConditionalError:
    """Error of a conditional probability under Gibbs sampling by `AustereMH`, by quadrature.

    The update compares the log odds with a logistic number (Korattikara et al., 2014, supplement F); the sequential
    test is wrong about that as often as its distance from the log odds, in standard deviations, says.

    Args:
        log_odds: Log of the conditional odds of the second value: the sum over all factors of the variable.
        spread: Standard deviation of one factor's part of them, times the square root of the number of factors.
        first_fraction: Batch size over the number of factors.
        epsilon: Error allowed to one look.
        boundary: Exponent of Wang and Tsiatis.

    Returns:
        `.error`, `.wrong_decisions` and `.data_fraction`.

    Example:
        >>> found = conditional_error([0.0, 2.0], spread=1.97, first_fraction=500 / 4851, epsilon=0.05)
        >>> found.error.round(3).tolist(), found.data_fraction.round(3).tolist()
        ([0.0, -0.032], [0.642, 0.558])
    """
    check_first_fraction(first_fraction)
    check_epsilon(epsilon)
    check_boundary(boundary)
    log_odds, spread = np.broadcast_arrays(np.asarray(log_odds, float), np.asarray(spread, float))
    if not (np.all(np.isfinite(log_odds)) and np.all(np.isfinite(spread)) and np.all(spread >= 0)):
        raise ValueError("log_odds and spread must be finite, and spread not negative")
    curves = curves_of(float(first_fraction), float(epsilon), float(boundary))
    size = np.maximum(spread, 1e-12)[..., None]
    distance, weight = _nodes(size)
    error, read = curves(distance / size)
    # Levels below the log odds give the second value, unless the test is wrong; those above the first.
    below, above = (weight * _logistic(log_odds[..., None] + side * distance) for side in (-1, 1))
    lost, won = np.sum(below * error, axis=-1), np.sum(above * error, axis=-1)
    return ConditionalError((won - lost)[()], (won + lost)[()], np.sum((below + above) * read, axis=-1)[()])


def gibbs_stationary_error(largest_error: float, contraction: float, num_updates: int = 1) -> float:
    """Bound on the total variation between a field and what approximate Gibbs sampling draws (Theorem 4 of the same).

    With exact and approximate conditionals that differ by at most `largest_error`, kernels of `num_updates` updates
    differ by at most `num_updates` times as much in one step, and steps before it are forgotten at the rate of the
    contraction. The theorem is stated for one update. But an update of one given variable leaves all others alone and
    so contracts nothing by itself: count the updates of the kernel whose contraction is known, such as a sweep.

    Args:
        largest_error: Largest error of a conditional probability, over variables and what the others are:
            `conditional_error` gives it, and `AustereMH.promise.largest_error` bounds it.
        contraction: Dobrushin's coefficient of the exact kernel: factor by which it brings any two distributions nearer
            to each other, in [0, 1).
        num_updates: Updates of that kernel.

    Returns:
        `num_updates * largest_error / (1 - contraction)`, at most 1.

    Example:
        >>> print(f"{gibbs_stationary_error(0.0001, contraction=0.5, num_updates=10):.3f}")
        0.002
    """
    if not 0 <= contraction < 1:
        raise ValueError(f"contraction must lie in [0, 1), got {contraction}")
    if not largest_error >= 0:
        raise ValueError(f"largest_error must not be negative, got {largest_error}")
    if isinstance(num_updates, bool) or not isinstance(num_updates, int | np.integer) or num_updates < 1:
        raise ValueError(f"num_updates must be a whole number of at least 1, got {num_updates!r}")
    return min(1.0, num_updates * largest_error / (1 - contraction))


def _logistic(level: np.ndarray) -> np.ndarray:
    """The density of log(u / (1 - u))."""
    near = np.exp(-np.abs(level))
    return near / (1 + near) ** 2


def _nodes(size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre points for the distance of level and log odds, fine where the test is in doubt."""
    fixed = np.broadcast_to(np.arange(0.0, 2 * _REACH + 1, 2.0), (*size.shape[:-1], int(_REACH) + 1))
    breaks = np.sort(np.concatenate([np.minimum(_PANELS * size, 2 * _REACH), fixed], axis=-1), axis=-1)
    left, width = breaks[..., :-1, None], np.diff(breaks, axis=-1)[..., None]
    distance = (left + width * (_POINTS + 1) / 2).reshape(*breaks.shape[:-1], -1)
    return distance, (width * _WEIGHTS / 2 * np.ones_like(left)).reshape(distance.shape)
