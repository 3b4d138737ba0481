"""Where the rungs of a ladder go and what moves them."""

import math

import jax
import numpy as np
from jaxtyping import Float, PyTree

from tallmc.compose import Ladder
from tallmc.nuts import NUTS
from tallmc.posterior import Posterior, checks
from tallmc.proposals import RandomWalk
from tallmc.whole_metropolis import WholeMetropolis

# Rungs for each unit of the barrier, besides the first: then neighbours swap about every second time, and no fewer
# rungs bring more round trips for the same work (Syed et al., 2022).
_RUNGS_PER_BARRIER = 2.0
_FEWEST_RUNGS, _MOST_RUNGS = 3, 40  # of a ladder that is placed here. The most is a judgement: each costs as much again
_LEAST_REJECTION = 0.02  # taken for each pair, so that no two temperatures fall together. A judgement
# Coordinates up to which a random walk gets along on a rung: as in `situation`. A judgement.
_LOW = 10
# Transitions of a random walk before swaps are tried: a few coordinates' worth. A judgement.
_MOST_MOVES = 5


def ladder_of(
    temperatures: Float[np.ndarray, " rungs"],
    size: int,
    factor: Float[np.ndarray, "d d"] | None,
    level: float,
    *,
    adapts: bool,
) -> Ladder:
    """Exact rungs and swaps: a random walk where coordinates are few, NUTS where they are many.

    Args:
        temperatures: Of the rungs.
        size: Coordinates of a position.
        factor: Of the covariance at a mode, if that is known: the shape of the walk's steps, or the first of NUTS.
        level: Log likelihood of a row at a typical position.
        adapts: Whether warm-up places the temperatures.
    """
    if factor is not None and size > _LOW:
        step = float(np.linalg.svd(factor, compute_uv=False)[-1])
        return Ladder(temperatures, NUTS(step_size=step), adapts=adapts)
    scale = 0.1 if factor is None else factor * 2.4 / math.sqrt(size)
    walk = WholeMetropolis(RandomWalk(scale), level)
    return Ladder(temperatures, walk, moves=int(np.clip(size, 2, _MOST_MOVES)), adapts=adapts)


def level_at(posterior: Posterior, position: PyTree) -> tuple[float, int]:
    """Mean log likelihood of a row at a position, and the rows that it takes to find out."""
    some = checks.rows_to_try(posterior.rows)[1]
    stacked = jax.tree.map(lambda leaf: np.asarray(leaf)[None], position)
    said = np.asarray(checks.log_likelihoods_of(posterior.model, stacked, some), float)
    level = float(np.mean(said))
    return (level if math.isfinite(level) else 0.0), said.size


def expected_barrier(size: int, hottest: float) -> float:
    """The barrier between temperatures 1 and `hottest` for a normal with so many coordinates.

    Half the mean distance of two energies is then `E |G - G'| / 2` for each unit of log temperature, where G and G' are
    gamma variables of shape size / 2.

    Example:
        >>> round(expected_barrier(2, math.exp(2.0)), 3)
        1.0
    """
    shape = size / 2
    half = math.exp(math.lgamma(shape + 0.5) - math.lgamma(shape)) / math.sqrt(math.pi)
    return half * math.log(hottest)


def num_rungs(barrier: float) -> int:
    """Rungs that a barrier asks for.

    Example:
        >>> num_rungs(4.2)
        10
    """
    return int(np.clip(math.ceil(_RUNGS_PER_BARRIER * barrier) + 1, _FEWEST_RUNGS, _MOST_RUNGS))


def first_temperatures(size: int, hottest: float, num_rows: int) -> Float[np.ndarray, " rungs"]:
    """Geometric, as for a normal posterior; an infinite one stands above one of a row's worth of data.

    Args:
        size: Coordinates of a position.
        hottest: The last temperature.
        num_rows: Of data.
    """
    finite = hottest if math.isfinite(hottest) else float(max(num_rows, 10))
    count = num_rungs(expected_barrier(size, finite))
    heats = np.geomspace(1.0, finite, count)
    return heats if math.isfinite(hottest) else np.append(heats[: _MOST_RUNGS - 1], math.inf)


def placed_evenly(
    temperatures: Float[np.ndarray, " rungs"], rejection: Float[np.ndarray, " pairs"], count: int
) -> Float[np.ndarray, " count"]:
    """So many temperatures between the same ends, with as much rejection between any two neighbours.

    Args:
        temperatures: At which swaps were tried.
        rejection: Share of those of each pair that was rejected.
        count: How many are wanted.

    Example:
        >>> placed_evenly(np.array([1.0, 10.0, 100.0]), np.array([0.2, 0.6]), 3).round(1).tolist()
        [1.0, 21.5, 100.0]
    """
    inverse = 1 / temperatures
    # Logarithms of inverse temperatures, bent so that zero has a place: as if it were a tenth of the last but one.
    bend = 0.1 * inverse[-2] if inverse[-1] == 0 else 0.0
    places = -np.log(inverse + bend)
    cumulative = np.concatenate([[0.0], np.cumsum(np.maximum(rejection, _LEAST_REJECTION))])
    chosen = np.exp(-np.interp(np.linspace(0, cumulative[-1], count), cumulative, places)) - bend
    chosen[0], chosen[-1] = inverse[0], inverse[-1]
    with np.errstate(divide="ignore"):
        return 1 / chosen
