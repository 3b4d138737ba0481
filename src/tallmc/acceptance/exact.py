"""The Metropolis test on all rows."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Real

from tallmc.acceptance.full_sum import FullDataRule, FullSum, metropolis_level
from tallmc.kernel import Guarantee, Question
from tallmc.posterior import Posterior


class Exact(FullDataRule):
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

    def init(self, key: Array, question: Question, posterior: Posterior) -> FullSum:
        """Draws the level to exceed."""
        return FullSum.start(metropolis_level(key, question.offset), posterior.num_rows)

    def acceptance_probability(self, log_ratio: ArrayLike) -> Real[Array, "..."]:
        """min(1, exp(log ratio))."""
        return jnp.exp(jnp.minimum(log_ratio, 0))
