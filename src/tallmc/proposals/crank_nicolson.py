"""Crank-Nicolson: a walk that a normal distribution does not notice."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree, Real

from tallmc.numerics.arithmetic import matvec, rounded
from tallmc.numerics.flat import as_device_array, flatten, num_coordinates
from tallmc.posterior import Model
from tallmc.proposals.contract import Move, Proposal
from tallmc.proposals.factors import check_factor
from tallmc.proposals.tuning import BestOfGrid, Tuning

# The values of beta that warm-up tries in turn. By the cost in `BestOfGrid`, (1 + c) / (1 - c) + (1 + c^2) / (1 -
# c^2), the best of all if every step is accepted is c = sqrt(3) - 2, a beta of -0.963: -0.96 stands for it. If half
# are rejected in any case, as by Barker's rules, steps further to the other side are better: -0.85 helps these.
# A value of -0.93 between them was a near tie with -0.96 (docs/benchmarks.md, "Flat in N") and was taken out. From 1,
# an independent draw, the others go down to short steps, for posteriors that reject long ones. Their spacing and the
# end at 0.05 are a judgement: ten values leave each a hundred trials in a warm-up of 1,000, so that a share of
# acceptances is known to 0.05. The shortest steps come last, as `BestOfGrid` wants.
_BETAS = (-0.85, -0.96, 1.0, 0.85, 0.7, 0.5, 0.35, 0.2, 0.1, 0.05)


class CrankNicolson(Proposal):
    """Moves part of the way towards the mean and adds normal noise: `mean + sqrt(1 - beta^2) (x - mean) + beta noise`.

    A normal distribution with that mean and covariance is left as it is by these steps, so a posterior that is nearly
    normal accepts nearly all of them, in any number of dimensions and up to `beta = 1`, an independent draw. Warm-up
    tries a grid of values of beta and keeps the one with the most effective samples for the rows read.

    A negative beta goes through the mean to the other side: `mean - sqrt(1 - beta^2) (x - mean) - beta noise`. Draws
    then tend to alternate, and their means are more precise than those of independent draws.

    Args:
        mean: Of the normal distribution, such as the mode of the posterior.
        cholesky: Lower Cholesky factor of its covariance, such as that of the inverse Hessian at the mode; in the order
            in which `jax.flatten_util.ravel_pytree` lays out a position.
        beta: Share of noise, between -1 and 1 and not 0.

    Example:
        >>> import numpy as np
        >>> float(CrankNicolson(np.zeros(2), np.eye(2), beta=0.5).beta)
        0.5
    """

    real_only: ClassVar[bool] = True
    mean: Real[Array, " d"]
    cholesky: Real[Array, "d d"]
    whiten: Real[Array, "d d"]
    beta: Real[Array, ""]

    def __init__(self, mean: PyTree, cholesky: Array | np.ndarray, beta: float = 0.5):
        flat = flatten(mean)[0]
        factor = np.asarray(cholesky, float)
        check_factor("CrankNicolson's cholesky", factor)
        if len(flat) != len(factor):
            raise ValueError(f"mean has {len(flat)} coordinates but cholesky is for {len(factor)}")
        if not np.all(np.isfinite(flat)):
            raise ValueError("CrankNicolson's mean must be finite")
        if not 0 < abs(beta) <= 1:
            raise ValueError(f"beta must lie between -1 and 1 and not be 0, got {beta}")
        dtype = jnp.result_type(float)
        self.mean, self.cholesky, self.whiten, self.beta = (
            as_device_array(part, dtype) for part in (flat, factor, np.linalg.inv(factor), beta)
        )

    def propose(self, key: Array, position: PyTree, model: Model) -> Move:
        """The steps balance for the normal distribution: the ratio of proposals is its density ratio, inverted."""
        del model
        flat, unravel = ravel_pytree(position)
        mean, cholesky, whiten, beta = (
            leaf.astype(flat.dtype) for leaf in (self.mean, self.cholesky, self.whiten, self.beta)
        )
        noise = rounded(jax.random.normal(key, flat.shape, flat.dtype))  # its last factor would be fused with others
        away = flat - mean
        proposed = mean + (rounded(_correlation(beta) * away) + rounded(beta * rounded(matvec(cholesky, noise))))
        # From the rounded position, for that is where the chain would be.
        old, new = matvec(whiten, away), matvec(whiten, proposed - mean)
        return Move(unravel(proposed), jnp.sum((new - old) * (new + old)) / 2)

    def rescaled(self, step_size: Real[Array, ""]) -> "CrankNicolson":
        """The same proposal with beta times `step_size`, cut off at -1 and 1."""
        return eqx.tree_at(lambda p: p.beta, self, jnp.clip(self.beta * step_size, -1, 1))

    def tuning(self, target_acceptance: float) -> Tuning:
        """No rate of acceptance tells a good beta from a bad one."""
        del target_acceptance
        betas = jnp.asarray(_BETAS, self.beta.dtype)
        return BestOfGrid(betas / self.beta, _correlation(betas))

    def check(self, position: PyTree, model: Model) -> None:
        """The mean must fit the number of coordinates."""
        del model
        size = num_coordinates(position)
        if self.mean.size != size:
            raise ValueError(f"CrankNicolson is for {self.mean.size} coordinates but a position has {size}")


def _correlation(beta: Array) -> Array:
    """Between a position and what is proposed there, if the posterior is normal."""
    return jnp.sign(beta) * jnp.sqrt(1 - rounded(beta * beta))
