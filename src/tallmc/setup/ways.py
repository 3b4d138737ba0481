"""Ways to move that `tm.sample(posterior)` can choose from, with what each is foreseen to give and to cost."""

import math

import numpy as np
from jaxtyping import Float, PyTree

from tallmc.acceptance import MHSS, AcceptanceRule, Exact, MHMinibatch
from tallmc.control_variates import Controlled
from tallmc.feed import Feed, RowWeights, WeightedFeed
from tallmc.metropolis import MetropolisHastings
from tallmc.numerics.flat import flatten
from tallmc.nuts import NUTS
from tallmc.proposals import HMC, CrankNicolson, Proposal, RandomWalk
from tallmc.setup import contest
from tallmc.setup.contest import Way
from tallmc.setup.pilot import Pilot
from tallmc.setup.rungs import expected_barrier, first_temperatures, ladder_of
from tallmc.setup.surrogate import Surrogate

# Share of all rows beyond which a test is better done with all of them. A judgement: rows that are gathered one by one
# cost several times as much as the same rows read in their order, so at a quarter little is left to gain.
_WORTHWHILE = 0.25
FEW_ROWS = 1000  # up to which every test reads all rows: with so few there is little to save. A judgement
_LEAST_ROWS = 100.0  # that a minibatch test reads, rounded to windows
# A test that is only nearly right must promise twice as many draws as one that is right. A judgement.
_NEARLY_RIGHT = 0.5
# Correlations of a Crank-Nicolson step that are tried here; warm-up tries more.
_CORRELATIONS = (-0.28, 0.0, 0.53, 0.71, 0.87, 0.94, 0.98)
_REFLECTING = 0.85  # chance to accept from which steps to the other side are taken
# What a misfit beyond that of a mere skewness does: chains stay where proposals go too seldom. A judgement.
_CLUSTERED = 0.5
# Power of the stickiness by which effective draws are fewer. Of five posteriors with few rows and stickiness 1.2, 1.4,
# 1.9, 2.1 and 2.7 the worst coordinate had 6,200, 4,300, 1,000, 2,600 and 400 of 4,000 draws.
_STICKING = 2


def by_steps_that_fit(
    controlled: Controlled,
    weights: RowWeights | None,
    centre: PyTree,
    factor: Float[np.ndarray, "d d"],
    pilot: Pilot,
    row_seconds: float,
    starts: Float[np.ndarray, "chains d"],
) -> list[Way]:
    """Crank-Nicolson steps, which a normal posterior does not notice, under each rule that may pay."""
    proposal = CrankNicolson(centre, factor, 1.0)
    why = (
        f"the posterior is close to normal (what that misses of its log density varies by {pilot.misfit:.2g} +- "
        f"{pilot.error:.1g}), so proposals are CrankNicolson steps, with beta tuned in warm-up"
    )

    def effective(rule: AcceptanceRule) -> float:
        """The best of the grid."""
        barker = isinstance(rule, MHMinibatch)
        chance = contest.barker_acceptance if barker else contest.metropolis_acceptance
        found = 0.0
        for correlation in _CORRELATIONS:
            # What a normal misses is mostly of the third order.
            accepted = chance(pilot.misfit, correlation**3)
            if correlation >= 0 or barker or accepted > _REFLECTING:
                found = max(found, contest.effective_draws(accepted, correlation))
        return found * (_CLUSTERED if pilot.misfit > _CLUSTERED else 1.0) / pilot.sticky**_STICKING

    each = contest.walk_seconds(len(factor))
    return _under_each_rule(
        proposal, controlled, weights, pilot, row_seconds, starts, effective, each, contest.WALK, why
    )


