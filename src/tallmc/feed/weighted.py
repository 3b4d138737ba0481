"""Rows drawn in proportion to what they can say."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc.alias import AliasTable
from tallmc.feed.base import Feed, Window, check_sizes
from tallmc.keys import words_from


class _Cursor(eqx.Module):
    key: Array
    seen: Int[Array, ""]
    every_row: Bool[Array, ""]


class WeightedFeed(Feed):
    """Draws rows independently, with replacement, in proportion to weights; or every row once, if a test asks for it.

    A row of weight w comes w / (mean weight) times as often as it would uniformly. Its log ratio is divided by that, so
    that means of drawn rows still estimate the mean over all rows; loud rows are then seen often and quiet ones rarely,
    and no single row can surprise.

    Args:
        num_rows: Rows of data.
        batch_size: Rows in a window.
        weights: One for each row, not negative.
    """

    num_rows: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    table: AliasTable
    scales: Real[Array, " num_rows"]

    def __init__(self, num_rows: int, batch_size: int, weights: Real[np.ndarray, " num_rows"]):
        self.num_rows = num_rows
        self.batch_size = batch_size
        check_sizes(num_rows, batch_size)
        # Rows that can say nothing at all: any row stands for them.
        weights = weights if np.any(weights > 0) else np.ones(num_rows)
        self.table = AliasTable.of(weights)
        with np.errstate(divide="ignore"):
            self.scales = jnp.asarray(np.where(weights > 0, np.mean(weights) / weights, 0), jnp.result_type(float))

    @property
    def weights(self) -> Real[np.ndarray, " num_rows"]:
        """Those that it was made with, over their mean."""
        scales = np.asarray(self.scales, float)
        return np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)

    def arrange(self, data: PyTree, seed: int) -> PyTree:
        """Nothing to lay out: any row can be gathered."""
        del seed
        return jax.tree.map(jnp.asarray, data)

    def start(self, key: Array, every_row: Bool[Array, ""] | None = None) -> _Cursor:
        """A key for the rows of this test."""
        return _Cursor(key, jnp.int32(0), jnp.bool_(False) if every_row is None else every_row)

    def advance(self, cursor: _Cursor) -> _Cursor:
        """Moves on."""
        return _Cursor(cursor.key, cursor.seen + self.batch_size, cursor.every_row)

    def read(self, data: PyTree, cursor: _Cursor) -> Window:
        """Gathers rows: drawn ones, or the next ones in order."""
        # A branch, not a choice of two results: what comes out of it is computed once, not for each number of a row.
        indices = jax.lax.cond(cursor.every_row, lambda: self._in_order(cursor), lambda: self._drawn(cursor))
        rows = jax.tree.map(lambda leaf: leaf[indices], data)
        left = jnp.clip(self.num_rows - cursor.seen, 0, self.batch_size)
        count = jnp.where(cursor.every_row, left, self.batch_size).astype(jnp.int32)
        scale = jnp.where(cursor.every_row, 1, self.scales[indices])
        return Window(rows, count, self.batch_size, scale)

    def _in_order(self, cursor: _Cursor) -> Int[Array, " batch_size"]:
        return jnp.minimum(cursor.seen + jnp.arange(self.batch_size, dtype=jnp.int32), self.num_rows - 1)

    def _drawn(self, cursor: _Cursor) -> Int[Array, " batch_size"]:
        return self.table.draw(*words_from(cursor.key, cursor.seen, (self.batch_size,)))
