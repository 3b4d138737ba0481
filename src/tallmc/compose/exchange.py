"""Swaps of neighbouring rungs of a ladder: how one is decided."""

import abc
import dataclasses
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc.acceptance import AcceptanceRule
from tallmc.acceptance.contract import Question
from tallmc.acceptance.formulas import METROPOLIS
from tallmc.compose.ladder_parts import order_after
from tallmc.feed import Drawn, Feed, Needs, Source
from tallmc.kernel import Part
from tallmc.posterior import Model


class Facing(eqx.Module):
    """The states of all rungs, before some of them swap places.

    Args:
        positions: Of the rungs, with a leading axis.
        temperatures: Of the rungs, besides that of the model.
        scan: Scans before this one. Even ones try the pairs (0, 1), (2, 3), ..., odd ones (1, 2), (3, 4), ...
        time: Transitions that the chain has made.
        level: Log likelihood of a row that energies are measured from.
        energies: Log likelihoods of the rungs, less the level for each row, if their kernels know them.
    """

    positions: PyTree
    temperatures: Real[Array, " rungs"]
    scan: Int[Array, ""]
    time: Int[Array, ""]
    level: Real[Array, ""]
    energies: Real[Array, " rungs"] | None

    @property
    def tried(self) -> Bool[Array, " pairs"]:
        """Which pairs are tested: no coin decides, and that is what makes a state wander less."""
        count = self.temperatures.shape[0]
        return jnp.arange(count - 1, dtype=jnp.int32) % 2 == self.scan % 2

    def cooling(self, model: Model) -> Real[Array, " pairs"]:
        """By how much the inverse temperature of each rung exceeds that of the next."""
        inverse = 1 / (self.temperatures * model.temperature.astype(self.temperatures.dtype))
        return inverse[:-1] - inverse[1:]


class Exchanged(NamedTuple):
    """What was decided: where the rungs go on from.

    Args:
        positions: Of all rungs, with a leading axis.
        energies: Log likelihood there, less the level for each row; NaN if nobody asked.
        elsewhere: Which rungs go on from another state than before.
        tried: Which pairs of neighbours were tested; each is known by its lower rung.
        accepted: Which of them exchanged.
        rows: That each pair's test took.
        evaluations: Of the likelihood of one row, all together.
        memory: What the exchange keeps until the next scan.
        stats: Besides, one value for each pair.
        told: Besides, of the ladder.
    """

    positions: PyTree
    energies: Real[Array, " rungs"]
    elsewhere: Bool[Array, " rungs"]
    tried: Bool[Array, " pairs"]
    accepted: Bool[Array, " pairs"]
    rows: Int[Array, " pairs"]
    evaluations: Real[Array, ""]
    memory: PyTree
    stats: dict[str, Array]
    told: dict[str, Array]


class Exchange(Part):
    """Decides, once all rungs of a ladder have moved, between which of them states travel.

    The prior is the same on all rungs, so the log ratio of an exchange is the difference of inverse temperatures times
    that of the log likelihoods, `sum_i (1/T_k - 1/T_{k+1}) (l_i(x_{k+1}) - l_i(x_k))`: another test of
    Metropolis-Hastings.
    """

    follows: ClassVar[bool] = True
    """Whether it goes on as before when the temperatures change."""

    def fed_by(self, feed: Feed) -> "Exchange":
        """The same, told where its rows will come from."""
        del feed
        return self

    def prepared_for(self, model: Model, num_warmup: int) -> "Exchange":
        """The same, told what it will be asked about, and how many scans are warm-up."""
        del model, num_warmup
        return self

    def remembering(self, positions: PyTree) -> PyTree:
        """What it keeps from scan to scan, before the first one; nothing by default."""
        del positions

    @abc.abstractmethod
    def begin(self, key: Array, facing: Facing, model: Model) -> Any:
        """Draws the random numbers that the decisions of this scan need."""

    @abc.abstractmethod
    def observe(self, state: Any, memory: PyTree, model: Model, window: Source) -> tuple[Any, Bool[Array, ""]]:
        """One round. Returns the state and whether everything is decided."""

    @abc.abstractmethod
    def energies(self, state: Any) -> Real[Array, " rungs"]:
        """Log likelihoods of all rungs before anything is exchanged, less the level for each row; NaN if unknown."""

    @abc.abstractmethod
    def exchanged(self, state: Any, memory: PyTree) -> Exchanged:
        """What a finished state has decided."""


