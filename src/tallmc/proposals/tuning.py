"""How warm-up finds the length of a proposal's steps."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree, Real

# What a step costs besides reading rows, in rows. A judgement: no measurement is on record. It matters where some
# steps of the grid read more rows than this and others fewer. On two CPU cores it may well be too small: by
# docs/benchmarks.md (table "tallmc alone") chains made about as many steps a second when a step read 20 rows as when
# it read 2.
_OVERHEAD = 16.0

# How much rejections cost beyond their number because they come in clusters: a share of acceptances is multiplied by
# relative ** (_CLUSTERING * (1 - relative)), so a beta that is accepted half as often as the best counts as if it were
# accepted about a sixth as often (0.5 * 0.5 ** 1.5 = 0.18). It was 10 at first, and was lowered to what was seen in
# logistic regressions (10^4 and 10^5 generated rows, a9a); the figures of that comparison were not kept.
_CLUSTERING = 3.0

# Steps to the other side are kept only if they are accepted at least this often, as a share of the best in the grid.
# Measured (docs/benchmarks.md, end of "Every rule with control variates on real rows"): on a9a and covertype, where
# about half and three quarters were accepted, chains stayed in one place for up to 213 and 195 steps. On generated
# rows and flights, where 0.97 and more were accepted, means and spreads came out right. Where to draw the line between
# 0.75 and 0.97 is a judgement.
_REFLECTING = 0.85


class Outcome(NamedTuple):
    """What became of a transition, as far as tuning may learn from it.

    Args:
        before: Where the chain was.
        after: Where it is now.
        accepted: Whether it moved.
        rows: Rows that the test took.
        known: The log acceptance ratio as far as it needs no rows.
        proposed: Where it would have gone.
    """

    before: PyTree
    after: PyTree
    accepted: Bool[Array, ""]
    rows: Int[Array, ""]
    known: Real[Array, ""]
    proposed: PyTree = None


class Tuning(eqx.Module):
    """Tunes what a proposal is told: for most, one number that its steps are multiplied by."""

    @abc.abstractmethod
    def init(self, position: PyTree) -> PyTree:
        """The state before the first transition, for positions like this one."""

    @abc.abstractmethod
    def factor(self, tuned: PyTree) -> PyTree:
        """What the next proposal is `rescaled` by."""

    @abc.abstractmethod
    def update(self, tuned: PyTree, outcome: Outcome, gain: Real[Array, ""]) -> PyTree:
        """Learns from a transition; nothing if `gain` is zero, which it is once warm-up is over."""

    def step_size(self, tuned: PyTree) -> Real[Array, ""]:
        """The one number of it that a reader of a run is told."""
        return self.factor(tuned)


class NothingLearned(Tuning):
    """Leaves everything as it was given: for decisions that say nothing of how good a step was.

    Args:
        otherwise: What would learn.
    """

    otherwise: Tuning

    def init(self, position: PyTree) -> PyTree:
        """As it would begin."""
        return self.otherwise.init(position)

    def factor(self, tuned: PyTree) -> PyTree:
        """What that amounts to."""
        return self.otherwise.factor(tuned)

    def update(self, tuned: PyTree, outcome: Outcome, gain: Real[Array, ""]) -> PyTree:
        """The same again."""
        del outcome, gain
        return tuned

    def step_size(self, tuned: PyTree) -> Real[Array, ""]:
        """That of the beginning."""
        return self.otherwise.step_size(tuned)


class TowardsAcceptance(Tuning):
    """Robbins-Monro on the logarithm of the factor, towards a rate of acceptance.

    Args:
        target: The rate at which a proposal explores fastest.
    """

    target: float = eqx.field(static=True)

    def init(self, position: PyTree) -> Real[Array, ""]:
        """Begins with the proposal's own steps: the state is the factor itself, 1."""
        del position
        return jnp.ones((), jnp.result_type(float))

    def factor(self, tuned: Real[Array, ""]) -> Real[Array, ""]:
        """The state is the factor, so it is returned as it is."""
        return tuned

    def update(self, tuned: Real[Array, ""], outcome: Outcome, gain: Real[Array, ""]) -> Real[Array, ""]:
        """Longer steps after acceptance, shorter ones after rejection."""
        return tuned * jnp.exp(gain * (outcome.accepted.astype(gain.dtype) - self.target)).astype(tuned.dtype)


