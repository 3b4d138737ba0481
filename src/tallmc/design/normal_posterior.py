"""What a sequential test makes of a normal posterior in one dimension, without running it."""

import dataclasses

import numpy as np
from jaxtyping import Float

from tallmc.design.acceptance_error import acceptance_error

_POINTS = 161  # twice as many change the width by less than 0.003
_MOST_TRIES = 6
_REACH = 5.0  # standard deviations of the chain that the grid must hold on either side


@dataclasses.dataclass(frozen=True)
class NormalPosterior:
    """A chain with a sequential test on a normal posterior; lengths in the posterior's standard deviations.

    Args:
        sd: Standard deviation of the draws; 1 for an exact test.
        data_fraction: Expected share of the rows that a test reads.
        acceptance: Share of proposals accepted.
        total_variation: Distance of the draws' distribution from the posterior.
    """

    sd: float
    data_fraction: float
    acceptance: float
    total_variation: float


def normal_posterior(
    first_fraction: float,
    epsilon: float,
    boundary: float = 0.5,
    *,
    scale: float = 2.4,
    temperature: float = 1.0,
) -> NormalPosterior:
    """How wide `AustereMH` makes a normal posterior in one dimension, and what its tests read.

    A random walk on a fine grid, whose chance to accept each move is that of the exact test and its error
    (`acceptance_error`): its stationary distribution is worked out, not sampled. A move by d posterior standard
    deviations has log ratios whose spread is |d| / sqrt(temperature), whatever the number of rows. So the figures hold
    for any posterior with one coordinate that is normal and has many rows. At temperature 1 a test that reads a
    part of the rows cannot be sure, and the posterior becomes wider, not just noisier.

    Args:
        first_fraction: Batch size over the number of rows.
        epsilon: Error allowed to one look.
        boundary: Exponent of Wang and Tsiatis.
        scale: Standard deviation of a step.
        temperature: Of the posterior.

    Returns:
        What becomes of the chain.

    Example:
        >>> found = normal_posterior(first_fraction=500 / 12_214, epsilon=0.05, scale=2.0)
        >>> print(f"{found.sd:.2f} times as wide, from {100 * found.data_fraction:.0f} % of the rows")
        1.28 times as wide, from 39 % of the rows
    """
    for name, value in (("scale", scale), ("temperature", temperature)):
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a positive number, got {value}")
    reach, found = 1.5 * _REACH, None
    for _ in range(_MOST_TRIES):  # on wider grids, until the chain has room
        at = np.linspace(-reach, reach, _POINTS)
        found = _on_grid(at, *_chains(at, first_fraction, epsilon, boundary, scale, temperature))
        if _REACH * found.sd <= reach:
            break
        reach = 1.2 * _REACH * found.sd
    assert found is not None
    return found


def _on_grid(at: np.ndarray, exact: np.ndarray, chain: np.ndarray, read: np.ndarray) -> NormalPosterior:
    shares, posterior = stationary(chain), stationary(exact)
    return NormalPosterior(
        sd=float(np.sqrt(shares @ at**2)),
        data_fraction=float(shares @ read),
        acceptance=float(1 - shares @ np.diag(chain)),
        total_variation=float(np.abs(shares - posterior).sum() / 2),
    )


def _chains(
    at: Float[np.ndarray, " n"],
    first_fraction: float,
    epsilon: float,
    boundary: float,
    scale: float,
    temperature: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Transitions of the exact chain and of the one with the test, and the share of rows a test reads at each point."""
    step = at[None] - at[:, None]
    proposed = np.exp(-0.5 * (step / scale) ** 2)
    proposed /= np.sum(np.exp(-0.5 * (np.arange(-len(at), len(at) + 1) * (at[1] - at[0]) / scale) ** 2))
    log_ratio = -(at[None] ** 2 - at[:, None] ** 2) / 2
    found = acceptance_error(log_ratio, np.abs(step) / np.sqrt(temperature), first_fraction, epsilon, boundary)
    chance = np.exp(np.minimum(log_ratio, 0))
    outside = 1 - proposed.sum(axis=1)  # proposals off the grid are rejected after a first look
    read = np.sum(proposed * found.data_fraction, axis=1) + outside * first_fraction
    return _transitions(proposed * chance), _transitions(proposed * np.clip(chance + found.error, 0, 1)), read


def _transitions(moves: np.ndarray) -> np.ndarray:
    """With the chance to stay where it is."""
    moves = moves - np.diag(np.diag(moves))
    return moves + np.diag(1 - moves.sum(axis=1))


def stationary(transitions: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " n"]:
    """The distribution that a chain with these transitions has in the long run."""
    count = len(transitions)
    system = np.eye(count) - transitions.T + 1 / count
    return np.linalg.solve(system, np.full(count, 1 / count))


def contraction(transitions: Float[np.ndarray, "n m"]) -> float:
    """Largest factor by which a step brings two distributions nearer to each other, in total variation.

    Dobrushin's coefficient: of two states, the distance between where they lead, at most. It is the `contraction` that
    `stationary_error` asks for.

    Args:
        transitions: Of a chain with finitely many states, one line for each state to start from.

    Example:
        >>> import numpy as np
        >>> print(f"{contraction(np.array([[0.9, 0.1], [0.2, 0.8]])):.2f}")
        0.70
    """
    rows = np.asarray(transitions, float)
    if rows.ndim != 2 or rows.shape[0] != rows.shape[1] or not np.allclose(rows.sum(axis=1), 1):
        raise ValueError("transitions must be a square matrix, each line of which adds up to 1")
    return max(float(np.abs(rows - line).sum(axis=1).max()) / 2 for line in rows)
