"""Along straight lines through the centre of a posterior: is there more than a normal would have there?"""

import math

import numpy as np
from jaxtyping import Real

_NUM_RANDOM = 16  # directions besides the two of each coordinate. A judgement
# Where to look, in standard deviations of the normal: every quarter out to eight, then further and further.
_NEAR = np.arange(-8.0, 8.25, 0.25)
_FAR = 8.0 * 1.5 ** np.arange(1, 13)
PLACES = np.concatenate([-_FAR[::-1], _NEAR, _FAR])
# Along a line a normal has a variance of 1, and 6e-5 of its mass beyond four. A proposal that fits a normal goes to
# wider tails too seldom, and stays there too long. Both limits are judgements: a Student's t with 8 degrees of
# freedom, whose draws come out right, has 1.15 and 0.003; one with 4, whose draws are sticky, 1.45 and 0.013.
_WIDE = 1.35
_BEYOND = 4.0
_MASS_BEYOND = 0.006
# The same where all rows are few, so that following gradients costs little: no more than the former of these two.
_WIDE_OF_FEW, _MASS_BEYOND_OF_FEW = 1.2, 0.003
# Whatever lies behind a fall of so many nats no chain comes to. Far out float32 may lose all digits of a likelihood,
# and what it leaves must not pass for mass.
_BARRIER = 50.0


def directions(factor: Real[np.ndarray, "d d"]) -> Real[np.ndarray, "lines d"]:
    """Lines to look along, each a standard deviation of the normal long.

    Two for each coordinate, along which it moves by itself and with all others where they are likeliest, and some
    random ones.

    Args:
        factor: Lower Cholesky factor of the normal's covariance.
    """
    size = len(factor)
    alone = np.linalg.norm(np.linalg.inv(factor), axis=0)
    together = factor @ (factor / np.linalg.norm(factor, axis=1, keepdims=True)).T
    random = np.random.default_rng(0).normal(size=(_NUM_RANDOM, size))
    random = random / np.linalg.norm(random, axis=1, keepdims=True) @ factor.T
    return np.concatenate([np.diag(1 / alone), together.T, random])


def heaviest(log_densities: Real[np.ndarray, "lines places"]) -> tuple[float, float]:
    """The largest variance along a line, and the largest share of its mass beyond four standard deviations.

    Args:
        log_densities: At `PLACES` along each line, up to a constant; minus infinity outside the support.

    Example:
        >>> variance, beyond = heaviest(-0.5 * PLACES[None] ** 2)
        >>> round(variance, 6), beyond < 1e-4
        (1.0, True)
    """
    values = _reachable(np.where(np.isnan(log_densities), -np.inf, log_densities))
    highest = values.max(axis=1, keepdims=True)
    if not np.all(np.isfinite(highest)):
        return math.inf, 1.0
    mass = np.exp(values - highest) * np.gradient(PLACES)
    mass /= mass.sum(axis=1, keepdims=True)
    mean = mass @ PLACES
    variance = mass @ PLACES**2 - mean**2
    return float(variance.max()), float(mass[:, np.abs(PLACES) > _BEYOND].sum(axis=1).max())


def _reachable(values: Real[np.ndarray, "lines places"]) -> Real[np.ndarray, "lines places"]:
    """Minus infinity behind barriers, as seen from the centre."""
    centre = len(PLACES) // 2

    def outwards(side: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):  # infinity less infinity
            fall = np.maximum.accumulate(side, axis=1) - side
        return np.where(np.logical_or.accumulate(fall > _BARRIER, axis=1), -np.inf, side)

    left, right = outwards(values[:, centre::-1]), outwards(values[:, centre:])
    return np.concatenate([left[:, :0:-1], right], axis=1)


def like_a_normal(variance: float, beyond: float, *, of_few: bool = False) -> bool:
    """Whether a proposal that fits a normal goes wherever there is mass.

    Args:
        variance: As `heaviest` finds it.
        beyond: Likewise.
        of_few: Whether rows are so few that it costs little to be strict.
    """
    wide, most = (_WIDE_OF_FEW, _MASS_BEYOND_OF_FEW) if of_few else (_WIDE, _MASS_BEYOND)
    return math.isfinite(variance) and variance < wide and beyond < most
