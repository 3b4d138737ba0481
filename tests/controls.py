"""Rules that are wrong on purpose. If a law lets one of them pass, the law is worth nothing."""

import equinox as eqx
import jax
import jax.numpy as jnp

import tallmc as tm
from tallmc.numerics.moments import Moments


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


class CachedState(eqx.Module):
    position: jax.Array
    estimate: jax.Array
    proposed: jax.Array
    new_estimate: jax.Array


class CachedMint(tm.Kernel[CachedState]):
    """MINT as its proof has it: a position keeps the estimate of the batch that it was accepted with. Flat prior."""

    scale: float
    batch: int = eqx.field(static=True)
    exponent: float = eqx.field(static=True)

    @property
    def batch_size(self):
        return self.batch

    def init(self, key, position, posterior):
        rows = jax.tree.map(lambda leaf: leaf[: self.batch], posterior.data)
        estimate = jnp.mean(posterior.log_likelihoods(position, rows))
        return CachedState(position, estimate, self._propose(key, position), jnp.zeros_like(estimate))

    def observe(self, state, posterior, window):
        values = posterior.log_likelihoods(state.proposed, window.rows)
        estimate = jnp.sum(jnp.where(window.valid, values, 0)) / window.count.astype(values.dtype)
        return eqx.tree_at(lambda s: s.new_estimate, state, estimate), jnp.bool_(True)

    def conclude(self, key, state, posterior, time, gain):
        key_accept, key_propose = jax.random.split(key)
        log_ratio = float(posterior.num_rows) ** self.exponent * (state.new_estimate - state.estimate)
        accept = -jax.random.exponential(key_accept, (), log_ratio.dtype) < log_ratio
        position = jnp.where(accept, state.proposed, state.position)
        estimate = jnp.where(accept, state.new_estimate, state.estimate)
        info = tm.Info(accept, jnp.int32(self.batch), jnp.bool_(False), {})
        return CachedState(position, estimate, self._propose(key_propose, position), state.new_estimate), info

    def position(self, state):
        return state.position

    def _propose(self, key, position):
        return position + self.scale * jax.random.normal(key, position.shape, position.dtype)


class OwnVariance(tm.MHMinibatch):
    """Tops up by the variance of the decisive rows alone: half of their third cumulant becomes an error."""

    def _noise_variance(self, evidence):
        count, num_rows = jnp.maximum(evidence.test.count, 1), float(evidence.num_rows)
        return evidence.test.variance * num_rows**2 / count * (1 - count / num_rows)


class PilotVariance(tm.MHMinibatch):
    """Tops up by the variance of the pilot alone: a sixth of the third cumulant becomes an error, of the other sign."""

    def _noise_variance(self, evidence):
        count, num_rows = jnp.maximum(evidence.test.count, 1), float(evidence.num_rows)
        return evidence.pilot.variance * num_rows**2 / count * (1 - count / num_rows)
