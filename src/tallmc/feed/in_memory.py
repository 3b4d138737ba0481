"""Contiguous windows of data that was shuffled once: the fast feed."""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from tallmc.feed.contract import Feed, Needs, Window, check_sizes
from tallmc.posterior import Model, Rows

_MAX_STRIDES = 1024


class _Cursor(eqx.Module):
    offset: Int[Array, ""]
    index: Int[Array, ""]
    stride: Int[Array, ""]


class InMemoryFeed(Feed):
    """Reads contiguous windows of rows that were shuffled once.

    Reading 100 random rows misses the cache 100 times; reading 100 neighbours misses it twice. So the rows are
    shuffled once, with a recorded seed, and a random minibatch is then a contiguous read. A test sees the rows as a
    ring, cut into windows at an independent uniformly random row, and hops from window to window by a random stride
    coprime with their number. Windows of one test are disjoint and together hold every row exactly once.

    Args:
        num_rows: Rows of data.
        batch_size: Rows in a window; one above `num_rows` means all rows.
    """

    shuffled: ClassVar = True
    num_rows: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    strides: Int[Array, " strides"]

    def __init__(self, num_rows: int, batch_size: int):
        self.num_rows = num_rows
        self.batch_size = check_sizes(num_rows, batch_size)
        self.strides = jnp.asarray(_coprime_strides(self.num_windows), jnp.int32)

    @classmethod
    def of(cls, rows: Rows, needs: Needs, model: Model) -> "InMemoryFeed":
        """Windows of the size that is needed."""
        del model
        return cls(rows.num_rows, needs.batch_size)

    def arrange(self, rows: Rows, seed: int, widest: int = 0) -> PyTree:
        """Shuffles the rows, and repeats the first ones at the end so that no window has to wrap around."""
        order = np.random.default_rng(seed).permutation(self.num_rows)
        order = np.concatenate([order, order[: max(self.batch_size, widest) - 1]])
        return jax.tree.map(jnp.asarray, rows.take(order))

    def start(self, key: Array, every_row: PyTree = None) -> _Cursor:
        """Cuts the ring at a random row and picks a random first window and stride."""
        del every_row
        bits = jax.random.bits(key, (3,), jnp.uint32)
        # The remainder favours small numbers by a relative num_rows / 2^32: far below the noise of any test.
        offset, index, which = (
            (bits[i] % jnp.uint32(size)).astype(jnp.int32)
            for i, size in enumerate((self.num_rows, self.num_windows, len(self.strides)))
        )
        return _Cursor(offset, index, self.strides[which])

    def advance(self, cursor: _Cursor) -> _Cursor:
        """Hops one stride further around the ring."""
        index = cursor.index + cursor.stride
        index = jnp.where(index >= self.num_windows, index - self.num_windows, index)
        return _Cursor(cursor.offset, index, cursor.stride)

    def read(self, stage: PyTree, cursor: _Cursor, round_: Int[Array, ""]) -> Window:
        """A slice; only the ring's last window can be partial."""
        del round_
        position = cursor.index * self.batch_size
        first = cursor.offset + position
        first = jnp.where(first >= self.num_rows, first - self.num_rows, first)
        rows = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, self.batch_size), stage)
        if self.num_rows % self.batch_size:
            count = jnp.minimum(self.batch_size, self.num_rows - position)
        else:  # no window is partial, and a compiler that knows it masks nothing
            count = jnp.int32(self.batch_size)
        return Window(rows, count, self.batch_size)


def _coprime_strides(num_windows: int) -> np.ndarray:
    """A table of strides that visit every window: all there are if they are few, else a random selection."""
    candidates = np.arange(1, num_windows + 1)
    if num_windows > _MAX_STRIDES:
        candidates = np.random.default_rng(num_windows).integers(1, num_windows, 8 * _MAX_STRIDES)
    coprime = [stride for stride in candidates.tolist() if math.gcd(stride, num_windows) == 1]
    return np.asarray(coprime[:_MAX_STRIDES])
