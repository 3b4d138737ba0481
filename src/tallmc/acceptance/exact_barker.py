"""Barker's test on all rows."""

from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, ArrayLike, Real

from tallmc.acceptance.full_sum import FullDataRule, FullSum
from tallmc.kernel import Guarantee, Question
from tallmc.posterior import Posterior


class ExactBarker(FullDataRule):
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

    def init(self, key: Array, question: Question, posterior: Posterior) -> FullSum:
        """Draws the level to exceed: a logistic number, less what needs no data."""
        level = jax.random.logistic(key, (), question.offset.dtype) - question.offset
        return FullSum.start(level, posterior.num_rows)

    def acceptance_probability(self, log_ratio: ArrayLike) -> Real[Array, "..."]:
        """The logistic function."""
        return jax.nn.sigmoid(log_ratio)
