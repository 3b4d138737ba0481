"""Langevin steps whose gradients cost no data."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree, Real

from tallmc.control_variates import ExpandedModel
from tallmc.numerics.arithmetic import matvec
from tallmc.numerics.flat import as_device_array, num_coordinates
from tallmc.posterior import Model
from tallmc.proposals.contract import Move, Proposal
from tallmc.proposals.factors import check_factor
from tallmc.proposals.tuning import TowardsAcceptance, Tuning


class MALA(Proposal):
    """A normal step that drifts uphill: `x + step_size^2 / 2 * C C^T slope + step_size * C noise`.

    The slope is that of the prior and of the Taylor expansion, so proposing reads no rows; what the expansion misses
    makes the steps a little less apt, and the acceptance test makes up for it. Needs `control_variate=tm.Taylor(2)`.

    Args:
        step_size: Length of the steps, in units of the factor; warm-up tunes it.
        cholesky: Lower Cholesky factor C of a matrix like the posterior's covariance; None: the identity.

    Example:
        >>> float(MALA(0.5).step_size)
        0.5
    """

    real_only: ClassVar[bool] = True
    step_size: Real[Array, ""]
    cholesky: Real[Array, "d d"] | None
    whiten: Real[Array, "d d"] | None

    def __init__(self, step_size: float, cholesky: Array | np.ndarray | None = None):
        if not (np.isfinite(step_size) and step_size > 0):
            raise ValueError(f"step_size must be positive, got {step_size}")
        dtype = jnp.result_type(float)
        self.step_size, self.cholesky, self.whiten = as_device_array(step_size, dtype), None, None
        if cholesky is not None:
            factor = np.asarray(cholesky, float)
            check_factor("MALA's cholesky", factor)
            self.cholesky, self.whiten = as_device_array(factor, dtype), as_device_array(np.linalg.inv(factor), dtype)

    def propose(self, key: Array, position: PyTree, model: Model) -> Move:
        """Draws a step and weighs it against the step back."""
        assert isinstance(model, ExpandedModel)
        flat, unravel = ravel_pytree(position)
        step = self.step_size.astype(flat.dtype)
        eye = jnp.eye(flat.size, dtype=flat.dtype)
        factor, whiten = (eye if m is None else m.astype(flat.dtype) for m in (self.cholesky, self.whiten))
        noise = jax.random.normal(key, flat.shape, flat.dtype)
        uphill = matvec(factor.T, model.drift(position))
        proposed = flat + matvec(factor, step * step / 2 * uphill + step * noise)
        moved = matvec(whiten, proposed - flat)
        back = matvec(factor.T, model.drift(unravel(proposed)))
        there = jnp.sum((moved - step * step / 2 * uphill) ** 2)
        returning = jnp.sum((moved + step * step / 2 * back) ** 2)
        return Move(unravel(proposed), (there - returning) / (2 * step * step))

    @property
    def dear(self) -> bool:
        """Two gradients, of a few matrix products each."""
        return True

    def rescaled(self, step_size: Real[Array, ""]) -> "MALA":
        """The same proposal with steps `step_size` times as long."""
        return eqx.tree_at(lambda p: p.step_size, self, self.step_size * step_size)

    def tuning(self, target_acceptance: float) -> Tuning:
        """Langevin steps are best at .574 where a random walk is at .234; in proportion for other rules."""
        return TowardsAcceptance(min(0.574 * target_acceptance / 0.234, 0.8))

    def check(self, position: PyTree, model: Model) -> None:
        """Needs an expansion with a slope, and a factor that fits."""
        if not isinstance(model, ExpandedModel) or model.expansion.order < 2:
            raise ValueError(
                "MALA takes its gradients from a Taylor expansion of order 2; pass control_variate=tm.Taylor(order=2)"
            )
        size = num_coordinates(position)
        if self.cholesky is not None and len(self.cholesky) != size:
            raise ValueError(f"MALA's cholesky is for {len(self.cholesky)} coordinates but a position has {size}")
