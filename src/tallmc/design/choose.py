"""The cheapest sequential test within an error."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tallmc.acceptance import AustereMH
from tallmc.acceptance.sequential_test import sequential_test
from tallmc.design.acceptance_error import acceptance_error
from tallmc.diagnostics.moves import MoveMoments, Moves, move_moments, moves_of, possible_moves
from tallmc.posterior import Posterior
from tallmc.run import Run

if TYPE_CHECKING:
    from tallmc.run import Run

    TrialMoves: TypeAlias = Run | Moves | tuple[PyTree, PyTree] | list[tuple[PyTree, PyTree]]

BOUNDARIES = (0.5, 0.75, 1.0)
_SMALLEST_BATCH = 500  # below this the central limit theorem is not to be trusted
_EPSILONS = (1e-8, 0.49)
_HARDLY = 0.002
_MOST_LOOKS = 500  # more would cost time to work out and hardly save rows


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A test within the error that was asked for.

    Args:
        batch_size: Rows between two looks.
        epsilon: Error allowed to one look; the largest that keeps `error` in bounds.
        boundary: Exponent of Wang and Tsiatis.
        error: Of a decision in the hardest case, or of the acceptance probability on average.
        data_fraction: Expected share of the rows read.
    """

    batch_size: int
    epsilon: float
    boundary: float
    error: float
    data_fraction: float

    @property
    def rule(self) -> AustereMH:
        """The acceptance rule with these settings, ready to be passed to a kernel."""
        return AustereMH(self.epsilon, self.batch_size, self.boundary)


def worst_case(max_error: float, num_rows: int) -> AustereMH:
    """The cheapest `AustereMH` whose decisions are right up to `max_error` even in the hardest case.

    The hardest case is a proposal that all rows together are undecided about. Real proposals rarely are, so this
    design is cautious: `average` knows better, if you have moves from a trial run.

    Args:
        max_error: Chance of a wrong decision, at most; also a bound on the error of an acceptance probability.
        num_rows: Rows of the data.

    Returns:
        The rule.

    Example:
        >>> rule = worst_case(max_error=0.05, num_rows=100_000)
        >>> rule.promise.largest_error(100_000) <= 0.05
        True
    """
    return cheapest(worst_case_candidates(max_error, num_rows)).rule


def worst_case_candidates(max_error: float, num_rows: int) -> list[Candidate]:
    """For every batch size and boundary, the test with the largest epsilon within the error."""

    def judge(first_fraction: float, epsilon: float, boundary: float) -> tuple[float, float]:
        test = sequential_test(0.0, first_fraction, epsilon, boundary)
        return float(test.error), float(test.data_fraction)

    return _candidates(max_error, num_rows, judge)


def average(max_error: float, posterior: Posterior, moves: "TrialMoves") -> AustereMH:
    """The cheapest `AustereMH` whose acceptance probabilities are right up to `max_error` on average.

    Args:
        max_error: Error of an acceptance probability, averaged over the moves.
        posterior: What will be sampled; every row is read once.
        moves: A trial run, from whose draws 100 moves are made; or moves of a symmetric proposal, as a pair
            (positions, proposed) of pytrees with a leading axis, or as a list of such pairs without one. With
            transforms, on the unconstrained scale.

    Returns:
        The rule.

    Example:
        >>> import jax.numpy as jnp, tallmc as tm
        >>> rows = jnp.linspace(-2.0, 2.0, 20_000)
        >>> posterior = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, rows, temperature=100.0)
        >>> kernel = tm.MetropolisHastings(tm.RandomWalk(0.2), tm.AustereMH())
        >>> trial = tm.sample(posterior, kernel, init=0.0, num_samples=100, num_chains=1)
        >>> type(average(0.01, posterior, trial)).__name__
        'AustereMH'
    """
    return cheapest(average_candidates(max_error, posterior.num_rows, trial_moments(posterior, moves))).rule


def average_candidates(max_error: float, num_rows: int, moves: MoveMoments) -> list[Candidate]:
    """For every batch size and boundary, the test with the largest epsilon within the average error."""

    def judge(first_fraction: float, epsilon: float, boundary: float) -> tuple[float, float]:
        found = acceptance_error(moves.log_ratio, moves.spread, first_fraction, epsilon, boundary)
        return float(np.mean(np.abs(found.error))), float(np.mean(found.data_fraction))

    return _candidates(max_error, num_rows, judge)


