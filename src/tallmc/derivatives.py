"""Sums over all rows of a log likelihood and its derivatives at one position."""

from collections.abc import Callable, Iterator
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Real

from tallmc.linear_predictor import LinearPredictor
from tallmc.posterior import Posterior

_BLOCK = 2048  # rows that a compiled function takes at a time


def likelihood_sums(
    model: Posterior, unravel: Callable, flat: Real[Array, " d"], rows: PyTree, *, curvature: bool
) -> tuple[float, np.ndarray, np.ndarray | None]:
    """Log likelihood of all rows, before temperature, with gradient and, if asked for, Hessian.

    Blocks are summed in the position's precision, their sums in float64. No memory grows with the number of rows.

    Args:
        model: A posterior; its data is not looked at.
        unravel: From a flat position to one that the likelihood takes.
        flat: The position.
        rows: The data, in host memory.
        curvature: Whether to work out the Hessian.
    """
    function = _with_hessian if curvature else _with_gradient
    parts = [function(model, unravel, flat, block, valid) for block, valid in padded_blocks(rows)]
    value, slope, *hessian = (
        np.sum([np.asarray(part, np.float64) for part in column], axis=0) for column in zip(*parts, strict=True)
    )
    return float(value), slope, hessian[0] if curvature else None


def padded_blocks(rows: PyTree) -> Iterator[tuple[PyTree, Array]]:
    """Blocks of one size, so that only one function is compiled; what fills up the last is marked."""
    count = len(jax.tree.leaves(rows)[0])
    for start in range(0, count, _BLOCK):
        indices = np.minimum(np.arange(start, start + _BLOCK), count - 1)
        take = slice(start, start + _BLOCK) if start + _BLOCK <= count else indices
        yield (
            jax.tree.map(lambda leaf, take=take: leaf[take], rows),
            jnp.asarray(np.arange(start, start + _BLOCK) < count),
        )


def _total(model: Posterior, unravel: Callable, flat: Array, rows: PyTree, valid: Array) -> Array:
    return jnp.sum(jnp.where(valid, model.log_likelihoods(unravel(flat), rows), 0))


@eqx.filter_jit
def _with_gradient(model: Posterior, unravel: Callable, flat: Array, rows: PyTree, valid: Array) -> tuple:
    with jax.default_matmul_precision("highest"):
        return jax.value_and_grad(partial(_total, model, unravel))(flat, rows, valid)


@eqx.filter_jit
def _with_hessian(model: Posterior, unravel: Callable, flat: Array, rows: PyTree, valid: Array) -> tuple:
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
