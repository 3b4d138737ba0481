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

from tallmc.run.chain import Chain, Problem, conclude_transition, observe_window
from tallmc.run.native import native
from tallmc.run.records import Record, pack

_SECONDS_PER_BLOCK = 0.3


class Driver(eqx.Module):
    """Moves chains in blocks; between blocks the host looks on."""

    @abc.abstractmethod
    def seconds_per_block(self, num_chains: int) -> float:
        """How long a block should take: short to look on often, long beside what it takes to begin one."""

    @abc.abstractmethod
    def load(self, problem: Problem, chains: Chain, records: Record) -> Any:
        """Takes over stacked chains and records (leading axis: chain), and makes ready to move them."""

    @abc.abstractmethod
    def advance(self, problem: Problem, work: Any, until: int) -> Any:
        """Moves every chain to about `until` transitions, to exactly as many if its records end there."""

    @abc.abstractmethod
    def finished(self, work: Any) -> Int[np.ndarray, " chains"]:
        """Transitions each chain has made."""

    @abc.abstractmethod
    def chains(self, work: Any) -> Chain:
        """All chains, stacked."""

    @abc.abstractmethod
    def peek(self, work: Any, start: int, stop: int) -> dict[str, np.ndarray]:
        """Records of some recent draws, for the progress bar."""

    @abc.abstractmethod
    def unload(self, work: Any) -> tuple[Chain, dict[str, np.ndarray]]:
        """Hands stacked chains and records back."""


def pick_driver() -> Driver:
    """One chain at a time on a CPU, where branches are cheap; all together on an accelerator, where width is."""
    return ChainByChain() if jax.default_backend() == "cpu" else Together()


class Pieces(NamedTuple):
    """Work of `ChainByChain`: a compiled loop, and one chain with its records a piece."""

    loop: Callable[..., tuple[Chain, Record]]
    pieces: list[tuple[Chain, Record]]


class ChainByChain(Driver):
    """Runs each chain in a loop of its own, with real branches; chains share out the CPU cores.

    Args:
        num_threads: Chains moved at the same time; as many as there are cores if left out.
    """

    num_threads: int | None = None

    def seconds_per_block(self, num_chains: int) -> float:
        """Each chain is a call of its own, at about a millisecond."""
        return _SECONDS_PER_BLOCK + 0.01 * num_chains

    def load(self, problem: Problem, chains: Chain, records: Record) -> Pieces:
        """One piece of work a chain. The loop is compiled here, once, before any threads start."""
        count = chains.finished.shape[0]
        pieces = [jax.tree.map(operator.itemgetter(i), (chains, records)) for i in range(count)]
        return Pieces(_compiled_loop(problem, *pieces[0]), pieces)

    def advance(self, problem: Problem, work: Pieces, until: int) -> Pieces:
        """Moves every chain to exactly `until` transitions."""
        target = jnp.int32(until)

        def move(piece: tuple[Chain, Record]) -> tuple[Chain, Record]:
            return jax.block_until_ready(work.loop(problem, *piece, target))

        with ThreadPoolExecutor(self.num_threads or os.cpu_count()) as pool:
            return Pieces(work.loop, list(pool.map(move, work.pieces)))

    def finished(self, work: Pieces) -> Int[np.ndarray, " chains"]:
        """Transitions each chain has made."""
        return np.asarray([chain.finished for chain, _ in work.pieces])

    def chains(self, work: Pieces) -> Chain:
        """Stacks them."""
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(chain for chain, _ in work.pieces))

    def peek(self, work: Pieces, start: int, stop: int) -> dict[str, np.ndarray]:
        """Looks at the first chain."""
        _, record = work.pieces[0]
        return {name: np.asarray(array)[max(start, 0) : max(stop, 0)] for name, array in record.items()}

    def unload(self, work: Pieces) -> tuple[Chain, dict[str, np.ndarray]]:
        """Stacks the chains again."""
        return self.chains(work), jax.tree.map(lambda *leaves: np.stack(leaves), *(record for _, record in work.pieces))


