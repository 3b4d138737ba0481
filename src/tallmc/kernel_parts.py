"""What the parts of a kernel read: for whatever walks `kernel.parts()`."""

from typing import Any

from jaxtyping import Array, PyTree

from tallmc.feed import Feed, Needs, SeveralFeeds
from tallmc.kernel import Kernel


def rule_needs(part: Kernel) -> Needs:
    """What a part without members needs of the rows that it decides from: the first of its needs."""
    return part.needs if isinstance(part.needs, Needs) else part.needs[0]


def opening_windows(kernel: Kernel, feed: Feed, stage: PyTree, key_feed: Array, round_: Any) -> tuple[Any, ...]:
    """What `begin` is given besides, for the test whose rows are drawn by `key_feed`; nothing is read yet."""
    return (feed.read(stage, feed.start(key_feed), round_),) if kernel.begins_with_rows else ()


def windows_of_part(kernel: Kernel, part: int, windows: Any) -> Any:
    """For audits: of the windows that a kernel began with, those of one of its parts."""
    for i, member in enumerate(kernel.members()):
        count = len(member.parts())
        if part < count:
            return windows_of_part(member, part, windows.of(i))
        part -= count
    return windows


def rule_feeds(kernel: Kernel, feed: Feed) -> tuple[Feed, ...]:
    """For each part of a kernel, the feed of the rows that it decides from."""
    own = feed.feeds if isinstance(feed, SeveralFeeds) else (feed,)
    members = kernel.members()
    return tuple(leaf for pair in zip(members, own, strict=True) for leaf in rule_feeds(*pair)) if members else own[:1]
