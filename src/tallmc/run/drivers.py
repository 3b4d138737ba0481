"""The two ways to move chains: one at a time, or all of them by rounds. The chains are the same."""

import abc
import functools
import operator
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from tallmc.run.chain import Chain, Problem, conclude_transition, observe_until_decided, observe_window
from tallmc.run.native import native
from tallmc.run.records import Layout, Record, pack, ring_size

_SECONDS_PER_BLOCK = 0.3  # a progress bar that moves three times a second, and a Ctrl-C that is heard as soon


class Driver(eqx.Module):
    """Moves chains in blocks; between blocks the host looks on."""

    @abc.abstractmethod
    def seconds_per_block(self, num_chains: int) -> float:
        """How long a block should take: short to look on often, long beside what it takes to begin one."""

    @abc.abstractmethod
    def capacity(self, num_chains: int, layout: Layout) -> int:
        """Draws of each chain that the device keeps before the host must fetch them; a power of two."""

    @abc.abstractmethod
    def load(self, problem: Problem, chains: Chain, records: Record) -> Any:
        """Takes over stacked chains and records (leading axis: chain), and makes ready to move them."""

    @abc.abstractmethod
    def advance(self, problem: Problem, work: Any, until: int, most: int) -> Any:
        """Moves every chain to at least `until` transitions, and none beyond `most`."""

    @abc.abstractmethod
    def finished(self, work: Any) -> Int[np.ndarray, " chains"]:
        """Transitions each chain has made."""

    @abc.abstractmethod
    def chains(self, work: Any) -> Chain:
        """All chains as they are now, with a leading axis of chains, so that another driver can take them over."""

    @abc.abstractmethod
    def peek(self, work: Any, start: int, stop: int) -> dict[str, np.ndarray]:
        """Records of some of these recent draws, for the progress bar."""

    @abc.abstractmethod
    def fetch(self, work: Any, start: int, stop: int) -> dict[str, np.ndarray]:
        """Records of the draws from `start` to `stop` of all chains, (chain, draw, ...), out of their ring."""


def pick_driver() -> Driver:
    """One chain at a time on a CPU, where branches are cheap; all together on an accelerator, where width is."""
    return ChainByChain() if jax.default_backend() == "cpu" else Together()


def _from_ring(array: np.ndarray, start: int, stop: int, axis: int) -> np.ndarray:
    """Copies draws out of a ring."""
    return np.take(array, np.arange(start, stop) & (array.shape[axis] - 1), axis=axis)


class Pieces(NamedTuple):
    """Work of `ChainByChain`: a compiled loop, and one chain with its records a piece."""

    loop: Callable[..., tuple[Chain, Record]]
    pieces: list[tuple[Chain, Record]]


