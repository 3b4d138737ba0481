"""`tm.sample`: the one call that most people need."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, PyTree

from tallmc.compose import Ladder
from tallmc.console.progress import say, working
from tallmc.control_variates import Taylor
from tallmc.diagnostics.audit_programs import audit_programs
from tallmc.feed import Feed
from tallmc.kernel import Kernel
from tallmc.numerics.keys import as_key, folded_on_host, split_on_host, told, unstacked, word_on_host
from tallmc.numerics.processes import Team
from tallmc.posterior import Posterior, checks
from tallmc.posterior.rows_on_mesh import RowsOnMesh
from tallmc.posterior.unconstrained_start import unconstrained_start
from tallmc.run.chain import Problem
from tallmc.run.drive import Review, drive
from tallmc.run.drivers import Driver, pick_driver
from tallmc.run.result import Run
from tallmc.run.saving import set_up_of, without_rows
from tallmc.run.session import Session
from tallmc.run.shared_store import SharedStore
from tallmc.run.start import start_chains
from tallmc.run.store import Store
from tallmc.run.timing import Timing
from tallmc.setup.automatic import plan
from tallmc.setup.conclude import concluded
from tallmc.setup.keeping import PathLike, gone_on, keeping, kept
from tallmc.setup.meshes import as_mesh, check_kernel_on_mesh, check_same_call, driver_on_mesh, on_mesh
from tallmc.setup.orthonormal import check_orthonormal
from tallmc.setup.precision import check_precision, plan_doubts
from tallmc.setup.recentre import Recentred, look_times, recentre
from tallmc.setup.redesign import Redesigns
from tallmc.setup.rung_placing import warmed_up
from tallmc.setup.situation import Budget
from tallmc.setup.start import (
    check_bounds,
    check_parts,
    doubts_of_parts,
    feed_kinds,
    find_start,
    make_feed,
    moves_reals_only,
    unconstrained_expansion,
    weights_of,
)
from tallmc.setup.worked_out import bounded_like


class Earlier(NamedTuple):
    """What a caller has done before `sampled`.

    Args:
        choices: That were made, in words.
        rows_read: For that.
    """

    choices: tuple[str, ...] = ()
    rows_read: int = 0


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
    store: PathLike | None = None,
    resume: bool = False,
    progress: bool = True,
    driver: Driver | None = None,
    feed: type[Feed] | None = None,
    mesh: Mesh | int | None = None,
) -> Run:
    """Draws from a posterior.

    Args:
        posterior: What to draw from.
        kernel: How to move. If left out, everything is chosen: a look at the posterior decides on control variate,
            proposal and rule, a paragraph says which and why, and the run ends with an audit.
        init: Where to start: one position for all chains, or one with a leading chain axis. If left out, at the mode,
            which `tm.optimise.mode` finds; that works if the data has one matrix, with a coefficient for each column.
            Without a kernel it is where the search for the mode begins, and chains start near that. With
            `tm.transforms` it is on the natural scale.
        num_samples: Draws to keep of each chain.
        num_warmup: Draws before those, during which the kernel tunes its step size. 0 tunes nothing.
        num_chains: Independent chains.
        rng_key: Int or JAX key. The same key gives the same chains, however they are scheduled.
        control_variate: `tm.Taylor()` makes rows say less; see there. `tm.MHSS` makes its own if none is given.
        store: A folder to keep the run in while it goes on, such as "run.zarr": draws are written there and not held in
            memory, and a process that is killed loses no more than the last seconds.
        resume: Whether to go on with the run in `store`, which must have been made by the same call, and ends as if it
            had never been stopped; `num_samples` may be another. If there is nothing to go on with, the run begins.
        progress: Whether to show a progress bar, if output is a terminal.
        driver: How chains are scheduled; picked by device if left out.
        feed: How rows are drawn; contiguous windows of shuffled data if left out, or by weight if the rule wants that.
        mesh: Devices that share the rows: a `jax.sharding.Mesh`, or how many of those there are. Draws are the same as
            on one device. Where several processes run under `jax.distributed`, all devices of all of them if left out:
            each process passes rows of its own, and all make the same call.

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
    if kernel is not None:
        _check_is_kernel(kernel)
    check_counts(num_samples, num_warmup, num_chains)
    if driver is not None and not isinstance(driver, Driver):
        raise ValueError("driver must be a Driver such as tm.ChainByChain() or tm.Together()")
    if feed is not None and not (isinstance(feed, type) and issubclass(feed, Feed)):
        raise ValueError(
            "feed must be a class, which is built for this run: pass feed=tm.IndexedFeed, without arguments"
        )
    if mesh is not None or jax.process_count() > 1:
        shared = as_mesh(len(jax.devices()) if mesh is None else mesh)
        posterior, driver = on_mesh(posterior, shared), driver_on_mesh(driver)
        same = {"num_samples": num_samples, "num_warmup": num_warmup, "num_chains": num_chains}
        check_same_call(posterior.rows, **same, rng_key=told(rng_key), resume=resume, kernel=type(kernel).__name__)
    driver = driver or pick_driver(posterior.rows)
    settings = {"kernel": kernel, "init": init, "control_variate": control_variate, "feed": feed}
    settings |= {"num_warmup": num_warmup, "num_chains": num_chains}
    team = posterior.rows.team if isinstance(posterior.rows, RowsOnMesh) else Team()
    progress = progress and team.leads
    with (
        team.explained(store is not None),
        keeping(
            store, "tm.sample", posterior, resume=resume, rng_key=as_key(rng_key), driver=type(driver), **settings
        ) as keeper,
    ):
        return sampled(
            posterior,
            num_samples=num_samples,
            rng_key=rng_key,
            progress=progress,
            driver=driver,
            store=keeper,
            **settings,
        )


