"""Kernels of which one is drawn for each transition."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Real

from tallmc.compose.members import OneAtATime, check_members
from tallmc.kernel import Kernel
from tallmc.numerics.flat import as_device_array


class Mixture(OneAtATime):
    """Moves by one of several kernels, drawn afresh for every transition.

    `run.stats["part"]` says which it was.

    Args:
        kernels: To draw from. Each has its own proposal, rule, batch size and rows, and tunes itself.
        weights: How often each is drawn, in proportion; all alike if left out.

    Example:
        >>> import tallmc as tm
        >>> far, near = (tm.MetropolisHastings(tm.RandomWalk(scale), tm.Exact()) for scale in (1.0, 0.1))
        >>> tm.Mixture([far, near], weights=[1, 3]).weights.tolist()
        [0.25, 0.75]
    """

    kernels: tuple[Kernel, ...]
    weights: Real[Array, " k"]

    def __init__(
        self, kernels: Sequence[Kernel], weights: Sequence[float] | Sequence[int] | np.ndarray | Array | None = None
    ):
        self.kernels = check_members("Mixture", kernels)
        given = np.ones(len(self.kernels)) if weights is None else np.asarray(weights, float)
        if given.shape != (len(self.kernels),):
            raise ValueError(
                f"Mixture has {len(self.kernels)} kernels but weights of shape {given.shape}; pass one number a kernel"
            )
        if not (np.all(np.isfinite(given)) and np.all(given > 0)):
            raise ValueError(f"weights must be positive numbers, got {given.tolist()}; leave out kernels of weight 0")
        self.weights = as_device_array(given / given.sum(), jnp.result_type(float))

    @property
    def shares(self) -> tuple[float, ...]:
        """The weights."""
        return tuple(np.asarray(self.weights, float).tolist())

    def choose(self, key: Array, turns: Int[Array, ""]) -> Int[Array, ""]:
        """Each member with the chance that is its weight, whatever was drawn before."""
        del turns
        uniform = jax.random.uniform(key, (), self.weights.dtype)
        return jnp.sum(uniform >= jnp.cumsum(self.weights)[:-1]).astype(jnp.int32)
