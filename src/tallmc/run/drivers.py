"""The two ways to move chains: one at a time, or all of them by rounds. The chains are the same."""

import abc
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from tallmc.feed.streamed import restaged
from tallmc.numerics.keys import stacked, unstacked
from tallmc.numerics.programs import program
from tallmc.posterior import Rows
from tallmc.posterior.rows_on_mesh import RowsOnMesh
from tallmc.posterior.spread import everywhere, mesh_of, replicated
from tallmc.run.chain import Chain, Problem, conclude_transition, draw_like, observe_until_decided, observe_window
from tallmc.run.native import native
from tallmc.run.records import SMALLEST_RING, Layout, Record, pack, ring_size
from tallmc.run.stages import stage_length, streamed_loop

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
    def prepare(self, problem: Problem, chains: Chain) -> None:
        """Compiles what moves such stacked chains; shapes may stand for their arrays."""

    @abc.abstractmethod
    def load(self, problem: Problem, chains: Chain, records: dict[str, jax.ShapeDtypeStruct]) -> Any:
        """Takes over stacked chains, makes records of these shapes (chain, draw, ...), and makes ready to move them."""

    @abc.abstractmethod
    def put(self, work: Any, start: int, block: dict[str, np.ndarray]) -> Any:
        """Puts records of draws from `start` on back into their ring, as `fetch` gave them."""

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