def sampled(
    posterior: Posterior,
    *,
    kernel: Kernel | None,
    init: PyTree,
    num_samples: int,
    num_warmup: int,
    num_chains: int,
    rng_key: int | Array,
    control_variate: Taylor | None,
    progress: bool,
    driver: Driver,
    store: Store | SharedStore | None,
    feed: type[Feed] | None = None,
    earlier: Earlier = Earlier(),  # noqa: B008  it never changes
) -> Run:
    """`sample`, with a store that is open, or None, and what was done before."""
    timing, automatic = Timing(), kernel is None
    if store is not None and store.stored is not None:
        run = gone_on(store, store.stored, kernel, num_samples, driver, timing, progress=progress)
        return concluded(run, timing, store, automatic=automatic and run.audit is None, progress=progress)
    with timing.phase("reading"):
        checks.check_rows(posterior.rows)
        check_orthonormal(posterior, kernel if isinstance(kernel, Kernel) else None, init, control_variate)
        # Set-up and chains know unconstrained numbers only; the natural scale is that of the caller, before and after.
        given, posterior = posterior, posterior.unconstrained
        real_only = not isinstance(kernel, Kernel) or moves_reals_only(kernel)
        init = unconstrained_start(given, init, num_chains, real_only=real_only)
        control_variate = unconstrained_expansion(given, control_variate)
    key_shuffle, key_chains = unstacked(split_on_host(as_key(rng_key), 2), 2)
    key_plan, shuffle_seed = folded_on_host(key_shuffle, 1), word_on_host(key_shuffle)
    chain_keys = split_on_host(key_chains, num_chains)
    if kernel is None:
        if control_variate is not None or feed is not None:
            raise ValueError(
                "without a kernel control variate and feed are chosen too; leave control_variate and feed out"
            )
        if posterior.schedule is not None:
            raise ValueError(
                "a method is chosen for one temperature, and this posterior has a schedule; pass a kernel, such as "
                "tm.MetropolisHastings(tm.RandomWalk(scale), tm.MHMinibatch()), or one temperature"
            )
        budget = Budget(num_chains, num_warmup, num_samples)
        start = plan(posterior, init, budget, key_plan, timing, progress=progress)
        start = start._replace(doubts=start.doubts + plan_doubts(start.model, posterior.rows, start.positions))
    else:
        check_kernel_on_mesh(kernel, posterior.rows)
        with timing.phase("mode"):
            start = find_start(posterior, kernel, init, control_variate, num_chains, progress=progress)
        start = start._replace(doubts=start.doubts + doubts_of_parts(kernel))
    if start.choices:
        say("; ".join(start.choices), show=progress)
    model, positions = start.model, start.positions
    kernel = start.kernel.prepared_for(model, num_warmup)
    kinds = feed_kinds(kernel, feed or start.feed, posterior.rows)
    check_parts(kernel, kinds, positions, model)
    redesigns = Redesigns(posterior.rows, num_warmup, folded_on_host(key_shuffle, 2))
    redesigns.check(kernel)
    if given.labels is not None:
        given.labels.check(given.constrain(jax.tree.map(lambda leaf: leaf[0], positions)))
    with timing.phase("reading"):
        typical, start_rows = checks.check_start(posterior, positions)
    check_precision(model, posterior.rows, kernel, jax.tree.map(lambda leaf: leaf[0], positions), typical)
    with timing.phase("expansion"):
        weights = start.weights or weights_of(start.controlled, kinds)
        source = make_feed(kernel, kinds, posterior.rows, model, weights)
        bounds_rows = check_bounds(posterior, model, kernel, source, positions, typical)
    feed_rows = 0 if weights is not None else source.setup_rows
    setup_rows = start.rows_read + start_rows + feed_rows + bounds_rows

    with timing.phase("reading"):
        stage = source.arrange(posterior.rows, shuffle_seed)
    fed = kernel.fed_by(source)
    problem = Problem(fed, model, source, stage, np.int32(num_warmup))
    with timing.phase("compiling"):
        # An audit reads rows here and there, which a device without room for them cannot.
        audited = automatic and not posterior.rows.outgrow_device
        others = audit_programs(problem, posterior.rows, chain_keys, positions, num_samples) if audited else ()
        chains = start_chains(problem, chain_keys, positions, driver, others)
    session, ladder_rows = Session(fed, model, source, shuffle_seed, num_warmup, chains), 0
    if isinstance(fed, Ladder) and fed.adapts:
        with timing.phase("warmup"), working("placing the rungs of the ladder", show=progress):
            placed = warmed_up(session, stage, driver)
        if placed.interrupted:
            raise KeyboardInterrupt("stopped during warm-up: no draws to return")
        session, ladder_rows = placed.session, placed.rows
    moved: list[Recentred] = []

    times = look_times(num_warmup)

    def decide(session: Session, looks: tuple[PyTree, ...]) -> Session | None:
        if len(looks) < len(times):
            return None
        assert start.controlled is not None
        found = recentre(start.controlled, bounded_like(posterior, start.controlled), looks)
        if found is None:
            return None
        # The same rows, weighed anew if they are drawn by weight.
        heavy = weights_of(found.controlled, kinds)
        again = make_feed(kernel, kinds, posterior.rows, found.controlled.model, heavy)
        moved.append(found._replace(rows_read=found.rows_read + (0 if heavy is not None else again.setup_rows)))
        return session._replace(model=found.controlled.model, feed=again)

    reviews = [Review(times, decide)] if start.controlled is not None else []
    reviews.append(Review(redesigns.times(fed), redesigns.decide))

    def set_up(session: Session) -> dict[str, Any]:
        """What is known when warm-up changes nothing any more."""
        return {
            "setup_rows": earlier.rows_read
            + (setup_rows + ladder_rows + sum(found.rows_read for found in moved) + redesigns.rows_read),
            "choices": earlier.choices + start.choices + changes(session),
            "known_doubts": start.doubts,
            "unless_mixed": start.unless_mixed,
            "rng_key": told(rng_key),
        }

    def changes(session: Session) -> tuple[str, ...]:
        unaudited = ("no step was audited, for the device has no room for the rows",)
        found = tuple(found.reason for found in moved) + redesigns.choices(session.kernel)
        return found + (unaudited if automatic and not audited else ())

    if store is not None:
        store.expected = num_samples
        store.context = lambda session: set_up_of(start.kernel, without_rows(given), **set_up(session))
    done = drive(driver, session, stage, num_samples, timing, show=progress, reviews=reviews, sink=store)
    for choice in changes(done.session):
        say(choice, show=progress)
    run = kept(done, store, given, kernel=start.kernel, **set_up(done.session))
    return concluded(run, timing, store, automatic=audited, progress=progress)


def check_counts(num_samples: int, num_warmup: int, num_chains: int) -> None:
    """Raises `ValueError` unless these are whole numbers, large enough."""
    for name, value, least in (
        ("num_samples", num_samples, 1),
        ("num_warmup", num_warmup, 0),
        ("num_chains", num_chains, 1),
    ):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def _check_is_kernel(kernel: object) -> None:
    if not isinstance(kernel, Kernel):
        name = type(kernel).__name__
        raise ValueError(f"kernel must be a Kernel such as tm.MetropolisHastings(proposal, rule), not {name}")
