"""What a run gives back: draws, what they cost, and a summary to read."""

import dataclasses
import functools
from typing import Any

import arviz_base
import jax
import numpy as np
import xarray
from arviz_stats import summary as summarise  # pyright: ignore
from jaxtyping import PyTree

from tallmc.diagnostics.audit import Audit
from tallmc.feed import Feed, WeightedFeed
from tallmc.kernel import Kernel
from tallmc.posterior import Posterior
from tallmc.run.chain import Chain
from tallmc.run.records import Draw
from tallmc.run.summary import Summary


@dataclasses.dataclass(frozen=True)
class Run:
    """Draws and statistics of a run.

    Args:
        samples: Pytree like a position; leaves are (chain, draw, ...).
        stats: One array (chain, draw) a name: `accepted`, `rows` (rows the test of that draw consumed),
            `used_all_rows`, `nonfinite` (rejected for a log ratio that was not finite), and what the rule adds.
        setup_rows: Rows read outside the tests.
        step_size: What warm-up made of each chain's step size, as a factor; None if nothing was tuned.
        shuffle_seed: Seed of the one shuffle of the data.
        seconds: Time spent moving chains, compilation included, fetching the draws not.
        interrupted: Whether the run was stopped before it had all its draws.
        kernel: What moved the chains.
        posterior: What was sampled, with its control variate if there was one.
        num_warmup: Transitions of each chain before its first draw.
        chains: The chains as they ended: all that they would need to go on.
        feed: How rows were drawn.
        choices: What was chosen for the caller, in words.
        doubts: Why the run may not be what the caller thinks, known before it began.
        audit: Decisions checked on all rows, if that was done.
    """

    samples: PyTree
    stats: dict[str, np.ndarray]
    setup_rows: int
    step_size: np.ndarray | None
    shuffle_seed: int
    seconds: float
    interrupted: bool
    kernel: Kernel
    posterior: Posterior
    num_warmup: int = 0
    chains: Chain | None = None
    feed: Feed | None = None
    choices: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    audit: Audit | None = None

    @classmethod
    def collect(cls, draws: Draw, posterior: Posterior, **others: Any) -> "Run":
        """Adds what follows from the draws."""
        # As many draws with replacement as there are rows are not all rows; a rule that asks for all gets each once.
        by_weight = isinstance(others.get("feed"), WeightedFeed) and not others["kernel"].wants_weighted_rows
        stats = {**draws.stats, "used_all_rows": (draws.stats["rows"] >= posterior.num_rows) & (not by_weight)}
        return cls(samples=draws.position, stats=stats, posterior=posterior, **others)

    @property
    def num_chains(self) -> int:
        """Chains."""
        return self.stats["rows"].shape[0]

    @property
    def num_draws(self) -> int:
        """Draws of each chain."""
        return self.stats["rows"].shape[1]

    def to_datatree(self) -> xarray.DataTree:
        """The run as an ArviZ DataTree with groups `posterior` and `sample_stats`."""
        return arviz_base.from_dict({"posterior": _named(self.samples), "sample_stats": dict(self.stats)})

    @functools.cached_property
    def _summary(self) -> Summary:
        # ESS and R-hat need a few draws; a run cut short by Ctrl-C may have fewer.
        kind = "all" if self.num_draws >= 4 else "stats"
        table: Any = summarise(self.to_datatree(), kind=kind, ci_prob=0.9, ci_kind="eti", round_to="none")  # pyright: ignore
        return Summary.of(table, self)

    def summary(self) -> Summary:
        """Mean, spread, effective sample sizes, R-hat and Monte Carlo error, and what the draws cost."""
        return self._summary


def _named(samples: PyTree) -> dict[str, np.ndarray]:
    """One variable a leaf, named by its path."""
    paths = jax.tree.leaves_with_path(samples)
    if len(paths) == 1 and not paths[0][0]:
        return {"position": paths[0][1]}
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in paths}
