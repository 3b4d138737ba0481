"""`tm.gibbs`: draws from a random field."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Array, PyTree

from tallmc.acceptance.contract import AcceptanceRule
from tallmc.fields import FieldFeed, RandomSweep, Shape, SiteUpdates, Sweep, shape_of
from tallmc.fields.barker import check_rule
from tallmc.models.random_field import LogFactor
from tallmc.numerics.keys import as_key, split_on_host, told, unstacked, word_on_host
from tallmc.posterior import Model, Posterior
from tallmc.run.chain import Problem
from tallmc.run.drive import drive
from tallmc.run.drivers import Driver, pick_driver
from tallmc.run.result import Run
from tallmc.run.saving import set_up_of, without_rows
from tallmc.run.session import Session
from tallmc.run.start import start_chains
from tallmc.run.timing import Timing
from tallmc.setup.conclude import concluded
from tallmc.setup.keeping import PathLike, gone_on, keeping, kept


def gibbs(
    field: Posterior,
    rule: AcceptanceRule,
    *,
    num_samples: int,
    num_chains: int = 1,
    rng_key: int | Array = 0,
    init: np.ndarray | Array | None = None,
    num_warmup: int = 0,
    sweep: Sweep | None = None,
    thinning: int = 1,
    store: PathLike | None = None,
    resume: bool = False,
    progress: bool = True,
    driver: Driver | None = None,
) -> Run:
    """Gibbs sampling of a random field, each update decided from as few factors as the rule needs.

    A draw is a sweep: every variable updated once. A binary variable takes either value with its conditional
    probability: the update is a flip that the rule decides with Barker's chance p' / (p + p'), from the factors of that
    variable. `ExactBarker` and `MHMinibatch` decide so anyway; rules of Metropolis' formula that draw a level, such as
    `AustereMH`, are given Barker's, log(u / (1 - u)) (Korattikara et al., 2014, supplement F). To a variable of more
    values one of the others is proposed, each as likely as any, and accepted with the same chance.

    Statistics of each draw: `rows` (factors read, out of all factors of all variables), `changed` (variables that took
    another value), and means over the sweep of what the rule tells of each test.

    Args:
        field: From `tm.models.random_field`.
        rule: Decides each update. `ExactBarker` reads all factors of the variable.
        num_samples: Draws to keep of each chain.
        num_chains: Independent chains.
        rng_key: Int or JAX key. The same key gives the same chains, however they are scheduled.
        init: Where to start: one assignment for all chains, or one with a leading chain axis. Drawn uniformly if left
            out.
        num_warmup: Draws before those that are kept, for chains to forget where they started; nothing is tuned.
        sweep: In which order variables come: `tm.RandomSweep()`, a fresh order for each sweep, or `tm.FixedSweep()`.
        thinning: Sweeps of one draw.
        store: A folder to keep the run in while it goes on, as for `tm.sample`.
        resume: Whether to go on with the run in `store`, likewise.
        progress: Whether to show a progress bar, if output is a terminal.
        driver: How chains are scheduled; picked by device if left out.

    Returns:
        The draws and what they cost. Ctrl-C ends the run early and returns what there is.

    Example:
        >>> import tallmc as tm
        >>> field = tm.models.random_field(*tm.models.generate_dense_field(20, scale=0.1))
        >>> run = tm.gibbs(field, tm.ExactBarker(), num_samples=100)
        >>> run.samples.shape
        (1, 100, 20)
    """
    timing = Timing()
    log_factor = _check_field(field)
    check_rule(rule)
    for name, value, least in (
        ("num_samples", num_samples, 1),
        ("num_warmup", num_warmup, 0),
        ("num_chains", num_chains, 1),
        ("thinning", thinning, 1),
    ):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    sweep = RandomSweep() if sweep is None else sweep
    if not isinstance(sweep, Sweep):
        raise ValueError(f"sweep must be tm.RandomSweep() or tm.FixedSweep(), not {type(sweep).__name__}")
    if driver is not None and not isinstance(driver, Driver):
        raise ValueError("driver must be a Driver such as tm.ChainByChain() or tm.Together()")
    driver = driver or pick_driver()
    settings = {"rule": rule, "init": init, "sweep": sweep, "thinning": thinning}
    settings |= {"num_warmup": num_warmup, "num_chains": num_chains, "rng_key": as_key(rng_key)}
    with keeping(store, "tm.gibbs", field, resume=resume, driver=type(driver), **settings) as keeper:
        if keeper is not None and keeper.stored is not None:
            run = gone_on(keeper, keeper.stored, None, int(num_samples), driver, timing, progress=progress)
            return concluded(run, timing, keeper, automatic=False, progress=progress)
        session, stage = _begun(field, log_factor, timing, driver, **settings)
        set_up = {"setup_rows": 0, "choices": (), "known_doubts": (), "unless_mixed": (), "rng_key": told(rng_key)}
        if keeper is not None:
            keeper.expected = int(num_samples)
            keeper.context = lambda session: set_up_of(session.kernel, without_rows(field), **set_up)
        done = drive(driver, session, stage, int(num_samples), timing, show=progress, sink=keeper)
        run = kept(done, keeper, field, kernel=session.kernel, **set_up)
        return concluded(run, timing, keeper, automatic=False, progress=progress)


def _begun(
    field: Posterior,
    log_factor: LogFactor,
    timing: Timing,
    driver: Driver,
    *,
    rule: AcceptanceRule,
    init: Any,
    sweep: Sweep,
    thinning: int,
    num_warmup: int,
    num_chains: int,
    rng_key: Array,
) -> tuple[Session, PyTree]:
    """Chains before their first sweep, and what their feed reads from."""
    key_set_up, key_chains = unstacked(split_on_host(rng_key, 2), 2)
    shuffle_seed = word_on_host(key_set_up)
    positions = _starts(init, log_factor.num_values, num_chains, shuffle_seed)
    with timing.phase("reading"):
        shape = shape_of(log_factor, field.data)
        sweep.check(shape.num_sites)
        kernel, model, feed = _parts(field, rule, sweep, shape, int(thinning))
        rule.check(kernel.site_model(model), feed.drawn)
        stage = feed.arrange(field.rows, shuffle_seed)
    problem = Problem(kernel, model, feed, stage, np.int32(num_warmup))
    with timing.phase("compiling"):
        chains = start_chains(problem, split_on_host(key_chains, num_chains), positions, driver)
    return Session(kernel, model, feed, shuffle_seed, int(num_warmup), chains), stage


def _parts(
    field: Posterior, rule: AcceptanceRule, sweep: Sweep, shape: Shape, thinning: int
) -> tuple[SiteUpdates, Model, FieldFeed]:
    """Kernel, model and feed. The model's rows are those that a draw reads at most."""
    kernel = SiteUpdates(rule, shape, sweep, thinning)
    model = dataclasses.replace(field.model, num_rows=thinning * shape.factors)
    return kernel, model, FieldFeed(shape=shape, num_rows=field.num_rows, batch_size=kernel.needs.batch_size)


def _check_field(field: object) -> LogFactor:
    if isinstance(field, Posterior) and isinstance(field.model.log_likelihood, LogFactor):
        return field.model.log_likelihood
    raise ValueError(
        f"field must be a random field, from tm.models.random_field(scopes, log_tables), not {type(field).__name__} "
        "of another kind; other posteriors are for tm.sample"
    )


def _starts(init: object, num_values: tuple[int, ...], num_chains: int, seed: int) -> np.ndarray:
    """One assignment a chain: as given, or drawn uniformly."""
    count = len(num_values)
    if init is None:
        return np.random.default_rng(seed).integers(0, num_values, (num_chains, count), np.int32)
    given = np.asarray(init)
    if given.shape not in ((count,), (num_chains, count)):
        raise ValueError(
            f"init has shape {given.shape}; pass one value for each of the {count} variables, or such a line for each "
            f"of the {num_chains} chains"
        )
    whole = given.astype(np.int32)
    if not (np.array_equal(whole, given) and np.all(whole >= 0) and np.all(whole < num_values)):
        raise ValueError("init must hold whole numbers, for each variable from 0 to its number of values less 1")
    return np.broadcast_to(whole, (num_chains, count))
