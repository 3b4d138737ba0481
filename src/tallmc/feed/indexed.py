"""Uniformly random rows, gathered one by one: the pristine feed that the fast one is compared with."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree, UInt32

from tallmc.feed.contract import Feed, Needs, Window, check_sizes
from tallmc.numerics.permutation import NUM_KEYS, permuted
from tallmc.posterior import Model, Rows, resident


class _Cursor(eqx.Module):
    seen: Int[Array, ""]
    round_keys: UInt32[Array, " rounds"]


class IndexedFeed(Feed):
    """Gathers rows in an independent pseudo-random permutation per test.

    The permutation is a Feistel network over the row numbers (cycle-walking past the numbers that are no row), so it
    takes no memory, and a window is any part of it: rows come uniformly and without replacement.

    Args:
        num_rows: Rows of data.
        batch_size: Rows in a window; one above `num_rows` means all rows.
    """

    num_rows: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)

    def __init__(self, num_rows: int, batch_size: int):
        self.num_rows = num_rows
        self.batch_size = check_sizes(num_rows, batch_size)

    @classmethod
    def of(cls, rows: Rows, needs: Needs, model: Model) -> "IndexedFeed":
        """Windows of the size that is needed."""
        del model
        return cls(rows.num_rows, needs.batch_size)

    def arrange(self, rows: Rows, seed: int, widest: int = 0) -> PyTree:
        """Nothing to lay out: any row can be gathered."""
        del seed, widest
        return rows.scattered()

    def start(self, key: Array, every_row: PyTree = None) -> _Cursor:
        """Draws the keys of a fresh permutation."""
        del every_row
        return _Cursor(jnp.int32(0), jax.random.bits(key, (NUM_KEYS,), jnp.uint32))

    def advance(self, cursor: _Cursor) -> _Cursor:
        """Moves on along the permutation."""
        return _Cursor(cursor.seen + self.batch_size, cursor.round_keys)

    def read(self, stage: PyTree, cursor: _Cursor, round_: UInt32[Array, ""]) -> Window:
        """Gathers the next rows of the permutation."""
        del round_
        ranks = cursor.seen + jnp.arange(self.batch_size, dtype=jnp.int32)
        indices = permuted(jnp.minimum(ranks, self.num_rows - 1).astype(jnp.uint32), self.num_rows, cursor.round_keys)
        rows = resident.take(stage, indices)
        count = jnp.clip(self.num_rows - cursor.seen, 0, self.batch_size)
        return Window(rows, count, self.batch_size)