class ChainByChain(Driver):
    """Runs each chain in a loop of its own, with real branches; chains share out the CPU cores.

    Args:
        num_threads: Chains moved at the same time; as many as there are cores if left out.
        rounds: Rounds after which a compiled loop comes back to the host, even in the middle of a test.
    """

    num_threads: int | None = None
    rounds: int = 2**22

    def seconds_per_block(self, num_chains: int) -> float:
        """Each chain is a call of its own, at about a millisecond."""
        return _SECONDS_PER_BLOCK + 0.01 * num_chains

    def capacity(self, num_chains: int, layout: Layout) -> int:
        """As many as 16 MiB hold, for each chain: how many chains there are does not matter to the loop of one."""
        del num_chains
        return ring_size(layout.num_bytes, 2**24)

    def load(self, problem: Problem, chains: Chain, records: Record) -> Pieces:
        """One piece of work a chain. The loop is compiled here, once, before any threads start."""
        count = chains.finished.shape[0]
        pieces = [jax.tree.map(operator.itemgetter(i), (chains, records)) for i in range(count)]
        return Pieces(_compiled_loop(problem, *pieces[0]), pieces)

    def advance(self, problem: Problem, work: Pieces, until: int, most: int) -> Pieces:
        """Moves every chain to exactly `until` transitions."""
        del most
        target, rounds = jnp.int32(until), jnp.int32(self.rounds)

        def move(piece: tuple[Chain, Record]) -> tuple[Chain, Record]:
            while int(piece[0].finished) < until:
                piece = work.loop(problem, *piece, target, rounds)
            return piece

        with ThreadPoolExecutor(self.num_threads or os.cpu_count()) as pool:
            return Pieces(work.loop, list(pool.map(move, work.pieces)))

    def finished(self, work: Pieces) -> Int[np.ndarray, " chains"]:
        """Transitions each chain has made."""
        return np.asarray([chain.finished for chain, _ in work.pieces])

    def chains(self, work: Pieces) -> Chain:
        """Stacks the chains of all pieces."""
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(chain for chain, _ in work.pieces))

    def peek(self, work: Pieces, start: int, stop: int) -> dict[str, np.ndarray]:
        """Looks at the first chain."""
        return {name: _from_ring(np.asarray(array), start, stop, 0) for name, array in work.pieces[0][1].items()}

    def fetch(self, work: Pieces, start: int, stop: int) -> dict[str, np.ndarray]:
        """Copies out of every chain's own ring."""
        records = [record for _, record in work.pieces]
        return {
            name: np.stack([_from_ring(np.asarray(record[name]), start, stop, 0) for record in records])
            for name in records[0]
        }


_Carry = tuple[Chain, Record, Array]  # the last: rounds that are left


def _loop(
    problem: Problem, chain: Chain, record: Record, until: Int[Array, ""], rounds: Int[Array, ""]
) -> tuple[Chain, Record]:
    """Moves one chain to `until` transitions, or for so many rounds; then it may stop inside a test."""
    capacity = jax.tree.leaves(record)[0].shape[0]

    def unfinished(carry: _Carry) -> Array:
        return (carry[0].finished < until) & (carry[2] > 0)

    def transition(carry: _Carry) -> _Carry:
        observed, record, rounds = carry
        observed, done, rounds = observe_until_decided(problem, observed, rounds)
        concluded, draw = conclude_transition(problem, observed)
        chain = jax.tree.map(lambda new, old: jnp.where(done, new, old), concluded, observed)
        # Warm-up draws land on the first slot, where the first draw that counts replaces them.
        slot = jnp.maximum(concluded.finished - 1 - problem.num_warmup, 0) & (capacity - 1)
        slot = jnp.where(done, slot, capacity)
        write = lambda array, new: array.at[slot].set(new, mode="drop")  # noqa: E731
        return chain, jax.tree.map(write, record, pack(draw)), rounds

    chain, record, _ = jax.lax.while_loop(unfinished, transition, (chain, record, rounds))
    return chain, record


_LARGEST_NATIVE_WINDOW = 256  # measured: beyond it XLA's own kernels win, because they use wider vectors
_thunk_loop = eqx.filter_jit(_loop)
_native_loop = functools.cache(lambda: native(_loop))  # when it is needed: it asks the backend what it can do


def _compiled_loop(problem: Problem, chain: Chain, record: Record) -> Callable[..., tuple[Chain, Record]]:
    """The loop in its faster form. A chain that is told to go nowhere compiles it."""
    nowhere = chain.finished, jnp.int32(0)
    if problem.feed.batch_size <= _LARGEST_NATIVE_WINDOW:
        try:
            _native_loop()(problem, chain, record, *nowhere)
            return _native_loop()
        except jax.errors.JaxRuntimeError:  # an operation that cannot be part of one piece
            pass
    _thunk_loop(problem, chain, record, *nowhere)
    return _thunk_loop


