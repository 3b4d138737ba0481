"""What exact rules share: the log ratio summed over every row, and compared with a level drawn beforehand."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Real

from tallmc.arithmetic import ordered_sum
from tallmc.feed import Window
from tallmc.kernel import AcceptanceRule, Verdict, check_batch_size


class FullSum(eqx.Module):
    """The log likelihood ratio of the rows seen so far, and the level it has to exceed."""

    total: Real[Array, ""]
    lost: Real[Array, ""]
    level: Real[Array, ""]
    seen: Int[Array, ""]
    num_rows: int = eqx.field(static=True)

    @classmethod
    def start(cls, level: Real[Array, ""], num_rows: int) -> "FullSum":
        """Nothing seen."""
        return cls(jnp.zeros_like(level), jnp.zeros_like(level), level, jnp.int32(0), num_rows)

    def add(self, log_ratios: Real[Array, " rows"], window: Window) -> "FullSum":
        """Adds a window. Kahan's compensation keeps a float32 sum over thousands of windows honest."""
        addend = ordered_sum(log_ratios) - self.lost
        total = self.total + addend
        lost = (total - self.total) - addend
        return FullSum(total, lost, self.level, self.seen + window.count, self.num_rows)

    @property
    def complete(self) -> Array:
        """Whether every row has been seen."""
        return self.seen >= self.num_rows


def metropolis_level(key: Array, offset: Real[Array, ""]) -> Real[Array, ""]:
    """What the likelihood's log ratio must exceed in a Metropolis test: the logarithm of a uniform number, less what
    needs no data."""
    return -jax.random.exponential(key, (), offset.dtype) - offset


class FullDataRule(AcceptanceRule[FullSum]):
    """A rule that sees every row; what it accepts depends on the level that its `init` draws."""

    batch_size: eqx.AbstractVar[int]

    def __check_init__(self):
        check_batch_size(self.batch_size)

    def observe(self, evidence: FullSum, log_ratios: Real[Array, " rows"], window: Window) -> FullSum:
        """Sums."""
        return evidence.add(log_ratios, window)

    def verdict(self, evidence: FullSum) -> Verdict:
        """Decides when every row has been seen."""
        return Verdict(evidence.complete, evidence.total > evidence.level)

    def level(self, evidence: FullSum) -> Real[Array, ""]:
        """As drawn."""
        return evidence.level

    def decisive_rows(self, num_rows: int) -> int:
        """All of them."""
        return num_rows
