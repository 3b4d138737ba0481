"""What is known of a posterior before a way to move is chosen, and the ways that this leaves."""

import math
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from tallmc.control_variates import Controlled
from tallmc.feed import RowWeights
from tallmc.numerics.flat import flatten, num_coordinates
from tallmc.numerics.keys import as_key
from tallmc.posterior import Posterior, checks
from tallmc.setup import contest, lines
from tallmc.setup.centre import expanded_at, follow_expansion, mean_of
from tallmc.setup.contest import Way
from tallmc.setup.pilot import Pilot, look_around
from tallmc.setup.search_end import End, SearchEnd
from tallmc.setup.ways import FEW_ROWS, by_gradients, by_steps_that_fit, by_trajectories, by_walk, normal_starts

# Where a figure below is called a judgement, no measurement of other values is on record.
# Misfit: standard deviation of what the normal approximation misses of the log density. If that is itself normal, an
# independent draw of the approximation is accepted with chance 2 Phi(-misfit / sqrt 2).
_NEARLY_NORMAL = 1.5  # misfit up to which steps that fit the normal still pay: 29 % accepted. A judgement
# Misfit beyond which long tails begin to matter: 72 % accepted. With few rows a proposal that fits a normal was seen to
# miss the tail of a skewed posterior; the figure itself is a judgement.
_ROUGHLY_NORMAL = 0.5
# Misfit beyond which it is worth a pass to expand at the mean instead of the mode. A judgement.
_SKEWED = 0.3
# How far above the normal the log density may be two standard deviations further out than usual. A judgement: by a
# factor of e in the density.
_HEAVY = 1.0
# Misfit of prior + expansion up to which the ends of trajectories pay: 3 % accepted. Less than NUTS makes of it, but
# there may be a thousand times as many rows. A judgement.
_STILL_OF_USE = 3.0
_LOW = 10  # coordinates up to which a random walk gets along. A judgement
# Seconds that NUTS is foreseen to take, up to which nothing else is looked for where the posterior is not normal: about
# as long as looking takes. A judgement.
_SOON = 2.0


class Budget(NamedTuple):
    """How much is to be drawn.

    Args:
        num_chains: Chains.
        num_warmup: Transitions of each before its draws.
        num_samples: Draws of each.
    """

    num_chains: int
    num_warmup: int
    num_samples: int

    @property
    def transitions(self) -> int:
        """Of all chains."""
        return self.num_chains * (self.num_warmup + self.num_samples)

    @property
    def draws(self) -> int:
        """Of all chains."""
        return self.num_chains * self.num_samples


class Situation(NamedTuple):
    """What all ways to move are made from.

    Args:
        posterior: With its rows.
        budget: How much is to be drawn.
        seed: Of what the host draws for this run.
        first: The position that the caller gave, or zeros.
        row_seconds: Foreseen to work out the log likelihood of a row.
    """

    posterior: Posterior
    budget: Budget
    seed: list[int]
    first: PyTree
    row_seconds: float

    @classmethod
    def of(cls, posterior: Posterior, budget: Budget, rng_key: Array, first: PyTree) -> "Situation":
        """Looks at the likelihood's operations."""
        seed = [3, *np.asarray(jax.random.key_data(as_key(rng_key))).tolist()]
        row_seconds = contest.seconds_of_a_row(posterior.model, posterior.rows.like, first)
        return cls(posterior, budget, seed, first, row_seconds)

    def at(self, position: PyTree) -> Float[np.ndarray, "chains d"]:
        """All chains at one position."""
        flat = flatten(position)[0].astype(float)
        return np.broadcast_to(flat, (self.budget.num_chains, flat.size))

    def gradients(
        self, starts: Float[np.ndarray, "chains d"], factor: Float[np.ndarray, "d d"] | None, reason: str
    ) -> Way:
        """NUTS, which works for whatever has a gradient."""
        return by_gradients(self.row_seconds, self.posterior.num_rows, starts, factor, reason)

    @property
    def worth_bounds(self) -> bool:
        """Whether tests on all rows would take so long that it pays to work out bounds for tests on few."""
        seconds = contest.pass_seconds(self.row_seconds, self.posterior.num_rows)
        return self.posterior.num_rows > FEW_ROWS and seconds * self.budget.transitions > _SOON

    def slow(self, way: Way) -> bool:
        """Whether it pays to look for something faster."""
        return way.seconds * self.budget.transitions > _SOON


def around_a_mode(
    situation: Situation,
    controlled: Controlled,
    weights: RowWeights | None,
    centre: PyTree,
    factor: Float[np.ndarray, "d d"],
    pilot: Pilot,
) -> tuple[list[Way], int]:
    """Ways to move where there is a normal approximation, and the rows that it took to find them."""
    posterior, num_chains = situation.posterior, situation.budget.num_chains
    near = normal_starts(centre, factor, num_chains, situation.seed)
    near = near if _inside(posterior, near, centre) else situation.at(centre)
    normal = _like_a_normal(pilot, posterior.num_rows)
    reason = _not_normal(pilot, posterior.num_rows)
    ways = [situation.gradients(near if normal else situation.at(centre), factor, reason)]
    rows_read = 0
    if normal:
        if pilot.misfit > _SKEWED and situation.slow(ways[0]) and (moved := _at_the_mean(situation, centre, factor)):
            controlled, weights, centre, factor, again, rows_read = moved
            if again.misfit < pilot.misfit:
                pilot = again
                near = normal_starts(centre, factor, num_chains, situation.seed)
        ways += by_steps_that_fit(controlled, weights, centre, factor, pilot, situation.row_seconds, near)
    if pilot.misfit > _ROUGHLY_NORMAL and situation.slow(ways[0]):
        more, more_rows = _along_trajectories(situation, flatten(centre)[0])
        return [*ways, *more], rows_read + more_rows
    return ways, rows_read


