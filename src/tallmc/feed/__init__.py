"""Where rows come from. A chain sees windows; only the feed knows what is behind them."""

from tallmc.feed.all_rows import AllRowsFeed
from tallmc.feed.contract import ALL_ROWS, Drawn, Feed, FeedKind, Needs, Window
from tallmc.feed.in_memory import InMemoryFeed
from tallmc.feed.indexed import IndexedFeed
from tallmc.feed.several import SeveralFeeds, Source, Windows
from tallmc.feed.streamed import StreamedFeed
from tallmc.feed.weighted import RowWeights, WeightedFeed

__all__ = [
    "ALL_ROWS",
    "AllRowsFeed",
    "Drawn",
    "Feed",
    "FeedKind",
    "InMemoryFeed",
    "IndexedFeed",
    "Needs",
    "RowWeights",
    "SeveralFeeds",
    "Source",
    "StreamedFeed",
    "WeightedFeed",
    "Window",
    "Windows",
]
