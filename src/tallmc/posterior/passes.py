"""Passes over all rows, block by block: sums and derivatives of the log likelihood, and log ratios of moves.

Every reading of all rows outside a chain is one of these, or one of a bound's constants. Blocks have one size, so that
each function is compiled once; no memory grows with the number of rows.
"""

from collections.abc import Callable, Iterator
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree, Real

from tallmc.posterior.linear_predictor import LinearPredictor
from tallmc.posterior.model import Model
from tallmc.posterior.rows import Rows

_BLOCK = 2048  # rows of a block whose derivatives are worked out: a Hessian's intermediate results stay in the cache
_LARGE_BLOCK = 8192  # rows of a block of plain log ratios


def likelihood_sums(
    model: Model, unravel: Callable, flat: Real[Array, " d"], rows: Rows, *, curvature: bool
) -> tuple[float, np.ndarray, np.ndarray | None]:
    """Log likelihood of all rows, before temperature, with gradient and, if asked for, Hessian.

    Blocks are summed in the position's precision, their sums in float64.

    Args:
        model: With the likelihood.
        unravel: From a flat position to one that the likelihood takes.
        flat: The position.
        rows: All of them are read once.
        curvature: Whether to work out the Hessian.
    """
    function = _with_hessian if curvature else _with_gradient
    parts = [function(model, unravel, flat, block, valid) for block, valid in rows.padded_blocks(_BLOCK)]
    value, slope, *hessian = (
        np.sum([np.asarray(part, np.float64) for part in column], axis=0) for column in zip(*parts, strict=True)
    )
    return float(value), slope, hessian[0] if curvature else None


def log_likelihood_sum(model: Model, rows: Rows, position: PyTree) -> float:
    """Log likelihood of all rows at a position, before temperature."""
    flat, unravel = ravel_pytree(position)
    return likelihood_sums(model, unravel, flat, rows, curvature=False)[0]


def log_densities(model: Model, rows: Rows, positions: list[PyTree]) -> list[float]:
    """Unnormalised log density at each position; reads all rows for each."""
    return [
        float(model.log_prior(position)) + log_likelihood_sum(model, rows, position) / float(model.temperature)
        for position in positions
    ]


def influences(
    model: Model, unravel: Callable, flat: Array, along: Array, step: Array, rows: Rows
) -> Real[np.ndarray, " rows"]:
    """For each row, the inner product of `along` with its score less its curvature times `step`, tempered."""
    parts = [
        np.asarray(_influences(model, unravel, flat, along, step, block)) for block, _ in rows.padded_blocks(_BLOCK)
    ]
    return np.concatenate(parts)[: rows.num_rows]


def log_ratio_blocks(
    model: Model, rows: Rows, position: PyTree, proposed: PyTree
) -> Iterator[Real[np.ndarray, "moves rows"]]:
    """The rows' log ratios of several moves, whose leaves have a leading axis of moves, block by block in float64."""
    for block, valid in rows.padded_blocks(_LARGE_BLOCK):
        values = np.asarray(_log_ratios(model, position, proposed, block), float)
        yield values[:, : int(np.sum(valid))]


@eqx.filter_jit
def _log_ratios(model: Model, position: PyTree, proposed: PyTree, rows: PyTree) -> Array:
    with jax.default_matmul_precision("highest"):
        return jax.vmap(model.log_ratios, in_axes=(0, 0, None))(position, proposed, rows)


@eqx.filter_jit
def _influences(model: Model, unravel: Callable, flat: Array, along: Array, step: Array, rows: PyTree) -> Array:
    def losses(position: Array) -> Array:
        values = model.log_likelihoods(unravel(position), rows)
        return -values / model.temperature.astype(values.dtype)

    def slopes(position: Array) -> Array:
        return jax.jvp(losses, (position,), (along,))[1]

    with jax.default_matmul_precision("highest"):
        slope, curvature = jax.jvp(slopes, (flat,), (step,))
    return -slope - curvature


def _total(model: Model, unravel: Callable, flat: Array, rows: PyTree, valid: Array) -> Array:
    return jnp.sum(jnp.where(valid, model.log_likelihoods(unravel(flat), rows), 0))


@eqx.filter_jit
def _with_gradient(model: Model, unravel: Callable, flat: Array, rows: PyTree, valid: Array) -> tuple:
    with jax.default_matmul_precision("highest"):
        return jax.value_and_grad(partial(_total, model, unravel))(flat, rows, valid)


@eqx.filter_jit
def _with_hessian(model: Model, unravel: Callable, flat: Array, rows: PyTree, valid: Array) -> tuple:
    with jax.default_matmul_precision("highest"):
        if isinstance(model.log_likelihood, LinearPredictor):
            return _linear_sums(model.log_likelihood, flat, rows, valid)
        total = partial(_total, model, unravel)
        value, slope = jax.value_and_grad(total)(flat, rows, valid)
        return value, slope, jax.hessian(total)(flat, rows, valid)


def _linear_sums(likelihood: LinearPredictor, flat: Array, rows: PyTree, valid: Array) -> tuple:
    """In closed form: the Hessian is one matrix product instead of one gradient for each coordinate."""
    x, y = rows["x"].astype(flat.dtype), rows["y"].astype(flat.dtype)
    z = x @ flat
    along = jnp.ones_like(z)

    def slopes(z: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda z: likelihood.link(z, y), (z,), (along,))

    (values, first), (_, second) = jax.jvp(slopes, (z,), (along,))
    values, first, second = (jnp.where(valid, part, 0) for part in (values, first, second))
    return jnp.sum(values), x.T @ first, (x * second[:, None]).T @ x
