"""Where chains start, and what is worked out before they do."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tallmc import checks
from tallmc.bounds import RowBounds, WeightedBounds
from tallmc.control_variates import Controlled, Taylor
from tallmc.feed import Feed, InMemoryFeed, WeightedFeed
from tallmc.kernel import Kernel
from tallmc.keys import as_key
from tallmc.metropolis import MetropolisHastings
from tallmc.posterior import Posterior
from tallmc.run.modes import find_mode

_ROWS_TO_TRY, _MOVES_TO_TRY = 1000, 4


class Start(NamedTuple):
    """What a run begins with.

    Args:
        posterior: What to sample, with its control variate if it has one.
        kernel: How to move.
        positions: Where the chains start.
        rows_read: Rows that it took to get there.
        controlled: The control variate.
        feed: How to draw rows, if that was chosen too.
        choices: What was chosen and why, in words.
        doubts: What the caller must be warned of.
    """

    posterior: Posterior
    kernel: Kernel
    positions: PyTree
    rows_read: int
    controlled: Controlled | None = None
    feed: type[Feed] | None = None
    choices: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def find_start(
    posterior: Posterior,
    kernel: Kernel,
    init: PyTree,
    control_variate: Taylor | None,
    num_chains: int,
    *,
    progress: bool,
) -> Start:
    """Finds the mode if it is needed, and expands the posterior if that is wanted."""
    if control_variate is None and (order := kernel.expansion_order) is not None:
        control_variate = Taylor(order)
    if control_variate is not None and not isinstance(control_variate, Taylor):
        raise ValueError(f"control_variate must be tm.Taylor(...), not {type(control_variate).__name__}")
    at, rows_read = None if control_variate is None else control_variate.at, 0
    name = "init"
    if init is None and at is not None:
        init, name = at, "at"
    positions = None if init is None else checks.one_position_per_chain(posterior, init, num_chains, name)
    if positions is None or (control_variate is not None and at is None):
        first = None if positions is None else jax.tree.map(lambda leaf: leaf[0], positions)
        found = find_mode(posterior, first, progress=progress)
        rows_read = found.rows_read
        at = found.position if at is None else at
        if positions is None:
            place = "the mode" if found.converged else "the best position that the search for a mode came to"
            print(f"tallmc: no init given; starting at {place}, found in {rows_read:,} rows")
            positions = checks.one_position_per_chain(posterior, found.position, num_chains)
    controlled = None
    if control_variate is not None:
        at = jax.tree.map(lambda leaf: leaf[0], checks.one_position_per_chain(posterior, at, 1, "at"))
        controlled = control_variate.expand(posterior, at)
        posterior, rows_read = controlled.posterior, rows_read + controlled.rows_read
    return Start(posterior, kernel, positions, rows_read, controlled)


def make_feed(feed: type[Feed] | None, posterior: Posterior, kernel: Kernel) -> tuple[Feed, Posterior, int]:
    """A feed as the kernel wants it, the posterior with bounds on rows from such a feed, and the rows read for it."""
    if feed is None:
        feed = WeightedFeed if kernel.wants_weighted_rows else InMemoryFeed
    if kernel.wants_weighted_rows and feed is not WeightedFeed:
        raise ValueError("this rule draws rows by weight; leave feed out, or pass feed=tm.WeightedFeed")
    if feed is not WeightedFeed:
        return feed(posterior.num_rows, kernel.batch_size), posterior, 0  # pyright: ignore[reportCallIssue]
    if not isinstance(posterior.bounds, RowBounds):
        raise ValueError("WeightedFeed weighs rows by posterior.bounds, and this posterior has none for each row")
    if not kernel.allows_weighted_rows:
        raise ValueError(
            "this rule counts on seeing each row once; WeightedFeed is for MHSS, TunaMH, MHMinibatch and AustereMH"
        )
    weights = posterior.bounds.constants(posterior.data)
    if not kernel.wants_weighted_rows:
        posterior = eqx.tree_at(lambda p: p.bounds, posterior, WeightedBounds(posterior.bounds))
    return WeightedFeed(posterior.num_rows, kernel.batch_size, weights), posterior, posterior.num_rows


def check_bounds(posterior: Posterior, kernel: Kernel, feed: Feed, positions: PyTree, typical: float) -> int:
    """Tries the bounds that an exact rule relies on: some rows, on the way from where chains start to elsewhere.

    Args:
        posterior: With its bounds.
        kernel: With its proposal.
        feed: Draws rows by those bounds, if the kernel's rule relies on them.
        positions: Where the chains start.
        typical: Size of a row's log likelihood, for the rounding of their differences.

    Returns:
        Rows read.
    """
    bounds = posterior.bounds
    if not (kernel.wants_weighted_rows and isinstance(kernel, MetropolisHastings)):
        return 0
    assert isinstance(feed, WeightedFeed)
    assert isinstance(bounds, RowBounds)
    old = jax.tree.map(lambda leaf: leaf[0], positions)
    generator = np.random.default_rng(0)
    which = generator.choice(posterior.num_rows, min(_ROWS_TO_TRY, posterior.num_rows), replace=False)
    rows = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[which]), posterior.data)
    constants = float(bounds.mean) * feed.weights[which]
    model = eqx.tree_at(lambda p: p.data, posterior, None)
    for seed in range(_MOVES_TO_TRY):
        new = kernel.proposal.propose(as_key(seed), old, model).position
        allowed = constants * float(bounds.reach(old, new)) / float(posterior.temperature)
        with jax.default_matmul_precision("highest"):
            ratios = posterior.log_ratios(old, new, rows)
        rounding = 0.0 if posterior.expanded else 8 * typical / float(posterior.temperature)
        allowed = allowed + rounding * float(jnp.finfo(ratios.dtype).eps)
        change = np.abs(np.asarray(ratios, float))
        if np.any(worse := change > allowed * 1.001):
            row = int(np.argmax(np.where(worse, change / np.maximum(allowed, np.finfo(float).tiny), 0)))
            raise ValueError(
                f"row {which[row]} breaks posterior.bounds: between two positions it changes by {change[row]:.3g}, and "
                f"its bound allows {allowed[row]:.3g}. Mend the bounds (a first derivative bounds the change, a second "
                "or third what a Taylor expansion leaves of it), or use tm.MHMinibatch(), which needs none"
            )
    return _MOVES_TO_TRY * len(which)