def without_a_normal(
    situation: Situation, start: PyTree, reason: str, factor: Float[np.ndarray, "d d"] | None = None
) -> tuple[list[Way], int]:
    """Ways to move where there is no normal approximation to go by."""
    ways = [situation.gradients(situation.at(start), factor, reason)]
    if not situation.slow(ways[0]):
        return ways, 0
    more, rows_read = _along_trajectories(situation, flatten(start)[0])
    return [*ways, *more], rows_read


def without_a_mode(
    situation: Situation, end: SearchEnd, factor: Float[np.ndarray, "d d"] | None
) -> tuple[list[Way], int]:
    """The same where the search for the mode failed; `factor` is that of the covariance, if there is one."""
    if end.kind is End.EDGE and num_coordinates(end.start) <= _LOW:
        # Trajectories end at an edge, and all that a gradient says there is that it is near.
        return [walking(situation, end.start, factor, end.reason)], 0
    return without_a_normal(situation, end.start, end.reason, factor)


def walking(situation: Situation, start: PyTree, factor: Float[np.ndarray, "d d"] | None, reason: str) -> Way:
    """A random walk, for what has no gradient to follow."""
    return by_walk(situation.row_seconds, situation.posterior.num_rows, situation.at(start), factor, reason)


def _along_trajectories(situation: Situation, start: np.ndarray) -> tuple[list[Way], int]:
    """Trajectories on prior + expansion, if the posterior is like that, and the rows that it took to find out."""
    posterior, num_chains = situation.posterior, situation.budget.num_chains
    unravel = flatten(situation.first)[1]
    found, rows_read = follow_expansion(posterior, unravel, start)
    if found is None:
        return [], rows_read
    controlled, surrogate = found.controlled, found.surrogate
    weights = weights_from(controlled)
    centre = unravel(surrogate.mean.astype(start.dtype))
    pilot = look_around(controlled.model, posterior.rows, centre, surrogate.factor, weights, draws=surrogate.draws)
    rows_read += pilot.rows_read
    if not pilot.misfit < _STILL_OF_USE:
        return [], rows_read
    chosen = np.random.default_rng(situation.seed).choice(len(surrogate.draws), num_chains)
    starts = surrogate.draws[chosen]
    return by_trajectories(controlled, weights, surrogate, pilot, situation.row_seconds, starts), rows_read


class _AtTheMean(NamedTuple):
    """An expansion at the mean, and how the posterior looks from there."""

    controlled: Controlled
    weights: RowWeights | None
    centre: PyTree
    factor: Float[np.ndarray, "d d"]
    pilot: Pilot
    rows_read: int


def _at_the_mean(situation: Situation, centre: PyTree, factor: Float[np.ndarray, "d d"]) -> _AtTheMean | None:
    """Moves the expansion from the mode of a skewed posterior to its mean."""
    posterior = situation.posterior
    flat, unravel = flatten(centre)
    mean = mean_of(posterior, unravel, flat, factor)
    again = None if mean is None else expanded_at(posterior, unravel, mean)
    if mean is None or again is None:
        return None
    controlled, narrow = again
    weights, centre = weights_from(controlled), unravel(mean)
    pilot = look_around(controlled.model, posterior.rows, centre, narrow, weights)
    rows_read = posterior.num_rows + controlled.rows_read + pilot.rows_read
    return _AtTheMean(controlled, weights, centre, narrow, pilot, rows_read)


def weights_from(controlled: Controlled) -> RowWeights | None:
    """How often rows are drawn by their bounds, if they have any."""
    return None if controlled.constants is None else RowWeights.of(controlled.constants)


def _inside(posterior: Posterior, starts: Float[np.ndarray, "chains d"], like: PyTree) -> bool:
    """Whether the prior allows all of them."""
    flat, unravel = flatten(like)
    each = (unravel(start.astype(flat.dtype)) for start in starts)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    return bool(np.all(np.isfinite(checks.log_priors(posterior, stacked))))


def _like_a_normal(pilot: Pilot, num_rows: int) -> bool:
    # With few rows nothing is saved by steps that fit only nearly.
    few = num_rows <= FEW_ROWS
    enough = _ROUGHLY_NORMAL if few else _NEARLY_NORMAL
    light = lines.like_a_normal(pilot.variance, pilot.beyond, of_few=few)
    return pilot.misfit < enough and pilot.excess < _HEAVY + 2 * pilot.misfit and light


def _not_normal(pilot: Pilot, num_rows: int) -> str:
    """Why not, in words."""
    if not (math.isfinite(pilot.variance) and math.isfinite(pilot.misfit)):
        return "near by the log density is not finite everywhere"
    if not lines.like_a_normal(pilot.variance, pilot.beyond, of_few=num_rows <= FEW_ROWS):
        return (
            f"along some line the posterior is wider than a normal (variance {pilot.variance:.3g} for 1, or "
            f"{pilot.beyond:.2g} of its mass beyond four standard deviations)"
        )
    return (
        f"the posterior is not normal (what the normal misses of its log density varies by {pilot.misfit:.2g} +- "
        f"{pilot.error:.1g}; it is {pilot.excess:.2g} above it in the tails)"
    )
