"""Kernels that take turns."""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Int

from tallmc.compose.members import OneAtATime, check_members
from tallmc.kernel import Kernel


class Cycle(OneAtATime):
    """Moves by each of several kernels in turn: the first, the second, ..., the last, the first again.

    Every transition is one kernel's and gives one draw; `run.stats["part"]` says whose. Each kernel leaves the
    posterior as it is, so any number of draws may be kept; `run.samples[:, ::len(kernels)]` has those of whole rounds.

    Args:
        kernels: To take turns. Each has its own proposal, rule, batch size and rows, and tunes itself.

    Example:
        >>> import tallmc as tm
        >>> far, near = (tm.MetropolisHastings(tm.RandomWalk(scale), tm.Exact()) for scale in (1.0, 0.1))
        >>> len(tm.Cycle([far, near]).parts())
        2
    """

    kernels: tuple[Kernel, ...]

    def __init__(self, kernels: Sequence[Kernel]):
        self.kernels = check_members("Cycle", kernels)

    @property
    def shares(self) -> tuple[float, ...]:
        """All alike."""
        return (1 / len(self.kernels),) * len(self.kernels)

    def choose(self, key: Array, turns: Int[Array, ""]) -> Int[Array, ""]:
        """One after the other."""
        del key
        return jnp.mod(turns, len(self.kernels)).astype(jnp.int32)
