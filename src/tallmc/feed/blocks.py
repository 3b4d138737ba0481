"""Draws rows in proportion to weights that may not fit into memory: first a block of neighbours, then one of these."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Real, UInt32

from tallmc.feed.alias import AliasTable, split_entry

# Rows of a block. A draw reads so many neighbouring weights, four lines of a cache; the table of blocks takes an eighth
# of a byte a row, where an alias table of rows takes eight.
SIZE = 64


class BlockTable(eqx.Module):
    """An alias table of blocks, and one look at the rows of the block that was drawn.

    Args:
        blocks: Draws a block in proportion to the weights of its rows.
        scales: Of each row the mean weight over its own; zero for rows that are never drawn.
    """

    blocks: AliasTable
    scales: Real[Array, " num_rows"]

    @classmethod
    def of(cls, weights: Real[np.ndarray, " num_rows"], scales: Real[Array, " num_rows"]) -> "BlockTable":
        """Reads the weights once.

        Args:
            weights: Not negative, finite, not all zero.
            scales: Made from them.
        """
        starts = np.arange(0, len(weights), SIZE)
        step = 2**14 * SIZE
        sums = [
            np.add.reduceat(np.asarray(part, float), np.arange(0, len(part), SIZE))
            for part in (weights[first : first + step] for first in range(0, len(weights), step))
        ]
        totals = np.concatenate(sums)
        assert len(totals) == len(starts)
        return cls(AliasTable.of(totals), scales)

    def draw(self, high: UInt32[Array, " k"], low: UInt32[Array, " k"]) -> Int[Array, " k"]:
        """Rows, from two random words each, as `AliasTable.draw` takes them.

        What is left of a random number when it has said which block is meant says which row of it.
        """
        block, left = split_entry(self.blocks, high, low)
        count = self.scales.shape[0]
        size = min(SIZE, count)

        def of_one(block: Array, left: Array) -> Array:
            first = block * SIZE
            start = jnp.minimum(first, count - size)
            scales = jax.lax.dynamic_slice_in_dim(self.scales, start, size)
            inside = (scales > 0) & (start + jnp.arange(size, dtype=jnp.int32) >= first)
            sums = jnp.cumsum(jnp.where(inside, 1 / jnp.where(scales > 0, scales, 1), 0))
            # Below the last sum whatever is rounded, so that it is a row that can be drawn.
            aim = jnp.minimum(left.astype(sums.dtype) * sums[-1], sums[-1] * (1 - 2 * jnp.finfo(sums.dtype).eps))
            return start + jnp.sum(sums <= aim, dtype=jnp.int32)

        return jax.vmap(of_one)(block, left)

    def drawn(self, generator: np.random.Generator, count: int) -> Int[np.ndarray, " count"]:
        """So many rows, with replacement, on the host."""
        block = self.blocks.drawn(generator, count)
        rows = block[:, None] * SIZE + np.arange(SIZE)
        scales = np.asarray(self.scales)[np.minimum(rows, len(self.scales) - 1)].astype(float)
        can = (scales > 0) & (rows < len(self.scales))
        sums = np.cumsum(np.divide(1, scales, out=np.zeros_like(scales), where=can), axis=1)
        aim = generator.random(count) * sums[:, -1]
        return block * SIZE + np.sum(sums <= aim[:, None], axis=1)
