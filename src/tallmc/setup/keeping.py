"""Runs with a store: opened for a call, and gone on with where a call before was stopped."""

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tallmc.console.progress import say
from tallmc.kernel import Kernel
from tallmc.numerics.processes import Team
from tallmc.posterior import Posterior
from tallmc.posterior.rows_on_mesh import RowsOnMesh
from tallmc.run.drive import Driven, drive
from tallmc.run.drivers import Driver
from tallmc.run.fingerprints import facts_of
from tallmc.run.load import run_of, session_of
from tallmc.run.result import Run
from tallmc.run.saving import SET_UP
from tallmc.run.shared_store import SharedStore
from tallmc.run.store import Store, opened
from tallmc.run.stored import Stored
from tallmc.run.timing import Timing

PathLike = str | os.PathLike[str]


@contextlib.contextmanager
def keeping(
    path: PathLike | None, call: str, posterior: Posterior, *, resume: bool, **settings: Any
) -> Iterator[Store | SharedStore | None]:
    """The store of a call, which nobody else writes to meanwhile; None if there is none.

    Args:
        path: Of the store.
        call: Name of the function.
        posterior: What is sampled.
        resume: Whether to go on with what is there.
        **settings: Arguments that decide what the chains do.
    """
    if path is None:
        if resume:
            raise ValueError("resume=True goes on with a store; say which, with store='run.zarr'")
        yield None
        return
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"store must be the path of a folder, such as 'run.zarr', not {type(path).__name__}")
    facts = facts_of(call, posterior, **settings)
    team = posterior.rows.team if isinstance(posterior.rows, RowsOnMesh) else Team()
    open_it = partial(opened, path, facts, posterior, resume=resume)
    store = open_it() if team.size == 1 else SharedStore(team, Path(path), posterior, open_it)
    try:
        yield store
    finally:
        store.close()


def kept(done: Driven, store: Store | SharedStore | None, posterior: Posterior, **others: Any) -> Run:
    """The run that came of moving chains, with its draws in memory or in a store."""
    if store is None:
        return Run.collect(done, posterior=posterior, **others)
    return Run.on_disk(
        Stored.open(store.root),
        posterior=posterior,
        session=done.session,
        seconds=store.seconds + done.seconds,
        interrupted=done.interrupted,
        **others,
    )


def gone_on(
    store: Store | SharedStore,
    stored: Stored,
    kernel: Kernel | None,
    num_samples: int,
    driver: Driver,
    timing: Timing,
    *,
    progress: bool,
) -> Run:
    """The run of a store with as many draws as were asked for: those it has, and others that it lacks.

    Args:
        store: To write to.
        stored: What is in it.
        kernel: As the caller gave it.
        num_samples: Draws of each chain in all.
        driver: Moves the chains.
        timing: Of the call.
        progress: Whether to show a progress bar.
    """
    for passed in stored.passed:
        say(f"passed over a checkpoint: {passed}", show=progress)
    posterior = store.posterior
    run = run_of(stored, posterior, kernel)
    if stored.num_draws >= num_samples:
        return run.changed(interrupted=False)
    session = session_of(stored, posterior, kernel)
    say(f"going on after {stored.num_draws:,} of {num_samples:,} draws", show=progress)
    with timing.phase("reading"):
        stage = session.feed.arrange(posterior.rows, session.shuffle_seed)
    ahead = stored.checkpoint.decode("ahead")
    lacking = num_samples - stored.num_draws
    done = drive(driver, session, stage, lacking, timing, show=progress, sink=store, ahead=ahead)
    others = {name: getattr(run, name) for name in ("kernel", *SET_UP)}
    return kept(done, store, posterior, **others)