class Together(Driver):
    """Runs all chains in one vectorised round after another. No chain waits for another's test to end.

    Args:
        rounds: Rounds in a compiled block.
    """

    rounds: int = eqx.field(default=256, static=True)

    def seconds_per_block(self, num_chains: int) -> float:
        """All chains are one call."""
        del num_chains
        return _SECONDS_PER_BLOCK

    def capacity(self, num_chains: int, layout: Layout) -> int:
        """As many as a gibibyte holds of all chains."""
        return ring_size(num_chains * layout.num_bytes, 2**30)

    def load(self, problem: Problem, chains: Chain, records: Record) -> tuple[Chain, Record]:
        """Stacked as they are, in memory of their own: a block writes over what it is given."""
        del problem
        return jax.tree.map(jnp.copy, chains), records

    def advance(self, problem: Problem, work: tuple[Chain, Record], until: int, most: int) -> tuple[Chain, Record]:
        """Moves the chains until the slowest has made `until` transitions; the others are further on."""
        limit = jnp.int32(most)
        while (behind := until - int(self.finished(work).min())) > 0:
            # A transition takes a round at least, so these rounds are needed: no look in between.
            for _ in range(max(1, behind // self.rounds)):
                work = _rounds((problem, limit), *work, self.rounds)
        return work

    def finished(self, work: tuple[Chain, Record]) -> Int[np.ndarray, " chains"]:
        """Transitions each chain has made."""
        return np.asarray(work[0].finished)

    def chains(self, work: tuple[Chain, Record]) -> Chain:
        """The chains are stacked already."""
        return work[0]

    def peek(self, work: tuple[Chain, Record], start: int, stop: int) -> dict[str, np.ndarray]:
        """Looks at the last draw that all chains have."""
        del start
        capacity = jax.tree.leaves(work[1])[0].shape[1]
        slot = jnp.int32((stop - 1) & (capacity - 1))  # a traced index: a new one each time would be compiled each time
        return {name: np.asarray(jnp.take(array, slot, axis=1))[:, None] for name, array in work[1].items()}

    def fetch(self, work: tuple[Chain, Record], start: int, stop: int) -> dict[str, np.ndarray]:
        """Copies out of the one ring of all chains."""
        return {name: _from_ring(np.asarray(array), start, stop, 1) for name, array in work[1].items()}


@eqx.filter_jit(donate="all-except-first")
def _rounds(kept: tuple[Problem, Int[Array, ""]], chains: Chain, records: Record, rounds: int) -> tuple[Chain, Record]:
    """So many rounds of all chains, none of which goes beyond a limit. Chains and records are used up."""
    problem, limit = kept
    capacity = jax.tree.leaves(records)[0].shape[1]
    which = jnp.arange(chains.finished.shape[0])

    def round_of_one(chain: Chain) -> tuple[Chain, Array, Record]:
        observed, done = observe_window(problem, chain)
        concluded, draw = conclude_transition(problem, observed)
        moved = jax.tree.map(lambda new, old: jnp.where(done, new, old), concluded, observed)
        # A chain that is as far as it may go stands still, so that its state is that of its last draw.
        unfinished = chain.finished < limit
        still = chain._replace(round=observed.round)
        chain = jax.tree.map(lambda new, old: jnp.where(unfinished, new, old), moved, still)
        index = moved.finished - 1 - problem.num_warmup
        slot = jnp.where(done & unfinished & (index >= 0), index & (capacity - 1), capacity)
        return chain, slot, pack(draw)

    def round_of_all(_: Array, carry: tuple[Chain, Record]) -> tuple[Chain, Record]:
        chains, records = carry
        chains, slots, new = jax.vmap(round_of_one)(chains)
        # No chain is written out of bounds: those slots belong to warm-up, or to tests still going on.
        write = lambda array, values: array.at[which, slots].set(values, mode="drop", unique_indices=True)  # noqa: E731
        return chains, jax.tree.map(write, records, new)

    # Two rounds in a row need no copies of the state in between; that is a tenth of a round on a GPU.
    unroll = 1 if jax.default_backend() == "cpu" else 2
    return jax.lax.fori_loop(0, rounds, round_of_all, (chains, records), unroll=unroll)
