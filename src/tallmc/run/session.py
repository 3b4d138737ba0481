"""All that a run needs to go on, in one pytree."""

from typing import NamedTuple

from tallmc.feed import Feed
from tallmc.kernel import Kernel
from tallmc.posterior import Model
from tallmc.run.chain import Chain


class Session(NamedTuple):
    """A run between two blocks. With the rows, and with the seed that laid them out, it can be taken up again.

    Args:
        kernel: Moves the chains, and knows how its rows are drawn.
        model: What they are asked about: with its expansion, if it has one.
        feed: Which rows they see.
        shuffle_seed: With which the feed laid out the rows.
        num_warmup: Transitions of each chain before its first draw.
        chains: Stacked: keys, states, and positions in the stream of rows.
        drawn: Draws of each chain that have been handed out.
    """

    kernel: Kernel
    model: Model
    feed: Feed
    shuffle_seed: int
    num_warmup: int
    chains: Chain
    drawn: int = 0

    @property
    def num_chains(self) -> int:
        """How many chains there are."""
        return self.chains.finished.shape[0]
