"""Rows that do not fit: a stream of windows that all chains read together, while the next ones are on their way."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree, UInt32

from tallmc.feed.contract import Feed, Needs, Window, check_sizes
from tallmc.feed.stream import Stream
from tallmc.numerics.flat import as_device_array
from tallmc.posterior import Model, Rows

# Bytes of a stage, of which three are in memory: the one that is read, the next, and one on its way. From 16 MB on,
# changing stages (a call and a wake-up of the reader, some 0.3 ms) is below 5 % of the time that reading takes.
_STAGE = 2**25
_MOST_WINDOWS = 2**12
_FEWEST_WINDOWS = 1000  # as in `in_memory`: below that, windows of one shuffle are too few groups of rows


class Staged(eqx.Module):
    """The windows of the stream that are on the device now.

    Args:
        rows: Window after window.
        counts: Rows of each that are meant.
        gaps: For each window how many windows ago it came last.
        first: Number of the first of them in the stream.
        stream: Where the others come from; the host's alone.
    """

    rows: PyTree
    counts: Int[Array, " windows"]
    gaps: Int[Array, " windows"]
    first: UInt32[Array, ""]
    stream: Stream = eqx.field(static=True)


class StreamedFeed(Feed):
    """Shows all chains the same windows, one a round, epoch after epoch, in an order of chunks that is fresh in each.

    A chain's test begins with whatever window comes next. Windows of a test are disjoint, and it has seen every row
    once when it has seen all: those that a test has met in one epoch it skips in the next. So such a test takes up to
    two epochs. Tests of one chain that follow each other within an epoch share no rows, and chains share their noise.

    Args:
        num_rows: Rows of data.
        batch_size: Rows in a window.
        windows: Windows of a stage; a power of two.
        every_row: Whether every test reads all rows, so that all epochs may have one order and nothing is skipped.

    Example:
        >>> StreamedFeed(10_000_000, 500).num_windows
        20000
    """

    streamed: ClassVar = True
    num_rows: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    windows: int = eqx.field(static=True)
    every_row: bool = eqx.field(static=True)

    def __init__(self, num_rows: int, batch_size: int, windows: int = 256, *, every_row: bool = False):
        self.num_rows, self.batch_size = num_rows, check_sizes(num_rows, batch_size)
        if windows < 1 or windows & (windows - 1):
            raise ValueError(f"windows must be a power of two, got {windows}")
        self.windows, self.every_row = windows, every_row

    @classmethod
    def of(cls, rows: Rows, needs: Needs, model: Model) -> "StreamedFeed":
        """Windows of the size that is needed, in stages of some 32 MB."""
        del model
        if not (cls.suits(rows, needs) or needs.every_row):
            raise ValueError(
                f"{rows.num_rows:,} rows are {-(-rows.num_rows // needs.batch_size)} windows of {needs.batch_size}, "
                "too few for a stream to be random enough; leave feed out, or take a smaller batch_size"
            )
        wanted = max(1, min(_STAGE // (rows.row_bytes * needs.batch_size), _MOST_WINDOWS))
        return cls(rows.num_rows, needs.batch_size, 1 << (wanted.bit_length() - 1), every_row=needs.every_row)

    @classmethod
    def suits(cls, rows: Rows, needs: Needs) -> bool:
        """Whether there are windows enough for those of one shuffle to be as good as fresh ones."""
        return rows.num_rows >= _FEWEST_WINDOWS * needs.batch_size

    def arrange(self, rows: Rows, seed: int, widest: int = 0) -> Staged:
        """Reads the first stage, and begins to read the second."""
        del widest
        stream = Stream(rows, seed, self.batch_size, self.windows, fixed=self.every_row)
        return _staged(stream, 0)

    def staged(self, stage: Staged, number: int) -> Staged:
        """On the host: the stage of that number, and the one after it is on its way."""
        return _staged(stage.stream, number)

    def start(self, key: Array, every_row: PyTree = None) -> Int[Array, ""]:
        """Whatever comes next: nothing is drawn."""
        del key, every_row
        return jnp.int32(0)

    def advance(self, cursor: Int[Array, ""]) -> Int[Array, ""]:
        """One more window of the stream."""
        return cursor + 1

    def read(self, stage: Staged, cursor: Int[Array, ""], round_: UInt32[Array, ""]) -> Window:
        """The window of this round; none of its rows are meant if the test has seen them."""
        place = jnp.clip((round_ - stage.first).astype(jnp.int32), 0, self.windows - 1)
        size = self.batch_size
        rows = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, place * size, size), stage.rows)
        count = jnp.where(cursor >= stage.gaps[place], 0, stage.counts[place])
        return Window(rows, count, size)


def _staged(stream: Stream, number: int) -> Staged:
    rows, counts, gaps = stream.stage(number)
    return Staged(rows, counts, gaps, as_device_array(number * stream.windows % 2**32, np.uint32), stream)


def restaged(feed: Feed, stage: PyTree, number: int) -> PyTree:
    """The stage of that number, for a feed that has stages."""
    return feed.staged(stage, number) if isinstance(feed, StreamedFeed) else stage
