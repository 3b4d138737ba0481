"""The random walk: a normal step that does not care where it starts."""

from collections.abc import Sequence
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


class RandomWalk(Proposal):
    """Adds a centred normal step to the position.

    Args:
        scale: One standard deviation for all coordinates, one for each (an array of `d` numbers, or a pytree like
            the position), or the lower Cholesky factor of the steps' covariance (`d` by `d`, in the order in which
            `jax.flatten_util.ravel_pytree` lays out a position).

    Example:
        >>> RandomWalk(0.1).scale.shape
        ()
    """

    real_only: ClassVar[bool] = True
    scale: Real[Array, "..."]

    def __init__(self, scale: float | Sequence[float] | PyTree):
        plain = hasattr(scale, "ndim") or isinstance(scale, int | float)
        array = np.asarray(scale) if plain else flatten(scale)[0]
        _check_scale(array)
        self.scale = as_device_array(array, jnp.result_type(float))

    def propose(self, key: Array, position: PyTree, model: Model) -> Move:
        """Draws a step; the walk is symmetric, so its log ratio is zero."""
        del model
        flat, unravel = ravel_pytree(position)
        noise = jax.random.normal(key, flat.shape, flat.dtype)
        scale = self.scale.astype(flat.dtype)
        step = matvec(scale, noise) if scale.ndim == 2 else rounded(scale * noise)
        return Move(unravel(flat + step), jnp.zeros((), flat.dtype))

    def rescaled(self, step_size: Real[Array, ""]) -> "RandomWalk":
        """The same proposal with steps `step_size` times as long."""
        return eqx.tree_at(lambda walk: walk.scale, self, self.scale * step_size)

    def check(self, position: PyTree, model: Model) -> None:
        """The scale must fit the number of coordinates."""
        del model
        size = num_coordinates(position)
        if self.scale.ndim and self.scale.shape[-1] != size:
            raise ValueError(
                f"RandomWalk's scale is for {self.scale.shape[-1]} coordinates but a position has {size}; "
                f"pass one number, an array of {size}, or a {size} x {size} Cholesky factor"
            )


def _check_scale(scale: np.ndarray) -> None:
    if not np.all(np.isfinite(scale)):
        raise ValueError("RandomWalk's scale must be finite")
    if scale.ndim < 2 and not np.all(scale > 0):
        raise ValueError(f"RandomWalk's scale is a standard deviation and must be positive, got {scale}")
    if scale.ndim == 2:
        check_factor("a matrix scale", scale)
    if scale.ndim > 2:
        raise ValueError(f"RandomWalk's scale must be a number, a vector or a matrix, got {scale.ndim} axes")
