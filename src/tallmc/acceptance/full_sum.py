"""What the two exact rules share: the log ratio summed over every row."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, Real

from tallmc.arithmetic import ordered_sum
from tallmc.feed import Window


class FullSum(eqx.Module):
    """The log acceptance ratio of the rows seen so far, and the level it has to exceed."""

    total: Real[Array, ""]
    lost: Real[Array, ""]
    threshold: Real[Array, ""]
    seen: Int[Array, ""]
    num_rows: int = eqx.field(static=True)

    @classmethod
    def start(cls, offset: Real[Array, ""], threshold: Real[Array, ""], num_rows: int) -> "FullSum":
        """Nothing seen but what needs no data."""
        return cls(offset, jnp.zeros_like(offset), threshold, jnp.int32(0), num_rows)

    def add(self, log_ratios: Real[Array, " rows"], window: Window) -> "FullSum":
        """Adds a window. Kahan's compensation keeps a float32 sum over thousands of windows honest."""
        addend = ordered_sum(log_ratios) - self.lost
        total = self.total + addend
        lost = (total - self.total) - addend
        return FullSum(total, lost, self.threshold, self.seen + window.count, self.num_rows)

    @property
    def complete(self) -> Array:
        """Whether every row has been seen."""
        return self.seen >= self.num_rows
