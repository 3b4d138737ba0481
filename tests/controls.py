"""Rules that are wrong on purpose. If a law lets one of them pass, the law is worth nothing."""

import equinox as eqx
import jax.numpy as jnp

import tallmc as tm
from tallmc.moments import Moments


class Overconfident(tm.ExactBarker):
    """Barker's test that accepts too often."""

    def verdict(self, evidence):
        return tm.Verdict(evidence.complete, evidence.total + 0.2 > evidence.level)


class Textbook(tm.MHMinibatch):
    """Algorithm 1 as printed: the rows that say stop are the rows that decide."""

    def observe(self, evidence, log_ratios, window):
        test = evidence.test.merge(Moments.of(log_ratios, window.valid, window.count))
        return eqx.tree_at(lambda e: (e.test, e.seen), evidence, (test, evidence.seen + window.count))

    def verdict(self, evidence):
        test, num_rows = evidence.test, float(evidence.num_rows)
        noise = test.variance * num_rows**2 / jnp.maximum(test.count, 1)
        all_seen = evidence.seen >= evidence.num_rows
        missing = jnp.where(all_seen, self.sigma**2, jnp.maximum(self.sigma**2 - noise, 0))
        total = evidence.offset + num_rows * test.mean + evidence.normal * jnp.sqrt(missing) + evidence.correction
        return tm.Verdict((noise < self.sigma**2) | all_seen, total > 0)
