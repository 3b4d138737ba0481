"""What exact rules share: the log ratio summed over every row, and compared with a level drawn beforehand."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, Real

from tallmc.acceptance.contract import AcceptanceRule, Guarantee, Promise, Question, Verdict, check_batch_size
from tallmc.acceptance.formulas import Formula
from tallmc.feed import ALL_ROWS, Needs, Window
from tallmc.numerics.arithmetic import ordered_sum
from tallmc.posterior import Model


class FullSum(eqx.Module):
    """The log likelihood ratio of the rows seen so far, and the level it has to exceed."""

    total: Real[Array, ""]
    lost: Real[Array, ""]
    level: Real[Array, ""]
    seen: Int[Array, ""]
    num_rows: int = eqx.field(static=True)

    @classmethod
    def start(cls, level: Real[Array, ""], num_rows: int) -> "FullSum":
        """A test that has seen no row yet."""
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


class FullDataRule(AcceptanceRule[FullSum]):
    """A rule that sees every row; what it accepts depends on the formula whose level it draws."""

    batch_size: eqx.AbstractVar[int]
    formula: ClassVar[Formula]
    reference: ClassVar[str]

    def __check_init__(self):
        check_batch_size(self.batch_size)

    @property
    def promise(self) -> Promise:
        """Accepts with exactly the chance of its formula, up to the rounding of a sum over all rows."""
        return Promise(Guarantee.EXACT, self.formula, self.reference)

    @property
    def needs(self) -> Needs:
        """All rows, in any order."""
        return Needs(self.batch_size, decisive_rows=ALL_ROWS, every_row=True, only_sums=True)

    def init(self, key: Array, question: Question, model: Model) -> FullSum:
        """Draws the level to exceed."""
        return FullSum.start(self.formula.level(key, question.offset), model.num_rows)

    def observe(self, evidence: FullSum, log_ratios: Real[Array, " rows"], window: Window) -> FullSum:
        """Adds a window to the sum."""
        return evidence.add(log_ratios, window)

    def verdict(self, evidence: FullSum) -> Verdict:
        """Decides when every row has been seen."""
        return Verdict(evidence.complete, evidence.total > evidence.level)
