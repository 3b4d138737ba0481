"""What warm-up learns for Hamiltonian trajectories: length of a step, mass matrix, number of steps."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc.numerics.arithmetic import ordered_sum, rounded
from tallmc.numerics.flat import flattened
from tallmc.proposals.tuning import Outcome, Tuning
from tallmc.window_adaptation import Schedule

# Lengths that the second half of warm-up tries in turn, as factors of the one that it was given. A judgement: a factor
# of four to both sides mends a bad guess, and five values leave each a hundred trials in a warm-up of 1,000.
_LENGTHS = (1.0, 0.5, 2.0, 0.25, 4.0)
# What a transition costs, in leapfrog steps, besides its own: random numbers and a test of few rows. A judgement.
_OVERHEAD = 3.0
_LEVELS = 64.0  # between 0 and 1, to which a chance is rounded: far finer than single chances are different
# Draws by which a window's covariances are shrunk towards none. Stan shrinks variances too, towards a thousandth, but
# posteriors of many rows are narrower than that.
_SHRUNK_BY = 5.0


class Trajectory(eqx.Module):
    """What a proposal follows.

    Args:
        step_size: Time of a leapfrog step.
        factor: Square root of the inverse mass matrix: one number, one a coordinate, or a lower Cholesky factor.
        num_steps: Around which the number of steps is drawn.
    """

    step_size: Real[Array, ""]
    factor: Real[Array, "..."]
    num_steps: Int[Array, ""]


class Learned(eqx.Module):
    """State of the tuning.

    Args:
        step_size: The present one.
        factor: The present one.
        turns: Transitions so far.
        since: Those since the mass matrix was changed.
        count: Draws that are behind the moments.
        mean: Of the draws of this window.
        moment: Sum of their squared deviations, or of the products of these.
        using: Which of the lengths is being tried.
        table: Visits, what they gained and what they cost, of each length.
    """

    step_size: Real[Array, ""]
    factor: Real[Array, "..."]
    turns: Int[Array, ""]
    since: Int[Array, ""]
    count: Real[Array, ""]
    mean: Real[Array, " d"]
    moment: Real[Array, "..."]
    using: Int[Array, ""]
    table: Real[Array, "k 3"]


class TowardsSmoothness(Tuning):
    """Tunes trajectories.

    Steps become longer as long as energy errors let a wanted share of trajectories pass. What the test makes of the
    rows does not count where the trajectory knows its own energy: a rejection for the rows' sake would come whatever
    the steps. The mass matrix is learned in windows that double in length, as Stan does. In the second half of warm-up
    several lengths are tried, and the one is kept that moves chains furthest for its cost.

    Args:
        given: What the proposal has; where tuning begins.
        schedule: When to learn the mass matrix.
        learns_mass: Whether to learn it.
        dense: Whether to learn all covariances, not only variances.
        target: Share of trajectories that is to pass.
        by_energy: Whether the energy's own error says how many do; else the test's decisions do.
    """

    given: Trajectory
    schedule: Schedule
    learns_mass: bool = eqx.field(static=True)
    dense: bool = eqx.field(static=True)
    target: float = eqx.field(static=True)
    by_energy: bool = eqx.field(static=True)

    def init(self, position: PyTree) -> Learned:
        """As the proposal was given; a factor that will be learned gets the shape that it will have."""
        dtype, factor = self.given.step_size.dtype, self.given.factor
        size = flattened(position, dtype)[0].size
        if self.learns_mass:
            factor = factor * (jnp.eye(size, dtype=dtype) if self.dense else jnp.ones(size, dtype))
        mean = jnp.zeros(size if self.learns_mass else 0, dtype)
        moment = jnp.zeros(factor.shape if self.learns_mass else (0,), dtype)
        table = jnp.zeros((len(_LENGTHS), 3), dtype)
        nothing = jnp.zeros((), dtype)
        return Learned(
            self.given.step_size, factor, jnp.int32(0), jnp.int32(0), nothing, mean, moment, jnp.int32(0), table
        )

    def factor(self, tuned: Learned) -> Trajectory:
        """The trajectory to follow next."""
        length = jnp.asarray(_LENGTHS, tuned.step_size.dtype)[tuned.using]
        steps = jnp.maximum(jnp.round(length * self.given.num_steps.astype(length.dtype)), 1).astype(jnp.int32)
        return Trajectory(tuned.step_size, tuned.factor, steps)

    def step_size(self, tuned: Learned) -> Real[Array, ""]:
        """The time of a leapfrog step."""
        return tuned.step_size

    def update(self, tuned: Learned, outcome: Outcome, gain: Real[Array, ""]) -> Learned:
        """Learns from a transition, while warm-up lasts."""
        dtype = tuned.step_size.dtype
        smooth = jnp.exp(jnp.minimum(outcome.known, 0)).astype(dtype)
        # To a few digits: the last ones of a sum depend on how it was compiled, and chains must not.
        smooth = jnp.round(smooth * _LEVELS) / _LEVELS
        passed = jnp.where(jnp.isfinite(smooth), smooth, 0) if self.by_energy else outcome.accepted.astype(dtype)
        # Robbins-Monro, begun anew with each mass matrix.
        speed = (tuned.since + 1).astype(dtype) ** -0.6
        step_size = tuned.step_size * jnp.exp(speed * (passed - self.target))
        learning = gain > 0
        using, table = self._lengths(tuned, outcome, learning)
        mass = self._mass(tuned, flattened(outcome.after, dtype)[0]) if self.learns_mass else tuned
        counts = {"turns": tuned.turns + 1, "since": mass.since + 1}
        new = dataclasses.replace(mass, step_size=step_size, using=using, table=table, **counts)
        return jax.tree.map(lambda a, b: jnp.where(learning, a, b), new, eqx.tree_at(lambda t: t.using, tuned, using))

    def _lengths(self, tuned: Learned, outcome: Outcome, learning: Bool[Array, ""]) -> tuple[Array, Array]:
        """The length to try next, or after warm-up the one that moved chains furthest for its cost."""
        table = tuned.table
        dtype = table.dtype
        moved = flattened(outcome.after, dtype)[0] - flattened(outcome.before, dtype)[0]
        squares = moved / _spread(tuned.factor)
        gained = ordered_sum(rounded(squares * squares)) / (2 * moved.size)
        steps = self.factor(tuned).num_steps.astype(dtype)
        # Independent draws are 1 apart by this measure; more is worth nothing, for it is only to the other side.
        seen = jnp.stack([jnp.ones((), dtype), jnp.minimum(gained, 1), steps + _OVERHEAD])
        trying = learning & (tuned.turns >= self.schedule.num_steps // 2)
        here = (jnp.arange(len(_LENGTHS), dtype=jnp.int32) == tuned.using) & trying
        table = table + jnp.where(here[:, None], seen, 0)
        gain_for_cost = table[:, 1] / jnp.maximum(table[:, 2], 1)
        best = jnp.argmax(gain_for_cost).astype(jnp.int32)
        turn = jnp.where(trying, (tuned.using + 1) % len(_LENGTHS), 0)
        return jnp.where(learning, turn, best), table

    def _mass(self, tuned: Learned, after: Real[Array, " d"]) -> Learned:
        """Running moments of the draws of this window; at its end they become the mass matrix."""
        schedule, turn, factor = self.schedule, tuned.turns, tuned.factor
        inside = (turn >= schedule.slow[0]) & (turn < schedule.slow[1])
        count = tuned.count + 1
        away = after - tuned.mean
        mean = tuned.mean + rounded(away / count)
        square = _products_of(away, after - mean, factor.ndim)
        moment = tuned.moment + rounded(square)
        count, mean, moment = (
            jnp.where(inside, new, old)
            for new, old in ((count, tuned.count), (mean, tuned.mean), (moment, tuned.moment))
        )
        ends = jnp.any(schedule.ends == turn) & (count > 1)
        variance = rounded(moment / jnp.maximum(count - 1, 1))
        if factor.ndim == 2:
            shrunk = rounded(count / (count + _SHRUNK_BY) * variance)
            alone = jnp.eye(len(factor), dtype=bool)
            covariance = jnp.where(alone, variance, shrunk)
            ends = ends & jnp.all(jnp.diagonal(variance) > 0)
            found = jax.lax.cond(ends, jnp.linalg.cholesky, lambda _: factor, covariance)
            found = jnp.where(jnp.all(jnp.isfinite(found)), found, factor)
        else:
            found = jnp.where(ends & (variance > 0), jnp.sqrt(variance), factor)
        fresh = lambda value: jnp.where(ends, jnp.zeros_like(value), value)  # noqa: E731
        since = jnp.where(ends, -1, tuned.since)
        moments = {"count": fresh(count), "mean": fresh(mean), "moment": fresh(moment)}
        return dataclasses.replace(tuned, factor=found, since=since, **moments)


def _products_of(one: Array, other: Array, axes: int) -> Array:
    return one[:, None] * other[None] if axes == 2 else one * other


def _spread(factor: Real[Array, "..."]) -> Real[Array, "..."]:
    """Standard deviation of each coordinate, if the factor is that of the covariance."""
    return jnp.sqrt(jnp.sum(factor * factor, axis=1)) if factor.ndim == 2 else factor