def by_trajectories(
    controlled: Controlled,
    weights: RowWeights | None,
    found: Surrogate,
    pilot: Pilot,
    row_seconds: float,
    starts: Float[np.ndarray, "chains d"],
) -> list[Way]:
    """Hamiltonian trajectories on prior + expansion, under each rule that may pay."""
    proposal = HMC(found.step_size, found.num_steps, cholesky=found.factor)
    why = (
        "the posterior is not normal, but prior and expansion together are close to it (what they miss of its log "
        f"density varies by {pilot.misfit:.2g} +- {pilot.error:.1g}), so proposals are the ends of trajectories of "
        f"about {found.num_steps} steps on these, which read no rows (HMC), tuned in warm-up"
    )

    def effective(rule: AcceptanceRule) -> float:
        barker = isinstance(rule, MHMinibatch)
        chance = contest.barker_acceptance if barker else contest.metropolis_acceptance
        return contest.NUTS_EFFECTIVE * contest.effective_draws(chance(pilot.misfit) * found.accepted, 0.0)

    each = contest.trajectory_seconds(found.num_steps, len(found.factor))
    return _under_each_rule(
        proposal, controlled, weights, pilot, row_seconds, starts, effective, each, contest.TRAJECTORIES, why
    )


def by_gradients(
    row_seconds: float,
    num_rows: int,
    starts: Float[np.ndarray, "chains d"],
    factor: Float[np.ndarray, "d d"] | None,
    reason: str,
) -> Way:
    """NUTS on all rows.

    Args:
        row_seconds: To work out the log likelihood of a row.
        num_rows: All.
        starts: Where its chains begin.
        factor: Of the covariance, if it is known: the first step is as long as the posterior is narrow.
        reason: Why, if it is chosen.
    """
    step_size = 1.0 if factor is None else float(np.linalg.svd(factor, compute_uv=False)[-1])
    why = f"{reason}, so chains follow the gradient of all {num_rows:,} rows (NUTS), tuned in warm-up"
    seconds = contest.nuts_seconds(row_seconds, num_rows)
    return Way(
        NUTS(step_size=step_size), None, None, None, starts, contest.NUTS_EFFECTIVE, seconds, contest.NO_U_TURN, (why,)
    )


def by_ladder(
    row_seconds: float,
    num_rows: int,
    starts: Float[np.ndarray, "chains d"],
    factor: Float[np.ndarray, "d d"],
    hottest: float,
    level: float,
    reason: str,
) -> Way:
    """Rungs at rising temperatures, between several modes.

    Args:
        row_seconds: To work out the log likelihood of a row.
        num_rows: All.
        starts: Where its chains begin.
        factor: Of the covariance at a mode.
        hottest: The last temperature.
        level: Log likelihood of a row at a mode.
        reason: Why.
    """
    size = starts.shape[1]
    heats = first_temperatures(size, hottest, num_rows)
    ladder = ladder_of(heats, size, factor, level, adapts=True)
    kernel = ladder.parts()[0]
    followed = isinstance(kernel, NUTS)
    # A walk that knows where it is reads one end of each step; swaps between NUTS read all rows once for every rung.
    once = contest.pass_seconds(row_seconds, num_rows) / 2
    each = contest.nuts_seconds(row_seconds, num_rows) + once if followed else once
    seconds = len(heats) * ladder.moves * each
    how = "gradients of all rows (NUTS)" if followed else "random walks with tests on all rows"
    why = (
        f"{reason}, so chains are ladders of temperatures from 1 to {hottest:,.3g} whose rungs swap states, moved by "
        f"{how}; warm-up places the rungs ({len(heats)} to begin with)"
    )
    crossing = 1 / (2 + 2 * expected_barrier(size, hottest))
    return Way(ladder, None, None, None, starts, crossing, seconds, contest.WALK, (why,))


def by_walk(
    row_seconds: float,
    num_rows: int,
    starts: Float[np.ndarray, "chains d"],
    factor: Float[np.ndarray, "d d"] | None,
    reason: str,
) -> Way:
    """A random walk with tests on all rows: for likelihoods without gradients, and at edges.

    Args:
        row_seconds: To work out the log likelihood of a row.
        num_rows: All.
        starts: Where its chains begin.
        factor: Of the covariance, if it is known.
        reason: Why.
    """
    size = starts.shape[1]
    scale = 0.1 if factor is None else factor * 2.4 / math.sqrt(size)
    why = f"{reason}, so proposals are RandomWalk steps, tuned in warm-up, and every test reads all {num_rows:,} rows"
    kernel, effective = MetropolisHastings(RandomWalk(scale), Exact()), contest.WALK_EFFECTIVE / size
    seconds = contest.pass_seconds(row_seconds, num_rows)
    return Way(kernel, None, None, None, starts, effective, seconds, contest.WALK, (f"{why} (Exact)",))


