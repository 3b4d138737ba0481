"""States of the past, kept by rung and by energy ring in arrays of fixed shape."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree, Real

# Times a ring's slots: so many of the last states that were offered to it are remembered. A judgement: enough that
# what is kept is not just the last few, few enough that warm-up forgets where chains began.
_REMEMBERED = 3


class Visited(eqx.Module):
    """A state, with what is known of it; leaves have a leading axis of rungs where there are several.

    Args:
        position: Where it is.
        energy: Log likelihood there, from the level of the store.
        mark: How far it has come: see `compose.equi_energy`.
    """

    position: PyTree
    energy: Real[Array, "..."]
    mark: Int[Array, "..."]


class RingStore(eqx.Module):
    """States that one rung has visited; stores of several rungs have a leading axis more.

    Args:
        states: With axes for rings and slots.
        offered: For each ring, how many states were offered to it while the store was filled.
    """

    states: Visited
    offered: Int[Array, "*pairs rings"]

    @classmethod
    def empty(cls, like: Visited, num_rings: int, slots: int) -> "RingStore":
        """Stores with nothing in them, for states of such shapes; their leading axis stays."""

        def room(leaf: Array) -> Array:
            return jnp.zeros((leaf.shape[0], num_rings, slots, *leaf.shape[1:]), leaf.dtype)

        return cls(jax.tree.map(room, like), jnp.zeros((like.mark.shape[0], num_rings), jnp.int32))

    @property
    def slots(self) -> int:
        """How many states fit into a ring."""
        return self.states.mark.shape[-1]

    def count(self, ring: Int[Array, ""]) -> Int[Array, ""]:
        """How many states a ring has."""
        return jnp.minimum(self.offered[ring], self.slots)

    def slot(self, ring: Int[Array, ""], uniform: Real[Array, ""]) -> Int[Array, ""]:
        """One of the slots of a ring that have a state in them, all alike; the first if none has."""
        count = self.count(ring)
        return jnp.clip((uniform * count.astype(uniform.dtype)).astype(jnp.int32), 0, jnp.maximum(count - 1, 0))

    def at(self, ring: Int[Array, ""], slot: Int[Array, ""]) -> Visited:
        """The state in a slot."""
        return jax.tree.map(lambda leaf: leaf[ring, slot], self.states)

    def put(self, ring: Int[Array, ""], slot: Int[Array, ""], state: Visited, really: Bool[Array, ""]) -> "RingStore":
        """The store with a state in a slot, in place of what was there, if it is to be."""

        def put(leaf: Array, new: Array) -> Array:
            return leaf.at[ring, slot].set(jnp.where(really, new, leaf[ring, slot]))

        return RingStore(jax.tree.map(put, self.states, state), self.offered)

    def offer(
        self, ring: Int[Array, ""], state: Visited, uniform: Real[Array, ""], really: Bool[Array, ""]
    ) -> "RingStore":
        """Keeps a copy of a state, or does not: each that was offered is in the ring with the same chance.

        Reservoir sampling (Vitter, 1985, Algorithm R); but of what was offered long ago less is kept, because chains
        began somewhere else.
        """
        before = self.offered[ring]
        horizon = jnp.minimum(before + 1, _REMEMBERED * self.slots)
        drawn = (uniform * horizon.astype(uniform.dtype)).astype(jnp.int32)
        slot = jnp.where(before < self.slots, before, drawn)
        kept = self.put(ring, jnp.minimum(slot, self.slots - 1), state, really & (slot < self.slots))
        return RingStore(kept.states, self.offered.at[ring].add(really.astype(jnp.int32)))


def swapped_at_rest(
    key: Array, lower: RingStore, upper: RingStore, cooling: Real[Array, ""], level: Callable[[Array], Array]
) -> tuple[RingStore, RingStore]:
    """Swaps of states at rest between the stores of two neighbouring rungs, each with one of the same ring.

    As many pairs are tried as the smaller of both rings has states. Who is paired with whom is drawn; it depends on
    nothing but how many states there are.

    Args:
        key: For all that is drawn.
        lower: Of the colder rung.
        upper: Of the hotter one.
        cooling: By how much the colder one's inverse temperature exceeds the other's.
        level: Draws, from a key, what a log ratio must exceed.
    """

    def of_ring(key: Array, low: Visited, high: Visited, few: Array, many: Array) -> tuple[Visited, Visited]:
        key_low, key_high, key_level = jax.random.split(key, 3)
        number = jnp.arange(lower.slots, dtype=jnp.int32)
        here, there = (
            (number + jax.random.randint(k, (), 0, lower.slots * 1024, jnp.int32)) % jnp.maximum(count, 1)
            for k, count in ((key_low, few), (key_high, many))
        )
        a, b = jax.tree.map(lambda leaf: leaf[here], low), jax.tree.map(lambda leaf: leaf[there], high)
        levels = jax.vmap(level)(jax.random.split(key_level, lower.slots))
        agreed = (number < jnp.minimum(few, many)) & (cooling * (b.energy - a.energy) > levels)
        outside = jnp.int32(lower.slots)  # nothing is written there
        low = _written(low, jnp.where(agreed, here, outside), b)
        high = _written(high, jnp.where(agreed, there, outside), a)
        return low, high

    counts = (jnp.minimum(store.offered, store.slots) for store in (lower, upper))
    keys = jax.random.split(key, lower.offered.shape[0])
    low, high = jax.vmap(of_ring)(keys, lower.states, upper.states, *counts)
    return RingStore(low, lower.offered), RingStore(high, upper.offered)


def _written(states: Visited, slots: Int[Array, " n"], new: Visited) -> Visited:
    return jax.tree.map(lambda leaf, some: leaf.at[slots].set(some, mode="drop"), states, new)
