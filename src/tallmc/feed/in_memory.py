"""Rows that were shuffled once, in memory: the feed that most rules get."""

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, PyTree, UInt32

from tallmc.feed.contract import Feed, Needs, Window, check_sizes
from tallmc.feed.run_order import RunCursor, RunOrder
from tallmc.feed.window_order import WindowCursor, WindowOrder
from tallmc.posterior import Model, Rows

_MANY_WINDOWS = 1000  # so many that the windows of one shuffle are as good as fresh ones


class InMemoryFeed(Feed):
    """Reads neighbours of rows that were shuffled once, with a recorded seed.

    Where windows are many, a random minibatch is a contiguous read (`WindowOrder`). Where they are few, a test would
    see the same windows as the one before, and with them whatever the one shuffle made of their variance; there each
    test reads short runs of neighbours in an order of its own (`RunOrder`). In both, windows of a test are disjoint and
    together hold every row exactly once.

    Args:
        num_rows: Rows of data.
        batch_size: Rows in a window; one above `num_rows` means all rows.
        every_row: Whether every test reads all rows, so that their order does not matter and the cheaper one will do.

    Example:
        >>> type(InMemoryFeed(10_000, 500).order).__name__, type(InMemoryFeed(10_000_000, 500).order).__name__
        ('RunOrder', 'WindowOrder')
    """

    shuffled: ClassVar = True
    num_rows: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    order: WindowOrder | RunOrder

    def __init__(self, num_rows: int, batch_size: int, *, every_row: bool = False):
        self.num_rows = num_rows
        self.batch_size = check_sizes(num_rows, batch_size)
        many = self.num_windows >= _MANY_WINDOWS or self.num_windows == 1
        order = WindowOrder if many or every_row else RunOrder
        self.order = order(num_rows, self.batch_size)

    @classmethod
    def of(cls, rows: Rows, needs: Needs, model: Model) -> "InMemoryFeed":
        """Windows of the size that is needed."""
        del model
        return cls(rows.num_rows, needs.batch_size, every_row=needs.every_row)

    def arrange(self, rows: Rows, seed: int, widest: int = 0) -> PyTree:
        """Shuffles the rows, and repeats the first ones at the end so that no window has to wrap around."""
        return rows.shuffled(seed, min(max(self.batch_size, widest) - 1, self.num_rows))

    def start(self, key: Array, every_row: PyTree = None) -> WindowCursor | RunCursor:
        """Cuts the ring of rows at a random place, and draws an order."""
        del every_row
        return self.order.start(key)

    def advance(self, cursor: WindowCursor | RunCursor) -> WindowCursor | RunCursor:
        """The next window of the same order."""
        return self.order.advance(cursor)  # pyright: ignore[reportArgumentType]

    def read(self, stage: PyTree, cursor: WindowCursor | RunCursor, round_: UInt32[Array, ""]) -> Window:
        """Rows that lie together, or a few runs of such."""
        del round_
        return self.order.read(stage, cursor)  # pyright: ignore[reportArgumentType]
