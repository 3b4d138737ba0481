"""How a posterior compares with what proposals will fit: a normal at its centre, or prior + expansion."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Real

from tallmc.control_variates import ExpandedModel
from tallmc.feed import RowWeights
from tallmc.numerics.arithmetic import matvec
from tallmc.numerics.flat import flatten
from tallmc.numerics.programs import program
from tallmc.posterior import Rows
from tallmc.setup import lines

# Where a figure below is called a judgement, no measurement of other values is on record.
# Draws at which the posterior is compared, and of a normal as many further out. A judgement: 16 draws tell a spread to
# 18 %, enough to tell 0.5 from 1.5. Where rows are few a posterior is seldom normal, and draws cost little.
_POINTS, _POINTS_OF_FEW = 16, 64
# Rows that are asked at each of them: all if they are few, which makes the misfit exact; else 131,072 for all points
# together, however many rows there are. A judgement; what so few rows leave uncertain is subtracted from the misfit.
_FEW, _ROWS = 8192, 4096
# Rows up to which all are asked along lines as well, where otherwise the expansion stands for them. A judgement.
_VERY_FEW = 1000
# Dimensions up to which importance sampling by 64 draws finds a normal's stickiness of 1 to 0.3. A judgement.
_FEW_DIMENSIONS = 8


class Pilot(NamedTuple):
    """What a few thousand rows say of a posterior.

    Args:
        misfit: Standard deviation, over draws of what is compared, of what that misses of the log density.
        error: Standard error of the misfit.
        excess: By how much the log density exceeds the normal's two standard deviations further out (upper quartile);
            minus infinity where no normal was compared.
        variance: Largest along a line through the centre, by prior and expansion, or by all rows where they are few; 1
            for a normal.
        beyond: Largest share of the mass along a line that lies beyond four standard deviations.
        sticky: Mean, over the posterior, of its density over that of the normal: how much longer chains stay where
            steps that fit the normal go too seldom. 1 where that was not looked at.
        rows_needed: Rows that a minibatch test needs for a step between two draws.
        rows_drawn: Rows that an exact subsampling test draws for such a step; infinite without bounds.
        rows_read: Rows that it took to find out.
    """

    misfit: float
    error: float
    excess: float
    variance: float
    beyond: float
    sticky: float
    rows_needed: float
    rows_drawn: float
    rows_read: int


def look_around(
    model: ExpandedModel,
    all_rows: Rows,
    centre: PyTree,
    factor: Real[np.ndarray, "d d"],
    weights: RowWeights | None,
    draws: Real[np.ndarray, "draws d"] | None = None,
) -> Pilot:
    """Compares the posterior with a normal, or with other draws, from a few thousand rows.

    Nothing comes from the run's key, so that the same posterior looks the same in every run.

    Args:
        model: With its expansion.
        all_rows: To choose from.
        centre: Mean of the normal.
        factor: Lower Cholesky factor of its covariance.
        weights: How often rows are drawn, if they are drawn by their bounds.
        draws: Of prior + expansion; in place of those of the normal if given.
    """
    flat, unravel = flatten(centre)
    num_rows, size = model.num_rows, len(factor)
    count = num_rows if num_rows <= _FEW else _ROWS
    generator = np.random.default_rng(0)
    num_points = _POINTS_OF_FEW if num_rows <= _VERY_FEW else _POINTS
    white = generator.normal(size=(num_points, size))
    white = np.concatenate([white, (1 + 2 / math.sqrt(size)) * white])
    origin = (flat - np.asarray(model.expansion.centre, float)).astype(flat.dtype)
    points = (white @ factor.T).astype(flat.dtype) + origin
    if draws is not None:
        some = np.linspace(0, len(draws) - 1, 2 * num_points).astype(int)
        points = (draws[some] - np.asarray(model.expansion.centre, float)).astype(flat.dtype)
    bounded = weights is not None
    by_weight = weights is not None and count < num_rows
    if weights is not None and by_weight:
        # Rows by what they can say, or the few that say most would be missed.
        rows = weights.drawn(generator, count)
        scale = np.asarray(weights.scales)[rows].astype(float)
    else:
        rows = np.sort(generator.choice(num_rows, count, replace=False, shuffle=False))
        scale = np.ones(count)
    along = lines.directions(factor).astype(flat.dtype)
    whole = num_rows <= _VERY_FEW
    known, left, changes, profiles = _look(model, unravel, points, all_rows.take(rows), bounded, origin, along, whole)
    drawn = math.inf
    if changes is not None:
        # A test reads all rows at most, as it does where a step leads beyond where bounds hold.
        drawn = num_rows * float(np.mean(np.minimum(np.asarray(changes, float) / float(model.temperature), 1)))
    left = num_rows * scale * np.asarray(left, float)
    variance = np.var(left, axis=1) / count * (1 if by_weight else 1 - count / num_rows)
    missed = left.mean(axis=1)
    if draws is None:
        missed = missed + np.asarray(known, float) + np.sum(white**2, axis=1) / 2
    near, far = (
        (missed[:num_points], (missed - 3 * np.sqrt(variance))[num_points:]) if draws is None else (missed, None)
    )
    # An estimate from some of the rows is itself uncertain; that is no misfit of the posterior.
    misfit = math.sqrt(max(float(np.var(near) - np.mean(variance[: len(near)])), 0.0))
    steps = left[: num_points - 1] - left[1:num_points]
    noise = 1.5 * float(np.mean(np.var(steps, axis=1)))
    finite = bool(np.all(np.isfinite(missed)))
    wide, beyond = lines.heaviest(np.asarray(profiles, float))
    return Pilot(
        misfit=misfit if finite else math.inf,
        error=float(np.std(near)) / math.sqrt(2 * (len(near) - 1)) if finite else math.inf,
        excess=-math.inf if far is None else float(np.quantile(far, 0.75)) if finite else math.inf,
        variance=wide,
        beyond=beyond,
        sticky=_stickiness(missed[num_points:], white[num_points:]) if far is not None and whole and finite else 1.0,
        rows_needed=noise / (1 + noise / num_rows) if finite else math.inf,
        rows_drawn=drawn,
        rows_read=(2 * num_points + (profiles.size if whole else 0)) * count,
    )


def _stickiness(missed: Real[np.ndarray, " points"], white: Real[np.ndarray, "points d"]) -> float:
    """By importance sampling from a wider normal, where that says something: in few dimensions.

    Args:
        missed: Log density of the posterior over that of the normal, up to a constant, at draws of the wider one.
        white: These draws, in standard deviations of the normal.
    """
    size = white.shape[1]
    if size > _FEW_DIMENSIONS:
        return 1.0
    wider = 1 + 2 / math.sqrt(size)
    over_wider = size * math.log(wider) - np.sum(white**2, axis=1) * (1 - wider**-2) / 2
    high = missed - missed.max()
    squares, ones = np.exp(2 * high + over_wider), np.exp(high + over_wider)
    return max(1.0, float(squares.mean() / ones.mean() ** 2))


@program
def _look(
    model: ExpandedModel,
    unravel: Callable,
    steps: Array,
    rows: PyTree,
    bounded: bool,
    origin: Array,
    along: Array,
    whole: bool,
) -> tuple[Array, Array, Array | None, Array]:
    """From the expansion's centre: what needs no rows, what each row adds, and by how much rows may change at most, on
    average, from each of the first points to the next; and the log density along lines: as far as it needs no rows, or
    the whole of it if these are all rows."""
    centre, bounds = model.expansion.centre, model.bounds
    old = jax.vmap(unravel)(jnp.broadcast_to(centre, steps.shape))
    new = jax.vmap(unravel)(centre[None] + steps)
    near = jax.tree.map(lambda leaf: leaf[: len(steps) // 2], new)
    ends = (jax.tree.map(lambda leaf, cut=cut: leaf[cut], near) for cut in (slice(None, -1), slice(1, None)))
    with jax.default_matmul_precision("highest"):
        known = jax.vmap(lambda a, b: model.known_change(a, b).offset)(old, new)
        changes = jax.vmap(bounds.mean_change)(*ends) if bounded and bounds is not None else None
        profiles = jax.lax.map(lambda line: _profile(model, unravel, origin, line, rows if whole else None), along)
        return known, model.log_ratios_of_moves(old, new, rows), changes, profiles


def _profile(model: ExpandedModel, unravel: Callable, origin: Array, line: Array, rows: PyTree) -> Array:
    """Prior and polynomial along one line, and what all rows add to that. The polynomial is a parabola there."""
    expansion, places = model.expansion, jnp.asarray(lines.PLACES, line.dtype)
    slope, bend = jnp.sum(expansion.gradient * line), jnp.zeros((), line.dtype)
    if expansion.curvature is not None:
        begin, step = matvec(expansion.whiten, origin), matvec(expansion.whiten, line)
        slope = slope + jnp.sum(expansion.curvature * begin * step)
        bend = jnp.sum(expansion.curvature * step * step)
    points = expansion.centre[None] + origin[None] + places[:, None] * line[None]
    prior = jax.vmap(lambda point: jnp.asarray(model.log_prior(unravel(point)), line.dtype))(points)
    likelihood = (slope * places + bend * places * places / 2) / model.temperature.astype(line.dtype)
    if rows is None:
        return prior + likelihood
    begin, ends = jnp.broadcast_to(expansion.centre, points.shape), jax.vmap(unravel)(points)
    return prior + likelihood + jnp.sum(model.log_ratios_of_moves(jax.vmap(unravel)(begin), ends, rows), axis=1)
