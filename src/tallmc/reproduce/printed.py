"""Rules as their papers print them, where the library's own differ: to reproduce figures, not to sample with."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Real

from tallmc.acceptance import MHMinibatch, Verdict
from tallmc.acceptance.mh_minibatch import MinibatchEvidence
from tallmc.feed import Window
from tallmc.numerics.moments import Moments


class PrintedMHMinibatch(MHMinibatch):
    """Algorithm 1 of Seita et al. (2018) as printed: the rows that say stop are the rows that decide.

    Args:
        batch_size: Rows of the first look, and rows added at a time.
        sigma: Standard deviation of the noise that a test may have.

    Example:
        >>> PrintedMHMinibatch(50).sigma
        1.0
    """

    def __init__(self, batch_size: int, sigma: float = 1.0):
        MHMinibatch.__init__(self, batch_size, sigma=sigma)

    def observe(
        self, evidence: MinibatchEvidence, log_ratios: Real[Array, " window"], window: Window
    ) -> MinibatchEvidence:
        """All rows count for the variance and for the decision."""
        test = evidence.test.merge(Moments.of(log_ratios, window.valid, window.count))
        return eqx.tree_at(lambda e: (e.test, e.seen), evidence, (test, evidence.seen + window.count))

    def verdict(self, evidence: MinibatchEvidence) -> Verdict:
        """Ends when the estimated variance is small enough."""
        test, num_rows = evidence.test, float(evidence.num_rows)
        noise = test.variance * num_rows**2 / jnp.maximum(test.count, 1)
        all_seen = evidence.seen >= evidence.num_rows
        missing = jnp.where(all_seen, self.sigma**2, jnp.maximum(self.sigma**2 - noise, 0))
        total = evidence.offset + num_rows * test.mean + evidence.normal * jnp.sqrt(missing) + evidence.correction
        return Verdict((noise < self.sigma**2) | all_seen, total > 0)
