"""Taylor expansions at a mode, as control variates for any posterior."""

from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import PyTree, Real

from tallmc.control_variates.expansion import ExpandedModel, Expansion, covariance_factor
from tallmc.control_variates.remainder_bounds import RemainderBounds
from tallmc.numerics.flat import flatten
from tallmc.numerics.scratch import in_parts
from tallmc.posterior import Near, Place, Posterior, SmoothBounds
from tallmc.posterior.passes import likelihood_sums, prior_derivatives
from tallmc.posterior.rows_on_mesh import RowsOnMesh


class Controlled(NamedTuple):
    """A model with its expansion.

    Args:
        model: What chains are shown.
        precision: Second derivative of minus the log density at the expansion's centre, in float64.
        rows_read: Rows that it took.
        constants: Of the rows' bounds, if there are any.
        unbounded: Rows of which nothing is known; if there are any, nothing is made of the bounds of others.
    """

    model: ExpandedModel
    precision: Real[np.ndarray, "d d"]
    rows_read: int
    constants: Real[np.ndarray, " rows"] | None = None
    unbounded: int = 0


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
        flat, unravel = flatten(at)
        _, gradient, hessian = likelihood_sums(posterior.model, unravel, flat, posterior.rows, curvature=True)
        assert hessian is not None
        controlled = self.expand_known(posterior, at, gradient, hessian)
        return controlled._replace(rows_read=controlled.rows_read + posterior.num_rows)

    def expand_known(self, posterior: Posterior, at: PyTree, gradient: np.ndarray, hessian: np.ndarray) -> Controlled:
        """The same where somebody has summed up the derivatives already.

        Args:
            posterior: What to expand.
            at: Where.
            gradient: Of the log likelihood of all rows there, before temperature, in float64.
            hessian: The same of the second derivative.
        """
        model, rows = posterior.model, posterior.rows
        flat, unravel = flatten(at)
        if not (np.all(np.isfinite(gradient)) and np.all(np.isfinite(hessian))):
            raise ValueError(
                "the log likelihood has no finite first and second derivatives where it is to be expanded; choose "
                "another place with tm.Taylor(at=...), or sample without a control variate"
            )
        precision = -hessian / float(model.temperature) - prior_derivatives(model, unravel, flat)[2]
        expansion = Expansion.of(self.order, flat, gradient, hessian, precision)
        bounds, constants, rows_read, unbounded = None, None, 0, 0
        if isinstance(model.bounds, SmoothBounds) and covariance_factor(precision) is not None:
            whiten, rows_read = np.asarray(expansion.whiten, float), model.num_rows
            near = _near(model.bounds, Place(model, unravel, flat, np.linalg.inv(whiten), self.order + 1, rows))
            unbounded = 0 if near is None else sum(np.sum(~np.isfinite(part)) for part in in_parts(near.constants))
            if near is not None and not unbounded:
                bounds, constants = RemainderBounds.of(model.bounds, self.order, flat, whiten, near), near.constants
        return Controlled(ExpandedModel(model, expansion, bounds), precision, rows_read, constants, unbounded)


def _near(bounds: SmoothBounds, place: Place) -> Near | None:
    """Bounds around a place; of rows that several processes share, each looks at its own."""
    if not isinstance(place.rows, RowsOnMesh):
        return bounds.near(place)
    near = bounds.near(place._replace(rows=place.rows.own))
    return None if near is None else near._replace(constants=place.rows.joined(near.constants))
