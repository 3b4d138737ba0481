"""All rows in every round, for kernels that do not decide from a part of them."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree, UInt32

from tallmc.feed.contract import Drawn, Feed, Needs, check_sizes
from tallmc.posterior import Model, Rows
from tallmc.posterior.whole_rows import WholeRows


class AllRowsFeed(Feed):
    """Shows every row in every round, where it lies: nothing is shuffled, copied or gathered.

    `read` gives a `WholeRows` instead of a window. What it offers are sums over all rows.

    Args:
        num_rows: Rows of data.

    Example:
        >>> AllRowsFeed(1000).num_windows
        1
    """

    drawn: ClassVar = Drawn.ALL_AT_ONCE
    num_rows: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)

    def __init__(self, num_rows: int):
        self.num_rows = self.batch_size = check_sizes(num_rows, num_rows)

    @classmethod
    def of(cls, rows: Rows, needs: Needs, model: Model) -> "AllRowsFeed":
        """All of these rows, whatever is needed."""
        del needs, model
        return cls(rows.num_rows)

    def arrange(self, rows: Rows, seed: int, widest: int = 0) -> PyTree:
        """Nothing to lay out: the rows as they are."""
        del seed, widest
        return rows.on_device()

    def start(self, key: Array, every_row: PyTree = None) -> Int[Array, ""]:
        """There is nothing to choose."""
        del key, every_row
        return jnp.int32(0)

    def advance(self, cursor: Int[Array, ""]) -> Int[Array, ""]:
        """The same rows again."""
        return cursor

    def read(self, stage: PyTree, cursor: Int[Array, ""], round_: UInt32[Array, ""]) -> WholeRows:  # pyright: ignore[reportIncompatibleMethodOverride]
        """All rows. Nothing is read until a sum is asked for."""
        del cursor, round_
        return WholeRows(stage, self.num_rows)
