"""One update from all rows, and when to stop making them."""

import numpy as np

from tallmc.optimise.linear_algebra import Degenerate, units_of, update
from tallmc.optimise.result import FullPass
from tallmc.optimise.state import Search

_NEAR = 1.0  # posterior standard deviations over which the curvature is taken to be constant
_FAST = 0.1  # a pass that shortens the distance by less than this was not led by the right curvature
_LEADS = (
    0.05  # what a curvature may miss of a step and still be worth it: a pass for the Hessian takes three times as long
)
_ENOUGH = 50  # rows for each coordinate whose curvature will do for the first step on all rows
_FLAT = 1e4  # a curvature that fell by this factor along a step means that the optimum is at infinity
_PATIENCE = 30
NO_OPTIMUM = "there is no finite optimum"
_AT_INFINITY = NO_OPTIMUM + ": {}. The rows are separable, or nearly; set prior_precision above 0"


def exact_update(search: Search) -> None:
    """One pass over all rows: ends the search if the optimum is near enough, and makes an update if not.

    The first pass makes do with the curvature of the tested rows, and passes close to the optimum with that of the
    pass before: where the curvature hardly changes, a pass for the gradient alone costs a fraction. If the curvature at
    the optimum is wanted in the end, the tested rows' serves until a pass is likely to be the last.
    """
    problem = search.problem
    fresh = _curvature_is_poor(search)
    likelihood = search.sum(search.rows.everything(), curvature=fresh)
    if fresh := likelihood.curvature is not None:
        search.full_pass = FullPass(search.position, likelihood)
    prior = problem.prior(search.position)
    sums = likelihood + (prior if fresh else prior._replace(curvature=None))
    search.record(sums.loss, problem.num_rows)
    if search.overshot(sums):
        return
    search.learn(sums)
    try:
        # Units as they were at first: those of where the search is would lead it quickly into the spike of a density
        # that rises for ever as it narrows, past a mode on the way.
        units = None if problem.convex else units_of(search.first_curvature)
        step = update(sums._replace(curvature=search.curvature), problem.finest(), convex=problem.convex, units=units)
    except Degenerate as trouble:
        _explain(search, trouble)
        return
    dispersion = problem.dispersion(likelihood.loss / problem.num_rows)
    before, search.distance = search.distance, float(np.sqrt(max(step @ sums.score, 0.0) / dispersion))
    search.contraction = search.distance / before if before else 0.0
    search.before = None
    _judge(search, likelihood.loss, step, fresh=fresh)
    if search.reason is None and problem.settles:
        search.step(sums.loss, step)
    elif search.reason is None:
        search.step(sums.loss, search.acceleration.propose(search.position, step, search.curvature), plain=step)


def _curvature_is_poor(search: Search) -> bool:
    problem = search.problem
    if not problem.settles:
        return True
    if problem.ends_with_curvature:
        return not _still_far(search)
    if search.curvature_rows == problem.num_rows:
        return not (search.distance < _NEAR and search.contraction < _FAST)
    return bool(np.isfinite(search.distance)) or search.curvature_rows < _ENOUGH * problem.dimension


def _still_far(search: Search) -> bool:
    """Whether the tested rows' curvature leads on, and not yet to where the search ends."""
    rows = search.curvature_rows
    if not 0 < rows < search.problem.num_rows:
        return False
    # A step by the curvature of some rows misses by about this share of its length; the pass before may know better.
    missed = max(search.contraction, float(np.sqrt(search.problem.dimension / rows)))
    # Of an estimate of the next distance, half of the tolerance is as good as the whole.
    return missed < _LEADS and missed * search.distance > search.options.tolerance / 2


def _judge(search: Search, likelihood: float, step: np.ndarray, *, fresh: bool) -> None:
    """Stops the search if it has arrived, or never will."""
    # A distance by an old curvature counts only if that curvature has just proved its worth.
    known = search.curvature_rows == search.problem.num_rows and (fresh or search.contraction < _FAST)
    if search.problem.separates(likelihood):
        search.reason = _AT_INFINITY.format("every row is on the right side of a plane")
    elif search.distance < search.options.tolerance and known:
        search.reason = _what_is_wrong(search, step)
        if search.reason is None:
            search.reason, search.converged = "the gradient over all rows is zero to the tolerance", True
    elif search.distance < 0.9 * search.best_distance:
        search.best_distance, search.passes_without_progress = search.distance, 0
    else:
        search.passes_without_progress += 1
        if search.passes_without_progress > _PATIENCE:
            search.reason = "no more progress: rounding hides the rest; pass float64 data or a larger tolerance"


def _what_is_wrong(search: Search, step: np.ndarray) -> str | None:
    """A gradient of zero is not yet an optimum."""
    if not search.problem.convex:
        # Scaled to a unit diagonal: columns in odd units are no flat directions.
        scale = np.sqrt(np.maximum(np.abs(np.diag(search.curvature)), np.finfo(float).tiny))
        values = np.linalg.eigvalsh(search.curvature / scale[:, None] / scale)
        if values[0] <= 1e-9 * np.abs(values).max():
            return "the gradient is zero, but this is a saddle or a flat direction; set a prior or try another init"
    elif search.problem.settles:
        columns = np.flatnonzero(np.abs(step) > 0.1 * np.abs(step).max()).tolist()
        if step @ search.first_curvature @ step > _FLAT * (step @ search.curvature @ step):
            return _AT_INFINITY.format(f"the loss keeps falling along coordinates {columns}")
    return None


def _explain(search: Search, trouble: Degenerate) -> None:
    if search.first_curvature is not search.curvature:
        search.reason = _AT_INFINITY.format(f"the curvature has vanished along coordinates {trouble.columns}")
        search.before = None
        return
    raise ValueError(
        f"coordinates {trouble.columns} cannot be told apart: the columns are collinear, or zero in every row. Drop or "
        "combine some of them, centre columns far from zero, pass float64 data, or set prior_precision above 0"
    )
