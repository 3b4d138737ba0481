"""Rows in random order, in two halves that never meet."""

import abc
from collections.abc import Iterator

import jax
import numpy as np
from jaxtyping import PyTree

_BLOCK = 4096  # a block of some 50 columns stays in a core's cache from one operation to the next


class Halves(abc.ABC):
    """Hands out growing prefixes of two disjoint random halves, and all rows in their own order.

    Args:
        num_rows: Rows of data.
        largest: Most rows of both halves together.
    """

    def __init__(self, num_rows: int, largest: int):
        self.num_rows = num_rows
        self.rows_read = 0
        self.largest = 2 * (largest // 2)

    @abc.abstractmethod
    def shuffle(self) -> None:
        """Starts again with two new random halves."""

    @abc.abstractmethod
    def look(self, half: int, start: int, stop: int) -> Iterator[PyTree]:
        """Blocks of rows `start` to `stop` of a half; counted as read. Both must be ends of looks before, or new."""

    @abc.abstractmethod
    def everything(self) -> Iterator[PyTree]:
        """Blocks of all rows; counted as read."""


class HalvedRows(Halves):
    """Halves that are copied together.

    As `InMemoryFeed` does, rows are copied together once, in random order, so that a prefix is a random sample and a
    contiguous read. Only rows that a test looks at are copied: the sums over all rows do not depend on their order.

    Args:
        data: Pytree of arrays, rows along the first axis.
        num_rows: Rows of data.
        largest: Most rows of both halves together.
        seed: Of the random order.
    """

    def __init__(self, data: PyTree, num_rows: int, largest: int, seed: int):
        super().__init__(num_rows, largest)
        self.data = data
        self._generator = np.random.default_rng(seed)
        self.shuffle()

    def shuffle(self) -> None:
        """Starts again with two new random halves."""
        self._orders = np.split(self._generator.choice(self.num_rows, self.largest, replace=False), 2)
        self._chunks: tuple[list[PyTree], list[PyTree]] = ([], [])
        self._ends = [0]

    def look(self, half: int, start: int, stop: int) -> Iterator[PyTree]:
        """Blocks of rows `start` to `stop` of a half; counted as read. Both must be ends of looks before, or new."""
        self._gather(stop)
        first, last = self._ends.index(start), self._ends.index(stop)
        for chunk in self._chunks[half][first:last]:
            yield from self._blocks(chunk)

    def everything(self) -> Iterator[PyTree]:
        """Blocks of all rows; counted as read."""
        yield from self._blocks(self.data)

    def _gather(self, stop: int) -> None:
        if stop <= self._ends[-1]:
            return
        for order, chunks in zip(self._orders, self._chunks, strict=True):
            # Sorted, because memory is read faster in one direction and sums do not mind.
            indices = np.sort(order[self._ends[-1] : stop])
            chunks.append(jax.tree.map(lambda leaf, indices=indices: np.take(leaf, indices, axis=0), self.data))
        self._ends.append(stop)

    def _blocks(self, rows: PyTree) -> Iterator[PyTree]:
        count = len(jax.tree.leaves(rows)[0])
        for start in range(0, count, _BLOCK):
            block = jax.tree.map(lambda leaf, start=start: leaf[start : start + _BLOCK], rows)
            self.rows_read += min(_BLOCK, count - start)
            yield block
