"""Where a search for the mode ended that found none: at an edge, on a kink, in a spike, or merely out of time."""

import enum
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, PyTree

from tallmc.numerics.flat import Unflatten, coordinate_names, flatten
from tallmc.optimise.linear_algebra import solve_downhill
from tallmc.optimise.result import OptimiseResult
from tallmc.posterior import Posterior
from tallmc.posterior.operations import kinks_in
from tallmc.posterior.passes import likelihood_sums, log_densities, prior_derivatives

# Steps ahead that are tried, in units of the one that a straight line would gain 1 by. At the shortest that gain is
# still several times the rounding of sums in float32.
_AHEAD = (1.0, 1 / 8, 1 / 64, 1 / 512)
_BISECTIONS = 12  # to find an edge on the way to a place beyond it
_STILL_RISING = 0.05  # gain in log density by one of them that counts. A judgement
# Growth of a coordinate's curvature during the search by which it is called a spike: a hundred times as narrow.
_NARROWED = 1e4
# A share of the largest eigenvalue, all coordinates scaled alike, below which float32 cannot tell a direction from a
# flat one; in such a direction, how far out the likelihood and the prior are asked, in conditional standard deviations.
_FLAT, _FAR, _FAR_FOR_PRIORS = 1e-5, 1e4, 1e8
_FALLEN = 5.0  # log density that a proper posterior has lost by then at least, and up to an edge at most. A judgement
_MOST_NAMED = 8  # coordinates
NEARLY_FLAT = (
    "the curvature at the mode is too nearly singular to be inverted (columns that are nearly collinear are better "
    "combined, centred, or given a tighter prior)"
)
"""What is said if the search did converge, the density is not flat, and no normal can be made of its curvature."""


class End(enum.Enum):
    """What a search for the mode came to."""

    MOVING = "it was still rising when its steps ran out"
    KINK = "the slope jumps where the density is largest"
    EDGE = "the density drops to nothing just ahead"
    SPIKE = "the density rises on and on as the posterior narrows"
    STUCK = "no step raises the density, though its slope is not zero"


class SearchEnd(NamedTuple):
    """What a search for the mode came to, for users.

    Args:
        kind: Which of these.
        reason: A clause for them.
        rows_read: Rows that it took to find out.
        start: Where chains had better start.
    """

    kind: End
    reason: str
    rows_read: int
    start: PyTree


def search_end(posterior: Posterior, start: PyTree, found: OptimiseResult, at: PyTree) -> SearchEnd:
    """Why a search for the mode did not converge; reads all rows about ten times, and up to twenty at an edge.

    Args:
        posterior: Whose mode was looked for.
        start: Where the search began.
        found: What it came to.
        at: The better of its beginning and its end.
    """
    model, num_rows, count = posterior.model, posterior.num_rows, len(found.objective)
    flat, unravel = flatten(at)
    first, slope, precision = _derivatives(posterior, start)[1], *_derivatives(posterior, at)
    if _narrowed(first, found.hessian):
        why = (
            f"the density was still rising after {count} steps of the search for its mode, into a spike that holds "
            "little of the mass (a scale near zero: write what it multiplies as scale * z, with z standard normal)"
        )
        return SearchEnd(End.SPIKE, why, 2 * num_rows, start)
    if not (np.all(np.isfinite(slope)) and np.all(np.isfinite(precision))):
        why = "where the search for the mode ended, the log density has no finite derivatives"
        return SearchEnd(End.STUCK, why, 2 * num_rows, start)
    ahead = solve_downhill(precision, slope, float(np.finfo(flat.dtype).eps))
    ahead = ahead / max(float(slope @ ahead), np.finfo(float).tiny)
    places = [at, *(unravel((flat + far * ahead).astype(flat.dtype)) for far in _AHEAD)]
    heights = np.array(log_densities(model, posterior.rows, places))
    gains, rows_read = heights[1:] - heights[0], (2 + len(places)) * num_rows
    beyond = flatten(found.position)[0] if np.all(np.isfinite(gains)) else flatten(places[1])[0]
    edge, more_rows = _edge(posterior, flat, beyond, unravel, heights[0])
    rows_read += more_rows
    if edge is not None:
        names, more_rows = _across(posterior, flatten(edge)[0], beyond, unravel)
        why = (
            f"the density is largest at the boundary of its support{names} (a transformed parameter, such as the "
            "logarithm of its distance from there, has none)"
        )
        return SearchEnd(End.EDGE, why, rows_read + more_rows, edge)
    if kinks := _kinks(posterior, at):
        why = f"the search for the mode does not converge where the slope jumps ({', '.join(kinks)})"
        return SearchEnd(End.KINK, why, rows_read, at)
    if np.max(gains) > _STILL_RISING:
        why = f"the search for the mode had not arrived after {count} steps"
        return SearchEnd(End.MOVING, why, rows_read, at)
    why = "the search for the mode ended where no step raises the density, though its slope is not zero (rounding?)"
    return SearchEnd(End.STUCK, why, rows_read, at)


