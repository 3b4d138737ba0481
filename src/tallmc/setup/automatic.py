"""What `tm.sample(posterior)` does when nobody tells it how: looks at the posterior first, then chooses."""

import warnings
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from tallmc.console.progress import working
from tallmc.control_variates import Controlled, Taylor, covariance_factor
from tallmc.numerics.flat import flatten
from tallmc.optimise.exact_update import NO_OPTIMUM
from tallmc.optimise.mode import default_start
from tallmc.optimise.result import OptimiseResult
from tallmc.posterior import Posterior, checks
from tallmc.posterior.derivatives import derivative_trouble
from tallmc.posterior.linear_predictor import LinearPredictor, SelectedPredictor
from tallmc.posterior.passes import log_densities, prior_derivatives
from tallmc.run.timing import Timing
from tallmc.setup import contest
from tallmc.setup.contest import Way
from tallmc.setup.modes import find_mode, other_modes, valley
from tallmc.setup.pilot import look_around
from tallmc.setup.rungs import level_at
from tallmc.setup.search_end import NEARLY_FLAT, End, flat_directions, rises_for_ever, search_end
from tallmc.setup.selection import choose_to_select, has_truth_values
from tallmc.setup.situation import (
    Budget,
    Situation,
    around_a_mode,
    walking,
    weights_from,
    without_a_mode,
    without_a_normal,
)
from tallmc.setup.start import Start
from tallmc.setup.ways import by_ladder
from tallmc.setup.worked_out import with_worked_out_bounds

# Where a figure below is called a judgement, no measurement of other values is on record.
_LARGEST_MATRIX = 4096  # coordinates up to which a matrix of second derivatives is kept: 64 MiB in float32
# Misfit beyond which there may be no mode at all, which takes two more passes to find out. A judgement: far
# above any misfit at which the normal is of use. Separable rows, whose density rises for ever, led to this check.
_NOTHING_LIKE_NORMAL = 1000.0
# Posterior standard deviations at which the search for the mode has arrived: the derivatives there give the rest of the
# way to a hundredth of that, and an expansion is as good there as at the mode itself.
_ARRIVED = 0.1
# Depth of the valleys between modes, in the log density, up to which trajectories cross by themselves. A judgement.
_SHALLOW = 3.0
_LEAST_HEAT = 10.0  # of the hottest rung. A judgement: below it a ladder is hardly worth its second rung
# Seconds, foreseen, from which a ladder is too dear: chains then stay at their modes, and the run says so. A judgement.
_TOO_LONG = 1800.0
_MOST_ITERATIONS = 40  # of the search for the mode; one that has not arrived by then counts as failed. A judgement


