"""Where the data is. Everything that reads rows outside a chain goes through this door."""

import abc
import contextlib
import functools
import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree, Real

from tallmc.numerics.memory import limit_of_device, must_fit
from tallmc.posterior.resident import aligned_empty, default_device, resident

_ROWS_AT_A_TIME = 65_536
# Of an accelerator's memory: the shuffled rows besides those of the passes would be twice as much, and are for windows;
# chains, draws and what a pass takes want the rest. A judgement.
_SHARE_OF_DEVICE = 0.4


class Rows(eqx.Module):
    """The rows of a dataset, seen from the host. In memory here; on disk or on many hosts, one more class each."""

    in_random_order: ClassVar[bool] = False
    """Whether rows were shuffled where they are, so that neighbours are a random sample."""
    known_finite: ClassVar[bool] = False
    """Whether they were checked for NaN and infinity when they were stored."""

    num_rows: eqx.AbstractVar[int]

    @property
    @abc.abstractmethod
    def like(self) -> PyTree:
        """Shape and dtype of one row, as compiled code sees it."""

    @abc.abstractmethod
    def take(self, indices: Int[np.ndarray, " k"]) -> PyTree:
        """Some rows, by number, along the first axis of NumPy arrays."""

    @abc.abstractmethod
    def blocks(self, size: int) -> Iterator[PyTree]:
        """All rows in their order, `size` at a time as NumPy arrays; the last block may be shorter."""

    @abc.abstractmethod
    def all(self) -> PyTree:
        """All rows at once, as given."""

    def on_device(self) -> PyTree:
        """All rows where compiled code reads them now: a pytree of `resident.Column`. They go there once."""
        device = default_device()
        if device not in self._devices:
            with self._must_fit():
                self._devices[device] = jax.block_until_ready(resident(self.all(), device))
        return self._devices[device]

    def scattered(self) -> PyTree:
        """The same for code that picks single rows here and there."""
        return self.on_device()

    def shuffled(self, seed: int, repeated: int) -> PyTree:
        """All rows as arrays on the device, in random order, the first `repeated` of them once more at the end."""
        order = np.random.default_rng(seed).permutation(self.num_rows)
        return self.in_order(np.concatenate([order, order[:repeated]]))

    @property
    def row_bytes(self) -> int:
        """Of one row, as compiled code sees it."""
        return sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(self.like))

    @property
    def outgrow_device(self) -> bool:
        """Whether they take more than an accelerator has for them: they are then read piece by piece."""
        device = default_device()
        if device.platform == "cpu":
            return False
        return self.num_rows * self.row_bytes > _SHARE_OF_DEVICE * limit_of_device(device)

    @property
    def want_stream(self) -> bool:
        """Whether windows that are picked here and there would be slower than a stream of all rows."""
        return self.outgrow_device

    def read_into(self, arrays: PyTree, start: int) -> None:
        """Fills arrays with rows that follow each other, from `start` on."""
        jax.tree.map(
            lambda into, leaf: np.copyto(into, np.asarray(leaf[start : start + len(into)])), arrays, self.all()
        )

    def one_each(self, dtype: np.dtype | type) -> Real[np.ndarray, " rows"]:
        """Room for one number a row, to be filled."""
        return aligned_empty((self.num_rows,), np.dtype(dtype))

    def in_order(self, order: Int[np.ndarray, " k"]) -> PyTree:
        """Some or all rows in this order, copied together as arrays on the device."""
        size = len(order)
        arrays = jax.tree.map(lambda leaf: aligned_empty((size, *leaf.shape), np.dtype(leaf.dtype)), self.like)

        def copy(start: int) -> None:
            some = slice(start, start + _ROWS_AT_A_TIME)
            for array, part in zip(jax.tree.leaves(arrays), jax.tree.leaves(self.take(order[some])), strict=True):
                array[some] = part

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(copy, range(0, size, _ROWS_AT_A_TIME)))
        with self._must_fit():
            return jax.block_until_ready(jax.tree.map(lambda array: jax.device_put(array, may_alias=True), arrays))

    def _must_fit(self) -> contextlib.AbstractContextManager[None]:
        row = self.row_bytes
        return must_fit(
            f"the data ({self.num_rows:,} rows, {self.num_rows * row / 1e9:.2g} GB)",
            "pass fewer rows or narrower numbers, or sample on the CPU: with jax.default_device(jax.devices('cpu')[0])",
        )

    @functools.cached_property
    def _devices(self) -> dict[Any, PyTree]:
        """Where the rows have been put so far."""
        return {}


class RowsInMemory(Rows):
    """Rows as a pytree of arrays with one common first axis.

    Args:
        data: The arrays.

    Example:
        >>> import numpy as np
        >>> rows = RowsInMemory({"x": np.arange(6.0).reshape(3, 2)})
        >>> rows.num_rows, rows.like["x"].shape
        (3, (2,))
    """

    data: PyTree
    num_rows: int = eqx.field(static=True)

    def __init__(self, data: PyTree):
        self.num_rows = _check_columns(data)
        self.data = data

    @property
    def like(self) -> PyTree:
        """Shape and dtype of one row, as compiled code sees it."""

        def of_one(leaf: Array | np.ndarray) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(leaf.shape[1:], jax.dtypes.canonicalize_dtype(leaf.dtype))

        return jax.tree.map(of_one, self.data)

    def take(self, indices: Int[np.ndarray, " k"]) -> PyTree:
        """Some rows, by number, as copies in NumPy arrays."""
        return jax.tree.map(lambda leaf: np.asarray(leaf)[indices], self.data)

    def blocks(self, size: int) -> Iterator[PyTree]:
        """All rows in their order, `size` at a time."""
        data = jax.tree.map(np.asarray, self.data)
        for start in range(0, self.num_rows, size):
            yield jax.tree.map(lambda leaf, start=start: leaf[start : start + size], data)

    def all(self) -> PyTree:
        """The arrays themselves, as they were given: neither copied nor moved to a device."""
        return self.data


def _check_columns(data: PyTree) -> int:
    """The number of rows, if these are columns of numbers of one length."""
    if not jax.tree.leaves(data):
        raise ValueError("data holds no arrays; pass an array or a pytree of arrays with one row per first index")
    lengths = set()
    for path, leaf in jax.tree.leaves_with_path(data):
        name = "data" + jax.tree_util.keystr(path)
        if not isinstance(leaf, np.ndarray | jax.Array) or leaf.ndim == 0:
            raise ValueError(
                f"{name} must be an array with one row per first index, not {type(leaf).__name__}; "
                "convert lists and data frames with numpy.asarray, sparse matrices with their .toarray()"
            )
        if not (jnp.issubdtype(leaf.dtype, jnp.number) or jnp.issubdtype(leaf.dtype, jnp.bool)):
            raise ValueError(
                f"{name} holds {leaf.dtype}, not numbers; convert it with .astype(float), or labels to their numbers "
                "with numpy.unique(labels, return_inverse=True)[1]"
            )
        lengths.add(leaf.shape[0])
    if len(lengths) > 1:
        shapes = {jax.tree_util.keystr(path): leaf.shape for path, leaf in jax.tree.leaves_with_path(data)}
        raise ValueError(f"columns have different lengths: {shapes}; give every array the same first axis")
    (num_rows,) = lengths
    if num_rows == 0:
        raise ValueError("data has zero rows; a posterior needs at least one")
    return int(num_rows)