def _edge(
    posterior: Posterior, inside: np.ndarray, beyond: np.ndarray, unravel: Unflatten, height: float
) -> tuple[PyTree | None, int]:
    """The last place of those tried between two at which there is a density, if it drops to nothing from there; and
    rows read."""
    if not np.all(np.isfinite(beyond)):
        return None, 0
    here, there, last, tried = 0.0, 1.0, height, 0
    while tried < _BISECTIONS:
        middle = there if not tried else (here + there) / 2
        place = unravel((inside + middle * (beyond - inside)).astype(inside.dtype))
        (found,) = log_densities(posterior.model, posterior.rows, [place])
        tried += 1
        if np.isfinite(found):
            here, last = middle, found
            if tried == 1:
                return None, posterior.num_rows
        else:
            there = middle
    # Where numbers overflow the density has fallen far before that, and that is no edge.
    at_edge = unravel((inside + here * (beyond - inside)).astype(inside.dtype))
    return (at_edge if last > height - _FALLEN else None), tried * posterior.num_rows


def _across(posterior: Posterior, edge: np.ndarray, beyond: np.ndarray, unravel: Unflatten) -> tuple[str, int]:
    """Which coordinates lead across an edge by themselves, in words, and rows read."""
    if len(edge) > _MOST_NAMED:
        return "", 0
    alone = [unravel(np.where(np.arange(len(edge)) == index, beyond, edge)) for index in range(len(edge))]
    heights = np.array(log_densities(posterior.model, posterior.rows, alone))
    names = [coordinate_names(unravel(edge))[index] for index in np.flatnonzero(~np.isfinite(heights))]
    return (f", in {', '.join(names)}" if names else ""), len(alone) * posterior.num_rows


def rises_for_ever(posterior: Posterior, start: PyTree, at: PyTree) -> bool:
    """Whether the density does not fall ten times as far out in the direction in which the search for its mode went,
    and its mass does not either: towards a point it may rise for ever and still be proper.

    Args:
        posterior: Whose density.
        start: Where the search began.
        at: Where it ended.
    """
    (begin, unravel), end = flatten(start), flatten(at)[0]
    if np.array_equal(begin, end):
        return False
    beyond = unravel((end + 9 * (end - begin)).astype(end.dtype))
    here, further = log_densities(posterior.model, posterior.rows, [at, beyond])
    if not further >= here:
        return False
    # Across the direction; along it a density that rises for ever has no width.
    across = np.linalg.svd((end - begin).astype(float)[None])[2][1:]
    bent = [across @ _derivatives(posterior, place)[1] @ across.T for place in (at, beyond)]
    if not np.all(np.isfinite(bent)):
        return False
    sizes = [np.abs(np.linalg.eigvalsh(one)) for one in bent]
    widths = [-0.5 * np.sum(np.log(np.maximum(size, np.finfo(float).tiny))) for size in sizes]
    return bool(further + widths[1] >= here + widths[0])


