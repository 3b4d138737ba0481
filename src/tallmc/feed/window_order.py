"""The order of a test on many windows: whole windows of rows that were shuffled once, in random order."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from tallmc.feed.contract import Window
from tallmc.numerics.flat import as_device_array
from tallmc.posterior.spread import Ring

_MAX_STRIDES = 1024


class WindowCursor(eqx.Module):
    """Where the ring was cut, the next window, and how far it is to the one after."""

    offset: Int[Array, ""]
    index: Int[Array, ""]
    stride: Int[Array, ""]


class WindowOrder(eqx.Module):
    """Sees the rows as a ring, cut into windows at an independent uniformly random row, and hops from window to window
    by a random stride coprime with their number.

    Reading 100 random rows misses the cache 100 times; reading 100 neighbours misses it twice. With so many windows
    that hardly two tests see the same ones it does not matter that rows of a window stay together.

    Args:
        num_rows: Rows of data.
        batch_size: Rows in a window.
    """

    num_rows: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    strides: Int[Array, " strides"]

    def __init__(self, num_rows: int, batch_size: int):
        self.num_rows, self.batch_size = num_rows, batch_size
        self.strides = as_device_array(_coprime_strides(self._num_windows), np.int32)

    @property
    def _num_windows(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def start(self, key: Array) -> WindowCursor:
        """Cuts the ring at a random row and picks a random first window and stride."""
        bits = jax.random.bits(key, (3,), jnp.uint32)
        # The remainder favours small numbers by a relative num_rows / 2^32: far below the noise of any test.
        offset, index, which = (
            (bits[i] % jnp.uint32(size)).astype(jnp.int32)
            for i, size in enumerate((self.num_rows, self._num_windows, len(self.strides)))
        )
        return WindowCursor(offset, index, self.strides[which])

    def advance(self, cursor: WindowCursor) -> WindowCursor:
        """Hops one stride further around the ring."""
        index = cursor.index + cursor.stride
        index = jnp.where(index >= self._num_windows, index - self._num_windows, index)
        return WindowCursor(cursor.offset, index, cursor.stride)

    def read(self, ring: PyTree | Ring, cursor: WindowCursor) -> Window:
        """A slice; only the ring's last window can be partial."""
        position = cursor.index * self.batch_size
        first = cursor.offset + position
        first = jnp.where(first >= self.num_rows, first - self.num_rows, first)
        if isinstance(ring, Ring):
            rows = ring.runs(first[None], self.batch_size)
        else:
            rows = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, self.batch_size), ring)
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
