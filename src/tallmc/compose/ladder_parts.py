"""Small things that a ladder is put together with: checks of what it is given, groups, and the order after swaps."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from tallmc.feed.contract import begins_with_rows
from tallmc.kernel import Kernel


def order_after(accepted: Bool[Array, " pairs"]) -> Int[Array, " rungs"]:
    """Which rung the state of each rung comes from; no two pairs that swap share a rung."""
    edge = jnp.zeros(1, bool)
    up, down = jnp.concatenate([accepted, edge]), jnp.concatenate([edge, accepted])
    return jnp.arange(accepted.shape[0] + 1, dtype=jnp.int32) + up.astype(jnp.int32) - down.astype(jnp.int32)


def check_temperatures(temperatures: Any) -> np.ndarray:
    """As an array; raises `ValueError` unless they increase from 1."""
    heats = np.asarray(temperatures, float)
    if heats.ndim != 1 or len(heats) < 2:
        raise ValueError(f"a ladder needs at least two temperatures, such as [1, 3, 10], got {heats.tolist()}")
    if heats[0] != 1 or not np.all(np.diff(heats) > 0):
        raise ValueError(
            f"temperatures must increase from 1, got {heats.tolist()}; the temperature of the posterior itself is set "
            "by tm.Posterior(..., temperature=...), and multiplies those of the ladder"
        )
    return heats


def absent(like: Any, count: int) -> Array:
    """What stands for a statistic that some rungs do not have."""
    shape = (count, *like.shape[1:])
    floats = jnp.issubdtype(like.dtype, jnp.inexact)
    return jnp.full(shape, jnp.nan, like.dtype) if floats else jnp.zeros(shape, like.dtype)


def alike(kernels: Sequence[Kernel]) -> list[tuple[Kernel, int]]:
    """Neighbours that are equal, together."""
    runs: list[tuple[Kernel, int]] = []
    for number, kernel in enumerate(kernels):
        if not isinstance(kernel, Kernel):
            raise ValueError(
                f"rung {number} must have a Kernel such as tm.MetropolisHastings(proposal, rule), not "
                f"{type(kernel).__name__}"
            )
        if kernel.members():
            raise ValueError(f"rung {number} has a kernel made of kernels; pass one that is not")
        if begins_with_rows(kernel.needs):
            raise ValueError(f"rung {number} has a proposal that reads rows; pass one that does not, such as tm.MALA")
        if runs and (runs[-1][0] is kernel or eqx.tree_equal(runs[-1][0], kernel) is True):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((kernel, 1))
    return runs