def pick_driver(rows: Rows | None = None) -> Driver:
    """One chain at a time on a CPU, where branches are cheap; all together on an accelerator, where width is.

    Devices that share rows move all chains together, so that a round is one message between them.
    """
    if isinstance(rows, RowsOnMesh):
        return Together()
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
        rounds: Rounds after which a compiled loop comes back to the host, once the test that it is in is decided.
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

    def prepare(self, problem: Problem, chains: Chain) -> None:
        """The loop of one chain, whatever their number."""
        layout, one = layout_of(problem, chains)
        _compiled_loop(problem, one, layout.shapes((self.capacity(1, layout),)))

    def load(self, problem: Problem, chains: Chain, records: dict[str, jax.ShapeDtypeStruct]) -> Pieces:
        """One piece of work a chain. The loop is compiled here, once, before any threads start."""
        blank = {name: np.zeros(like.shape, like.dtype) for name, like in records.items()}
        pieces = unstacked((chains, blank), chains.finished.shape[0])
        return Pieces(_compiled_loop(problem, *pieces[0]), pieces)

    def put(self, work: Pieces, start: int, block: dict[str, np.ndarray]) -> Pieces:
        """Into every chain's own ring."""
        pieces = []
        for number, (chain, record) in enumerate(work.pieces):
            record = {name: np.array(array) for name, array in record.items()}
            for name, array in record.items():
                draws = block[name][number]
                array[np.arange(start, start + len(draws)) & (len(array) - 1)] = draws
            pieces.append((chain, record))
        return Pieces(work.loop, pieces)

    def advance(self, problem: Problem, work: Pieces, until: int, most: int) -> Pieces:
        """Moves every chain to exactly `until` transitions."""
        del most
        if problem.feed.streamed:
            return self._advance_along_stream(problem, work, until)
        target, rounds = np.int32(until), np.int32(self.rounds)

        def move(piece: tuple[Chain, Record]) -> tuple[Chain, Record]:
            while int(piece[0].finished) < until:
                piece = work.loop(problem, *piece, target, rounds)
            return piece

        with ThreadPoolExecutor(self.num_threads or os.cpu_count()) as pool:
            return Pieces(work.loop, list(pool.map(move, work.pieces)))

    def _advance_along_stream(self, problem: Problem, work: Pieces, until: int) -> Pieces:
        """The same, stage by stage: the earliest that some chain still needs, until none needs any."""
        target, length, pieces = np.int32(until), stage_length(problem.feed), list(work.pieces)
        with ThreadPoolExecutor(self.num_threads or os.cpu_count()) as pool:
            while behind := [i for i, (chain, _) in enumerate(pieces) if int(chain.finished) < until]:
                number = min(int(pieces[i][0].round) // length for i in behind)
                staged = problem._replace(stage=restaged(problem.feed, problem.stage, number))
                end = (number + 1) * length

                def move(piece: tuple[Chain, Record], here: Problem = staged, end: int = end) -> tuple[Chain, Record]:
                    while int(piece[0].finished) < until and (left := end - int(piece[0].round)) > 0:
                        piece = work.loop(here, *piece, target, np.int32(left))
                    return piece

                here = [i for i in behind if int(pieces[i][0].round) < end]
                for i, moved in zip(here, pool.map(move, [pieces[i] for i in here]), strict=True):
                    pieces[i] = moved
        return Pieces(work.loop, pieces)

    def finished(self, work: Pieces) -> Int[np.ndarray, " chains"]:
        """Transitions each chain has made."""
        return np.asarray([chain.finished for chain, _ in work.pieces])

    def chains(self, work: Pieces) -> Chain:
        """Stacks the chains of all pieces."""
        return stacked([chain for chain, _ in work.pieces])

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
_UNLIMITED = 2**31 - 1


def _loop(
    problem: Problem, chain: Chain, record: Record, until: Int[Array, ""], rounds: Int[Array, ""]
) -> tuple[Chain, Record]:
    """Moves one chain to `until` transitions, or until the test in which it has made so many rounds is over."""
    capacity = jax.tree.leaves(record)[0].shape[0]

    def transition(carry: _Carry) -> _Carry:
        # A test goes on until it is decided, so no choice between two states of the chain is left to make.
        chain, record, rounds = carry
        chain, _, unused = observe_until_decided(problem, chain, jnp.int32(_UNLIMITED))
        chain, draw = conclude_transition(problem, chain)
        # Warm-up draws land on the first slot, where the first draw that counts replaces them.
        slot = jnp.maximum(chain.finished - 1 - problem.num_warmup, 0) & (capacity - 1)
        record = jax.tree.map(lambda array, new: array.at[slot].set(new), record, pack(draw))
        return chain, record, rounds - (_UNLIMITED - unused)

    def goes_on(carry: _Carry) -> Bool[Array, ""]:
        return (carry[0].finished < until) & (carry[2] > 0)

    chain, record, _ = jax.lax.while_loop(goes_on, transition, (chain, record, rounds))
    return chain, record


_LARGEST_NATIVE_WINDOW = 256  # measured: beyond it XLA's own kernels win, because they use wider vectors
_thunk_loop = program(_loop, name="loop")
_native_loop = native(_loop)
_thunk_stream = program(streamed_loop, name="streamed_loop")
_native_stream = native(streamed_loop)
_not_native: set[Any] = set()  # kinds of problems with an operation that cannot be part of one piece


def _compiled_loop(problem: Problem, chain: Chain, record: Record) -> Callable[..., tuple[Chain, Record]]:
    """The loop in its faster form, compiled. Shapes may stand for the arrays of chain and record."""
    arguments = problem, chain, record, np.int32(0), np.int32(0)
    # Look-ups gain nothing from wide vectors: a Gibbs update by windows of 500 took a third of the time this way.
    by_kernels, as_one = (_thunk_stream, _native_stream) if problem.feed.streamed else (_thunk_loop, _native_loop)
    small = problem.feed.looked_up or problem.feed.batch_size <= _LARGEST_NATIVE_WINDOW
    if small and (kind := jax.tree.structure(problem)) not in _not_native:
        try:
            as_one.prepare(*arguments)
            return as_one
        except jax.errors.JaxRuntimeError:
            _not_native.add(kind)
    by_kernels.prepare(*arguments)
    return by_kernels


def layout_of(problem: Problem, chains: Chain) -> tuple[Layout, Chain]:
    """How draws of these chains are laid out, and the shapes of one of them."""
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), chains)
    return Layout(draw_like(problem, one)), one


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

    def prepare(self, problem: Problem, chains: Chain) -> None:
        """A block of rounds of so many chains."""
        layout, _ = layout_of(problem, chains)
        count = chains.finished.shape[0]
        place = replicated(mesh_of(problem.stage))
        shapes = chains, layout.shapes((count, self.capacity(count, layout)))
        like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), shapes)
        _rounds.prepare(problem, np.int32(0), *like, self._rounds_of(problem))

    def load(self, problem: Problem, chains: Chain, records: dict[str, jax.ShapeDtypeStruct]) -> tuple[Chain, Record]:
        """Stacked as they are, in memory of their own: a block writes over what it is given."""
        mesh = mesh_of(problem.stage)
        return _copied(everywhere(chains, mesh)), everywhere(_blank(records), mesh)

    def put(self, work: tuple[Chain, Record], start: int, block: dict[str, np.ndarray]) -> tuple[Chain, Record]:
        """Into the one ring of all chains."""
        return work[0], _with_draws(work[1], np.int32(start), block)

    def advance(self, problem: Problem, work: tuple[Chain, Record], until: int, most: int) -> tuple[Chain, Record]:
        """Moves the chains until the slowest has made `until` transitions; the others are further on."""
        limit, rounds = np.int32(most), self._rounds_of(problem)
        while (behind := until - int(self.finished(work).min())) > 0:
            # A transition takes a round at least, so these rounds are needed: no look in between.
            for _ in range(max(1, behind // rounds)):
                if problem.feed.streamed:
                    number = int(np.max(np.asarray(work[0].round))) // stage_length(problem.feed)
                    problem = problem._replace(stage=restaged(problem.feed, problem.stage, number))
                work = _rounds(problem, limit, *work, rounds)
        return work

    def _rounds_of(self, problem: Problem) -> int:
        """Rounds in a block: with a stream so many that a stage ends with one."""
        return math.gcd(self.rounds, stage_length(problem.feed)) if problem.feed.streamed else self.rounds

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
        slot = np.int32((stop - 1) & (capacity - 1))
        return {name: np.asarray(array)[:, None] for name, array in _draws_at(work[1], slot).items()}

    def fetch(self, work: tuple[Chain, Record], start: int, stop: int) -> dict[str, np.ndarray]:
        """Copies out of the one ring of all chains, in parts of one size: the rest of the ring may be large."""
        parts = [_draws_from(work[1], np.int32(first), _FETCHED) for first in range(start, stop, _FETCHED)]
        for array in jax.tree.leaves(parts):
            array.copy_to_host_async()
        return {name: _in_a_row([np.asarray(part[name]) for part in parts])[:, : stop - start] for name in work[1]}


def _in_a_row(blocks: list[np.ndarray]) -> np.ndarray:
    """Joined along draws; one alone is not copied, for it may be gigabytes."""
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)


_FETCHED = SMALLEST_RING  # draws of all chains that are copied at a time


@program
def _blank(shapes: dict[str, jax.ShapeDtypeStruct]) -> Record:
    """Rings to be filled, made where they are used."""
    return {name: jnp.zeros(shape.shape, shape.dtype) for name, shape in shapes.items()}


@program
def _draws_from(records: Record, first: Int[Array, ""], count: int) -> Record:
    """So many draws of all chains from one on, out of their ring."""
    capacity = jax.tree.leaves(records)[0].shape[1]
    slots = (first + jnp.arange(count, dtype=jnp.int32)) & (capacity - 1)
    return {name: array[:, slots] for name, array in records.items()}


@program
def _with_draws(records: Record, first: Int[Array, ""], block: Record) -> Record:
    """The ring of all chains with draws put in their places."""
    count, capacity = jax.tree.leaves(block)[0].shape[1], jax.tree.leaves(records)[0].shape[1]
    slots = (first + jnp.arange(count, dtype=jnp.int32)) & (capacity - 1)
    return {name: array.at[:, slots].set(block[name]) for name, array in records.items()}


@program
def _copied(chains: Chain) -> Chain:
    """In memory of their own."""
    return jax.tree.map(jnp.copy, chains)


@program
def _draws_at(records: Record, slot: Int[Array, ""]) -> Record:
    """The draws of all chains at one place of their rings."""
    return {name: jnp.take(array, slot, axis=1) for name, array in records.items()}


# Where beginning a test is dear, chains whose test is decided wait until they are one in so many; then they all begin.
# What that computes for the others is no more than what it computes for them, and no more than half of the chains wait.
_SHARE_TO_BEGIN = 2


@program(donate=(2, 3))
def _rounds(
    problem: Problem, limit: Int[Array, ""], chains: Chain, records: Record, rounds: int
) -> tuple[Chain, Record]:
    """So many rounds of all chains, none of which goes beyond a limit. Chains and records are used up."""
    capacity = jax.tree.leaves(records)[0].shape[1]
    count = chains.finished.shape[0]
    which = jnp.arange(count)
    dear = problem.kernel.dear_to_begin

    def observe(chain: Chain, decided: Array) -> tuple[Chain, Array]:
        # A chain that is as far as it may go stands still, so that its state is that of its last draw; and so does one
        # whose test is decided already.
        observed, done = observe_window(problem, chain)
        goes_on = (chain.finished < limit) & ~decided
        still = chain._replace(round=observed.round)
        return jax.tree.map(lambda new, old: jnp.where(goes_on, new, old), observed, still), decided | (goes_on & done)

    def conclude(chain: Chain, decided: Array) -> tuple[Chain, Array, Record]:
        concluded, draw = conclude_transition(problem, chain)
        index = concluded.finished - 1 - problem.num_warmup
        slot = jnp.where(decided & (index >= 0), index & (capacity - 1), capacity)
        chain = jax.tree.map(lambda new, old: jnp.where(decided, new, old), concluded, chain)
        return chain, slot, pack(draw)

    def conclude_all(chains: Chain, decided: Array) -> tuple[Chain, Array, Record, Array]:
        return *jax.vmap(conclude)(chains, decided), jnp.zeros_like(decided)

    def wait(chains: Chain, decided: Array) -> tuple[Chain, Array, Record, Array]:
        nothing = {name: jnp.zeros((count, *array.shape[2:]), array.dtype) for name, array in records.items()}
        return chains, jnp.full(count, capacity, jnp.int32), nothing, decided

    def round_of_all(number: Array, carry: tuple[Chain, Record, Array]) -> tuple[Chain, Record, Array]:
        chains, records, before = carry
        before = before if dear else jnp.zeros(count, bool)  # which a compiler then leaves out
        chains, decided = jax.vmap(observe)(chains, before)
        if dear:
            running = jnp.sum(chains.finished < limit)
            enough = (_SHARE_TO_BEGIN * jnp.sum(decided) >= running) | (number == rounds - 1)
            chains, slots, new, decided = jax.lax.cond(enough, conclude_all, wait, chains, decided)
        else:
            chains, slots, new, decided = conclude_all(chains, decided)
        # No chain is written out of bounds: those slots belong to warm-up, or to tests still going on.
        write = lambda array, values: array.at[which, slots].set(values, mode="drop", unique_indices=True)  # noqa: E731
        return chains, jax.tree.map(write, records, new), decided

    # Two rounds in a row need no copies of the state in between; that is a tenth of a round on a GPU.
    unroll = 1 if dear or jax.default_backend() == "cpu" else 2
    carry = chains, records, jnp.zeros(count, bool)
    return jax.lax.fori_loop(0, rounds, round_of_all, carry, unroll=unroll)[:2]