def _swapped(
    facing: Facing, energies: Array, accepted: Array, rows: Array, memory: PyTree, stats: dict[str, Array]
) -> Exchanged:
    """Neighbours that agreed to swap places do."""
    order = order_after(accepted)
    positions, energies = jax.tree.map(lambda leaf: leaf[order], (facing.positions, energies))
    elsewhere = order != jnp.arange(order.shape[0], dtype=jnp.int32)
    evaluations = 2 * jnp.sum(rows.astype(energies.dtype))
    return Exchanged(positions, energies, elsewhere, facing.tried, accepted, rows, evaluations, memory, stats, {})


class OnAllRows(eqx.Module):
    """Levels for all pairs, and once the rows were read, the energies."""

    facing: Facing
    thresholds: Real[Array, " pairs"]
    energies: Real[Array, " rungs"]
    accepted: Bool[Array, " pairs"]
    rows: Int[Array, ""]


class ExchangeOnAllRows(Exchange):
    """Exact swaps: reads all rows once, for the log likelihoods of all rungs, and decides all pairs by these.

    Rungs whose kernels remember their log likelihoods need not be read again.

    The log likelihoods are kept (`run.stats["rung_energy"]`), and give the log evidence.
    """

    @property
    def needs(self) -> Needs:
        """All rows in one round."""
        return Needs(2**30, (Drawn.ALL_AT_ONCE,), every_row=True)

    def begin(self, key: Array, facing: Facing, model: Model) -> OnAllRows:
        """Draws what each pair's log ratio must exceed."""
        del model
        count, dtype = facing.temperatures.shape[0], jnp.result_type(float)
        zero = jnp.zeros((), dtype)
        thresholds = jax.vmap(lambda own: METROPOLIS.level(own, zero))(jax.random.split(key, count - 1))
        nothing = jnp.full(count, jnp.nan, dtype)
        return OnAllRows(facing, thresholds, nothing, jnp.zeros(count - 1, bool), jnp.int32(0))

    def observe(
        self, state: OnAllRows, memory: PyTree, model: Model, window: Source
    ) -> tuple[OnAllRows, Bool[Array, ""]]:
        """The whole decision, in one round."""
        del memory
        facing, count = state.facing, jnp.int32(0)
        if (energies := facing.energies) is None:
            rows: Any = window.read(jnp.int32(0))
            energies, count = rows.log_likelihoods(model, facing.level, facing.positions), rows.count
        ratios = facing.cooling(model).astype(energies.dtype) * (energies[1:] - energies[:-1])
        accepted = facing.tried & jnp.isfinite(ratios) & (ratios > state.thresholds)
        return OnAllRows(facing, state.thresholds, energies, accepted, count), jnp.bool_(True)

    def energies(self, state: OnAllRows) -> Real[Array, " rungs"]:
        """Those that decided."""
        return state.energies

    def exchanged(self, state: OnAllRows, memory: PyTree) -> Exchanged:
        """As the energies say."""
        rows = jnp.where(state.facing.tried, state.rows, 0)
        return _swapped(state.facing, state.energies, state.accepted, rows, memory, {})


class OnSomeRows(eqx.Module):
    """The tests of all pairs, side by side."""

    facing: Facing
    evidence: PyTree
    cursor: PyTree
    done: Bool[Array, " pairs"]
    finite: Bool[Array, " pairs"]
    rows: Int[Array, " pairs"]


