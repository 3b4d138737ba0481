"""Is there another mode? Searches from elsewhere, on few rows first."""

import warnings
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree, Real

from tallmc.bounds import FromProgram, is_concave
from tallmc.numerics.flat import flatten
from tallmc.numerics.permutation import NUM_KEYS
from tallmc.optimise.mode import default_start, search_mode
from tallmc.optimise.result import OptimiseResult
from tallmc.posterior import Posterior, checks
from tallmc.posterior.linear_predictor import LinearPredictor
from tallmc.posterior.passes import Span, log_densities

_NUM_STARTS = 6  # searches: a mode that half of all starts lead to is missed once in 64 times. A judgement
# Iterations of one search. One that has not arrived by then is among many coordinates, where each takes long, and was
# not seen to arrive at all. A judgement.
_ITERATIONS = 30
_ROWS = 1000  # that a search looks at first, so that one that leads nowhere new costs little. A judgement
# Posterior standard deviations between modes that are two: two equal normals nearer than that have one mode together.
# At 6 sqrt(d), as it once was, chains never saw the second of two modes.
_APART = 2.0
# How far a mode of some rows may be from that of all, in standard deviations of a posterior of some: about sqrt(d) is
# usual, and three more is what chance hardly ever does.
_BLUR = 3.0
_PLACES = 9  # on a line between two modes, their own included. A judgement: each takes a pass over all rows
_NEGLIGIBLE = 30.0  # log density by which a mode that does not matter is below the best: a factor of 1e-13


def other_modes(posterior: Posterior, centre: PyTree, factor: Real[np.ndarray, "d d"]) -> tuple[list[PyTree], int]:
    """Modes that matter besides the one at `centre`, and the rows that it took to look for them.

    Searches start at random places, some far beyond the width of the posterior of a thousand rows, and follow that
    posterior to its modes; those that are modes of all rows too are kept. No search can prove that there are no others.
    The places do not come from the run's key: the same posterior has the same modes in every run.
    A likelihood whose logarithm is concave needs none.
    """
    if _one_at_most(posterior, centre):
        return [], 0
    flat, unravel = flatten(centre)
    here = np.asarray(flat, float)
    generator = np.random.default_rng(2)
    few = Span(0, min(_ROWS, posterior.num_rows), generator.integers(0, 2**32, NUM_KEYS, np.uint32))
    scale = np.sqrt(posterior.num_rows / few.num_rows)
    width = np.sqrt(np.sum(factor**2, axis=1)) * scale
    found, rows_read = [], 0
    for start in range(_NUM_STARTS):
        spread = (np.abs(here) + 10 * width) * (1 if start % 2 else 0.3)
        guess = (spread * generator.normal(size=len(here))).astype(flat.dtype)
        rough, rows = _search(posterior, unravel(guess), few)
        rows_read += rows
        known = [here, *found]
        if rough is None or _near(rough, known, factor * scale, np.sqrt(len(here)) + _BLUR):
            continue
        exact, rows = _search(posterior, unravel(rough.astype(flat.dtype)))
        rows_read += rows
        if exact is not None and not _near(exact, known, factor, _APART):
            found.append(exact)
    modes = [unravel(position.astype(flat.dtype)) for position in found]
    if modes:
        heights = log_densities(posterior.model, posterior.rows, [centre, *modes])
        rows_read += len(heights) * posterior.num_rows
        modes = [mode for mode, height in zip(modes, heights[1:], strict=True) if height > heights[0] - _NEGLIGIBLE]
    return modes, rows_read


def _one_at_most(posterior: Posterior, position: PyTree) -> bool:
    """Whether the log density is known to be concave."""
    likelihood = posterior.log_likelihood
    if isinstance(likelihood, LinearPredictor):
        return likelihood.link.concave
    if not isinstance(posterior.bounds, FromProgram):  # which was read to its end: what is held fixed in it cancels
        return False
    flat, unravel = flatten(position)
    of_rows = is_concave(lambda at, row: likelihood(unravel(at), row), flat, posterior.rows.like)
    return of_rows and is_concave(lambda at: posterior.model.log_prior(unravel(at)), flat)


def valley(posterior: Posterior, modes: list[PyTree]) -> tuple[float, int]:
    """How far the log density falls, at most, on straight lines from the first mode to the others; and rows read.

    The pass between two modes may be higher than what lies on a line. A temperature of this depth levels the valley.
    """
    flats = [flatten(mode)[0].astype(float) for mode in modes]
    unravel = flatten(modes[0])[1]
    dtype = flatten(modes[0])[0].dtype
    shares = np.linspace(0, 1, _PLACES)
    deepest, rows_read = 0.0, 0
    for other in flats[1:]:
        between = [unravel((flats[0] + share * (other - flats[0])).astype(dtype)) for share in shares]
        heights = np.asarray(log_densities(posterior.model, posterior.rows, between))
        rows_read += len(heights) * posterior.num_rows
        heights = heights[np.isfinite(heights)]
        if heights.size > 2:
            # The lower mode's side is the shallower one, and crossing it once is all it takes.
            deepest = max(deepest, float(min(heights[0], heights[-1]) - heights.min()))
    return deepest, rows_read


def find_mode(posterior: Posterior, init: PyTree, **options: Any) -> OptimiseResult:
    """`tm.optimise.mode`, but Ctrl-C ends it all: there is nothing to draw from yet.

    Args:
        posterior: What to find the mode of.
        init: A position that was checked already; None: zeros, which are checked here.
        **options: As for `tm.optimise.mode`.
    """
    if init is None:
        positions = checks.one_position_per_chain(posterior, default_start(posterior), 1)
        checks.check_start(posterior, positions)
        init = jax.tree.map(lambda leaf: leaf[0], positions)
    found = search_mode(posterior, init, **options)
    if found.interrupted:
        raise KeyboardInterrupt("stopped while looking for the mode: no draws to return")
    return found


def _search(posterior: Posterior, guess: PyTree, span: Span | None = None) -> tuple[np.ndarray | None, int]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a search that leads nowhere found no mode
            found = find_mode(posterior, guess, span=span, max_iterations=_ITERATIONS, progress=False)
    except ValueError:  # the guess lies outside the support
        return None, 0
    position = flatten(found.position)[0].astype(float)
    return (position if found.converged else None), found.rows_read


def _near(position: np.ndarray, others: list[np.ndarray], factor: np.ndarray, within: float) -> bool:
    distances = [np.linalg.norm(np.linalg.solve(factor, position - other)) for other in others]
    return bool(min(distances) < within)