def _loop(problem: Problem, chain: Chain, record: Record, until: Int[Array, ""]) -> tuple[Chain, Record]:
    """Moves one chain to `until` transitions."""

    def transition(carry: tuple[Chain, Record]) -> tuple[Chain, Record]:
        chain, record = carry
        chain, _ = jax.lax.while_loop(
            lambda carry: ~carry[1], lambda carry: observe_window(problem, carry[0]), (chain, jnp.bool_(False))
        )
        chain, draw = conclude_transition(problem, chain)
        # Warm-up draws land on the first slot, where the first draw that counts replaces them.
        slot = jnp.maximum(chain.finished - 1 - problem.num_warmup, 0)
        return chain, jax.tree.map(lambda array, new: array.at[slot].set(new), record, pack(draw))

    return jax.lax.while_loop(lambda carry: carry[0].finished < until, transition, (chain, record))


_LARGEST_NATIVE_WINDOW = 256  # measured: beyond it XLA's own kernels win, because they use wider vectors
_thunk_loop = eqx.filter_jit(_loop)
_native_loop = functools.cache(lambda: native(_loop))  # when it is needed: it asks the backend what it can do


def _compiled_loop(problem: Problem, chain: Chain, record: Record) -> Callable[..., tuple[Chain, Record]]:
    """The loop in its faster form. A chain that is told to go nowhere compiles it."""
    if problem.feed.batch_size <= _LARGEST_NATIVE_WINDOW:
        try:
            _native_loop()(problem, chain, record, chain.finished)
            return _native_loop()
        except jax.errors.JaxRuntimeError:  # an operation that cannot be part of one piece
            pass
    _thunk_loop(problem, chain, record, chain.finished)
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

    def load(self, problem: Problem, chains: Chain, records: Record) -> tuple[Chain, Record]:
        """Stacked as they are."""
        del problem
        return chains, records

    def advance(self, problem: Problem, work: tuple[Chain, Record], until: int) -> tuple[Chain, Record]:
        """Moves the chains until the slowest has made `until` transitions; the others are further on."""
        while (behind := until - int(self.finished(work).min())) > 0:
            # A transition takes a round at least, so these rounds are needed: no look in between.
            for _ in range(max(1, behind // self.rounds)):
                work = _rounds(problem, *work, self.rounds)
        return work

    def finished(self, work: tuple[Chain, Record]) -> Int[np.ndarray, " chains"]:
        """Transitions each chain has made."""
        return np.asarray(work[0].finished)

    def chains(self, work: tuple[Chain, Record]) -> Chain:
        """As they are."""
        return work[0]

    def peek(self, work: tuple[Chain, Record], start: int, stop: int) -> dict[str, np.ndarray]:
        """Looks at the last draw that all chains have."""
        del start
        last = jnp.int32(max(stop - 1, 0))  # a traced index: a new one each time would be compiled each time
        return {name: np.asarray(jnp.take(array, last, axis=1))[:, None] for name, array in work[1].items()}

    def unload(self, work: tuple[Chain, Record]) -> tuple[Chain, dict[str, np.ndarray]]:
        """Fetches the records."""
        return work[0], jax.tree.map(np.asarray, work[1])


@eqx.filter_jit(donate="all-except-first")
def _rounds(problem: Problem, chains: Chain, records: Record, rounds: int) -> tuple[Chain, Record]:
    num_draws = jax.tree.leaves(records)[0].shape[1]
    total = problem.num_warmup + num_draws
    which = jnp.arange(chains.finished.shape[0])

    def round_of_one(chain: Chain) -> tuple[Chain, Array, Record]:
        observed, done = observe_window(problem, chain)
        concluded, draw = conclude_transition(problem, observed)
        moved = jax.tree.map(lambda new, old: jnp.where(done, new, old), concluded, observed)
        # A chain that has all its draws stands still, so that its state is that of its last draw.
        unfinished = chain.finished < total
        chain = jax.tree.map(lambda new, old: jnp.where(unfinished, new, old), moved, chain)
        slot = jnp.where(done & unfinished, moved.finished - 1 - problem.num_warmup, -1)
        return chain, jnp.where(slot < 0, num_draws, slot), pack(draw)

    def round_of_all(_: Array, carry: tuple[Chain, Record]) -> tuple[Chain, Record]:
        chains, records = carry
        chains, slots, new = jax.vmap(round_of_one)(chains)
        # No chain is written out of bounds: those slots belong to warm-up, or to tests still going on.
        write = lambda array, values: array.at[which, slots].set(values, mode="drop", unique_indices=True)  # noqa: E731
        return chains, jax.tree.map(write, records, new)

    # Two rounds in a row need no copies of the state in between; that is a tenth of a round on a GPU.
    unroll = 1 if jax.default_backend() == "cpu" else 2
    return jax.lax.fori_loop(0, rounds, round_of_all, (chains, records), unroll=unroll)
