"""Proposals outside of a run, to look at what they would try: with rows of their own, if they read any."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from tallmc.feed import AllRowsFeed, Drawn, Feed, IndexedFeed, Needs
from tallmc.posterior import Model, Rows
from tallmc.proposals.contract import Move, Proposal


class ProposalSource(NamedTuple):
    """Where such a proposal gets its rows.

    Args:
        feed: Draws them.
        stage: What it draws them from.
    """

    feed: Feed
    stage: PyTree


def proposal_source(needs: Needs | None, rows: Rows, model: Model) -> ProposalSource | None:
    """For a proposal with these needs, nothing being shuffled or copied for it; None if it reads no rows."""
    if needs is None:
        return None
    kind = AllRowsFeed if needs.drawn == (Drawn.ALL_AT_ONCE,) else IndexedFeed
    feed = kind.of(rows, needs, model)
    return ProposalSource(feed, feed.arrange(rows, 0))


def proposed_from(
    source: ProposalSource | None, proposal: Proposal, key: Array, position: PyTree, model: Model
) -> Move:
    """One proposal."""
    if source is None:
        return proposal.propose(key, position, model)
    key_move, key_rows = jax.random.split(key)
    window = source.feed.read(source.stage, source.feed.start(key_rows), jnp.uint32(0))
    return proposal.propose(key_move, position, model, window)  # pyright: ignore[reportCallIssue]
