"""What `tm.sample(posterior)` does when nobody tells it how: looks at the posterior first, then chooses."""

import math
import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Real

from tallmc.acceptance import MHSS, AcceptanceRule, Exact, MHMinibatch
from tallmc.console.progress import working
from tallmc.control_variates import Controlled, ExpandedModel, Taylor, covariance_factor
from tallmc.feed import Feed, RowWeights, WeightedFeed
from tallmc.metropolis import MetropolisHastings
from tallmc.numerics.flat import flatten
from tallmc.numerics.keys import as_key
from tallmc.numerics.programs import program
from tallmc.optimise.exact_update import NO_OPTIMUM
from tallmc.optimise.mode import default_start
from tallmc.optimise.result import OptimiseResult
from tallmc.posterior import Posterior, Rows, checks
from tallmc.posterior.derivatives import derivative_trouble
from tallmc.posterior.linear_predictor import LinearPredictor
from tallmc.posterior.passes import log_densities, prior_derivatives
from tallmc.proposals import CrankNicolson, Proposal, RandomWalk
from tallmc.run.timing import Timing
from tallmc.setup.modes import find_mode, other_modes
from tallmc.setup.search_end import NEARLY_FLAT, End, flat_directions, rises_for_ever, search_end
from tallmc.setup.start import Start

# Where a figure below is called a judgement, no measurement of other values is on record.
_LARGEST_MATRIX = 4096  # coordinates up to which a matrix of second derivatives is kept: 64 MiB in float32
# Draws of the normal at which the posterior is compared with it, and as many further out. A judgement: 16 draws tell
# a spread to 18 %, enough to tell 0.5 from 1.5.
_PILOT_POINTS = 16
# Rows that are asked at each of them: 131,072 for all points together, however many rows there are. A judgement; what
# so few rows leave uncertain is subtracted from the misfit.
_PILOT_ROWS = 4096
# Misfit: standard deviation of what the normal approximation misses of the log density. If that is itself normal, an
# independent draw of the approximation is accepted with chance 2 Phi(-misfit / sqrt 2).
_NEARLY_NORMAL = 1.5  # misfit up to which steps that fit the normal still pay: 29 % accepted. A judgement
# Misfit beyond which long tails begin to matter: 72 % accepted. With few rows a proposal that fits a normal was seen to
# miss the tail of a skewed posterior; the figure itself is a judgement.
_ROUGHLY_NORMAL = 0.5
# Misfit beyond which there may be no mode at all, which takes two more passes to find out. A judgement: far
# above any misfit at which the normal is of use. Separable rows, whose density rises for ever, led to this check.
_NOTHING_LIKE_NORMAL = 1000.0
# How far above the normal the log density may be two standard deviations further out than usual. A judgement: by a
# factor of e in the density.
_HEAVY = 1.0
# Share of all rows beyond which a test is better done with all of them. A judgement: rows that are gathered one by one
# cost several times as much as the same rows read in their order, so at a quarter little is left to gain.
_WORTHWHILE = 0.25
_FEW_ROWS = 1000  # up to which every test reads all rows: with so few there is little to save. A judgement
# Posterior standard deviations at which the search for the mode has arrived: the derivatives there give the rest of the
# way to a hundredth of that, and an expansion is as good there as at the mode itself.
_ARRIVED = 0.1
_MOST_ITERATIONS = 40  # of the search for the mode; one that has not arrived by then counts as failed. A judgement


class Pilot(NamedTuple):
    """How the posterior compares with the normal distribution at its mode.

    Args:
        misfit: Standard deviation, over draws of the normal, of what it misses of the log density.
        excess: By how much the log density exceeds the normal's two standard deviations further out (upper quartile).
        rows_needed: Rows that a minibatch test needs for a step between draws of the normal.
        rows_drawn: Rows that an exact subsampling test draws for such a step; infinite without bounds.
        rows_read: Rows that it took to find out.
    """

    misfit: float
    excess: float
    rows_needed: float
    rows_drawn: float
    rows_read: int


