"""What a chain asks of its rows, what it is shown, and what a feed is. Read this before any feed."""

import abc
import enum
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree, Real, UInt32

from tallmc.posterior import Model, Rows
from tallmc.posterior.spread import Far


class Drawn(enum.Enum):
    """How the rows of a test are drawn."""

    EACH_ONCE = "each row once, in random order"
    BY_WEIGHT = "with replacement, in proportion to what each can say"
    ALL_AT_ONCE = "all rows, in every round"


class Needs(NamedTuple):
    """What a rule (or a proposal) needs of its rows; declared once, read by feeds, checks and set-up.

    Args:
        batch_size: Rows in a window.
        drawn: How rows may be drawn; the first way is taken unless the caller chooses.
        expansion_order: Order of the Taylor expansion that it cannot do without; None if it can.
        decisive_rows: Rows that a decision rests on at least, for the noise of rounding; infinity: all of them.
        every_row: Whether every test reads every row, so that their order does not matter.
        only_sums: Whether it does no more with log ratios than add them up: devices that share rows then hand around a
            number each, and not one for each row.
        to_begin: Whether these rows are for beginning a test, namely for its proposal, and not for the test.
    """

    batch_size: int
    drawn: tuple[Drawn, ...] = (Drawn.EACH_ONCE,)
    expansion_order: int | None = None
    decisive_rows: float | None = None
    every_row: bool = False
    only_sums: bool = False
    to_begin: bool = False

    @property
    def row_bounds(self) -> bool:
        """Whether it relies on a bound for each row."""
        return self.drawn == (Drawn.BY_WEIGHT,)

    def rows_behind_a_decision(self, num_rows: int) -> int:
        """At least so many of all rows."""
        return int(min(self.batch_size if self.decisive_rows is None else self.decisive_rows, num_rows))


ALL_ROWS = math.inf


def begins_with_rows(needs: Any) -> bool:
    """Whether what a kernel needs, one `Needs` or a tuple of such, has some that are for beginning a test."""
    return needs.to_begin if isinstance(needs, Needs) else any(begins_with_rows(part) for part in needs)


class Window(eqx.Module):
    """A fixed number of rows, of which the first `count` are meant.

    Args:
        rows: Pytree of arrays with the window's rows along the first axis; or a `Far`, if several devices have them.
        count: Rows that count; the others are padding.
        size: Rows in all.
        scale: For rows drawn by weight, what to multiply each row's value by so that the expected mean is the mean
            over all rows; None if it is 1 for all.
    """

    rows: PyTree
    count: Int[Array, ""]
    size: int = eqx.field(static=True)
    scale: Real[Array, " size"] | None = None

    @property
    def valid(self) -> Bool[Array, " size"]:
        """True for the rows that are meant, false for padding; padding always comes last."""
        return jnp.arange(self.size, dtype=jnp.int32) < self.count

    def first(self, count: Int[Array, ""]) -> "Window":
        """The same window, of which only the first `count` rows are meant."""
        return Window(self.rows, count, self.size, self.scale)

    def map(self, function: Callable[[PyTree], Real[Array, " size"]]) -> Real[Array, " size"]:
        """What a function says of each row: zero for padding, scaled for rows that were drawn by weight.

        Evidence is gathered in the finest precision that is on, whatever the function was written in.
        """
        said = self.rows.map(function) if isinstance(self.rows, Far) else function(self.rows)
        values = jnp.where(self.valid, said, 0).astype(jnp.result_type(float))
        return values if self.scale is None else values * self.scale.astype(values.dtype)

    def sums(self, function: Callable[[PyTree], Real[Array, " size"]]) -> Real[Array, " sums"]:
        """The same for who only adds it up: as it is, or sums of it if several devices have the rows."""
        if isinstance(self.rows, Far) and self.scale is None:
            return self.rows.sums(function, self.count)
        return self.map(function)


class Feed(eqx.Module):
    """Shows each test a sequence of windows: disjoint, in random order, every row exactly once if it sees them all.

    That is the promise most rules rest on. A feed that draws rows by weight makes another one; see `WeightedFeed`.

    A feed is two things: how rows are laid out (`arrange`, on the host, before anything is compiled) and which rows the
    next window holds (`start`, `advance`, `read`, inside compiled code). A feed for one rule also has the class method
    `of`, by which a run builds it: see `FeedKind`.
    """

    drawn: ClassVar[Drawn] = Drawn.EACH_ONCE
    shuffled: ClassVar[bool] = False
    """Whether `arrange` shuffles; feeds that agree in this can share what it lays out."""
    streamed: ClassVar[bool] = False
    """Whether a stage holds a part of the rows only, and others take its place while chains are in their tests."""
    looked_up: ClassVar[bool] = False
    """Whether rows are mere look-ups in tables, which no wide vectors make faster: see `run.drivers`."""

    num_rows: eqx.AbstractVar[int]
    batch_size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def arrange(self, rows: Rows, seed: int, widest: int = 0) -> PyTree:
        """Puts rows on the device the way `read` wants them: the *stage*.

        Args:
            rows: All rows.
            seed: Decides any shuffle.
            widest: Rows in the largest window that will be read from this stage, if other feeds share it.
        """

    @abc.abstractmethod
    def start(self, key: Array, every_row: PyTree = None) -> PyTree:
        """The cursor of a new test: an independent random subset and order.

        `every_row` matters only to feeds that draw rows by weight: whether this test wants every row once instead.
        """

    @abc.abstractmethod
    def advance(self, cursor: PyTree) -> PyTree:
        """The cursor of the same test's next window."""

    @abc.abstractmethod
    def read(self, stage: PyTree, cursor: PyTree, round_: UInt32[Array, ""]) -> Window:
        """The rows at the cursor.

        Args:
            stage: What is on the device now.
            cursor: Where this test is.
            round_: Rounds since the run began, for feeds that show all chains the same stream.
        """

    @property
    def setup_rows(self) -> int:
        """Rows that were read to make this feed."""
        return 0

    @property
    def num_windows(self) -> int:
        """Windows it takes to see every row once."""
        return -(-self.num_rows // self.batch_size)


@runtime_checkable
class FeedKind(Protocol):
    """A class of feeds that can be built for any one rule: what `tm.sample(feed=...)` takes.

    Feeds that are put together from others, as `SeveralFeeds` are, belong to no one rule and have no `of`.
    """

    __name__: str
    drawn: Drawn

    def of(self, rows: Rows, needs: Needs, model: Model) -> Feed:
        """The feed of some rows for a rule that needs this of them."""
        ...


def check_sizes(num_rows: int, batch_size: int) -> int:
    """The window that is really used: never more than there are rows."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if num_rows > 2**30:
        raise ValueError(f"{num_rows} rows do not fit 32-bit row numbers; at most {2**30} rows can be held in memory")
    return min(batch_size, num_rows)
