"""Rules that are wrong on purpose. If a law lets one of them pass, the law is worth nothing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import tallmc as tm
from tallmc.numerics.moments import Moments
from tallmc.reproduce.printed import PrintedMHMinibatch as Textbook


class Overconfident(tm.ExactBarker):
    """Barker's test that accepts too often."""

    def verdict(self, evidence):
        return tm.Verdict(evidence.complete, evidence.total + 0.2 > evidence.level)


class Algorithm1(Textbook):
    """Algorithm 1 with its loop on the error of Corollary 1: rows are added while Novak's bound is above `delta`.

    The corollary is for variables of unit variance, which it does not say (`normalised=False` is as printed); and the
    moments must be absolute ones, for the mean of what is centred is nothing (`absolute=False` is as printed).
    """

    delta: float = eqx.field(static=True)
    normalised: bool = eqx.field(static=True)
    absolute: bool = eqx.field(static=True)

    def __init__(self, batch_size, delta, *, normalised=True, absolute=True):
        plain = tm.MHMinibatch(batch_size)
        for name in ("batch_size", "max_error", "sigma", "law_error", "atoms", "cumulative"):
            setattr(self, name, getattr(plain, name))
        self.delta, self.normalised, self.absolute = delta, normalised, absolute

    def init(self, key, question, model):
        started = super().init(key, question, model)
        return PowersEvidence(started, jnp.zeros((4,), started.offset.dtype))

    def observe(self, evidence, log_ratios, window):
        # Moments around the mean so far would need all rows again; around zero is exact where the mean is next to
        # nothing beside the spread, which is where the tests put it.
        values = float(evidence.started.num_rows) * log_ratios
        size = jnp.abs(values) if self.absolute else values
        powers = jnp.stack([jnp.sum(size), jnp.sum(values**2), jnp.sum(size**3), window.count.astype(values.dtype)])
        return PowersEvidence(super().observe(evidence.started, log_ratios, window), evidence.powers + powers)

    def verdict(self, evidence):
        first, square, third, count = evidence.powers
        count = jnp.maximum(count, 1)
        unit = jnp.sqrt(square / count) if self.normalised else 1.0
        bound = novak_bound(first / count / unit, third / count / unit**3, count)
        done, accept = super().verdict(evidence.started)
        all_seen = evidence.started.seen >= evidence.started.num_rows
        return tm.Verdict((done & (bound <= self.delta)) | all_seen, accept)

    def stats(self, evidence):
        return super().stats(evidence.started)


def novak_bound(first, third, count):
    """The right side of Corollary 1: on the distance of a studentised mean from a normal, by its absolute moments."""
    return (6.4 * jnp.abs(third) + 2 * jnp.abs(first)) / jnp.sqrt(count)


class PowersEvidence(eqx.Module):
    started: object
    powers: jax.Array  # sums of the first, second and third powers, and how many


class SkewEvidence(eqx.Module):
    moments: Moments
    uniform: jax.Array
    offset: jax.Array
    num_rows: int = eqx.field(static=True)


class SkewCorrected(tm.MHMinibatch):
    """Barker's test on one batch, corrected for skewness as appendix A.5 has it; `phi_terms` is what it makes of the
    Edgeworth expansion: (2, 3) as printed, (2, 0) without the term of the studentised mean, (0, 0) no correction.

    Noise e with the CDF (1 + a D^3 + b D) Phi_s, D being the derivative, turns an acceptance function A into
    (1 - a D^3 - b D) A, so the one used is (1 + a D^3 + b D) A. A is what the correction law, spread by the normal
    noise that tops up to variance 1, makes of an estimate.
    """

    phi_terms: tuple = eqx.field(static=True, default=(2.0, 3.0))

    def __init__(self, batch_size, phi_terms):
        plain = tm.MHMinibatch(batch_size)
        for name in ("batch_size", "max_error", "sigma", "law_error", "atoms", "cumulative"):
            setattr(self, name, getattr(plain, name))
        self.phi_terms = phi_terms

    def init(self, key, question, model):
        uniform = jax.random.uniform(key, (), question.offset.dtype)
        return SkewEvidence(Moments.empty(uniform.dtype), uniform, question.offset, model.num_rows)

    def observe(self, evidence, log_ratios, window):
        merged = evidence.moments.merge(Moments.of(log_ratios, window.valid, window.count))
        return eqx.tree_at(lambda e: e.moments, evidence, merged)

    def verdict(self, evidence):
        moments, num_rows = evidence.moments, float(evidence.num_rows)
        count = jnp.maximum(moments.count, 1)
        variance = jnp.minimum(moments.variance * num_rows**2 / count, 0.95)
        spread, rest = jnp.sqrt(variance), jnp.sqrt(1 - variance)
        estimate = evidence.offset + num_rows * moments.mean
        masses = jnp.diff(self.cumulative, prepend=0.0, append=1.0)

        def chance(at):
            return jnp.sum(masses * jax.scipy.special.ndtr((at + self.atoms) / rest))

        slope = jax.grad(chance)
        third = jax.grad(jax.grad(slope))
        share = moments.skewness / (6 * jnp.sqrt(count))
        by_third, by_slope = self.phi_terms
        chance_to_accept = chance(estimate) + share * (
            by_third * spread**3 * third(estimate) + by_slope * spread * slope(estimate)
        )
        return tm.Verdict(moments.count >= self.batch_size, evidence.uniform < chance_to_accept)

    def stats(self, evidence):
        return {"skewness": evidence.moments.skewness}


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


class OwnDirection(tm.optimise.DirectionTest):
    """For gradients, what the paper prints for Newton's updates: the length of an estimated update along its own
    direction, in its standard deviations there. No row is left that the direction does not know."""

    carries_rows = True

    def accepts(self, look, looks):
        import scipy.special

        pooled = look.halves[0] + look.halves[1]
        step, count, num_rows = look.update(pooled), pooled.num_rows, look.problem.num_rows
        along, still = look.kind.along(look.scaled(pooled), step, look.problem), np.zeros_like(step)
        blocks = [block for half in (0, 1) for block in look.rows.look(half, 0, look.size)]
        parts = [look.problem.influence_sums(look.position, block, along, still) for block in blocks]
        total, squares = (sum(column) for column in zip(*parts, strict=True))
        variance = num_rows**2 * (squares / count - (total / count) ** 2) / count * (1 - count / num_rows)
        return bool(step @ step > -scipy.special.ndtri(self.epsilon) * np.sqrt(variance))


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