class ExchangeByRule(Exchange):
    """Swaps decided by an acceptance rule, from rows that both states share and no other pair sees.

    Args:
        rule: Decides. Its guarantee is that of the swap.
        feed: Where its rows come from; set-up fills this in.
    """

    rule: AcceptanceRule
    feed: Feed | None = None

    @property
    def needs(self) -> Needs:
        """Those of the rule."""
        return self.rule.needs

    @property
    def label(self) -> str:
        """The name of the rule."""
        return f"swaps by {type(self.rule).__name__}"

    def fed_by(self, feed: Feed) -> "ExchangeByRule":
        """The same with its feed."""
        return dataclasses.replace(self, feed=feed)

    def begin(self, key: Array, facing: Facing, model: Model) -> OnSomeRows:
        """Begins the tests of all pairs; those that are not tried are over at once."""
        feed = self.feed
        assert feed is not None

        def one(key: Array, here: PyTree, there: PyTree, cooling: Array) -> tuple[PyTree, PyTree]:
            key_rule, key_feed = jax.random.split(key)
            between = _between(model, cooling)
            known = between.known_change(here, there, with_reach=self.rule.needs.row_bounds)
            # What an expansion knows counts, the prior does not: it is the same on both rungs.
            offset = known.offset - between.log_prior_change(here, there)
            question = Question(
                here, there, offset.astype(jnp.result_type(float)), facing.time, known.reach, drawn=feed.drawn
            )
            return self.rule.init(key_rule, question, between), feed.start(key_feed)

        count = facing.temperatures.shape[0]
        here, there = _pairs(facing.positions)
        keys = jax.random.split(key, count - 1)
        evidence, cursor = jax.vmap(one)(keys, here, there, facing.cooling(model))
        return OnSomeRows(
            facing, evidence, cursor, ~facing.tried, jnp.ones(count - 1, bool), jnp.zeros(count - 1, jnp.int32)
        )

    def observe(
        self, state: OnSomeRows, memory: PyTree, model: Model, window: Source
    ) -> tuple[OnSomeRows, Bool[Array, ""]]:
        """One window for every pair that is undecided."""
        del memory

        def one(evidence: PyTree, cursor: PyTree, here: PyTree, there: PyTree, cooling: Array) -> tuple[PyTree, ...]:
            rows: Any = window.read(cursor)
            ratios = rows.map(lambda some: _between(model, cooling).log_ratios(here, there, some))
            evidence = self.rule.observe(evidence, ratios, rows)
            finite = jnp.isfinite(jnp.sum(ratios))
            return evidence, window.feed.advance(cursor), self.rule.verdict(evidence).done | ~finite, finite, rows.count

        here, there = _pairs(state.facing.positions)
        cooling = state.facing.cooling(model)
        evidence, cursor, done, finite, rows = jax.vmap(one)(state.evidence, state.cursor, here, there, cooling)

        def kept(new: Array, old: Array) -> Array:
            return jnp.where(state.done.reshape(state.done.shape + (1,) * (new.ndim - 1)), old, new)

        evidence, cursor = jax.tree.map(kept, (evidence, cursor), (state.evidence, state.cursor))
        state = OnSomeRows(
            state.facing,
            evidence,
            cursor,
            state.done | done,
            state.finite & (finite | state.done),
            state.rows + jnp.where(state.done, 0, rows),
        )
        return state, jnp.all(state.done)

    def energies(self, state: OnSomeRows) -> Real[Array, " rungs"]:
        """Those that the rungs' own kernels know."""
        if (energies := state.facing.energies) is None:
            return jnp.full(state.facing.temperatures.shape, jnp.nan, jnp.result_type(float))
        return energies

    def exchanged(self, state: OnSomeRows, memory: PyTree) -> Exchanged:
        """As the rule says."""
        accept = jax.vmap(lambda evidence: self.rule.verdict(evidence).accept)(state.evidence)
        stats = jax.vmap(self.rule.stats)(state.evidence) | {"used_all_rows": state.rows >= self._all_rows}
        accepted = accept & state.finite & state.facing.tried
        return _swapped(state.facing, self.energies(state), accepted, state.rows, memory, stats)

    @property
    def _all_rows(self) -> int:
        assert self.feed is not None
        return self.feed.num_rows

    def warnings(self, stats: dict[str, np.ndarray]) -> list[str]:
        """What the rule warns of."""
        return self.rule.warnings(stats)

    def objections(self, stats: dict[str, np.ndarray]) -> list[str]:
        """What the rule has seen."""
        return self.rule.objections(stats)

    def check(self, position: PyTree, model: Model, drawn: Drawn) -> None:
        """Asks the rule, which must not have a temperature of its own."""
        del position
        if self.rule.promise.inverse_temperature(model.num_rows) != 1:
            raise ValueError(
                f"swaps must be decided at the temperatures of the ladder, and {type(self.rule).__name__} has one of "
                "its own; use tm.MHMinibatch() or tm.Exact()"
            )
        self.rule.check(model, drawn)


def _pairs(positions: PyTree) -> tuple[PyTree, PyTree]:
    """The lower and the upper state of each pair."""
    return jax.tree.map(lambda leaf: leaf[:-1], positions), jax.tree.map(lambda leaf: leaf[1:], positions)


def _between(model: Model, cooling: Real[Array, ""]) -> Model:
    """The model at an inverse temperature that is the difference of two."""
    own = model.temperature.astype(cooling.dtype)
    return model.heated((1 / (cooling * own)).astype(model.temperature.dtype))
