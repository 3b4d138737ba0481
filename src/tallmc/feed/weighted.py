"""Rows drawn in proportion to what they can say."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, Real, UInt32

from tallmc.feed.alias import AliasTable
from tallmc.feed.blocks import BlockTable
from tallmc.feed.contract import Drawn, Feed, Needs, Window, check_sizes
from tallmc.numerics.flat import as_device_array
from tallmc.numerics.keys import words_from
from tallmc.numerics.scratch import in_parts, like
from tallmc.posterior import Model, RowBounds, Rows, resident
from tallmc.posterior.resident import aligned_zeros
from tallmc.posterior.rows_on_mesh import RowsOnMesh


class _Cursor(eqx.Module):
    key: Array
    seen: Int[Array, ""]
    every_row: Bool[Array, ""]


class RowWeights(eqx.Module):
    """How often each row is drawn, and what to multiply it by in return.

    Args:
        table: Draws rows in proportion to their weights. That of weights on disk takes hardly any memory itself.
        scales: Mean weight over own weight; zero for rows that are never drawn.
    """

    table: AliasTable | BlockTable
    scales: Real[Array, " num_rows"]

    @classmethod
    def of(cls, weights: Real[np.ndarray, " num_rows"]) -> "RowWeights":
        """From one number for each row, not negative."""
        if (scales := like(weights, jnp.result_type(float))) is not None:
            return cls._on_disk(weights, scales)
        # Rows that can say nothing at all: any row stands for them.
        weights = weights if np.any(weights > 0) else np.ones_like(weights)
        scales = aligned_zeros(len(weights), jnp.result_type(float))
        np.divide(np.mean(weights, dtype=float), weights, out=scales, where=weights > 0, casting="same_kind")
        return cls(AliasTable.of(weights), as_device_array(scales))

    @classmethod
    def _on_disk(cls, weights: Real[np.ndarray, " num_rows"], scales: Real[np.ndarray, " num_rows"]) -> "RowWeights":
        """The same part by part, where neither weights nor scales are kept in memory."""
        totals = [(np.sum(part, dtype=float), np.min(part)) for part in in_parts(weights)]
        total = sum(one for one, _ in totals)
        if not (np.isfinite(total) and min(least for _, least in totals) >= 0):
            raise ValueError("weights must be finite and not negative")
        mean = total / len(weights)
        for part, of in zip(in_parts(weights), in_parts(scales), strict=True):
            np.divide(mean, part, out=of, where=part > 0, casting="same_kind")
            if mean == 0:
                of[:] = 1
        there = as_device_array(scales)
        return cls(BlockTable.of(weights if mean > 0 else scales, there), there)

    def drawn(self, generator: np.random.Generator, count: int) -> Int[np.ndarray, " count"]:
        """So many rows, with replacement, on the host."""
        return self.table.drawn(generator, count)


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

    drawn: ClassVar = Drawn.BY_WEIGHT
    num_rows: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    table: AliasTable | BlockTable
    scales: Real[Array, " num_rows"]

    def __init__(self, num_rows: int, batch_size: int, weights: Real[np.ndarray, " num_rows"] | RowWeights):
        self.num_rows = num_rows
        self.batch_size = batch_size
        check_sizes(num_rows, batch_size)
        known = weights if isinstance(weights, RowWeights) else RowWeights.of(weights)
        self.table, self.scales = known.table, known.scales

    @property
    def weights(self) -> Real[np.ndarray, " num_rows"]:
        """Those that it was made with, over their mean."""
        scales = np.asarray(self.scales, float)
        return np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)

    @classmethod
    def of(cls, rows: Rows, needs: Needs, model: Model) -> "WeightedFeed":
        """Weighs rows by their bounds, which takes one reading of them all."""
        if not isinstance(model.bounds, RowBounds):
            raise ValueError("WeightedFeed weighs rows by posterior.bounds, and this posterior has none for each row")
        if isinstance(rows, RowsOnMesh):
            return cls(rows.num_rows, needs.batch_size, rows.joined(model.bounds.constants(rows.own)))
        return cls(rows.num_rows, needs.batch_size, model.bounds.constants(rows))

    @property
    def setup_rows(self) -> int:
        """Every row was read once to weigh it."""
        return self.num_rows

    def arrange(self, rows: Rows, seed: int, widest: int = 0) -> PyTree:
        """Nothing to lay out: any row can be gathered."""
        del seed, widest
        return rows.scattered()

    def start(self, key: Array, every_row: PyTree = None) -> _Cursor:
        """A key for the rows of this test."""
        return _Cursor(key, jnp.int32(0), jnp.bool_(False) if every_row is None else every_row)

    def advance(self, cursor: _Cursor) -> _Cursor:
        """The next rows of the same test."""
        return _Cursor(cursor.key, cursor.seen + self.batch_size, cursor.every_row)

    def read(self, stage: PyTree, cursor: _Cursor, round_: UInt32[Array, ""]) -> Window:
        """Gathers rows: drawn ones, or the next ones in order."""
        del round_
        # A branch, not a choice of two results: what comes out of it is computed once, not for each number of a row.
        indices = jax.lax.cond(cursor.every_row, lambda: self._in_order(cursor), lambda: self._drawn(cursor))
        rows = resident.take(stage, indices)
        left = jnp.clip(self.num_rows - cursor.seen, 0, self.batch_size)
        count = jnp.where(cursor.every_row, left, self.batch_size).astype(jnp.int32)
        scale = jnp.where(cursor.every_row, 1, self.scales[indices])
        return Window(rows, count, self.batch_size, scale)

    def _in_order(self, cursor: _Cursor) -> Int[Array, " batch_size"]:
        return jnp.minimum(cursor.seen + jnp.arange(self.batch_size, dtype=jnp.int32), self.num_rows - 1)

    def _drawn(self, cursor: _Cursor) -> Int[Array, " batch_size"]:
        return self.table.draw(*words_from(cursor.key, cursor.seen, (self.batch_size,)))
