"""Equi-energy jumps: a rung of a ladder changes places with a state of the past of the next hotter rung."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc.acceptance.formulas import METROPOLIS
from tallmc.compose.exchange import Exchange, Exchanged, Facing
from tallmc.compose.ring_stores import RingStore, Visited, swapped_at_rest
from tallmc.feed import Drawn, Needs, Source
from tallmc.numerics.flat import as_device_array
from tallmc.posterior import Model

# Share of warm-up after which the last store, that of rung 1, begins to fill; the others begin before, evenly spread.
# A judgement.
_LAST_START = 0.5
_WAS_HOT, _CAME_DOWN = 1, 2  # marks of states: seen on the hottest rung, and since then on the coldest


class RingMemory(eqx.Module):
    """What is kept from scan to scan.

    Args:
        stores: Of all rungs but the coldest, from which nobody takes.
        marks: Of the states on the rungs.
    """

    stores: RingStore
    marks: Int[Array, " rungs"]


class InRings(eqx.Module):
    """Where the rungs are and whether they jump; and once they are known, the energies.

    Args:
        facing: The rungs.
        key: Of the jumps.
        jumps: Whether there are any.
        cooling: By how much the inverse temperature of each rung exceeds that of the next.
        edges: Of the rings, measured as `facing` measures log likelihoods.
        energies: Log likelihoods of the rungs, as `facing` measures them; NaN if nobody asked.
        rows: That were read for these.
    """

    facing: Facing
    key: Array
    jumps: Bool[Array, ""]
    cooling: Real[Array, " pairs"]
    edges: Real[Array, " edges"]
    energies: Real[Array, " rungs"]
    rows: Int[Array, ""]


class EnergyRings(Exchange):
    """Equi-energy jumps (Kou, Zhou & Wong, 2006), such that they are exact with stores of any size.

    The energy of a state is minus its log likelihood on all rows, and `levels` cut the energies into rings. Each rung
    but the coldest has a store: for each ring, a number of states that it has visited. In a *jump*, rung k at x in ring
    j takes one of the states y in ring j of the store of rung k + 1, all with the same chance, and leaves x there
    instead, with probability `min(1, exp((1/T_k - 1/T_{k+1}) (l(y) - l(x))))`: a swap of parallel tempering, but with
    a state of the past and of about the same energy. Then every rung changes places with one of the states in its own
    store, of the ring that it is in, so that the store does not age.

    Kou, Zhou and Wong leave y in the store, and so their chains are right only in the limit of endless stores. Here
    states in ring j of the store of rung k are states of rung k, given ring j, and both moves leave the distribution of
    all states together as it is. That is a ladder with many more replicas than rungs, of which most are at rest.

    Stores are filled in warm-up, when states are copied into them (a reservoir: what is kept is a fair sample of what
    was offered). Hot rungs begin, each colder one later, so that it collects when states from above have reached it.
    After warm-up the number of states in a ring stays as it is.

    Args:
        levels: Between energy rings, increasing: one less than there are rings.
        slots: States that are kept of each ring of a rung. With more of them warm-up must be longer, until stores have
            forgotten where chains began: on the example of docs/tempering.md the Monte Carlo error of a mode's weight
            was .007 with 2, .011 with 5 and .022 with 20, for the same scans of one run each.
        probability: Of a scan with jumps. Where kernels do not know energies themselves, these cost a look at all rows,
            and jumps that are rare, after many moves, cost less.

    Example:
        >>> import tallmc as tm
        >>> walk = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.MHMinibatch())
        >>> tm.Ladder([1, 3, 10], walk, swaps=tm.EnergyRings([1210.0, 1225.0], probability=0.1), moves=10).num_rungs
        3
    """

    follows: ClassVar = False
    levels: Real[np.ndarray, " edges"]
    probability: Real[Array, ""]
    slots: int = eqx.field(static=True)
    level: Real[Array, ""]
    edges: Real[Array, " edges"]
    num_warmup: Int[np.ndarray, ""]

    def __init__(self, levels: Sequence[float] | np.ndarray, slots: int = 2, probability: float = 1.0):
        heights = np.asarray(levels, float)
        if heights.ndim != 1 or not len(heights) or not np.all(np.isfinite(heights)) or np.any(np.diff(heights) <= 0):
            raise ValueError(f"levels must be one or more energies that increase, got {heights.tolist()}")
        if isinstance(slots, bool) or not isinstance(slots, int | np.integer) or slots < 1:
            raise ValueError(f"slots must be a whole number of at least 1, got {slots!r}")
        if not 0 < probability <= 1:
            raise ValueError(f"probability must be above 0 and at most 1, got {probability!r}")
        finest = jnp.result_type(float)
        self.levels, self.slots = heights, int(slots)
        self.probability = as_device_array(probability, finest)
        # Both are known once the number of rows is: see `prepared_for`.
        self.level, self.edges = as_device_array(0.0, finest), as_device_array(0 * heights, finest)
        self.num_warmup = np.asarray(0, np.int32)

    @property
    def needs(self) -> Needs:
        """All rows in one round."""
        return Needs(2**30, (Drawn.ALL_AT_ONCE,), every_row=True)

    @property
    def label(self) -> str:
        """What it does."""
        return "equi-energy jumps"

    def prepared_for(self, model: Model, num_warmup: int) -> "EnergyRings":
        """Measures energies from the lowest level: the same digits are then right however many rows there are."""
        heights, finest = np.asarray(self.levels, float), self.edges.dtype
        found = (
            as_device_array(-heights[0] / model.num_rows, finest),
            as_device_array(heights[0] - heights, finest),
            np.asarray(num_warmup, np.int32),
        )
        return eqx.tree_at(lambda rings: (rings.level, rings.edges, rings.num_warmup), self, found)

    def remembering(self, positions: PyTree) -> RingMemory:
        """Empty stores."""
        count = jax.tree.leaves(positions)[0].shape[0]
        marks = jnp.zeros(count, jnp.int32)
        states = Visited(positions, jnp.zeros(count, jnp.result_type(float)), marks)
        above = jax.tree.map(lambda leaf: leaf[1:], states)
        return RingMemory(RingStore.empty(above, len(self.levels) + 1, self.slots), marks)

    def begin(self, key: Array, facing: Facing, model: Model) -> InRings:
        """Draws whether there are jumps in this scan."""
        key_coin, key_jumps = jax.random.split(key)
        jumps = jax.random.uniform(key_coin, (), self.probability.dtype) < self.probability
        if (energies := facing.energies) is None:
            facing = dataclasses.replace(facing, level=self.level.astype(facing.level.dtype))
            energies = jnp.full(facing.temperatures.shape, jnp.nan, jnp.result_type(float))
        # The same in every scan, so that no state ever changes its ring.
        edges = self.edges - model.num_rows * (facing.level - self.level).astype(energies.dtype)
        cooling = facing.cooling(model).astype(energies.dtype)
        return InRings(facing, key_jumps, jumps, cooling, edges, energies, jnp.int32(0))

    def observe(
        self, state: InRings, memory: RingMemory, model: Model, window: Source
    ) -> tuple[InRings, Bool[Array, ""]]:
        """Looks at the energies, if there are jumps and the kernels do not know them."""
        del memory
        if state.facing.energies is not None:
            return state, jnp.bool_(True)
        rows: Any = window.read(jnp.int32(0))

        def look() -> tuple[Array, Array]:
            return rows.log_likelihoods(model, state.facing.level, state.facing.positions), rows.count

        energies, count = jax.lax.cond(state.jumps, look, lambda: (state.energies, jnp.int32(0)))
        return dataclasses.replace(state, energies=energies, rows=count), jnp.bool_(True)

    def energies(self, state: InRings) -> Real[Array, " rungs"]:
        """Those that were looked at."""
        return state.energies

    def exchanged(self, state: InRings, memory: RingMemory) -> Exchanged:
        """First all jumps, then all rungs with their own stores, then neighbouring stores."""
        facing, (key_jump, key_store, key_rest) = state.facing, jax.random.split(state.key, 3)
        known = jnp.where(state.jumps, state.energies, jnp.nan)
        rungs = Visited(facing.positions, known, memory.marks)
        tried, accepted, rungs, stores = self._jumped(key_jump, rungs, memory.stores, state)
        stores, above, changed = self._stored(key_store, stores, rungs, state)
        stores = _mingled(key_rest, stores, state.cooling[1:])
        nobody = jnp.zeros(1, bool)
        elsewhere = jnp.concatenate([accepted, nobody]) | jnp.concatenate([nobody, changed])
        rungs = jax.tree.map(lambda low, rest: jnp.concatenate([low[:1], rest]), rungs, above)
        marks, told = _travelled(rungs.mark)
        levels = jnp.asarray(self.levels, self.edges.dtype)
        told |= {"rung_ring": _ring(rungs.energy, state.edges), "ring_level": levels}
        energies = jnp.where(state.jumps, rungs.energy, state.energies)
        rows = jnp.full(tried.shape, state.rows)
        evaluations = energies.shape[0] * state.rows.astype(energies.dtype)
        memory = RingMemory(stores, marks)
        return Exchanged(rungs.position, energies, elsewhere, tried, accepted, rows, evaluations, memory, {}, told)

    def log_ratio(self, cooling: Real[Array, ""], here: Real[Array, ""], there: Real[Array, ""]) -> Real[Array, ""]:
        """Of a jump, given the log likelihoods of where the rung is and of what it would take."""
        return cooling * (there - here)

    def _jumped(
        self, key: Array, rungs: Visited, stores: RingStore, state: InRings
    ) -> tuple[Array, Array, Visited, RingStore]:
        """Every rung but the hottest with the store of the next."""

        def jump(
            key: Array, here: Visited, store: RingStore, cooling: Array
        ) -> tuple[Array, Array, Visited, RingStore]:
            key_slot, key_level = jax.random.split(key)
            ring = jnp.maximum(_ring(here.energy, state.edges), 0)
            slot = store.slot(ring, jax.random.uniform(key_slot, (), here.energy.dtype))
            there = store.at(ring, slot)
            tried = jnp.isfinite(here.energy) & (store.count(ring) > 0)
            ratio = self.log_ratio(cooling, here.energy, there.energy)
            accepted = tried & (ratio > _level(key_level))
            store = store.put(ring, slot, here, accepted)
            return tried, accepted, _either(accepted, there, here), store

        below = jax.tree.map(lambda leaf: leaf[:-1], rungs)
        keys = jax.random.split(key, state.cooling.shape[0])
        tried, accepted, below, stores = jax.vmap(jump)(keys, below, stores, state.cooling)
        rungs = jax.tree.map(lambda low, all_of_them: jnp.concatenate([low, all_of_them[-1:]]), below, rungs)
        return tried, accepted, rungs, stores

    def _stored(
        self, key: Array, stores: RingStore, rungs: Visited, state: InRings
    ) -> tuple[RingStore, Visited, Array]:
        """Every rung but the coldest with its own store."""
        scan = state.facing.scan
        filling = scan < self.num_warmup

        def store_one(key: Array, store: RingStore, here: Visited, open_: Array) -> tuple[RingStore, Visited, Array]:
            uniform = jax.random.uniform(key, (), here.energy.dtype)
            ring, finite = jnp.maximum(_ring(here.energy, state.edges), 0), jnp.isfinite(here.energy)
            slot = store.slot(ring, uniform)
            there, changes = store.at(ring, slot), ~filling & finite & (store.count(ring) > 0)
            swapped = store.put(ring, slot, here, changes)
            filled = swapped.offer(ring, here, uniform, filling & finite & open_)
            return filled, _either(changes, there, here), changes

        above = jax.tree.map(lambda leaf: leaf[1:], rungs)
        count = above.mark.shape[0]
        opened = scan >= self._opens(count)
        return jax.vmap(store_one)(jax.random.split(key, count), stores, above, opened)

    def _opens(self, count: int) -> Int[Array, " stores"]:
        """In which scan each store begins to fill: the hottest first."""
        shares = as_device_array(_LAST_START * np.arange(count, 0, -1) / count, self.edges.dtype)
        return (shares * jnp.asarray(self.num_warmup, shares.dtype)).astype(jnp.int32)


def _mingled(key: Array, stores: RingStore, cooling: Real[Array, " neighbours"]) -> RingStore:
    """Stores of neighbouring rungs swap states at rest: first of even pairs, then of odd ones."""
    for first, key_pairs in enumerate(jax.random.split(key)):
        count = (cooling.shape[0] - first + 1) // 2
        if not count:
            continue
        low, high = slice(first, first + 2 * count, 2), slice(first + 1, first + 1 + 2 * count, 2)
        lower, upper = (jax.tree.map(lambda leaf, some=some: leaf[some], stores) for some in (low, high))
        keys = jax.random.split(key_pairs, count)
        swap = jax.vmap(lambda k, a, b, c: swapped_at_rest(k, a, b, c, _level))
        lower, upper = swap(keys, lower, upper, cooling[low])
        stores = jax.tree.map(
            lambda leaf, a, b, low=low, high=high: leaf.at[low].set(a).at[high].set(b), stores, lower, upper
        )
    return stores


def _level(key: Array) -> Real[Array, ""]:
    """What the log ratio of a jump must exceed."""
    return METROPOLIS.level(key, jnp.zeros((), jnp.result_type(float)))


def _ring(energies: Real[Array, "*some"], edges: Real[Array, " edges"]) -> Int[Array, "*some"]:
    """The rings of log likelihoods; -1 for what is not a number."""
    rings = jnp.sum(energies[..., None] <= edges.reshape(*(1 for _ in energies.shape), -1), axis=-1, dtype=jnp.int32)
    return jnp.where(jnp.isfinite(energies), rings, -1)


def _either(which: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(which, a, b), new, old)


def _travelled(marks: Int[Array, " rungs"]) -> tuple[Int[Array, " rungs"], dict[str, Array]]:
    """Marks after a scan, and whether a state arrived at the coldest rung or came back to the hottest."""
    arrived, back = marks[0] == _WAS_HOT, marks[-1] == _CAME_DOWN
    marks = marks.at[-1].set(_WAS_HOT).at[0].set(jnp.where(arrived, _CAME_DOWN, marks[0]))
    return marks, {"arrived": arrived, "came_back": back}