def _under_each_rule(
    proposal: Proposal,
    controlled: Controlled,
    weights: RowWeights | None,
    pilot: Pilot,
    row_seconds: float,
    starts: Float[np.ndarray, "chains d"],
    effective: "contest.Foreseen",
    each: float,
    once: float,
    why: str,
) -> list[Way]:
    model = controlled.model
    num_rows, order = model.num_rows, model.expansion.order
    ways = []

    def add(
        rule: AcceptanceRule, feed: type[Feed] | None, share: float, seconds: float, compiling: float, because: str
    ) -> None:
        kernel = MetropolisHastings(proposal, rule)
        expanded = controlled if feed is not None or not isinstance(rule, Exact) or isinstance(proposal, HMC) else None
        found = share * effective(rule)
        ways.append(Way(kernel, feed, expanded, weights, starts, found, each + seconds, compiling, (why, because)))

    if num_rows > FEW_ROWS and pilot.rows_drawn < _WORTHWHILE * num_rows:
        because = (
            f"{_bounded_by(controlled)} what a row can add to its Taylor expansion (order {order}), so tests are exact "
            f"and read about {pilot.rows_drawn:.2g} rows (MHSS)"
        )
        rule = MHSS(order=order, batch_size=window_size(pilot.rows_drawn))
        seconds = contest.few_rows_seconds(row_seconds, rule.batch_size / 2 + pilot.rows_drawn)
        add(rule, None, 1.0, seconds, once, because)
    if num_rows > FEW_ROWS and pilot.rows_needed < _WORTHWHILE * num_rows:
        bounded = math.isfinite(pilot.rows_drawn)
        reason = (
            f"exact tests would draw {pilot.rows_drawn:,.0f} rows, so tests draw rows by what they can say and take"
            if bounded
            else "there are no bounds on what a row can say, so tests take"
        )
        rows = max(pilot.rows_needed, _LEAST_ROWS)
        because = (
            f"{reason} the mean of about {rows:.0f} rows, less their Taylor expansion (order {order}), for normal "
            "(MHMinibatch)"
        )
        seconds = contest.few_rows_seconds(row_seconds, rows)
        add(MHMinibatch(), WeightedFeed if bounded else None, _NEARLY_RIGHT, seconds, once, because)
    reason = (
        f"with {num_rows} rows every test reads all of them"
        if num_rows <= FEW_ROWS
        else f"tests on all {num_rows:,} rows are exact, and cost little beside the rest of the call"
    )
    add(Exact(), None, 1.0, contest.pass_seconds(row_seconds, num_rows), once, f"{reason} (Exact)")
    return ways


def _bounded_by(controlled: Controlled) -> str:
    """Whose bounds they are."""
    bounds = controlled.model.bounds
    if bounds is None or bounds.radius is None:
        return "the model bounds"
    return (
        "bounds were worked out from the likelihood's own program, which hold within "
        f"{float(bounds.radius):.3g} standard deviations, on"
    )


def window_size(rows_drawn: float) -> int:
    """For an exact subsampling rule: short enough to fetch few rows in vain, long enough to look only a few times."""
    return 4 if rows_drawn < 1 else int(np.clip(8 * round(rows_drawn / 24), 8, 64))


def normal_starts(
    centre: PyTree, factor: Float[np.ndarray, "d d"], num_chains: int, seed: list[int]
) -> Float[np.ndarray, "chains d"]:
    """Draws of a normal, so that R-hat has something to compare."""
    flat, _ = flatten(centre)
    return flat + np.random.default_rng(seed).normal(size=(num_chains, flat.size)) @ factor.T
