"""`tm.sample`: the one call that most people need."""

import time
import warnings
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from tallmc.acceptance import MHMinibatch
from tallmc.control_variates import Taylor
from tallmc.diagnostics.precision import check_precision
from tallmc.feed import Feed
from tallmc.kernel import Kernel
from tallmc.keys import as_key
from tallmc.metropolis import MetropolisHastings
from tallmc.normality import NormalityWarning
from tallmc.posterior import Posterior
from tallmc.proposals import RandomWalk
from tallmc.run import checks
from tallmc.run.chain import Chain, Problem, draw_like, start_chain
from tallmc.run.drivers import Driver, pick_driver
from tallmc.run.progress import is_watched, progress_bar, stop_on_interrupt
from tallmc.run.records import Draw, Layout
from tallmc.run.result import Run
from tallmc.run.start import find_start, make_feed

_SECONDS_PER_BLOCK = 0.3
_FIRST_BLOCK = 16


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
        kernel: How to move; a random walk with minibatch tests if left out.
        init: Where to start: one position for all chains, or one with a leading chain axis. If left out, at the mode,
            which `tm.optimise.mode` finds; that works if the data has one matrix, with a coefficient for each column.
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
    if kernel is None:
        kernel = MetropolisHastings(RandomWalk(0.1), MHMinibatch())
        print("tallmc: no kernel given; using MetropolisHastings(RandomWalk(0.1), MHMinibatch()), tuned in warm-up")
    checks.check_is_kernel(kernel)
    start = find_start(posterior, kernel, init, control_variate, num_chains, progress=progress)
    posterior, positions = start.posterior, start.positions
    checks.check_kernel(kernel, positions, posterior)
    typical, start_rows = checks.check_start(posterior, positions)
    setup_rows = start.rows_read + start_rows
    first = jax.tree.map(lambda leaf: leaf[0], positions)
    check_precision(posterior, kernel, first, typical)

    key_shuffle, key_chains = jax.random.split(as_key(rng_key))
    shuffle_seed = int(jax.random.bits(key_shuffle))
    rows, feed_rows = make_feed(feed, posterior, kernel)
    setup_rows += feed_rows
    arranged = eqx.tree_at(lambda p: p.data, posterior, rows.arrange(posterior.data, shuffle_seed))
    problem = Problem(kernel, arranged, rows, jnp.int32(num_warmup))
    chains = _start_chains(problem, jax.random.split(key_chains, num_chains), positions)

    chains, draws, seconds = _drive(driver or pick_driver(), problem, chains, num_samples, num_warmup, show=progress)
    run = Run.collect(
        draws=draws,
        kernel=kernel,
        posterior=posterior,
        step_size=_step_size(kernel, chains),
        setup_rows=setup_rows,
        shuffle_seed=shuffle_seed,
        seconds=seconds,
        interrupted=draws.stats["rows"].shape[1] < num_samples,
    )
    for warning in kernel.warnings(run.stats):
        warnings.warn(warning, NormalityWarning, stacklevel=2)
    return run


@eqx.filter_jit
def _start_chains(problem: Problem, keys: Array, positions: PyTree) -> Chain:
    return jax.vmap(lambda key, position: start_chain(problem, key, position))(keys, positions)


def _step_size(kernel: Kernel, chains: Chain) -> np.ndarray | None:
    factor = jax.vmap(kernel.step_size)(chains.state)
    return None if factor is None else np.asarray(factor)


def _drive(
    driver: Driver, problem: Problem, chains: Chain, num_samples: int, num_warmup: int, *, show: bool
) -> tuple[Chain, Draw, float]:
    """Runs blocks of transitions until every chain has all its draws, or the user has had enough.

    Returns:
        The chains, their draws, and the seconds it took to move them.
    """
    layout = Layout(draw_like(problem, jax.tree.map(lambda leaf: leaf[0], chains)))
    total = num_warmup + num_samples
    show = show and is_watched()
    with progress_bar(total, num_warmup, show=show) as update, stop_on_interrupt() as interrupted:
        started = time.perf_counter()
        work = driver.load(problem, chains, layout.empty((chains.finished.shape[0], num_samples)))
        for until in _blocks(total):
            before = int(driver.finished(work).min())
            work = driver.advance(problem, work, until)
            if show:
                update(until, layout.unpack(driver.peek(work, before - num_warmup, until - num_warmup)).stats)
            if interrupted():
                break
        seconds = time.perf_counter() - started
    chains, records = driver.unload(work)
    drawn = int(np.clip(int(chains.finished.min()) - num_warmup, 0, num_samples))
    if drawn == 0:
        raise KeyboardInterrupt("stopped during warm-up: no draws to return")
    return chains, layout.unpack({name: array[:, :drawn] for name, array in records.items()}), seconds


def _blocks(total: int) -> Iterator[int]:
    """Targets such that a block takes a fraction of a second, whatever a transition takes."""
    finished, block = 0, _FIRST_BLOCK
    while finished < total:
        started = time.perf_counter()
        finished = min(total, finished + block)
        yield finished
        seconds = time.perf_counter() - started
        block = max(1, int(block * np.clip(_SECONDS_PER_BLOCK / max(seconds, 1e-6), 0.1, 8)))
