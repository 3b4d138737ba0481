"""What the parts of a kernel read: for whatever walks `kernel.parts()`."""

from tallmc.feed import Feed, Needs, SeveralFeeds
from tallmc.kernel import Part


def rule_needs(part: Part) -> Needs:
    """What a part without members needs of the rows that it decides from: the first of its needs."""
    return part.needs if isinstance(part.needs, Needs) else part.needs[0]


def rule_feeds(kernel: Part, feed: Feed) -> tuple[Feed, ...]:
    """For each part of a kernel, the feed of the rows that it decides from."""
    own = feed.feeds if isinstance(feed, SeveralFeeds) else (feed,)
    members = kernel.members()
    return tuple(leaf for pair in zip(members, own, strict=True) for leaf in rule_feeds(*pair)) if members else own[:1]
