"""Rows where compiled code reads them: on the accelerator, or in the caller's own memory."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from tallmc.posterior.spread import Scattered

_ALIGNMENT = 64  # bytes: XLA takes over an array without a copy only if it begins at a multiple of this
_QUANTUM = 16  # bytes: the same of what NumPy allocates
# Bytes of an array that is worth reading where it lies. Where smaller ones lie is chance, and the same program would
# have to be compiled anew for other data; larger ones have pages of their own, and begin at the same place of a page.
_LARGE = 2**25


class Column(eqx.Module):
    """One array of the data, one row along its first axis.

    What begins at an address that XLA does not take is not copied. Nearly all of it, from the first address that will
    do, is read where it lies; only the few rows before that are copied.

    Args:
        units: The data cut into units: whole rows, or parts of rows of which each has the same number.
        edge: The first rows, which do not lie in `units` as a whole; None if there are none.
        per_row: Units of a row.
        shift: Units that are missing before the first.
        shape: Of a row.
    """

    units: Array
    edge: Array | None = None
    per_row: int = eqx.field(static=True, default=1)
    shift: int = eqx.field(static=True, default=0)
    shape: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def take(self, indices: Int[Array, " k"]) -> Array:
        """Some rows, by number."""
        if self.edge is None:
            return self.units[indices]
        first = indices * self.per_row - self.shift
        rows = self._from(jnp.maximum(first, 0))
        before = (first < 0).reshape(-1, *(1 for _ in rows.shape[1:]))
        # The edge has a handful of rows: a choice among them, not another look at memory far away.
        return jnp.where(before, self.edge[jnp.minimum(indices, self.edge.shape[0] - 1)], rows)

    def block(self, start: Int[Array, ""], size: int) -> Array:
        """Rows that follow each other."""
        if self.edge is None:
            return jax.lax.dynamic_slice_in_dim(self.units, start, size)
        numbers = start + jnp.arange(size, dtype=jnp.int32)
        if size * self.per_row > self.units.shape[0]:
            return self.take(numbers)
        first = start * self.per_row - self.shift

        def together() -> Array:
            units = jax.lax.dynamic_slice_in_dim(self.units, first, size * self.per_row)
            return units.reshape(size, *(self.shape or ()))

        return jax.lax.cond(first < 0, lambda: self.take(numbers), together)

    def _from(self, first: Int[Array, " k"]) -> Array:
        if self.per_row == 1:
            return self.units[first]
        parts = jax.vmap(lambda at: jax.lax.dynamic_slice_in_dim(self.units, at, self.per_row))(first)
        return parts.reshape(len(first), *(self.shape or ()))


def resident(data: PyTree, device: Any) -> PyTree:
    """Every array of the data as a `Column` on a device.

    On a CPU an array that is laid out row by row, in a precision that JAX has, stays where it is. Others are copied.
    """
    return jax.tree.map(lambda leaf: _column(leaf, device), data)


def default_device() -> Any:
    """Where JAX puts an array that is not told otherwise, in this thread."""
    return next(iter(jax.device_put(np.zeros(0, np.float32)).devices()))


def take(columns: PyTree, indices: Int[Array, " k"]) -> PyTree:
    """Some rows of all columns, by number."""
    if isinstance(columns, Scattered):
        return columns.picked(indices)
    return jax.tree.map(lambda column: column.take(indices), columns, is_leaf=_is_column)


def block(columns: PyTree, start: Int[Array, ""], size: int) -> PyTree:
    """Rows that follow each other, of all columns."""
    return jax.tree.map(lambda column: column.block(start, size), columns, is_leaf=_is_column)


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Memory that XLA takes over without a copy, to be filled."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % _ALIGNMENT
    return memory[first : first + size].view(dtype).reshape(shape)


def aligned_zeros(size: int, dtype: np.dtype | type) -> np.ndarray:
    """A vector of zeros of which `numerics.flat.as_device_array` makes no copy."""
    zeros = aligned_empty((size,), np.dtype(dtype))
    zeros[:] = 0
    return zeros


def _is_column(leaf: object) -> bool:
    return isinstance(leaf, Column)


def _column(leaf: Array | np.ndarray, device: Any) -> Column:
    if isinstance(leaf, jax.Array):
        return Column(leaf if leaf.devices() == {device} else jax.device_put(leaf, device))
    array = leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype), copy=False)
    if device.platform == "cpu" and array.flags.c_contiguous and array.nbytes >= _LARGE:
        column = _in_place(array, device)
        if column is not None:
            return column
    return Column(jax.device_put(array))


def _in_place(array: np.ndarray, device: Any) -> Column | None:
    """The array read where it lies; None if no part of it can be."""
    address, row = array.ctypes.data, array.strides[0]
    if address % _ALIGNMENT == 0:
        return Column(jax.device_put(array, may_alias=True))
    for first in range(1, _ALIGNMENT):
        if (address + first * row) % _ALIGNMENT == 0:
            units = jax.device_put(array[first:], may_alias=True)
            return Column(units, jax.device_put(array[:first].copy()), 1, first, array.shape[1:])
    if row % _QUANTUM or address % _QUANTUM or math.prod(array.shape) * array.itemsize // _QUANTUM >= 2**31:
        return None
    # Rows whose length is a multiple of the alignment never begin at such an address; parts of them do.
    length, per_row, shift = _QUANTUM // array.itemsize, row // _QUANTUM, (-address % _ALIGNMENT) // _QUANTUM
    parts = array.reshape(-1, length)[shift:]
    edge = array[: -(-shift // per_row)].copy()
    units = jax.device_put(parts, may_alias=True)
    return Column(units, jax.device_put(edge), per_row, shift, array.shape[1:])
