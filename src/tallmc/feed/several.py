"""Several feeds at once, for a kernel whose parts need different rows."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, PyTree, UInt32

from tallmc.feed.contract import Feed, Window
from tallmc.posterior import Rows


class Source(NamedTuple):
    """Where one part's rows come from, for kernels that begin several tests within one transition.

    Args:
        feed: Of that part.
        stage: What is on the device for it.
        round: Rounds since the run began.
    """

    feed: Feed
    stage: PyTree
    round: UInt32[Array, ""]

    def read(self, cursor: PyTree) -> "Window | Windows":
        """The rows at a cursor that `feed.start` and `feed.advance` gave."""
        return self.feed.read(self.stage, cursor, self.round)


class Windows(NamedTuple):
    """One window for each part, none of them read before it is asked for: only the part at work pays for its rows.

    Args:
        readers: Read the window of each part at the chain's own cursor.
        sources: For parts with cursors of their own.
    """

    readers: tuple[Callable[[], "Window | Windows"], ...]
    sources: tuple[Source, ...] = ()

    def of(self, part: int) -> "Window | Windows":
        """Reads the window of one part."""
        return self.readers[part]()


class SeveralFeeds(Feed):
    """A feed for each part of a kernel. Feeds that lay rows out alike share them.

    Args:
        feeds: One a part.
    """

    feeds: tuple[Feed, ...]
    num_rows: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)

    def __init__(self, feeds: tuple[Feed, ...]):
        if any(feed.streamed for feed in feeds):
            raise ValueError(
                "a stream feeds one rule; kernels made of kernels, and proposals that read rows, need rows that they "
                "can choose: leave feed out"
            )
        self.feeds = feeds
        self.num_rows = feeds[0].num_rows
        self.batch_size = max(feed.batch_size for feed in feeds)

    def arrange(self, rows: Rows, seed: int, widest: int = 0) -> tuple[PyTree, ...]:
        """The stage of each part. Stages that several parts share are one array, not copies."""
        widest = max([widest, *(feed.batch_size for feed in self.leaves() if feed.shuffled)])
        laid_out: dict[bool, PyTree] = {}
        for feed in self.leaves():
            if feed.shuffled not in laid_out:
                laid_out[feed.shuffled] = feed.arrange(rows, seed, widest)
        return self._hand_out(laid_out)

    def _hand_out(self, laid_out: dict[bool, PyTree]) -> tuple[PyTree, ...]:
        return tuple(
            feed._hand_out(laid_out) if isinstance(feed, SeveralFeeds) else laid_out[feed.shuffled]
            for feed in self.feeds
        )

    def leaves(self) -> tuple[Feed, ...]:
        """All feeds, those of parts of parts included."""
        return tuple(
            leaf for feed in self.feeds for leaf in (feed.leaves() if isinstance(feed, SeveralFeeds) else (feed,))
        )

    def start(self, key: Array, every_row: PyTree = None) -> tuple[PyTree, ...]:
        """A cursor for each part, independent of each other's."""
        wishes = (None,) * len(self.feeds) if every_row is None else every_row
        keys = jax.random.split(key, len(self.feeds))
        return tuple(feed.start(keys[i], wishes[i]) for i, feed in enumerate(self.feeds))

    def advance(self, cursor: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
        """Moves all cursors on; those of parts that are not at work are never read."""
        return tuple(feed.advance(part) for feed, part in zip(self.feeds, cursor, strict=True))

    def read(self, stage: tuple[PyTree, ...], cursor: tuple[PyTree, ...], round_: UInt32[Array, ""]) -> Windows:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One window for each part, not read yet: the part at work asks for its own."""
        sources = tuple(Source(feed, own, round_) for feed, own in zip(self.feeds, stage, strict=True))
        pairs = zip(sources, cursor, strict=True)
        return Windows(tuple(lambda source=source, c=c: source.read(c) for source, c in pairs), sources)

    @property
    def setup_rows(self) -> int:
        """Rows that were read to make all of them."""
        return sum(feed.setup_rows for feed in self.feeds)
