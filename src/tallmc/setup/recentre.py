"""Moves a Taylor expansion to where the chains are, if they turn out to be elsewhere."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree, Real

from tallmc.control_variates import Controlled, Taylor, covariance_factor
from tallmc.numerics.flat import flatten
from tallmc.posterior import Posterior

# All three are judgements: no measurement of other values is on record.
_NUM_LOOKS = 8  # the first four let chains come in from where they start, the last four decide
_FAR_SHARE = 0.2  # of the looks that decide: one of four chains that is lost throughout is enough, one of five is not
_APPROACHING = 0.8  # chains that have come nearer by this factor are on their way to the expansion, which must wait


class Recentred(NamedTuple):
    """A model with its new expansion, the rows that it took, and why it was moved."""

    controlled: Controlled
    rows_read: int
    reason: str


def look_times(num_warmup: int) -> list[int]:
    """Transitions after which to look where chains are: in the first half of a warm-up that is long enough."""
    if num_warmup < 2 * _NUM_LOOKS:
        return []
    return [num_warmup * k // (2 * _NUM_LOOKS) for k in range(1, _NUM_LOOKS + 1)]


def squared_distances(precision: Real[np.ndarray, "d d"], centre: np.ndarray, points: np.ndarray) -> np.ndarray:
    """In standard deviations of a normal.

    Args:
        precision: Of the normal.
        centre: Its mean.
        points: One a line.
    """
    away = points - centre
    return np.einsum("ij,jk,ik->i", away, precision, away)


def recentre(controlled: Controlled, posterior: Posterior, looks: Sequence[PyTree]) -> Recentred | None:
    """Expands anew in the middle of where the chains were, if too many looks found them far from the expansion.

    Args:
        controlled: The model and its expansion.
        posterior: With its rows.
        looks: Positions of all chains, at several times of the first half of warm-up.
    """
    model = controlled.model
    late = looks[len(looks) // 2 :]
    points = np.concatenate([_flat(look) for look in late])
    centre = np.asarray(model.expansion.centre, float)
    squares, size = squared_distances(controlled.precision, centre, points), len(centre)
    share = float(np.mean(squares > size + 6 * np.sqrt(2 * size) + 20))  # further than a normal would ever be
    before, after = np.split(np.sqrt(np.maximum(squares, 0)), [len(squares) // 2])
    if share <= _FAR_SHARE or np.median(after) < _APPROACHING * np.median(before):
        return None
    one = jax.tree.map(lambda leaf: leaf[0], looks[0])
    flat, unravel = flatten(one)
    try:
        # The median, so that one chain that is lost does not lead the others astray.
        middle = unravel(np.median(points, axis=0).astype(flat.dtype))
        moved = Taylor(model.expansion.order).expand(posterior, middle)
    except ValueError:  # no derivatives there
        return None
    if covariance_factor(moved.precision) is None:
        return None
    reason = (
        f"{100 * share:.0f} % of the looks at the chains found them far from the Taylor expansion (more than "
        f"{100 * _FAR_SHARE:.0f} % is too much), so it was moved to their middle half-way through warm-up"
    )
    return Recentred(moved, moved.rows_read, reason)


def _flat(positions: PyTree) -> Real[np.ndarray, "chains d"]:
    """Stacked positions, one a line."""
    leaves = [np.asarray(leaf, float) for leaf in jax.tree.leaves(positions)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)
