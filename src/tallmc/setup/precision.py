"""Is the arithmetic fine enough for the question?"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree, Real

from tallmc.control_variates import ExpandedModel
from tallmc.kernel import Kernel
from tallmc.kernel_parts import rule_needs
from tallmc.numerics.flat import coordinate_names, flatten, is_real
from tallmc.posterior import Model, Rows, checks
from tallmc.posterior.operations import operations_on
from tallmc.setup.rounding import measure_rounding

_TOLERATED = 0.1  # against decisions whose own noise has a standard deviation of 1 or more
_TOLERATED_SHIFT = 0.1  # posterior standard deviations by which rounding may move the mode
# Relative error of a curvature from at most a thousand rows. Sums over more rows lose more: where a thousand lost 13 %,
# two thousand lost 60 %. Of sixty posteriors that are right in float32, none comes near any of the three limits; the
# worst have 0.01, 0.00014 and 0.0008.
_TOLERATED_BEND = 0.02
# Standard deviation of the log density of all rows beyond which no kernel can move by it: proposals would be accepted
# by their rounding. In between draws are doubted. A judgement.
_HOPELESS = 10.0
# A column whose numbers lie this many times as far from zero as from each other is called far. A judgement: a
# regression on it and a constant loses the square of that in digits, 3 of the 7 that there are.
_FAR_COLUMN = 30.0
_IN_FLOAT64 = 'run in float64: call jax.config.update("jax_enable_x64", True) first and pass float64 data'


def rounding_noise(model: Model, decisive_rows: int, typical_log_likelihood: float, dtype: DTypeLike) -> float:
    """Standard deviation that rounding adds to an estimated log acceptance ratio.

    A row's log ratio is a small difference of two log likelihoods, each rounded to half a unit in the last place;
    the estimate multiplies the mean of `decisive_rows` such differences by the number of rows.

    Example:
        >>> import jax.numpy as jnp
        >>> from tallmc.posterior import Posterior
        >>> posterior = Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, jnp.zeros(10_000))
        >>> rounding_noise(posterior.model, 100, 2.0, jnp.float32) < 1e-3
        True
    """
    one_row = math.sqrt(2) * float(jnp.finfo(dtype).eps) / 2 * typical_log_likelihood
    coldest = float(model.temperature) if model.cooling is None else min(model.cooling.corners())
    return model.num_rows * one_row / math.sqrt(decisive_rows) / coldest


def check_precision(model: Model, rows: Rows, kernel: Kernel, position: PyTree, typical_log_likelihood: float) -> float:
    """Refuses a run whose rounding noise is not small against the noise of its decisions."""
    if model.expanded:
        return 0.0  # what is left of an expansion is no small difference of large numbers
    dtype = jax.eval_shape(model.log_likelihood, position, rows.like).dtype
    fewest = min(rule_needs(part).rows_behind_a_decision(model.num_rows) for part in kernel.parts())
    noise = rounding_noise(model, fewest, typical_log_likelihood, dtype)
    if noise > _TOLERATED:
        finer = (
            _IN_FLOAT64
            if np.dtype(dtype).itemsize < 8
            else "write the likelihood so that large constant terms are left out"
        )
        raise ValueError(
            f"{np.dtype(dtype).name} is too coarse here: over {model.num_rows} rows with log likelihoods near "
            f"{typical_log_likelihood:.3g}, decided from {fewest}, rounding alone moves the log acceptance ratio by "
            f"{noise:.2g} (more than {_TOLERATED} is refused). To mend it, {finer}; or leave out of the "
            "likelihood whatever does not depend on the position; or raise the batch size or the temperature"
        )
    return noise


def rounding_doubts(
    model: Model,
    rows: Rows,
    position: PyTree,
    factor: Real[np.ndarray, "d d"] | None = None,
    at_once: int = 4,
) -> tuple[str, ...]:
    """What float32 does to this posterior that would show in the draws, and how to mend it; empty if nothing.

    Some rows are worked out again in float64. Where tests compare a row's log likelihoods (a plain model), what counts
    is the error of their differences, added up over all rows. Where rows say only what an expansion leaves of them, it
    is the error of the sums that the expansion is made of. Raises `ValueError` where it leaves nothing to go by.

    Args:
        model: What the run will be shown: plain, or with its expansion.
        rows: All rows.
        position: The mode, or where the chains start.
        factor: Cholesky factor of the posterior's covariance there, if it is known.
        at_once: How many positions `checks.check_start` was given.

    Example:
        >>> from tallmc.posterior import Posterior
        >>> posterior = Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, np.zeros(100, np.float32))
        >>> rounding_doubts(posterior.model, posterior.rows, np.float32(0))
        ()
    """
    found = measure_rounding(model, rows, position, factor, at_once)
    if found is None:
        return ()
    cure = _cure(model, rows, position)
    if found.lost:
        return (f"float32 gives no finite log likelihood at places near by where float64 does; {cure}",)
    if found.value > _TOLERATED:
        doubt = (
            f"float32 is too coarse for this likelihood: its rounding alone moves the log density of all "
            f"{model.num_rows:,} rows by {found.value:.2g} between nearby positions (at most {_TOLERATED} is "
            f"harmless); {cure}"
        )
        if found.value > _HOPELESS:
            raise ValueError(doubt)
        return (doubt,)
    doubts = []
    if found.shift > _TOLERATED_SHIFT:
        doubts.append(
            f"float32 is too coarse for the gradient of this likelihood: it puts the mode {found.shift:.2g} posterior "
            f"standard deviations from where it is (at most {_TOLERATED_SHIFT} is harmless); {cure}"
        )
    if found.bend > _TOLERATED_BEND:
        loudest = [coordinate_names(position)[index] for index in found.loudest]
        doubts.append(
            f"float32 is too coarse for the curvature of this posterior: along {', '.join(loudest)} it is off "
            f"by {100 * found.bend:.2g} % (at most {100 * _TOLERATED_BEND:.0f} % is harmless), so widths "
            f"would be wrong; {cure}"
        )
    return tuple(doubts)


def plan_doubts(model: Model, rows: Rows, positions: PyTree) -> tuple[str, ...]:
    """`rounding_doubts` of what a plan came to.

    Args:
        model: What the run will be shown.
        rows: All rows.
        positions: Where the chains start.
    """
    first = jax.tree.map(lambda leaf: np.asarray(leaf[0]), positions)
    if not all(is_real(leaf) for leaf in jax.tree.leaves(first)):
        return ()  # places near by are not defined; `check_precision` looks at the size of what is rounded all the same
    at_once = len(jax.tree.leaves(positions)[0])
    if not isinstance(model, ExpandedModel):
        return rounding_doubts(model, rows, first, None, at_once)
    expansion = model.expansion
    factor = np.linalg.inv(np.asarray(expansion.whiten, float)) if expansion.order == 2 else None
    centre = flatten(first)[1](np.asarray(expansion.centre))
    return rounding_doubts(model, rows, centre, factor, at_once)


def _cure(model: Model, rows: Rows, position: PyTree) -> str:
    """What to do, by what the likelihood does."""
    fixes = []
    if far := far_columns(checks.rows_to_try(rows)[1]):
        fixes.append(f"centre {' and '.join(far)}, or measure it from nearer by")
    if any(operation.name == "lgamma" for operation in operations_on(model.log_likelihood, position, rows.like)):
        fixes.append(
            "write differences of gammaln so that they do not cancel (gammaln(y + r) - gammaln(r) is y log r and the "
            "sum of log1p(k / r) over k < y), and r * log(r / (r + m)) as -r * log1p(m / r)"
        )
    return "; or ".join([*fixes, _IN_FLOAT64])


def far_columns(rows: PyTree) -> list[str]:
    """Columns of numbers that differ little from each other, and much from zero.

    Args:
        rows: Some rows, as arrays.

    Example:
        >>> far_columns({"x": np.column_stack([np.ones(3), [2019.0, 2020.0, 2021.0]])})
        ["column 1 of row['x'] (near 2020, give or take 0.82)"]
    """
    found = []
    for path, leaf in jax.tree.leaves_with_path(rows):
        columns = np.asarray(leaf, float).reshape(len(leaf), -1)
        means, spreads = columns.mean(axis=0), columns.std(axis=0)
        for column in np.flatnonzero((spreads > 0) & (np.abs(means) > _FAR_COLUMN * spreads))[:3]:
            name = f"row{jax.tree_util.keystr(path)}"
            name = f"column {column} of {name}" if columns.shape[1] > 1 else name
            found.append(f"{name} (near {means[column]:.4g}, give or take {spreads[column]:.2g})")
    return found
