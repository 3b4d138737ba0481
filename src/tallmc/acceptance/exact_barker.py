"""Barker's test on all rows."""

from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, ArrayLike, Real

from tallmc.acceptance.exact import check_batch_size
from tallmc.acceptance.full_sum import FullSum
from tallmc.feed import Window
from tallmc.kernel import AcceptanceRule, Guarantee, Verdict


class ExactBarker(AcceptanceRule[FullSum]):
    """Accepts with probability 1 / (1 + exp(-log ratio)), from all rows (Barker, 1965).

    The exact twin of `MHMinibatch`. At its best it explores at 72 % of the speed of `Exact`, for it accepts half of
    the proposals that change nothing.

    Args:
        batch_size: Rows read at a time; it changes the speed and nothing else.

    Example:
        >>> float(ExactBarker().acceptance_probability(0.0))
        0.5
    """

    batch_size: int = eqx.field(default=4096, static=True)
    guarantee: ClassVar = Guarantee.EXACT
    reference: ClassVar = "barker1965monte"
    target_acceptance: ClassVar = 0.159

    def __check_init__(self):
        check_batch_size(self.batch_size)

    def init(self, key: Array, offset: Real[Array, ""], num_rows: int) -> FullSum:
        """Draws the level to exceed: a logistic number."""
        return FullSum.start(offset, jax.random.logistic(key, (), offset.dtype), num_rows)

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
        """The logistic function."""
        return jax.nn.sigmoid(log_ratio)
