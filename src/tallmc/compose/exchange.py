"""Swaps of neighbouring rungs of a ladder: how one is decided."""

import abc
import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc.acceptance import AcceptanceRule
from tallmc.acceptance.contract import Question
from tallmc.acceptance.formulas import METROPOLIS
from tallmc.feed import Drawn, Feed, Needs, Source
from tallmc.kernel import Info, Kernel
from tallmc.posterior import Model


class Facing(eqx.Module):
    """The states of all rungs, before some of them swap places.

    Args:
        positions: Of the rungs, with a leading axis.
        temperatures: Of the rungs, besides that of the model.
        scan: Scans before this one. Even ones try the pairs (0, 1), (2, 3), ..., odd ones (1, 2), (3, 4), ...
        level: Log likelihood of a row that energies are measured from.
        energies: Log likelihoods of the rungs, less the level for each row, if their kernels know them.
    """

    positions: PyTree
    temperatures: Real[Array, " rungs"]
    scan: Int[Array, ""]
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


class Swapped(NamedTuple):
    """What was decided.

    Args:
        accepted: Which pairs swap places; none that was not tried.
        rows: That each pair's test took.
        energies: Log likelihood of the state of every rung, less the level for each row; NaN if nobody asked.
        stats: Of each pair, what else there is to tell.
    """

    accepted: Bool[Array, " pairs"]
    rows: Int[Array, " pairs"]
    energies: Real[Array, " rungs"]
    stats: dict[str, Array]


class Exchange(Kernel[Facing, Any]):
    """Decides which neighbours swap places. Its 'chain' is the whole ladder.

    The prior is the same on all rungs, so the log ratio of a swap is the difference of inverse temperatures times that
    of the log likelihoods, `sum_i (1/T_k - 1/T_{k+1}) (l_i(x_{k+1}) - l_i(x_k))`: another Metropolis-Hastings test.
    """

    @abc.abstractmethod
    def swapped(self, state: Any) -> Swapped:
        """What a finished state has decided."""

    def init(self, position: PyTree) -> Facing:
        """Not used: a ladder says who faces whom."""
        raise NotImplementedError("an exchange moves the rungs of a tm.Ladder, not a chain of its own")

    def settle(self, state: Any, gain: Real[Array, ""]) -> tuple[Facing, Info]:
        """Not used: a ladder asks what was `swapped`."""
        raise NotImplementedError("an exchange moves the rungs of a tm.Ladder, not a chain of its own")

    def abandon(self, state: Any) -> Facing:
        """The rungs as they were."""
        return state.facing

    def position(self, rest: Facing) -> PyTree:
        """Of the coldest rung."""
        return jax.tree.map(lambda leaf: leaf[0], rest.positions)

    def moved(self, rest: Facing, position: PyTree) -> Facing:
        """The coldest rung elsewhere."""
        positions = jax.tree.map(lambda leaf, new: leaf.at[0].set(new), rest.positions, position)
        return dataclasses.replace(rest, positions=positions)


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

    def begin(self, key: Array, rest: Facing, model: Model, time: Int[Array, ""]) -> OnAllRows:
        """Draws what each pair's log ratio must exceed."""
        del model, time
        count, dtype = rest.temperatures.shape[0], jnp.result_type(float)
        zero = jnp.zeros((), dtype)
        thresholds = jax.vmap(lambda own: METROPOLIS.level(own, zero))(jax.random.split(key, count - 1))
        nothing = jnp.full(count, jnp.nan, dtype)
        return OnAllRows(rest, thresholds, nothing, jnp.zeros(count - 1, bool), jnp.int32(0))

    def observe(self, state: OnAllRows, model: Model, window: Source) -> tuple[OnAllRows, Bool[Array, ""]]:
        """The whole decision, in one round."""
        facing, count = state.facing, jnp.int32(0)
        if (energies := facing.energies) is None:
            rows: Any = window.read(jnp.int32(0))
            energies, count = rows.log_likelihoods(model, facing.level, facing.positions), rows.count
        ratios = facing.cooling(model).astype(energies.dtype) * (energies[1:] - energies[:-1])
        accepted = facing.tried & jnp.isfinite(ratios) & (ratios > state.thresholds)
        return OnAllRows(facing, state.thresholds, energies, accepted, count), jnp.bool_(True)

    def swapped(self, state: OnAllRows) -> Swapped:
        """As the energies say."""
        rows = jnp.where(state.facing.tried, state.rows, 0)
        return Swapped(state.accepted, rows, state.energies, {})


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

    def begin(self, key: Array, rest: Facing, model: Model, time: Int[Array, ""]) -> OnSomeRows:
        """Begins the tests of all pairs; those that are not tried are over at once."""
        feed = self.feed
        assert feed is not None

        def one(key: Array, here: PyTree, there: PyTree, cooling: Array) -> tuple[PyTree, PyTree]:
            key_rule, key_feed = jax.random.split(key)
            between = _between(model, cooling)
            known = between.known_change(here, there, with_reach=self.rule.needs.row_bounds)
            # What an expansion knows counts, the prior does not: it is the same on both rungs.
            offset = known.offset - between.log_prior_change(here, there)
            question = Question(here, there, offset.astype(jnp.result_type(float)), time, known.reach, drawn=feed.drawn)
            return self.rule.init(key_rule, question, between), feed.start(key_feed)

        count = rest.temperatures.shape[0]
        here, there = _pairs(rest.positions)
        keys = jax.random.split(key, count - 1)
        evidence, cursor = jax.vmap(one)(keys, here, there, rest.cooling(model))
        return OnSomeRows(
            rest, evidence, cursor, ~rest.tried, jnp.ones(count - 1, bool), jnp.zeros(count - 1, jnp.int32)
        )

    def observe(self, state: OnSomeRows, model: Model, window: Source) -> tuple[OnSomeRows, Bool[Array, ""]]:
        """One window for every pair that is undecided."""

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

    def swapped(self, state: OnSomeRows) -> Swapped:
        """As the rule says."""
        accept = jax.vmap(lambda evidence: self.rule.verdict(evidence).accept)(state.evidence)
        if (energies := state.facing.energies) is None:
            energies = jnp.full(state.facing.temperatures.shape, jnp.nan, jnp.result_type(float))
        stats = jax.vmap(self.rule.stats)(state.evidence) | {"used_all_rows": state.rows >= self._all_rows}
        return Swapped(accept & state.finite & state.facing.tried, state.rows, energies, stats)

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
