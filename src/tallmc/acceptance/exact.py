"""The Metropolis test on all rows."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Real

from tallmc.acceptance.full_sum import FullSum
from tallmc.feed import Window
from tallmc.kernel import AcceptanceRule, Guarantee, Verdict


class Exact(AcceptanceRule[FullSum]):
    """Accepts with probability min(1, exp(log ratio)), from all rows (Metropolis et al., 1953; Hastings, 1970).

    Args:
        batch_size: Rows read at a time; it changes the speed and nothing else.

    Example:
        >>> Exact().guarantee.value
        'exact'
    """

    batch_size: int = eqx.field(default=4096, static=True)
    guarantee: ClassVar = Guarantee.EXACT
    reference: ClassVar = "hastings1970monte"
    target_acceptance: ClassVar = 0.234

    def __check_init__(self):
        check_batch_size(self.batch_size)

    def init(self, key: Array, offset: Real[Array, ""], num_rows: int) -> FullSum:
        """Draws the level to exceed: the logarithm of a uniform number."""
        log_uniform = -jax.random.exponential(key, (), offset.dtype)
        return FullSum.start(offset, log_uniform, num_rows)

    def observe(self, evidence: FullSum, log_ratios: Real[Array, " rows"], window: Window) -> FullSum:
        """Sums."""
        return evidence.add(log_ratios, window)

    def verdict(self, evidence: FullSum) -> Verdict:
        """Decides when every row has been seen."""
        return Verdict(evidence.complete, evidence.total > evidence.threshold)

    def decisive_rows(self, num_rows: int) -> int:
        """All of them."""
        return num_rows

    def acceptance_probability(self, log_ratio: ArrayLike) -> Real[Array, "..."]:
        """min(1, exp(log ratio))."""
        return jnp.exp(jnp.minimum(log_ratio, 0))


def check_batch_size(batch_size: int) -> None:
    """Every rule reads at least one row at a time."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer) or batch_size < 1:
        raise ValueError(f"batch_size must be a whole number of at least 1, got {batch_size!r}")
