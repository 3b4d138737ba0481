"""The contract of a feed."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree, Real


class Window(eqx.Module):
    """A fixed number of rows, of which the first `count` are meant.

    Args:
        rows: Pytree of arrays with the window's rows along the first axis.
        count: Rows that count; the others are padding.
        size: Rows in all.
        scale: For rows drawn by weight, what to multiply each row's log ratio by so that the expected mean is the mean
            over all rows; None if it is 1 for all.
        marks: What a rule drew to decide which rows it wants, for when it hears what they say.
    """

    rows: PyTree
    count: Int[Array, ""]
    size: int = eqx.field(static=True)
    scale: Real[Array, " size"] | None = None
    marks: PyTree = None

    @property
    def valid(self) -> Bool[Array, " size"]:
        """Which rows count."""
        return jnp.arange(self.size, dtype=jnp.int32) < self.count


class Feed(eqx.Module):
    """Shows each test a sequence of windows: disjoint, in random order, every row exactly once if it sees them all.

    That is the promise most rules rest on. A feed that draws rows by weight makes another one; see `WeightedFeed`.

    A feed is two things: how rows are laid out (`arrange`, once, before anything is compiled) and which rows the
    next window holds (`start`, `advance`, `read`, inside compiled code).
    """

    num_rows: eqx.AbstractVar[int]
    batch_size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def arrange(self, data: PyTree, seed: int) -> PyTree:
        """Lays out the data the way `read` wants it; `seed` decides any shuffle."""

    @abc.abstractmethod
    def start(self, key: Array, every_row: Bool[Array, ""] | None = None) -> PyTree:
        """The cursor of a new test: an independent random subset and order.

        `every_row` matters only to feeds that draw rows by weight: whether this test wants every row once instead.
        """

    @abc.abstractmethod
    def advance(self, cursor: PyTree) -> PyTree:
        """The cursor of the same test's next window."""

    @abc.abstractmethod
    def read(self, data: PyTree, cursor: PyTree) -> Window:
        """The rows at the cursor, from arranged data."""

    @property
    def num_windows(self) -> int:
        """Windows it takes to see every row once."""
        return -(-self.num_rows // self.batch_size)


def check_sizes(num_rows: int, batch_size: int) -> int:
    """The window that is really used: never more than there are rows."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if num_rows > 2**30:
        raise ValueError(f"{num_rows} rows do not fit 32-bit row numbers; at most {2**30} rows can be held in memory")
    return min(batch_size, num_rows)
