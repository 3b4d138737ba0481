"""Where rows come from. A chain sees windows; only the feed knows what is behind them."""

from tallmc.feed.base import Feed, Window
from tallmc.feed.in_memory import InMemoryFeed
from tallmc.feed.indexed import IndexedFeed
from tallmc.feed.weighted import WeightedFeed

__all__ = ["Feed", "InMemoryFeed", "IndexedFeed", "WeightedFeed", "Window"]
