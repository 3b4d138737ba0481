"""Neighbouring rungs of a ladder that one kernel moves: side by side, each at its own temperature."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc.feed import Drawn, Feed, Source
from tallmc.kernel import Kernel
from tallmc.kernel_parts import rule_needs
from tallmc.metropolis import MetropolisHastings
from tallmc.numerics.gains import tuning_gain
from tallmc.posterior import Model
from tallmc.remembering import KnownLikelihood, Remembering


class Climbing(eqx.Module):
    """Rungs on their way through a scan; every leaf has a leading axis of rungs.

    Args:
        key: Of this scan.
        rest: Where a rung was when its current transition began; once it has made them all, where it ended.
        test: Of the current transition.
        cursor: The rows that it sees next.
        made: Transitions of this scan so far.
        rows: That they took.
        last_rows: That the last of them took.
        evaluations: Of the likelihood of one row, or of its gradient.
        nonfinite: Whether some proposal had a log ratio that was not finite.
        accepted: Whether the last transition moved the rung.
        stats: What else is told of it.
    """

    key: Array
    rest: PyTree
    test: PyTree
    cursor: PyTree
    made: Int[Array, " rungs"]
    rows: Int[Array, " rungs"]
    last_rows: Int[Array, " rungs"]
    evaluations: Real[Array, " rungs"]
    nonfinite: Bool[Array, " rungs"]
    accepted: Bool[Array, " rungs"]
    stats: dict[str, Any]


class Rungs(eqx.Module):
    """A kernel, and how many rungs of a ladder it moves, one above the other.

    Args:
        kernel: Moves each of them.
        count: How many there are.
        moves: Transitions of each in a scan.
        num_warmup: Scans of warm-up.
        feed: Where the kernel's rows come from, once that is known.
    """

    kernel: Kernel
    count: int = eqx.field(static=True)
    moves: int = eqx.field(static=True)
    num_warmup: Int[Any, ""]
    feed: Feed | None = None

    def init(self, position: PyTree) -> PyTree:
        """All rungs at rest in one place."""
        rest = self.kernel.init(position)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.count, *jnp.shape(leaf))), rest)

    def positions(self, rest: PyTree) -> PyTree:
        """Of all rungs at rest."""
        return jax.vmap(self.kernel.position)(rest)

    def known_likelihoods(self, rest: PyTree) -> KnownLikelihood | None:
        """Of all rungs at rest, with the level that they have in common; None if the kernel does not know."""
        if not isinstance(self.kernel, Remembering):
            return None
        return jax.vmap(self.kernel.known_likelihood, out_axes=KnownLikelihood(0, None))(rest)  # pyright: ignore

    def moved(
        self,
        rest: PyTree,
        positions: PyTree,
        elsewhere: Bool[Array, " rungs"],
        energies: Real[Array, " rungs"] | None = None,
    ) -> PyTree:
        """Rungs put elsewhere, but for those that stay; with the log likelihoods there, if these are known."""
        if energies is None or not isinstance(self.kernel, Remembering):
            return _chosen(elsewhere, jax.vmap(self.kernel.moved)(rest, positions), rest)
        return _chosen(elsewhere, jax.vmap(self.kernel.moved_to_known)(rest, positions, energies), rest)

    def model(self, model: Model, temperature: Real[Array, ""]) -> Model:
        """The model of a rung, such that this kernel samples at that temperature, whatever its own is."""
        kernel = self.kernel
        own = kernel.rule.promise.inverse_temperature(model.num_rows) if isinstance(kernel, MetropolisHastings) else 1.0
        return model.heated(temperature * own)

    def begin(
        self, key: Array, rest: PyTree, model: Model, temperatures: Real[Array, " rungs"], scan: Int[Array, ""]
    ) -> Climbing:
        """All rungs at the beginning of their first transition of a scan."""
        assert self.feed is not None
        made = jnp.zeros(self.count, jnp.int32)
        test, cursor = self._begin(key, rest, model, temperatures, scan, made)
        info = jax.eval_shape(jax.vmap(lambda t: self.kernel.settle(t, jnp.zeros((), jnp.result_type(float)))[1]), test)
        none = jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), info)
        evaluations = jnp.zeros(self.count, jnp.result_type(float))
        return Climbing(
            key, rest, test, cursor, made, made, made, evaluations, none.nonfinite, none.accepted, none.stats
        )

    def _begin(
        self, key: Array, rest: PyTree, model: Model, temperatures: Array, scan: Array, made: Array
    ) -> tuple[PyTree, PyTree]:
        def one(key: Array, rest: PyTree, temperature: Array, made: Array) -> tuple[PyTree, PyTree]:
            key_kernel, key_feed = jax.random.split(jax.random.fold_in(key, made))
            test = self.kernel.begin(key_kernel, rest, self.model(model, temperature), scan * self.moves + made)
            assert self.feed is not None
            return test, self.feed.start(key_feed, self.kernel.wants_every_row(test))

        return jax.vmap(one)(jax.random.split(key, self.count), rest, temperatures, made)

    def used_all_rows(self, state: Climbing, num_rows: int) -> Bool[Array, " rungs"]:
        """Whether the last transitions did; as many draws with replacement as there are rows are not all rows."""
        assert self.feed is not None
        each_once = self.feed.drawn is not Drawn.BY_WEIGHT or rule_needs(self.kernel).row_bounds
        return (state.last_rows >= num_rows) & each_once

    def observe(
        self, state: Climbing, model: Model, temperatures: Real[Array, " rungs"], source: Source, scan: Int[Array, ""]
    ) -> Climbing:
        """One round of every rung that has transitions left: one look, and what follows if that was enough."""

        def look(test: PyTree, cursor: PyTree, temperature: Array) -> tuple[PyTree, PyTree, Array]:
            seen, done = self.kernel.observe(test, self.model(model, temperature), source.read(cursor))
            return seen, source.feed.advance(cursor), done

        busy = state.made < self.moves
        test, cursor, done = jax.vmap(look)(state.test, state.cursor, temperatures)
        test, cursor = _chosen(busy, (test, cursor), (state.test, state.cursor))
        state = dataclasses.replace(state, test=test, cursor=cursor)
        done &= busy
        state = jax.lax.cond(jnp.any(done), lambda: self._settled(state, done, scan), lambda: state)
        if self.moves == 1:
            return state
        again = done & (state.made < self.moves)

        def begin() -> Climbing:
            new = self._begin(state.key, state.rest, model, temperatures, scan, state.made)
            test, cursor = _chosen(again, new, (state.test, state.cursor))
            return dataclasses.replace(state, test=test, cursor=cursor)

        return jax.lax.cond(jnp.any(again), begin, lambda: state)

    def _settled(self, state: Climbing, done: Bool[Array, " rungs"], scan: Int[Array, ""]) -> Climbing:
        gains = tuning_gain(scan * self.moves + state.made, self.num_warmup * self.moves)
        rest, info = jax.vmap(self.kernel.settle)(state.test, gains)
        finest = state.evaluations.dtype
        # Two likelihoods a row, at both ends of a step; or as many as there were gradients, or as the kernel says.
        each = info.stats["gradients"].astype(finest) if "gradients" in info.stats else jnp.asarray(2, finest)
        evaluations = info.stats.get("evaluations", each * info.rows.astype(finest))
        return Climbing(
            state.key,
            _chosen(done, rest, state.rest),
            state.test,
            state.cursor,
            state.made + done.astype(jnp.int32),
            state.rows + jnp.where(done, info.rows, 0),
            jnp.where(done, info.rows, state.last_rows),
            state.evaluations + jnp.where(done, evaluations, 0),
            state.nonfinite | (done & info.nonfinite),
            jnp.where(done, info.accepted, state.accepted),
            _chosen(done, info.stats, state.stats),
        )


def _chosen(which: Bool[Array, " rungs"], new: PyTree, old: PyTree) -> PyTree:
    """For each rung the new state or the old one."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(which.reshape(which.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(choose, new, old)
