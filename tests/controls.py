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


class CachedRest(eqx.Module):
    position: jax.Array
    estimate: jax.Array


class CachedTest(eqx.Module):
    rest: CachedRest
    proposed: jax.Array
    new_estimate: jax.Array
    level: jax.Array


class CachedMint(tm.Kernel[CachedRest, CachedTest]):
    """MINT as its proof has it: a position keeps the estimate of the batch that it was accepted with. Flat prior."""

    scale: float
    batch: int = eqx.field(static=True)
    exponent: float = eqx.field(static=True)

    @property
    def needs(self):
        return tm.Needs(self.batch)

    def init(self, position):
        return CachedRest(position, jnp.full((), -jnp.inf))  # any batch is better than none

    def begin(self, key, rest, model, time):
        key_accept, key_propose = jax.random.split(key)
        step = self.scale * jax.random.normal(key_propose, rest.position.shape, rest.position.dtype)
        level = -jax.random.exponential(key_accept) / float(model.num_rows) ** self.exponent
        return CachedTest(rest, rest.position + step, rest.estimate, level)

    def observe(self, state, model, window):
        values = model.log_likelihoods(state.proposed, window.rows)
        estimate = jnp.sum(jnp.where(window.valid, values, 0)) / window.count.astype(values.dtype)
        return eqx.tree_at(lambda s: s.new_estimate, state, estimate), jnp.bool_(True)

    def settle(self, state, gain):
        accept = state.level < state.new_estimate - state.rest.estimate
        new = CachedRest(state.proposed, state.new_estimate)
        rest = jax.tree.map(lambda a, b: jnp.where(accept, a, b), new, state.rest)
        return rest, tm.Info(accept, jnp.int32(self.batch), jnp.bool_(False), {})

    def abandon(self, state):
        return state.rest

    def position(self, rest):
        return rest.position

    def moved(self, rest, position):
        return CachedRest(position, rest.estimate)


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


class CarelessJumps(tm.Proposal):
    """Reversible jumps whose ratio leaves something out: the choice of a column, or the density of its coefficient."""

    jumps: tm.ReversibleJump
    forgets_choice: bool = eqx.field(static=True)

    def propose(self, key, position, model):
        move = self.jumps.propose(key, position, model)
        sizes = [jnp.sum(end["gamma"]).astype(move.log_ratio.dtype) for end in (position, move.position)]
        smaller, grown = jnp.minimum(*sizes), sizes[1] - sizes[0]
        if self.forgets_choice:
            most = position["gamma"].size
            missing = jnp.log(jnp.maximum(most - smaller, 1)) - jnp.log(smaller + 1)
        else:
            changed = jnp.sum(move.position["beta"] - position["beta"])
            scale = self.jumps.birth_scale.astype(changed.dtype)
            missing = (changed / scale) ** 2 / 2 + jnp.log(scale) + 0.5 * jnp.log(jnp.full_like(scale, 2 * jnp.pi))
        return tm.Move(move.position, move.log_ratio - grown * missing)

    def rescaled(self, step_size):
        return eqx.tree_at(lambda own: own.jumps, self, self.jumps.rescaled(step_size))

    def tuning(self, target_acceptance):
        return self.jumps.tuning(target_acceptance)