def plan(
    posterior: Posterior, init: PyTree, budget: Budget, rng_key: Array, timing: Timing, *, progress: bool
) -> Start:
    """Finds the mode, looks around it, and picks the way to move that promises most effective draws a second."""
    if isinstance(posterior.log_likelihood, SelectedPredictor) or has_truth_values(init):
        with timing.phase("mode"):
            return _selecting(posterior, init, budget, progress=progress)
    with timing.phase("reading"):
        start = default_start(posterior) if init is None else init
        positions = checks.one_position_per_chain(posterior, start, budget.num_chains, real_only=True)
        checks.check_start(posterior, positions)
    first = jax.tree.map(lambda leaf: leaf[0], positions)
    situation = Situation.of(posterior, budget, rng_key, first)
    if (trouble := derivative_trouble(posterior, first).some) is not None:
        return _decided(situation, [walking(situation, first, None, trouble)], 0)
    with timing.phase("mode"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what did not converge is dealt with here
        found = find_mode(posterior, first, max_iterations=_MOST_ITERATIONS, tolerance=_ARRIVED, progress=progress)
    if found.reason.startswith(NO_OPTIMUM):
        raise ValueError(f"the posterior cannot be sampled: {found.reason}")
    at, rows_read = found.position, found.rows_read
    if not found.converged:
        with timing.phase("mode"), working("looking where the search for the mode has ended", show=progress):
            # A search that failed may have ended anywhere, even outside the support.
            at_start, at_end = log_densities(posterior.model, posterior.rows, [first, at])
            end = search_end(posterior, first, found, at if at_end > at_start else first)
            if end.kind in (End.MOVING, End.STUCK):
                _refuse_endless(posterior, first, end.start)
            factor, more_rows = (None, 0) if end.kind is End.SPIKE else _widths(posterior, end.start, found)
        rows_read += 2 * posterior.num_rows + end.rows_read + more_rows
        with timing.phase("pilot"), working("looking for a way to move", show=progress):
            ways, more_rows = without_a_mode(situation, end, factor)
        return _decided(situation, ways, rows_read + more_rows)
    with timing.phase("expansion"), working("expanding the posterior at its mode", show=progress):
        situation, unbounded = _bounded(situation)
        posterior = situation.posterior
        controlled = _expand(posterior, at, found)
        if posterior.rows.outgrow_device:  # rows by weight are picked here and there, which a stream cannot do
            controlled = controlled._replace(constants=None)
    rows_read += controlled.rows_read
    factor = covariance_factor(controlled.precision)
    if factor is None:
        _refuse_improper(posterior, at, controlled.precision)
        with timing.phase("pilot"), working("looking for a way to move", show=progress):
            ways, more_rows = without_a_normal(situation, first, NEARLY_FLAT)
        return _decided(situation, ways, rows_read + more_rows)
    _check_digits(at, factor)
    centre = _one_step_further(posterior, at, controlled, factor)
    with timing.phase("mode"), working("looking for other modes", show=progress):
        others, more_rows = other_modes(posterior, centre, factor)
    rows_read += more_rows
    if others:
        return _between_modes(situation, [centre, *others], factor, rows_read)
    passes = (
        f"found the mode and the curvature there in {rows_read / posterior.num_rows:.1f} passes over "
        f"{posterior.num_rows:,} rows"
    )
    with timing.phase("expansion"):
        weights = weights_from(controlled)
    with timing.phase("pilot"), working("comparing the posterior with a normal", show=progress):
        pilot = look_around(controlled.model, posterior.rows, centre, factor, weights)
    rows_read += pilot.rows_read
    if not pilot.misfit < _NOTHING_LIKE_NORMAL:
        _refuse_endless(posterior, first, centre)
        rows_read += 2 * posterior.num_rows
    with timing.phase("pilot"), working("looking for a way to move", show=progress):
        ways, more_rows = around_a_mode(situation, controlled, weights, centre, factor, pilot)
    guessed = () if init is not None else _guessed(posterior, centre)
    return _decided(
        situation, ways, rows_read + more_rows, (*guessed, passes, *unbounded, *_some_unbounded(controlled))
    )


def _bounded(situation: Situation) -> tuple[Situation, tuple[str, ...]]:
    """With bounds that are worked out from the likelihood, where that pays; or what stands in the way, in words."""
    if not situation.worth_bounds:
        return situation, ()
    posterior, trouble = with_worked_out_bounds(situation.posterior, situation.first)
    if trouble is None:
        return situation._replace(posterior=posterior), ()
    return situation, (
        f"no bounds on what a row can say could be worked out, as there is no rule for {trouble}, so that tests on few "
        "rows would be approximate (MHMinibatch)",
    )


def _some_unbounded(controlled: Controlled) -> tuple[str, ...]:
    """What is said of rows without a bound."""
    if not controlled.unbounded:
        return ()
    return (
        f"bounds were worked out for all but {controlled.unbounded:,} rows, of which nothing is known in the region "
        "where chains go, so that tests on few rows would be approximate (MHMinibatch)",
    )


def _selecting(posterior: Posterior, init: PyTree, budget: Budget, *, progress: bool) -> Start:
    """Reversible jumps for a selection of columns."""
    start, kernel = choose_to_select(posterior, init, budget.num_chains, progress=progress)
    choices = (
        start.reason,
        "columns come and go by reversible jumps, tested on all rows: without an expansion tests on fewer widen the "
        "posterior, or save nothing",
    )
    return Start(posterior.model, kernel, start.positions, start.rows_read, choices=choices)


def _decided(situation: Situation, ways: Sequence[Way], rows_read: int, known: tuple[str, ...] = ()) -> Start:
    """The way that promises most effective draws for each second of the whole call."""
    budget, posterior = situation.budget, situation.posterior
    way = contest.best(ways, budget.transitions, budget.draws)
    flat, unravel = flatten(situation.first)
    each = (unravel(start.astype(flat.dtype)) for start in way.starts)
    positions = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    model = posterior.model if way.controlled is None else way.controlled.model
    choices = (*known, *way.why, *_others(situation, way, ways))
    return Start(model, way.kernel, positions, rows_read, way.controlled, way.feed, way.weights, choices, way.doubts)


def _others(situation: Situation, way: Way, ways: Sequence[Way]) -> tuple[str, ...]:
    """What else could have been chosen."""
    if len(ways) == 1:
        return ()
    budget = situation.budget
    rates = {one.label: one.rate(budget.transitions, budget.draws) for one in ways}
    others = ", ".join(f"{label} {rate:,.3g}" for label, rate in rates.items() if label != way.label)
    return (
        f"that promised {rates[way.label]:,.3g} effective draws for each second of the call, others less: {others}",
    )


def _between_modes(situation: Situation, modes: list[PyTree], factor: np.ndarray, rows_read: int) -> Start:
    """A ladder of temperatures, unless crossing needs none or takes too long; chains start at all modes in turn, so
    that they cannot agree by all being in the same one."""
    posterior, num_chains = situation.posterior, situation.budget.num_chains
    where = "all of them" if num_chains >= len(modes) else f"{num_chains} of them, as there are no more chains"
    flats = [flatten(mode)[0].astype(float) for mode in modes]
    starts = np.stack([flats[chain % len(modes)] for chain in range(num_chains)])
    depth, more_rows = valley(posterior, modes)
    reason = f"found {len(modes)} modes, with valleys between them of up to {depth:,.3g} in the log density"
    level, few_rows = level_at(posterior, modes[0])
    # Hotter than the valleys are deep gains nothing: three and ten times as much gave 0.57 and 0.39 as many effective
    # draws of the weights for each rung (two normals with free means; 0.79 and 0.57 where one sign is unknown).
    hottest = float(np.clip(depth, _LEAST_HEAT, posterior.num_rows))
    ladder = by_ladder(situation.row_seconds, posterior.num_rows, starts, factor, hottest, level, reason)
    if depth > _SHALLOW and ladder.seconds * situation.budget.transitions < _TOO_LONG:
        way = ladder
    else:
        way = situation.gradients(starts, factor, f"found {len(modes)} modes, so chains start at {where}")
    doubts = (
        f"the posterior has at least {len(modes)} modes, and chains have not crossed between them often enough: the "
        "draws say nothing of how much each weighs. Draw more, with run.extend(num_samples); or sample at a higher "
        "temperature, or each mode by itself",
    )
    return _decided(situation, [way], rows_read + more_rows + few_rows)._replace(unless_mixed=doubts)


def _expand(posterior: Posterior, at: PyTree, found: OptimiseResult) -> Controlled:
    """At the mode, with the sums of the search's last pass if that was made there."""
    flat, _ = flatten(at)
    taylor, last = Taylor(2 if flat.size <= _LARGEST_MATRIX else 1), found.full_pass
    if last is None or not np.array_equal(last.position.astype(flat.dtype), flat):
        return taylor.expand(posterior, at)
    temperature = float(posterior.temperature)
    assert last.sums.curvature is not None
    return taylor.expand_known(posterior, at, temperature * last.sums.score, -temperature * last.sums.curvature)


def _widths(posterior: Posterior, at: PyTree, found: OptimiseResult) -> tuple[np.ndarray | None, int]:
    """Factor of the covariance where a search has ended, if there is one, and the rows that it took to find out."""
    controlled = _expand(posterior, at, found)
    factor = covariance_factor(controlled.precision)
    if factor is None:
        _refuse_improper(posterior, at, controlled.precision)
    else:
        _check_digits(at, factor)
    return factor, controlled.rows_read


def _one_step_further(posterior: Posterior, at: PyTree, controlled: Controlled, factor: np.ndarray) -> PyTree:
    """The mode by a last Newton step, which needs no rows: the derivatives are those of the expansion."""
    flat, unravel = flatten(at)
    likelihood = np.asarray(controlled.model.expansion.gradient, float) / float(posterior.temperature)
    slope = likelihood + prior_derivatives(posterior.model, unravel, flat)[1]
    return unravel((flat + factor @ (factor.T @ slope)).astype(flat.dtype))


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
    if isinstance(posterior.log_likelihood, LinearPredictor) or posterior.start is not None:
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