def flat_directions(posterior: Posterior, at: PyTree, precision: Float[np.ndarray, "d d"]) -> tuple[str, ...]:
    """Coordinates along which the density stays as high as it is however far one goes; none if it is proper.

    A matrix of second derivatives that cannot be inverted is not proof enough: a likelihood that jumps has none that
    says anything, and float32 cannot tell nearly collinear columns from collinear ones. So the density is asked.

    Args:
        posterior: Whose density.
        at: Where the search for its mode ended.
        precision: Second derivative of minus the log density there.
    """
    flat, unravel = flatten(at)
    scale = np.sqrt(np.maximum(np.abs(np.diag(precision)), np.finfo(float).tiny))
    scaled = precision / np.outer(scale, scale)
    if not np.all(np.isfinite(scaled)):
        return ()
    values, vectors = np.linalg.eigh(scaled)
    smallest = int(np.argmin(np.abs(values)))
    # Of a matrix that is zero all over, or in one coordinate, the scaled one says nothing.
    if abs(values[smallest]) > _FLAT * np.max(np.abs(values)) and np.min(scale) > _FLAT * np.max(scale) ** 2:
        return ()
    share = np.abs(vectors[:, smallest])
    direction = vectors[:, smallest] / scale
    direction = direction / np.linalg.norm(direction) * min(np.linalg.norm(direction), 1 + np.linalg.norm(flat))
    for sign in (1.0, -1.0):
        if _stays_up(posterior, flat, unravel, sign * direction):
            loud = np.argsort(-share)[:_MOST_NAMED]
            return tuple(coordinate_names(at)[index] for index in sorted(loud) if share[index] > 0.1)
    return ()


def _stays_up(posterior: Posterior, flat: np.ndarray, unravel: Unflatten, direction: np.ndarray) -> bool:
    """Rows are asked less far out than the prior, which does not lose its digits there."""

    def at(far: float) -> PyTree:
        return unravel((flat + far * direction).astype(flat.dtype))

    here, there = log_densities(posterior.model, posterior.rows, [at(0.0), at(_FAR)])
    if not there > here - _FALLEN:
        return False
    priors = [prior_derivatives(posterior.model, unravel, flatten(at(far))[0])[0] for far in (0.0, _FAR_FOR_PRIORS)]
    return bool(priors[1] > priors[0] - _FALLEN)


def _derivatives(posterior: Posterior, place: PyTree) -> tuple[np.ndarray, np.ndarray]:
    """Gradient of the log density, and minus its second derivative."""
    flat, unravel = flatten(place)
    beta = 1 / float(posterior.temperature)
    _, slope, hessian = likelihood_sums(posterior.model, unravel, flat, posterior.rows, curvature=True)
    _, prior_slope, prior_hessian = prior_derivatives(posterior.model, unravel, flat)
    assert hessian is not None
    return beta * slope + prior_slope, -beta * hessian - prior_hessian


def _narrowed(first: Float[np.ndarray, "d d"], last: Float[np.ndarray, "d d"]) -> bool:
    """Whether some coordinate's curvature has grown beyond all measure, or beyond what numbers can hold."""
    before, after = np.abs(np.diag(first)), np.abs(np.diag(last))
    if not np.all(np.isfinite(after)):
        return True
    known = before > 0
    return bool(np.any(after[known] > _NARROWED * before[known]))


def _kinks(posterior: Posterior, at: PyTree) -> tuple[str, ...]:
    """What makes the slope jump, by the functions that a user wrote."""
    of_rows = kinks_in(posterior.log_likelihood, at, posterior.rows.like)
    found = [(of_rows, "log_likelihood"), (kinks_in(posterior.log_prior, at), "log_prior")]
    return tuple(f"{' and '.join(names)} in {where}" for names, where in found if names)
