"""Passes over rows that lie on several devices: each adds up its own, and one message hands the sums around."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array, PyTree

from tallmc.numerics.permutation import permuted
from tallmc.posterior.rows_on_mesh import RowsOnMesh
from tallmc.posterior.spread import Scattered, on_devices

Sums = tuple[tuple[Array, ...], tuple[Array, ...]]  # totals, and the rounding that Kahan's still have to subtract


class Blocks(NamedTuple):
    """What a device is asked to read, as compiled code sees it.

    Args:
        size: Rows of a block.
        bounds: The first place that is read, and the first that is not any more.
        words: Of a random order of all rows.
        shuffled: Whether places are of that order, or rows themselves.
    """

    size: int
    bounds: Array
    words: Array
    shuffled: Array


def add_up_on_mesh(
    function: Callable[[PyTree, Array], tuple[Array, ...]],
    rows: Scattered,
    num_rows: int,
    blocks: Blocks,
    kahan: Callable[..., Sums],
) -> Sums:
    """What each device adds up, along a first axis of devices, on every device.

    Args:
        function: Of rows, and which of them count.
        rows: On all devices.
        num_rows: How many there are in all.
        blocks: Which are read.
        kahan: Adds up from a place to another: given the function, how a block is read, both places and the size.
    """
    axes, length, size = rows.mesh.axis_names, rows.length, blocks.size

    def of_device(arrays: PyTree, starts: Array, bounds: Array, words: Array, shuffled: Array) -> Sums:
        device = jax.lax.axis_index(axes)
        first, beyond = starts[device], starts[device + 1]

        def read(place: Array) -> tuple[PyTree, Array]:
            def in_order() -> tuple[PyTree, Array]:
                at = jnp.minimum(place - first, length - size)
                numbers = first + at + jnp.arange(size, dtype=jnp.int32)
                block = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, at, size), arrays)
                return block, (numbers >= place) & (numbers < jnp.minimum(bounds[1], beyond))

            def in_random_order() -> tuple[PyTree, Array]:
                # The same rows as on one device: of a block each device looks at those that it has.
                places = place + jnp.arange(size, dtype=jnp.int32)
                chosen = permuted(jnp.minimum(places, num_rows - 1).astype(jnp.uint32), num_rows, words)
                own = (chosen >= first) & (chosen < beyond)
                at = jnp.where(own, chosen - first, 0)
                return jax.tree.map(lambda leaf: leaf[at], arrays), own & (places < bounds[1])

            return jax.lax.cond(shuffled, in_random_order, in_order)

        begin = jnp.where(shuffled, bounds[0], jnp.clip(bounds[0], first, beyond))
        end = jnp.where(shuffled, bounds[1], jnp.clip(bounds[1], first, beyond))
        return jax.lax.all_gather(kahan(function, read, begin, end, size), axes)

    spec = PartitionSpec(axes), *(PartitionSpec(),) * 4
    everyone = jax.shard_map(of_device, mesh=rows.mesh, in_specs=spec, out_specs=PartitionSpec(), check_vma=False)
    return everyone(rows.arrays, rows.starts, blocks.bounds, blocks.words, blocks.shuffled)


def with_numbers(rows: RowsOnMesh, beside: Any) -> Scattered:
    """The rows as pairs, each with its number of an array that has one for each.

    Args:
        rows: On all devices.
        beside: An array of numbers for all rows.
    """
    scattered, array = rows.scattered(), np.asarray(beside)
    parts = [np.zeros(scattered.length, array.dtype) for _ in range(rows.own_devices)]
    for part, (start, stop) in zip(parts, rows.own_stretches, strict=True):
        part[: stop - start] = array[start:stop]
    return Scattered((scattered.arrays, on_devices(parts, rows.mesh)), scattered.starts, rows.mesh, numbered=True)