class BestOfGrid(Tuning):
    """Tries all factors of a grid in turn and keeps the one with the most effective samples for its rows.

    If a position and what is proposed there have correlation c, and a share a of proposals is accepted, then draws have
    a correlation of r = 1 - a (1 - c) from one to the next. Means of draws then take (1 + r) / (1 - r) draws for each
    independent one, and means of squares (1 + r^2) / (1 - r^2). What counts is the sum of both, times what a step
    costs: its rows, and about as much again as reading 16.

    Rejections come in clusters: where the posterior has more mass than the proposals expect, a chain is rejected again
    and again. The less is accepted, compared with the best of the grid, the more that costs; a is lowered accordingly,
    by as much as was seen in logistic regressions (10^4 and 10^5 generated rows, a9a).

    Steps to the other side of the mean (c below 0) find a smaller density there wherever a skewed posterior has more
    mass than expected here. On a9a and covertype, where half and three quarters of them were accepted, chains stayed
    in one place for 200 steps. They are taken only where nearly all are accepted that could be.

    Args:
        factors: To try, the shortest steps last: these are used if no proposal was ever accepted.
        correlations: c, for each of them.
    """

    factors: Real[Array, " k"]
    correlations: Real[Array, " k"]

    def init(self, position: PyTree) -> tuple[Int[Array, ""], Real[Array, "k 3"]]:
        """Which factor is in use (minus one: the proposal's own), and visits, acceptances and rows of each."""
        del position
        return jnp.int32(-1), jnp.zeros((len(self.factors), 3), jnp.result_type(float))

    def factor(self, tuned: tuple[Int[Array, ""], Real[Array, "k 3"]]) -> Real[Array, ""]:
        """The factor being tried or, after warm-up, the one kept; 1, the proposal's own, before the first trial."""
        using, table = tuned
        return jnp.where(using < 0, 1, self.factors.astype(table.dtype)[using])

    def update(
        self,
        tuned: tuple[Int[Array, ""], Real[Array, "k 3"]],
        outcome: Outcome,
        gain: Real[Array, ""],
    ) -> tuple[Int[Array, ""], Real[Array, "k 3"]]:
        """Goes round the grid during warm-up, and settles when it ends."""
        using, table = tuned
        learning = gain > 0
        accepted, rows = outcome.accepted.astype(table.dtype), outcome.rows.astype(table.dtype)
        seen = jnp.stack([jnp.ones((), table.dtype), accepted, rows])
        here = (jnp.arange(len(self.factors), dtype=jnp.int32) == using) & learning
        table = table + jnp.where(here[:, None], seen, 0)
        visits = jnp.maximum(table[:, 0], 1)
        share = table[:, 1] / visits
        # One standard error less than what was seen: a factor with a single acceptance may have been lucky.
        share = jnp.clip(share - jnp.sqrt(share * (1 - share) / visits), 1e-9, 1)
        relative = share / jnp.max(share)
        share = share * relative ** (_CLUSTERING * (1 - relative))
        sticky = (self.correlations < 0) & (relative < _REFLECTING)
        share = jnp.where(sticky, 1e-9, share)
        r = 1 - share * (1 - self.correlations.astype(table.dtype))
        draws = (1 + r) / (1 - r) + (1 + r * r) / (1 - r * r)
        efficiency = 1 / (draws * (table[:, 2] / visits + _OVERHEAD))
        # Without a warm-up the proposal's own factor stays.
        shortest = jnp.int32(len(self.factors) - 1)
        best = jnp.where(jnp.any(table[:, 1] > 0), jnp.argmax(efficiency).astype(jnp.int32), shortest)
        best = jnp.where(jnp.sum(table[:, 0]) > 0, best, using)
        turn = (using + 1) % len(self.factors)
        return jnp.where(learning, turn, best), table
