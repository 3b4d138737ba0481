"""The host's side of a stream: which window comes when, and a thread that reads ahead."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Int, PyTree

from tallmc.posterior import Rows
from tallmc.posterior.resident import aligned_empty, default_device

# Bytes of a chunk: so many that a drive reads it as fast as anything, so few that an order of chunks is random.
_CHUNK = 2**22
_READERS = 4  # chunks that are asked for at the same time: a drive is idle between one answer and the next question
_SMALL = 2**17  # bytes of a chunk up to which rows are gathered: a read of its own takes some 30 microseconds
_FEWEST_CHUNKS = 1000  # where there are windows enough: as many as make fixed windows as good as fresh ones
_NEVER = np.int32(2**31 - 1)


class Stream:
    """Windows of shuffled rows, numbered from the beginning of a run.

    The rows are a ring that is cut at a random row into windows of neighbours; several windows that follow each other
    are a chunk. In every epoch each chunk comes once, in an order that follows from the seed and the epoch alone. So
    does every stage, whoever asks for it and when.

    Args:
        rows: In random order.
        seed: Of the cut and the orders.
        batch_size: Rows of a window.
        windows: Windows of a stage.
        fixed: Whether all epochs have one order.
    """

    def __init__(self, rows: Rows, seed: int, batch_size: int, windows: int, *, fixed: bool = False):
        self.rows, self.seed, self.batch_size, self.windows, self.fixed = rows, seed, batch_size, windows, fixed
        self.num_windows = -(-rows.num_rows // batch_size)
        by_size = _CHUNK // (batch_size * rows.row_bytes)
        self.chunk = max(1, min(by_size, self.num_windows // _FEWEST_CHUNKS))
        self.cut = int(np.random.default_rng([seed, 0]).integers(rows.num_rows))
        self.shuffled = None
        if not rows.in_random_order:
            self.shuffled = np.random.default_rng([seed, 1]).permutation(rows.num_rows)
        self._device = default_device()
        self._orders: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._reader: ThreadPoolExecutor | None = None
        self._ahead: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()

    def __eq__(self, other: object) -> bool:
        """All are alike to compiled code, which never looks at one."""
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return hash(Stream)

    def __repr__(self) -> str:
        return "Stream()"

    def stage(self, number: int) -> tuple[PyTree, Int[Array, " windows"], Int[Array, " windows"]]:
        """Rows, counts and gaps of a stage; the next one is read meanwhile."""
        with self._lock:
            if self._reader is None:
                self._reader = ThreadPoolExecutor(1, "tallmc-reader")
            for wanted in (number, number + 1):
                if wanted not in self._ahead:
                    self._ahead[wanted] = self._reader.submit(self._read, wanted)
            # One stage back is kept, for a chain that waited while others went on.
            for old in [one for one in self._ahead if not number - 1 <= one <= number + 1]:
                self._ahead.pop(old).cancel()
            found = self._ahead[number]
        return found.result()

    def numbers(self, first: int, count: int) -> tuple[Int[np.ndarray, " count"], Int[np.ndarray, " count"]]:
        """Which windows come from one place of the stream on, and how many places ago each came last."""
        which, gaps = np.empty(count, np.int64), np.empty(count, np.int32)
        done = 0
        while done < count:
            epoch, place = divmod(first + done, self.num_windows)
            some = slice(place, min(place + count - done, self.num_windows))
            now = slice(done, done + some.stop - some.start)
            which[now] = self._order(epoch)[0][some]
            if epoch:
                gaps[now] = np.arange(some.start, some.stop) + self.num_windows - self._order(epoch - 1)[1][which[now]]
            else:
                gaps[now] = _NEVER
            done = now.stop
        return which, gaps

    def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The windows of an epoch, and the place of each."""
        if self.fixed:
            epoch = 0
        if epoch not in self._orders:
            count = -(-self.num_windows // self.chunk)
            chunks = np.random.default_rng([self.seed, 2, epoch]).permutation(count)
            order = (chunks[:, None] * self.chunk + np.arange(self.chunk)).ravel()
            order = order[order < self.num_windows]
            places = np.empty_like(order)
            places[order] = np.arange(len(order))
            for old in [one for one in self._orders if one < epoch - 1]:
                del self._orders[old]
            self._orders[epoch] = order, places
        return self._orders[epoch]

    def _read(self, number: int) -> tuple[PyTree, Array, Array]:
        which, gaps = self.numbers(number * self.windows, self.windows)
        size, total = self.batch_size, self.rows.num_rows
        arrays = self._gathered(which) if self._small else self._by_chunks(which)
        counts = np.minimum(size, total - which * size).astype(np.int32)
        device = self._device
        there = jax.tree.map(lambda array: jax.device_put(array, device, may_alias=True), (arrays, counts, gaps))
        return jax.block_until_ready(there)

    @property
    def _small(self) -> bool:
        """Whether chunks are so small that looking up every row costs less than a read for each chunk."""
        return self.shuffled is not None or self.chunk * self.batch_size * self.rows.row_bytes < _SMALL

    def _gathered(self, which: np.ndarray) -> PyTree:
        numbers = which[:, None] * self.batch_size + (self.cut + np.arange(self.batch_size))
        numbers = numbers.ravel() % self.rows.num_rows
        found = self.rows.take(numbers if self.shuffled is None else self.shuffled[numbers])
        return jax.tree.map(lambda part, like: part.astype(like.dtype, copy=False), found, self.rows.like)

    def _by_chunks(self, which: np.ndarray) -> PyTree:
        size, like = self.batch_size, self.rows.like
        arrays = jax.tree.map(lambda one: aligned_empty((self.windows * size, *one.shape), np.dtype(one.dtype)), like)
        # Windows that follow each other in the ring are one read.
        ends = [0, *(np.flatnonzero(np.diff(which) != 1) + 1).tolist(), self.windows]

        def copy(number: int) -> None:
            start, stop = ends[number], ends[number + 1]
            self._copy(arrays, start * size, int(which[start]) * size, (stop - start) * size)

        with ThreadPoolExecutor(_READERS) as pool:
            list(pool.map(copy, range(len(ends) - 1)))
        return arrays

    def _copy(self, arrays: PyTree, to: int, place: int, count: int) -> None:
        """Rows of the ring, cut where it is cut, from a place on; what lies beyond its end is padding."""
        total = self.rows.num_rows
        while count:
            first = (self.cut + place) % total
            some = min(count, total - first)
            self.rows.read_into(jax.tree.map(lambda array, to=to, some=some: array[to : to + some], arrays), first)
            to, place, count = to + some, place + some, count - some
