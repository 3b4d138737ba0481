"""Taylor expansions at a mode, as control variates for any posterior."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree, Real

from tallmc.control_variates.expansion import ExpandedModel, Expansion, covariance_factor
from tallmc.control_variates.remainder_bounds import remainder_bounds
from tallmc.posterior import Posterior, SmoothBounds
from tallmc.posterior.passes import likelihood_sums


class Controlled(NamedTuple):
    """A model with its expansion.

    Args:
        model: What chains are shown.
        precision: Second derivative of minus the log density at the expansion's centre, in float64.
        rows_read: Rows that it took.
    """

    model: ExpandedModel
    precision: Real[np.ndarray, "d d"]
    rows_read: int


class Taylor(eqx.Module):
    """Subtracts from each row's log ratio its Taylor expansion, and adds the sum of all expansions, which is known.

    What is left of a row is of the third order in the distance from the expansion (order 2; the second for order 1).
    Within a posterior of N rows distances are of the order of 1/sqrt(N), so the estimates that rules make from a few
    rows become better with N as fast as the posterior becomes narrower: the rows a test needs do not grow.

    Far from the expansion the same rules are as right as they are without it. They read more rows.

    Args:
        order: 1 or 2. Order 2 keeps a matrix of second derivatives, which takes d^2 numbers and as much time a step.
        at: The position to expand at; None: the mode, which is looked for first.

    Example:
        >>> import tallmc as tm
        >>> X, y, _ = tm.models.generate_logistic(num_rows=20_000, num_columns=3)
        >>> posterior = tm.models.logistic_regression(X, y)
        >>> mode = tm.optimise.mode(posterior).position
        >>> run = tm.sample(posterior, tm.MetropolisHastings(tm.RandomWalk(0.02), tm.MHSS()), init=mode,
        ...                 control_variate=tm.Taylor(at=mode), num_samples=100, num_warmup=100)
        >>> bool(run.stats["rows"].mean() < 100)
        True
    """

    order: int = eqx.field(static=True)
    at: PyTree

    def __init__(self, order: int = 2, at: PyTree = None):
        if order not in (1, 2):
            raise ValueError(f"order must be 1 or 2, got {order!r}")
        self.order, self.at = order, at

    def expand(self, posterior: Posterior, at: PyTree) -> Controlled:
        """Reads every row once for the sums, and once more for bounds if the posterior has any.

        Args:
            posterior: What to expand.
            at: Where.
        """
        model, rows = posterior.model, posterior.rows
        flat, unravel = ravel_pytree(jax.tree.map(jnp.asarray, at))
        unbounded = eqx.tree_at(lambda m: m.bounds, model, None, is_leaf=lambda leaf: leaf is None)
        _, gradient, hessian = likelihood_sums(unbounded, unravel, flat, rows, curvature=True)
        assert hessian is not None
        if not (np.all(np.isfinite(gradient)) and np.all(np.isfinite(hessian))):
            raise ValueError(
                "the log likelihood has no finite first and second derivatives where it is to be expanded; choose "
                "another place with tm.Taylor(at=...), or sample without a control variate"
            )
        prior = jax.hessian(lambda p: jnp.asarray(model.log_prior(unravel(p)), flat.dtype))(flat)
        precision = -hessian / float(model.temperature) - np.asarray(prior, float)
        expansion = Expansion.of(self.order, flat, gradient, hessian, precision)
        bounds, rows_read = None, model.num_rows
        if isinstance(model.bounds, SmoothBounds) and covariance_factor(precision) is not None:
            whiten = np.asarray(expansion.whiten, float)
            bounds = remainder_bounds(model.bounds, self.order, flat, whiten, rows)
            rows_read += model.num_rows
        return Controlled(ExpandedModel(model, expansion, bounds), precision, rows_read)
