"""How far the mean of a posterior is from its mode, to first order: a pass over third derivatives."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, Real

from tallmc.numerics.programs import program
from tallmc.posterior.block_sums import first_of
from tallmc.posterior.linear_predictor import LinearPredictor
from tallmc.posterior.model import Model
from tallmc.posterior.passes import add_up, in_parts
from tallmc.posterior.predictors import Predictors, predictors_of
from tallmc.posterior.rows import Rows

_MOST = 64  # coordinates up to which a likelihood without few predictors is differentiated as a whole. A judgement


def likelihood_skew(
    model: Model, unravel: Callable, flat: Real[np.ndarray, " d"], covariance: Float[np.ndarray, "d d"], rows: Rows
) -> Float[np.ndarray, " d"] | None:
    """Gradient of the trace of covariance times Hessian of the log likelihood of all rows, covariance held fixed.

    Half of it, multiplied by the covariance, is by how much the likelihood's skewness moves the mean away from where
    the expansion is made. Before temperature, as all sums. None if there are too many coordinates to work it out.

    Args:
        model: With the likelihood.
        unravel: From a flat position to one that the likelihood takes.
        flat: The position.
        covariance: Of the posterior there.
        rows: All of them are read once.
    """
    likelihood = model.log_likelihood
    shape: Any = jax.ShapeDtypeStruct(flat.shape, flat.dtype)
    structured = isinstance(likelihood, LinearPredictor) or predictors_of(likelihood, unravel, shape, rows.like)
    if not structured and flat.size > _MOST:
        return None
    pass_ = partial(_skew_sums, likelihood, unravel, np.asarray(flat), covariance.astype(flat.dtype))
    (total,) = in_parts(pass_, rows)
    return total


def prior_skew(
    model: Model, unravel: Callable, flat: Real[np.ndarray, " d"], covariance: Float[np.ndarray, "d d"]
) -> Float[np.ndarray, " d"]:
    """The same of the log prior."""
    return np.asarray(_prior_skew(model.log_prior, unravel, np.asarray(flat), covariance.astype(flat.dtype)), float)


@program
def _prior_skew(log_prior: Callable, unravel: Callable, flat: Array, covariance: Array) -> Array:
    def trace(position: Array) -> Array:
        hessian = jax.hessian(lambda p: jnp.asarray(log_prior(unravel(p)), flat.dtype))(position)
        return jnp.sum(covariance * hessian)

    return jax.grad(trace)(flat)


@program
def _skew_sums(likelihood: Callable, unravel: Callable, flat: Array, covariance: Array, *where: Any) -> Any:
    def of_block(rows: PyTree, valid: Array) -> tuple[Array]:
        if isinstance(likelihood, LinearPredictor):
            return (_of_linear_predictor(likelihood, flat, covariance, rows, valid),)
        predictors = predictors_of(likelihood, unravel, flat, first_of(rows))
        if predictors is not None:
            return (_of_predictors(predictors, flat, covariance, rows, valid),)
        of_row = _third(lambda at, row: likelihood(unravel(at), row), covariance)
        each = jax.vmap(of_row, (None, 0))(flat, rows)
        return (jnp.sum(jnp.where(valid[:, None], each, 0), axis=0),)

    return add_up(of_block, *where)


def _third(function: Callable[[Array, PyTree], Array], weights: Array) -> Callable[[Array, PyTree], Array]:
    """Gradient of the sum of weights times Hessian."""

    def trace(at: Array, row: PyTree) -> Array:
        return jnp.sum(weights * jax.hessian(function)(at, row))

    return jax.grad(trace)


def _of_linear_predictor(
    likelihood: LinearPredictor, flat: Array, covariance: Array, rows: PyTree, valid: Array
) -> Array:
    """In closed form: third derivative times leverage, along each row's columns."""
    x, y = rows["x"].astype(flat.dtype), rows["y"].astype(flat.dtype)
    z = x @ flat
    along = jnp.ones_like(z)
    function = lambda z: likelihood.link(z, y)  # noqa: E731
    for _ in range(3):
        function = lambda z, lower=function: jax.jvp(lower, (z,), (along,))[1]  # noqa: E731
    leverage = jnp.sum((x @ covariance) * x, axis=1)
    return x.T @ jnp.where(valid, function(z) * leverage, 0)


def _of_predictors(predictors: Predictors, flat: Array, covariance: Array, rows: PyTree, valid: Array) -> Array:
    """By the chain rule; each row sees only the part of the covariance that belongs to the coordinates it looks at."""

    def of_row(row: PyTree, counts: Array) -> tuple[Array, Array]:
        seen, numbers = predictors.seen(flat, row), predictors.numbers(flat, row)
        design = jax.jacrev(predictors.of_seen)(seen, row)
        weights = design @ covariance[numbers][:, numbers] @ design.T
        third = _third(predictors.link, weights)(predictors.of_seen(seen, row), row)
        return numbers, jnp.where(counts, third @ design, 0)

    numbers, each = jax.vmap(of_row)(rows, valid)
    return jnp.zeros_like(flat).at[numbers.ravel()].add(each.ravel())
