"""Rows that an accelerator has no room for, piece by piece: one is on its way while the last is read."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Real, UInt32

from tallmc.numerics.permutation import permuted
from tallmc.posterior.resident import Column, aligned_empty, default_device
from tallmc.posterior.rows import Rows

# Bytes of a piece, of which two are on the device: some ten milliseconds of a fast bus, against less than one that it
# takes to begin a pass.
_PIECE = 2**28


def length_of(rows: Rows) -> int:
    """Rows of a piece; the last is filled up."""
    return int(np.clip(_PIECE // rows.row_bytes, 1, rows.num_rows))


def like(rows: Rows, beside: Real[Array, " rows"] | None = None) -> PyTree:
    """Shapes of a piece."""
    length = length_of(rows)

    def of(leaf: jax.ShapeDtypeStruct) -> Column:
        column: Any = jax.ShapeDtypeStruct((length, *leaf.shape), leaf.dtype)
        return Column(column)

    columns = jax.tree.map(of, rows.like)
    return columns if beside is None else (columns, of(jax.ShapeDtypeStruct((), beside.dtype)))


def of(
    rows: Rows,
    start: int,
    stop: int,
    order: UInt32[np.ndarray, " words"] | None = None,
    beside: Real[Array, " rows"] | None = None,
    *,
    length: int | None = None,
) -> Iterator[tuple[PyTree, int]]:
    """Pieces on the device, and how many of their rows are meant; what fills up the last is rows of its own.

    Args:
        rows: All of them.
        start: The first place that is read.
        stop: The first that is not read any more.
        order: Words of a random order, see `numerics.permutation`; None: the rows' own.
        beside: A number for each row; pieces are then pairs.
        length: Rows of a piece, if not as many as usual.
    """
    length = length_of(rows) if length is None else length
    device = default_device()

    def load(first: int) -> tuple[PyTree, int]:
        count = min(length, stop - first)
        columns = jax.tree.map(
            lambda one: Column(jax.device_put(one, device)), _some(rows, first, count, length, order)
        )
        if beside is not None:
            numbers = np.asarray(beside[first : first + count])
            padded = np.concatenate([numbers, np.repeat(numbers[-1:], length - count)])
            columns = columns, Column(jax.device_put(padded, device))
        return jax.block_until_ready(columns), count

    with ThreadPoolExecutor(1, "tallmc-pieces") as reader:
        starts = list(range(start, stop, length))
        ahead = reader.submit(load, starts[0])
        for number in range(len(starts)):
            here = ahead.result()
            if number + 1 < len(starts):
                ahead = reader.submit(load, starts[number + 1])
            yield here


def _some(rows: Rows, first: int, count: int, length: int, order: np.ndarray | None) -> PyTree:
    """Rows from one place on, in arrays of full length."""
    if order is not None:
        places = jnp.minimum(first + jnp.arange(length, dtype=jnp.uint32), jnp.uint32(first + count - 1))
        found = rows.take(np.asarray(permuted(places, rows.num_rows, jnp.asarray(order))))
        return jax.tree.map(lambda part, one: part.astype(one.dtype, copy=False), found, rows.like)
    arrays = jax.tree.map(lambda one: aligned_empty((length, *one.shape), np.dtype(one.dtype)), rows.like)
    rows.read_into(jax.tree.map(lambda array: array[:count], arrays), first)
    for array in jax.tree.leaves(arrays):
        array[count:] = array[count - 1]
    return arrays