def epsilon_within(max_error: float, moves: MoveMoments, first_fraction: float, boundary: float = 0.5) -> float:
    """The largest epsilon, to three digits, whose acceptance probabilities are right up to `max_error` on average.

    Args:
        max_error: Error of an acceptance probability, averaged over the moves.
        moves: What all rows say of moves, as `trial_moments` gives it.
        first_fraction: Batch size over the number of rows.
        boundary: Exponent of Wang and Tsiatis.
    """

    def error(epsilon: float) -> float:
        found = acceptance_error(moves.log_ratio, moves.spread, first_fraction, epsilon, boundary)
        return float(np.mean(np.abs(found.error)))

    return _largest_epsilon(max_error, error)


def cheapest(candidates: Sequence[Candidate]) -> Candidate:
    """The one that reads least; of several that hardly differ the smallest batch, which stops soonest."""
    least = min(candidate.data_fraction for candidate in candidates)
    near = [candidate for candidate in candidates if candidate.data_fraction <= (1 + _HARDLY) * least]
    return min(near, key=lambda candidate: (candidate.batch_size, candidate.data_fraction))


def trial_moments(posterior: Posterior, moves: "TrialMoves") -> MoveMoments:
    """Moves in any of the forms that `average` takes, and what all rows say of them."""
    if isinstance(moves, Run):
        # Moves of a run with an expansion are judged by what that leaves of the rows.
        model = moves.session.model if moves.session.model.expanded else posterior.model
        return possible_moves(move_moments(model, posterior.rows, moves_of(moves)))
    if isinstance(moves, Moves):
        return possible_moves(move_moments(posterior.model, posterior.rows, moves))
    pair: Any = moves
    if isinstance(moves, list):  # of pairs, one a move
        pair = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[tuple(move) for move in moves])
    if not (isinstance(pair, tuple) and len(pair) == 2):
        raise ValueError("moves must be a run, or a pair (positions, proposed) with a leading axis of moves")
    position, proposed = pair
    change = jax.vmap(posterior.model.log_prior)(proposed) - jax.vmap(posterior.model.log_prior)(position)
    count = len(jax.tree.leaves(position)[0])
    offset = np.broadcast_to(np.asarray(change, float), (count,))
    return possible_moves(move_moments(posterior.model, posterior.rows, Moves(position, proposed, offset)))


def _candidates(
    max_error: float, num_rows: int, judge: Callable[[float, float, float], tuple[float, float]]
) -> list[Candidate]:
    if not 0 < max_error < 0.5:
        raise ValueError(f"max_error must lie between 0 and 0.5, got {max_error}")
    if num_rows < 1:
        raise ValueError(f"num_rows must be at least 1, got {num_rows}")
    found = []
    for batch_size in _batch_sizes(num_rows):
        for boundary in BOUNDARIES:
            first_fraction = min(1.0, batch_size / num_rows)
            epsilon = _largest_epsilon(max_error, lambda e: judge(first_fraction, e, boundary)[0])  # noqa: B023
            found.append(Candidate(batch_size, epsilon, boundary, *judge(first_fraction, epsilon, boundary)))
    return found


def _largest_epsilon(max_error: float, error: Callable[[float], float]) -> float:
    """The epsilon at which the error is just within bounds, rounded down to three digits; the error grows with it."""
    from scipy.optimize import brentq

    low, high = _EPSILONS

    def excess(log_epsilon: float) -> float:
        return math.log(max(error(math.exp(log_epsilon)), 1e-300) / max_error)

    if error(high) <= max_error:
        return high
    if error(low) > max_error:
        return 0.0
    epsilon = math.exp(brentq(excess, math.log(low), math.log(high), xtol=2e-3))  # pyright: ignore
    while error(epsilon) > max_error:
        epsilon *= 0.998
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 2)
    return float(f"{math.floor(epsilon / unit) * unit:.3g}")


def _batch_sizes(num_rows: int) -> list[int]:
    """From the smallest sensible one, doubled until two looks see everything."""
    size = max(_SMALLEST_BATCH, -(-num_rows // _MOST_LOOKS))
    sizes = [min(size, num_rows)]
    while 2 * sizes[-1] <= num_rows / 2:
        sizes.append(2 * sizes[-1])
    return sizes
