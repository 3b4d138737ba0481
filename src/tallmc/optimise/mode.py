"""The mode of any posterior, by Newton steps on as many rows as each needs."""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from tallmc.optimise.contract import Problem, Sums
from tallmc.optimise.irls import irls, renamed
from tallmc.optimise.result import OptimiseResult
from tallmc.posterior import Model, Posterior, RowsInMemory, checks
from tallmc.posterior.linear_predictor import LinearPredictor
from tallmc.posterior.passes import influences, likelihood_sums


class NegativeLogDensity(Problem):
    """Minus the log density of a posterior, with derivatives by JAX.

    Args:
        posterior: Any posterior.
        like: A position, for its structure.
    """

    convex: ClassVar[bool] = False

    def __init__(self, posterior: Posterior, like: PyTree):
        flat, self.unravel = ravel_pytree(like)
        self.dtype = flat.dtype
        self.dimension = len(flat)
        self.data = jax.tree.map(np.asarray, posterior.rows.all())
        self.model = posterior.model

    def sums(self, position: np.ndarray, rows: PyTree, *, curvature: bool) -> Sums:
        """Loss, gradient and Hessian; each compiled block in the position's precision, their sum in float64."""
        flat, beta = jnp.asarray(position, self.dtype), 1 / float(self.model.temperature)
        block = RowsInMemory(rows)
        value, slope, hessian = likelihood_sums(self.model, self.unravel, flat, block, curvature=curvature)
        return Sums(block.num_rows, -beta * value, beta * slope, None if hessian is None else -beta * hessian)

    def influences(self, position: np.ndarray, rows: PyTree, along: np.ndarray, step: np.ndarray) -> np.ndarray:
        """By directional derivatives, which cost about as much as the likelihood itself."""
        flat, ahead, moved = (jnp.asarray(vector, self.dtype) for vector in (position, along, step))
        return influences(self.model, self.unravel, flat, ahead, moved, RowsInMemory(rows))

    def prior(self, position: np.ndarray) -> Sums:
        """The log prior and its derivatives."""
        loss, slope, hessian = _prior(self.model, self.unravel, jnp.asarray(position, self.dtype))
        return Sums(0, float(loss), -np.asarray(slope, np.float64), np.asarray(hessian, np.float64))

    def separates(self, loss: float) -> bool:
        """A row of a binary regression on the wrong side costs at least log 2; a prior keeps the optimum finite."""
        likelihood = self.model.log_likelihood
        if not (isinstance(likelihood, LinearPredictor) and likelihood.link.binary):
            return False
        flat = bool(np.all(self.prior(np.zeros(self.dimension)).curvature == 0))
        return flat and loss * float(self.model.temperature) < math.log(2)

    def finest(self) -> float:
        """Positions may be coarser than the data."""
        return max(super().finest(), float(jnp.finfo(self.dtype).eps))


def mode(posterior: Posterior, init: PyTree = None, *, epsilon: float = 0.01, **options: Any) -> OptimiseResult:
    """Finds a mode of a posterior: tested Newton steps on few rows, then exact ones on all.

    A step uses as many rows as it takes to be confident that it points less than 90 degrees away from the Newton step
    of all rows. Steps that do not raise the density of the rows in use are halved until they do. Where the log density
    is not concave, eigenvalues of its Hessian are made negative. Exact steps follow until the mode is nearer than
    `tolerance` posterior standard deviations.

    Args:
        posterior: What to find the mode of; its prior and temperature are part of it.
        init: Where to start: one position. If left out, zeros, one for each column of the data's only matrix.
        epsilon: Largest share of tested steps that may point more than 90 degrees away.
        **options: As for `irls`, all but `test`.

    Returns:
        The mode, the Hessian of minus the log density there, and what it took.

    Example:
        >>> import tallmc as tm
        >>> X, y, _ = tm.models.generate_logistic(num_rows=20_000, num_columns=3)
        >>> result = tm.optimise.mode(tm.models.logistic_regression(X, y))
        >>> result.converged, result.distance < 1e-3
        (True, True)
    """
    if not isinstance(posterior, Posterior):
        raise ValueError(f"posterior must be a tm.Posterior, not {type(posterior).__name__}")
    checks.check_data(posterior.data)
    start = default_start(posterior) if init is None else init
    positions = checks.one_position_per_chain(posterior, start, 1)
    checks.check_start(posterior, positions)
    like = jax.tree.map(lambda leaf: leaf[0], positions)
    problem = NegativeLogDensity(posterior, like)
    flat = np.asarray(ravel_pytree(like)[0], np.float64)
    result = irls(problem, init=flat, epsilon=epsilon, **options)
    return renamed(result, problem.unravel(jnp.asarray(result.position, problem.dtype)))


def default_start(posterior: Posterior) -> Array:
    """Zeros, one for each column of the only matrix in the data."""
    matrices = [leaf for leaf in jax.tree.leaves(posterior.rows.like) if len(leaf.shape) == 1]
    if len(matrices) != 1:
        raise ValueError("init is missing; pass a position to start from, such as init=jnp.zeros(num_coordinates)")
    num_columns = matrices[0].shape[0]
    start = jnp.zeros(num_columns)
    trouble = checks.trouble_with(posterior, start)
    if trouble is not None and trouble.cause is not None:
        raise ValueError(
            f"no init was given, so a vector of {num_columns} numbers was assumed, one for each column of the only "
            f"matrix in the data, but {trouble.what}; pass an init shaped like a position, such as "
            f'init={{"beta": jnp.zeros({num_columns})}}'
        ) from trouble.cause
    return start


@eqx.filter_jit
def _prior(model: Model, unravel: Callable, flat: Array) -> tuple:
    def loss(position: Array) -> Array:
        return -jnp.asarray(model.log_prior(unravel(position)), flat.dtype)

    value, slope = jax.value_and_grad(loss)(flat)
    return value, slope, jax.hessian(loss)(flat)
