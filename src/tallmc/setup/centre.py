"""Where to expand: at the posterior's mean, which is not its mode."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Real

from tallmc.control_variates import Controlled, Taylor, covariance_factor
from tallmc.posterior import Posterior
from tallmc.posterior.skewness import likelihood_skew, prior_skew
from tallmc.setup.surrogate import Surrogate, explore
from tallmc.setup.worked_out import without_worked_out_bounds

# Both are judgements. Of the largest shift of a coordinate, in standard deviations: at a tenth the expansion is nearly
# as good as at the mean itself, and in a hierarchy of a thousand rows, begun at a mode where all groups are alike,
# each pass came about twice as near.
_ARRIVED = 0.2
_MOST_PASSES = 8


class Found(NamedTuple):
    """An expansion at the mean of what it leads to.

    Args:
        controlled: The expansion.
        surrogate: Draws of prior + expansion.
        rows_read: Rows that it took.
    """

    controlled: Controlled
    surrogate: Surrogate
    rows_read: int


def follow_expansion(
    posterior: Posterior, unravel: Callable, start: Real[np.ndarray, " d"]
) -> tuple[Found | None, int]:
    """Expands the likelihood, looks where prior + expansion have their mean, and expands anew there until that rests.

    The prior is never expanded, so a hierarchy whose joint density has its mode where all groups are alike is no
    trouble: from that mode the passes lead away to where the mass is.

    Args:
        posterior: With its rows.
        unravel: From a flat position to one that the likelihood takes.
        start: Where to begin, in the precision of positions.

    Returns:
        What was found, or None; and the rows that it took in either case.
    """
    centre, rows_read, dtype = start.astype(float), 0, start.dtype
    leading = without_worked_out_bounds(posterior)
    for _ in range(_MOST_PASSES):
        try:
            controlled = Taylor(2).expand(leading, unravel(centre.astype(dtype)))
        except ValueError:  # no derivatives there
            return None, rows_read + posterior.num_rows
        rows_read += controlled.rows_read
        surrogate = explore(controlled.model, unravel, centre)
        if surrogate is None or not surrogate.mixed:
            return None, rows_read
        shift = float(np.max(np.abs(surrogate.mean - centre) / surrogate.spread))
        if shift < _ARRIVED:
            if leading is not posterior:
                controlled = Taylor(2).expand(posterior, unravel(centre.astype(dtype)))
                rows_read += controlled.rows_read
            return Found(controlled, surrogate, rows_read), rows_read
        centre = surrogate.mean
    return None, rows_read


def mean_of(
    posterior: Posterior, unravel: Callable, mode: Float[np.ndarray, " d"], factor: Float[np.ndarray, "d d"]
) -> Real[np.ndarray, " d"] | None:
    """The posterior's mean, to first order in its skewness; reads all rows once.

    Args:
        posterior: With its rows.
        unravel: From a flat position to one that the likelihood takes.
        mode: Where the expansion was made.
        factor: Lower Cholesky factor of the covariance there.
    """
    model, covariance = posterior.model, factor @ factor.T
    skew = likelihood_skew(model, unravel, mode, covariance, posterior.rows)
    if skew is None:
        return None
    skew = skew / float(model.temperature) + prior_skew(model, unravel, mode, covariance)
    mean = mode + covariance @ skew / 2
    return mean.astype(mode.dtype) if np.all(np.isfinite(mean)) else None


def expanded_at(posterior: Posterior, unravel: Callable, at: np.ndarray) -> tuple[Controlled, np.ndarray] | None:
    """The expansion there and the factor of its covariance, if there is one."""
    try:
        controlled = Taylor(2).expand(posterior, unravel(at))
    except ValueError:
        return None
    factor = covariance_factor(controlled.precision)
    return None if factor is None else (controlled, factor)
