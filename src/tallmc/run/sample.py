"""`tm.sample`: the one call that most people need."""

import dataclasses
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from tallmc import checks
from tallmc.control_variates import Taylor
from tallmc.diagnostics.audit import Audit, audit
from tallmc.diagnostics.precision import check_precision
from tallmc.feed import Feed
from tallmc.kernel import Kernel
from tallmc.keys import as_key
from tallmc.normality import NormalityWarning
from tallmc.posterior import Posterior
from tallmc.progress import working
from tallmc.run.automatic import plan
from tallmc.run.chain import Chain, Problem, start_chain
from tallmc.run.drive import drive
from tallmc.run.drivers import Driver, pick_driver
from tallmc.run.result import Run
from tallmc.run.start import check_bounds, find_start, make_feed

_TOLERATED_ERROR = 0.01


def sample(
    posterior: Posterior,
    kernel: Kernel | None = None,
    *,
    init: PyTree = None,
    num_samples: int = 1000,
    num_warmup: int = 1000,
    num_chains: int = 4,
    rng_key: int | Array = 0,
    control_variate: Taylor | None = None,
    progress: bool = True,
    driver: Driver | None = None,
    feed: type[Feed] | None = None,
) -> Run:
    """Draws from a posterior.

    Args:
        posterior: What to draw from.
        kernel: How to move. If left out, everything is chosen: a look at the posterior decides on control variate,
            proposal and rule, a paragraph says which and why, and the run ends with an audit.
        init: Where to start: one position for all chains, or one with a leading chain axis. If left out, at the mode,
            which `tm.optimise.mode` finds; that works if the data has one matrix, with a coefficient for each column.
            Without a kernel it is where the search for the mode begins, and chains start near that.
        num_samples: Draws to keep of each chain.
        num_warmup: Draws before those, during which the kernel tunes its step size. 0 tunes nothing.
        num_chains: Independent chains.
        rng_key: Int or JAX key. The same key gives the same chains, however they are scheduled.
        control_variate: `tm.Taylor()` makes rows say less; see there. `tm.MHSS` makes its own if none is given.
        progress: Whether to show a progress bar, if output is a terminal.
        driver: How chains are scheduled; picked by device if left out.
        feed: How rows are drawn; contiguous windows of shuffled data if left out, or by weight if the rule wants that.

    Returns:
        The draws and what they cost. Ctrl-C ends the run early and returns what there is.

    Example:
        >>> import jax.numpy as jnp, tallmc as tm
        >>> rows = jnp.linspace(-2.0, 2.0, 10_000)
        >>> posterior = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, rows, temperature=1000.0)
        >>> kernel = tm.MetropolisHastings(tm.RandomWalk(0.5), tm.MHMinibatch())
        >>> run = tm.sample(posterior, kernel, init=0.0, num_samples=100, num_warmup=100)
        >>> run.samples.shape
        (4, 100)
    """
    if not isinstance(posterior, Posterior):
        raise ValueError(f"posterior must be a tm.Posterior, not {type(posterior).__name__}")
    checks.check_counts(num_samples, num_warmup, num_chains)
    checks.check_data(posterior.data)
    if driver is not None and not isinstance(driver, Driver):
        raise ValueError("driver must be a Driver such as tm.ChainByChain() or tm.Together()")
    if feed is not None and not (isinstance(feed, type) and issubclass(feed, Feed)):
        raise ValueError(
            "feed must be a class, which is built for this run: pass feed=tm.IndexedFeed, without arguments"
        )
    key_shuffle, key_chains = jax.random.split(as_key(rng_key))
    key_plan = jax.random.fold_in(key_shuffle, 1)
    automatic = kernel is None
    if kernel is None:
        if control_variate is not None or feed is not None:
            raise ValueError(
                "without a kernel control variate and feed are chosen too; leave control_variate and feed out"
            )
        start = plan(posterior, init, num_chains, key_plan, progress=progress)
        print(f"tallmc: {'; '.join(start.choices)}.")
    else:
        checks.check_is_kernel(kernel)
        start = find_start(posterior, kernel, init, control_variate, num_chains, progress=progress)
    posterior, kernel, positions = start.posterior, start.kernel, start.positions
    checks.check_kernel(kernel, positions, posterior)
    typical, start_rows = checks.check_start(posterior, positions)
    first = jax.tree.map(lambda leaf: leaf[0], positions)
    check_precision(posterior, kernel, first, typical)
    rows, arranged, feed_rows = make_feed(feed or start.feed, posterior, kernel)
    checks.check_kernel(kernel, positions, arranged)  # once more: now it is known how rows will be drawn
    setup_rows = start.rows_read + start_rows + feed_rows + check_bounds(posterior, kernel, rows, positions, typical)

    shuffle_seed = int(jax.random.bits(key_shuffle))
    arranged = eqx.tree_at(lambda p: p.data, arranged, rows.arrange(posterior.data, shuffle_seed))
    problem = Problem(kernel, arranged, rows, jnp.int32(num_warmup))
    chains = _start_chains(problem, jax.random.split(key_chains, num_chains), positions)

    done = drive(
        driver or pick_driver(), problem, chains, num_samples, num_warmup, show=progress, controlled=start.controlled
    )
    run = Run.collect(
        draws=done.draws,
        kernel=kernel,
        posterior=posterior if done.moved is None else done.moved.controlled.posterior,
        step_size=_step_size(kernel, done.chains),
        num_warmup=num_warmup,
        chains=done.chains,
        feed=done.feed,
        setup_rows=setup_rows + (0 if done.moved is None else done.moved.rows_read),
        shuffle_seed=shuffle_seed,
        seconds=done.seconds,
        interrupted=done.draws.stats["rows"].shape[1] < num_samples,
        choices=start.choices + (() if done.moved is None else (done.moved.reason,)),
        doubts=start.doubts,
    )
    if done.moved is not None:
        print(f"tallmc: {done.moved.reason}.")
    if automatic and run.num_draws > 1 and not run.interrupted:
        try:
            with working("auditing 64 steps on all rows (Ctrl-C skips it)", show=progress):
                found = audit(run)
            run = dataclasses.replace(run, audit=found, doubts=run.doubts + _objections(found))
        except KeyboardInterrupt:  # the draws are there; whoever is in a hurry may have them
            run = dataclasses.replace(run, doubts=(*run.doubts, "the audit was stopped before it had an answer"))
    for warning in kernel.warnings(run.stats):
        trusting = getattr(getattr(kernel, "rule", None), "trusts_normality", False)
        warnings.warn(warning, NormalityWarning if trusting else UserWarning, stacklevel=2)
    for doubt in run.doubts:
        warnings.warn(doubt, UserWarning, stacklevel=2)
    return run


def _objections(found: Audit) -> tuple[str, ...]:
    """What an audit has against a run; nothing, if what it found may be chance."""
    if found.interval[0] <= _TOLERATED_ERROR:
        return ()
    return (f"the decisions of this run do not stand up to all rows; {found}",)


@eqx.filter_jit
def _start_chains(problem: Problem, keys: Array, positions: PyTree) -> Chain:
    return jax.vmap(lambda key, position: start_chain(problem, key, position))(keys, positions)


def _step_size(kernel: Kernel, chains: Chain) -> np.ndarray | None:
    factor = jax.vmap(kernel.step_size)(chains.state)
    return None if factor is None else np.asarray(factor)