def plan(
    posterior: Posterior, init: PyTree, num_chains: int, rng_key: Array, timing: Timing, *, progress: bool
) -> Start:
    """Finds the mode, looks around it, and picks control variate, proposal and rule."""
    with timing.phase("reading"):
        start = default_start(posterior) if init is None else init
        positions = checks.one_position_per_chain(posterior, start, num_chains)
        checks.check_start(posterior, positions)
    first = jax.tree.map(lambda leaf: leaf[0], positions)
    if (trouble := derivative_trouble(posterior, first).some) is not None:
        return _without_a_normal(posterior, first, num_chains, 0, trouble)
    with timing.phase("mode"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what did not converge is dealt with here
        found = find_mode(posterior, first, max_iterations=_MOST_ITERATIONS, tolerance=_ARRIVED, progress=progress)
    if found.reason.startswith(NO_OPTIMUM):
        raise ValueError(f"the posterior cannot be sampled: {found.reason}")
    rows_read = found.rows_read
    at, reason = found.position, NEARLY_FLAT
    if not found.converged:
        # A search that failed may have ended anywhere, even outside the support.
        at_start, at_end = log_densities(posterior.model, posterior.rows, [first, at])
        end = search_end(posterior, first, found, at if at_end > at_start else first)
        at, reason = end.start, end.reason
        rows_read += 2 * posterior.num_rows + end.rows_read
        if end.kind in (End.MOVING, End.STUCK):
            _refuse_endless(posterior, first, at)
        if end.kind is End.SPIKE:
            return _without_a_normal(posterior, at, num_chains, rows_read, reason)
    with timing.phase("expansion"), working("expanding the posterior at its mode", show=progress):
        controlled = _expand(posterior, at, found)
    rows_read += controlled.rows_read
    factor = covariance_factor(controlled.precision)
    if factor is None:
        _refuse_improper(posterior, at, controlled.precision)
        return _without_a_normal(posterior, at, num_chains, rows_read, reason)
    _check_digits(at, factor)
    if not found.converged:
        return _without_a_normal(posterior, at, num_chains, rows_read, reason, factor)
    centre = _one_step_further(posterior, at, controlled, factor)
    with timing.phase("mode"), working("looking for other modes", show=progress):
        others, more_rows = other_modes(posterior, centre, factor, rng_key)
    rows_read += more_rows
    if others:
        return _between_modes(posterior, [centre, *others], factor, num_chains, rows_read)
    with timing.phase("expansion"):
        weights = None if controlled.constants is None else RowWeights.of(controlled.constants)
    with timing.phase("pilot"), working("comparing the posterior with a normal", show=progress):
        pilot = look_around(controlled.model, posterior.rows, centre, factor, rng_key, weights)
    rows_read += pilot.rows_read
    if not pilot.misfit < _NOTHING_LIKE_NORMAL:
        _refuse_endless(posterior, first, centre)
        rows_read += 2 * posterior.num_rows
    proposal, why_proposal, normal = _choose_proposal(centre, factor, pilot, posterior.num_rows)
    rule, feed, why_rule = _choose_rule(controlled.model, pilot)
    starts = _starts(posterior, centre, factor if normal else None, num_chains, rng_key)
    target, used = (posterior.model, None) if isinstance(rule, Exact) else (controlled.model, controlled)
    choices = (
        *(() if init is not None else _guessed(posterior, centre)),
        f"found the mode and the curvature there in {rows_read / posterior.num_rows:.1f} passes over "
        f"{posterior.num_rows:,} rows",
        why_proposal,
        why_rule,
    )
    doubts = ()
    if not normal:
        doubts = ("the posterior is far from normal; look at R-hat and the traces before you trust it",)
    elif pilot.misfit > _ROUGHLY_NORMAL:
        doubts = (
            "the posterior is only roughly normal: in a short run its long tails may be missed, and widths come out "
            "too small; draw more, or compare with tm.RandomWalk",
        )
    kernel = MetropolisHastings(proposal, rule)
    return Start(target, kernel, starts, rows_read, used, feed, weights, choices, doubts)


def look_around(
    model: ExpandedModel,
    all_rows: Rows,
    centre: PyTree,
    factor: Real[np.ndarray, "d d"],
    rng_key: Array,
    weights: RowWeights | None,
) -> Pilot:
    """Compares the posterior with the normal at its mode, at draws of the normal, from a few thousand rows."""
    flat, unravel = flatten(centre)
    num_rows = model.num_rows
    count = min(_PILOT_ROWS, max(num_rows // 4, min(num_rows, 500)))
    generator = np.random.default_rng(np.asarray(jax.random.key_data(as_key(rng_key))))
    white = generator.normal(size=(_PILOT_POINTS, len(factor)))
    white = np.concatenate([white, (1 + 2 / math.sqrt(len(factor))) * white])
    points = (white @ factor.T + (flat - np.asarray(model.expansion.centre, float))).astype(flat.dtype)
    drawn, rows_read = math.inf, 2 * _PILOT_POINTS * count
    if weights is not None:
        # Rows by what they can say, or the few that say most would be missed.
        rows = weights.drawn(generator, count)
        scale = np.asarray(weights.scales, float)[rows]
    else:
        rows, scale = generator.choice(num_rows, count, replace=False, shuffle=False), np.ones(count)
    known, left, changes = _look(model, unravel, points, all_rows.take(rows), weights is not None)
    if changes is not None:
        drawn = num_rows * float(np.mean(np.asarray(changes))) / float(model.temperature)
    left = num_rows * scale * np.asarray(left, float)
    variance = np.var(left, axis=1) / count * (1 if math.isfinite(drawn) else 1 - count / num_rows)
    misses = np.asarray(known, float) + left.mean(axis=1) + np.sum(white**2, axis=1) / 2
    near, far = misses[:_PILOT_POINTS], (misses - 3 * np.sqrt(variance))[_PILOT_POINTS:]
    # An estimate from some of the rows is itself uncertain; that is no misfit of the posterior.
    misfit = math.sqrt(max(float(np.var(near) - np.mean(variance[:_PILOT_POINTS])), 0.0))
    steps = left[: _PILOT_POINTS - 1] - left[1:_PILOT_POINTS]
    noise = 1.5 * float(np.mean(np.var(steps, axis=1)))
    finite = bool(np.all(np.isfinite(misses)))
    return Pilot(
        misfit=misfit if finite else math.inf,
        excess=float(np.quantile(far, 0.75)) if finite else math.inf,
        rows_needed=noise / (1 + noise / num_rows) if finite else math.inf,
        rows_drawn=drawn,
        rows_read=rows_read,
    )


def window_size(rows_drawn: float) -> int:
    """For an exact subsampling rule: short enough to fetch few rows in vain, long enough to look only a few times."""
    return 4 if rows_drawn < 1 else int(np.clip(8 * round(rows_drawn / 24), 8, 64))


@program
def _look(
    model: ExpandedModel, unravel: Callable, steps: Array, rows: PyTree, bounded: bool
) -> tuple[Array, Array, Array | None]:
    """From the expansion's centre: what needs no rows, what each row adds, and by how much rows may change at most, on
    average, from each of the first points to the next."""
    centre, bounds = model.expansion.centre, model.bounds
    old = jax.vmap(unravel)(jnp.broadcast_to(centre, steps.shape))
    new = jax.vmap(unravel)(centre[None] + steps)
    near = jax.tree.map(lambda leaf: leaf[:_PILOT_POINTS], new)
    ends = (jax.tree.map(lambda leaf, cut=cut: leaf[cut], near) for cut in (slice(None, -1), slice(1, None)))
    with jax.default_matmul_precision("highest"):
        known = jax.vmap(lambda a, b: model.known_change(a, b).offset)(old, new)
        changes = jax.vmap(bounds.mean_change)(*ends) if bounded and bounds is not None else None
        return known, model.log_ratios_of_moves(old, new, rows), changes


def _starts(posterior: Posterior, centre: PyTree, factor: np.ndarray | None, num_chains: int, rng_key: Array) -> PyTree:
    """Draws of the normal, so that R-hat has something to compare; the mode, if there is no normal or it leaves the
    prior's support."""
    if factor is not None:
        flat, unravel = flatten(centre)
        generator = np.random.default_rng([3, *np.asarray(jax.random.key_data(as_key(rng_key)))])
        draws = flat + generator.normal(size=(num_chains, flat.size)) @ factor.T
        apart = jax.tree.map(lambda *leaves: np.stack(leaves), *(unravel(draw.astype(flat.dtype)) for draw in draws))
        if np.all(np.isfinite(checks.log_priors(posterior, apart))):
            return apart
    return jax.tree.map(lambda leaf: np.broadcast_to(leaf, (num_chains, *leaf.shape)), centre)


def _expand(posterior: Posterior, at: PyTree, found: OptimiseResult) -> Controlled:
    """At the mode, with the sums of the search's last pass if that was made there."""
    flat, _ = flatten(at)
    taylor, last = Taylor(2 if flat.size <= _LARGEST_MATRIX else 1), found.full_pass
    if last is None or not np.array_equal(last.position.astype(flat.dtype), flat):
        return taylor.expand(posterior, at)
    temperature = float(posterior.temperature)
    assert last.sums.curvature is not None
    return taylor.expand_known(posterior, at, temperature * last.sums.score, -temperature * last.sums.curvature)


def _one_step_further(posterior: Posterior, at: PyTree, controlled: Controlled, factor: np.ndarray) -> PyTree:
    """The mode by a last Newton step, which needs no rows: the derivatives are those of the expansion."""
    flat, unravel = flatten(at)
    likelihood = np.asarray(controlled.model.expansion.gradient, float) / float(posterior.temperature)
    slope = likelihood + prior_derivatives(posterior.model, unravel, flat)[1]
    return unravel((flat + factor @ (factor.T @ slope)).astype(flat.dtype))


def _choose_proposal(centre: PyTree, factor: np.ndarray, pilot: Pilot, num_rows: int) -> tuple[Proposal, str, bool]:
    # With few rows nothing is saved by steps that fit only nearly.
    enough = _ROUGHLY_NORMAL if num_rows <= _FEW_ROWS else _NEARLY_NORMAL
    if pilot.misfit < enough and pilot.excess < _HEAVY + 2 * pilot.misfit:
        why = (
            f"the posterior is close to normal (what that misses of its log density varies by {pilot.misfit:.2g}), "
            "so proposals are CrankNicolson steps, with beta tuned in warm-up"
        )
        return CrankNicolson(centre, factor, 1.0), why, True
    tails = f"{pilot.excess:.2g} above it in the tails" if math.isfinite(pilot.excess) else "not finite everywhere"
    why = (
        f"the posterior is not normal (what the normal misses of its log density varies by {pilot.misfit:.2g}; it is "
        f"{tails}), so proposals are RandomWalk steps in the shape of the curvature, tuned in warm-up"
    )
    return RandomWalk(factor * 2.4 / math.sqrt(len(factor))), why, False


def _choose_rule(model: ExpandedModel, pilot: Pilot) -> tuple[AcceptanceRule, type[Feed] | None, str]:
    num_rows, order = model.num_rows, model.expansion.order
    if num_rows <= _FEW_ROWS:
        return Exact(), None, f"with {num_rows} rows every test reads all of them (Exact)"
    if pilot.rows_drawn < _WORTHWHILE * num_rows:
        why = (
            f"the model bounds what a row can add to its Taylor expansion (order {order}), so tests are exact and read "
            f"about {pilot.rows_drawn:.2g} rows (MHSS)"
        )
        return MHSS(order=order, batch_size=window_size(pilot.rows_drawn)), None, why
    if pilot.rows_needed < _WORTHWHILE * num_rows:
        bounded = math.isfinite(pilot.rows_drawn)
        reason = (
            f"exact tests would draw {pilot.rows_drawn:,.0f} rows, so tests draw rows by what they can say and take"
            if bounded
            else "there are no bounds on what a row can say, so tests take"
        )
        why = (
            f"{reason} the mean of about {max(pilot.rows_needed, 82):.0f} rows, less their Taylor expansion (order "
            f"{order}), for normal (MHMinibatch)"
        )
        return MHMinibatch(), WeightedFeed if bounded else None, why
    why = (
        f"the Taylor expansion is too poor for subsampling to pay (a test would need about "
        f"{min(pilot.rows_needed, pilot.rows_drawn):,.0f} rows), so every test reads all {num_rows:,} rows (Exact), "
        "which is slow"
    )
    return Exact(), None, why


def _without_a_normal(
    posterior: Posterior,
    centre: PyTree,
    num_chains: int,
    rows_read: int,
    reason: str,
    factor: np.ndarray | None = None,
) -> Start:
    """Where there is no normal approximation: a random walk and all rows."""
    scale = 0.1 if factor is None else factor
    stay = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (num_chains, *leaf.shape)), centre)
    choices = (
        f"{reason}, so proposals are RandomWalk steps, tuned in warm-up, and every test reads all "
        f"{posterior.num_rows:,} rows (Exact), which is slow",
    )
    doubts = (f"{reason}; look at R-hat and at the traces before you trust it",)
    kernel = MetropolisHastings(RandomWalk(scale), Exact())
    return Start(posterior.model, kernel, stay, rows_read, choices=choices, doubts=doubts)


def _between_modes(
    posterior: Posterior, modes: list[PyTree], factor: np.ndarray, num_chains: int, rows_read: int
) -> Start:
    """Chains start at all modes in turn, so that they cannot agree by all being in the same one."""
    starts = [modes[chain % len(modes)] for chain in range(num_chains)]
    where = "all of them" if num_chains >= len(modes) else f"{num_chains} of them, as there are no more chains"
    positions = jax.tree.map(lambda *leaves: np.stack(leaves), *starts)
    choices = (
        f"found {len(modes)} modes, so chains start at {where}, proposals are RandomWalk steps in the shape of "
        f"the first, and every test reads all {posterior.num_rows:,} rows (Exact)",
    )
    doubts = (
        f"the posterior has at least {len(modes)} modes; unless R-hat says that chains cross between them, the draws "
        "say nothing of how much each weighs. Sample at a higher temperature, or each mode by itself",
    )
    kernel = MetropolisHastings(RandomWalk(factor * 2.4 / math.sqrt(len(factor))), Exact())
    return Start(posterior.model, kernel, positions, rows_read, choices=choices, doubts=doubts)


def _refuse_improper(posterior: Posterior, at: PyTree, precision: np.ndarray) -> None:
    """A posterior that is flat in some direction cannot be sampled."""
    if names := flat_directions(posterior, at, precision):
        raise ValueError(
            "the Hessian at the mode is singular: the posterior is flat in a direction that involves "
            f"{', '.join(names)}. Drop collinear columns or give these coordinates a prior; separable data need a "
            "prior as well"
        )


def _refuse_endless(posterior: Posterior, start: PyTree, centre: PyTree) -> None:
    """A search for the mode that gave up far out, where the density still rises, found none."""
    if rises_for_ever(posterior, start, centre):
        raise ValueError(
            "the posterior cannot be sampled: its density does not fall towards infinity, in the direction in which "
            "the search for its mode went. Rows that can be separated need a prior: pass log_prior"
        )


def _guessed(posterior: Posterior, centre: PyTree) -> tuple[str, ...]:
    """What a position was taken to be; regressions that come with the library leave no doubt."""
    if isinstance(posterior.log_likelihood, LinearPredictor):
        return ()
    size = flatten(centre)[0].size
    return (f"took a position for {size} numbers, one for each column of the data (if it is not, pass init)",)


def _check_digits(centre: PyTree, factor: np.ndarray) -> None:
    """Positions must be finer than the posterior is wide."""
    flat = flatten(centre)[0]
    width = np.sqrt(np.sum(factor**2, axis=1))
    grid = float(jnp.finfo(flat.dtype).eps) * np.abs(np.asarray(flat, float))
    worst = int(np.argmax(grid / width))
    if grid[worst] > 0.01 * width[worst]:
        raise ValueError(
            f"{flat.dtype.name} is too coarse here: coordinate {worst} is near {float(flat[worst]):.6g}, with a "
            f"posterior standard deviation of {width[worst]:.2g}. Run in float64: call "
            'jax.config.update("jax_enable_x64", True) first; or measure it from nearer by'
        )
