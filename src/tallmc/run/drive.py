"""The host loop: blocks of transitions, and between them progress, Ctrl-C, and a look at where the chains are."""

import time
from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np

from tallmc.control_variates import Controlled
from tallmc.feed import Feed
from tallmc.progress import is_watched, progress_bar, stop_on_interrupt
from tallmc.run.chain import Chain, Problem, draw_like, restart_chain
from tallmc.run.drivers import Driver
from tallmc.run.recentre import NUM_LOOKS, Recentred, recentre
from tallmc.run.records import Draw, Layout
from tallmc.run.start import make_feed

_FIRST_BLOCK = 16


class Driven(NamedTuple):
    """What came of it.

    Args:
        chains: As they ended.
        draws: Theirs, (chain, draw, ...).
        seconds: That it took to move them.
        moved: The expansion that took the place of the first one, if it had to be moved.
        feed: How rows were drawn.
    """

    chains: Chain
    draws: Draw
    seconds: float
    moved: Recentred | None
    feed: Feed


def drive(
    driver: Driver,
    problem: Problem,
    chains: Chain,
    num_samples: int,
    num_warmup: int,
    *,
    show: bool,
    controlled: Controlled | None,
) -> Driven:
    """Runs blocks of transitions until every chain has all its draws, or the user has had enough."""
    layout = Layout(draw_like(problem, jax.tree.map(lambda leaf: leaf[0], chains)))
    total = num_warmup + num_samples
    show = show and is_watched()
    room = (chains.finished.shape[0], num_samples)
    looks, look_at, moved = [], [], None
    if controlled is not None and num_warmup >= 2 * NUM_LOOKS:
        look_at = [num_warmup * k // (2 * NUM_LOOKS) for k in range(1, NUM_LOOKS + 1)]
    with progress_bar(total, num_warmup, show=show) as update, stop_on_interrupt() as interrupted:
        started = time.perf_counter()
        work = driver.load(problem, chains, layout.empty(room))
        for until in _blocks(total, look_at, driver.seconds_per_block(room[0])):
            before = int(driver.finished(work).min())
            work = driver.advance(problem, work, until)
            if show:
                update(until, layout.unpack(driver.peek(work, before - num_warmup, until - num_warmup)).stats)
            if interrupted():
                break
            if until in look_at:
                positions = jax.vmap(problem.kernel.position)(driver.chains(work).state)
                looks.append(jax.tree.map(np.asarray, positions))
                # Chains that are moved together may be ahead of this look; draws that they have made stay as they are.
                last = until == look_at[-1] and int(driver.finished(work).max()) <= num_warmup
                if last and (moved := recentre(controlled, looks)) is not None:  # pyright: ignore
                    problem, rows_read = _around(problem, moved)
                    moved = moved._replace(rows_read=moved.rows_read + rows_read)
                    work = driver.load(problem, _restart(problem, driver.chains(work)), layout.empty(room))
        seconds = time.perf_counter() - started
    chains, filled = driver.unload(work)
    drawn = int(np.clip(int(chains.finished.min()) - num_warmup, 0, num_samples))
    if drawn == 0:
        raise KeyboardInterrupt("stopped during warm-up: no draws to return")
    draws = layout.unpack({name: array[:, :drawn] for name, array in filled.items()})
    return Driven(chains, draws, seconds, moved, problem.feed)


def _around(problem: Problem, moved: Recentred) -> tuple[Problem, int]:
    """The problem with another expansion: the same rows, weighed anew if they are."""
    feed, arranged, rows_read = make_feed(type(problem.feed), moved.controlled.posterior, problem.kernel)
    arranged = eqx.tree_at(lambda p: p.data, arranged, problem.posterior.data)
    return problem._replace(posterior=arranged, feed=feed), rows_read


@eqx.filter_jit
def _restart(problem: Problem, chains: Chain) -> Chain:
    return jax.vmap(lambda chain: restart_chain(problem, chain))(chains)


def _blocks(total: int, stops: list[int], wanted: float) -> Iterator[int]:
    """Targets such that a block takes `wanted` seconds, whatever a transition takes; `stops` are among them."""
    finished, block = 0, _FIRST_BLOCK
    while finished < total:
        started, before = time.perf_counter(), finished
        finished = min([total, finished + block, *(stop for stop in stops if stop > finished)])
        yield finished
        seconds = (time.perf_counter() - started) * block / (finished - before)
        block = max(1, int(block * np.clip(wanted / max(seconds, 1e-6), 0.1, 8)))
