"""The host loop: blocks of transitions, and between them progress, Ctrl-C, draws to the sink, and pauses in warm-up."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from tallmc.console.progress import progress_bar, stop_on_interrupt
from tallmc.numerics.memory import must_fit
from tallmc.numerics.processes import team_of
from tallmc.numerics.programs import program
from tallmc.posterior.spread import at_home, mesh_of
from tallmc.run.chain import Chain, Problem, placed, positions, restart_chain
from tallmc.run.drivers import Driver, layout_of
from tallmc.run.records import Layout, Memory, Sink
from tallmc.run.session import Session
from tallmc.run.timing import Timing

_FIRST_BLOCK = 16  # transitions: few, for nobody knows yet how long they take


class Review(NamedTuple):
    """Looks at the chains during warm-up, after which another kernel, model or feed may take the place of the first.

    Args:
        times: Transitions after which all chains pause.
        decide: Asked at each pause. Given the session with its chains as they are, and where they were at each pause so
            far, another session whose tests are begun anew, or None to go on as before.
    """

    times: Sequence[int]
    decide: Callable[[Session, tuple[PyTree, ...]], Session | None]


class Driven(NamedTuple):
    """What came of it.

    Args:
        session: To go on from.
        draws: New ones, a `Draw` with leaves (chain, draw, ...); None if they went to a sink of the caller's.
        seconds: That it took to move the chains.
        interrupted: Whether Ctrl-C ended it early.
    """

    session: Session
    draws: Any
    seconds: float
    interrupted: bool


def drive(
    driver: Driver,
    session: Session,
    stage: PyTree,
    num_samples: int,
    timing: Timing | None = None,
    *,
    show: bool,
    reviews: Sequence[Review] = (),
    sink: Sink | None = None,
    ahead: dict[str, np.ndarray] | None = None,
) -> Driven:
    """Moves chains until each has so many more draws, or the user has had enough.

    Args:
        driver: Moves them.
        session: Where they begin.
        stage: Their rows.
        num_samples: Further draws of each.
        timing: Of the call.
        show: Whether to show a progress bar.
        reviews: Of warm-up.
        sink: Where draws go; kept in memory and given back if left out.
        ahead: Records of draws that some chains have made beyond those of the session.
    """
    problem, timing = _problem(session, stage), timing or Timing()
    layout, _ = layout_of(problem, session.chains)
    num_warmup, num_chains = session.num_warmup, session.num_chains
    total = num_warmup + session.drawn + num_samples
    capacity = driver.capacity(num_chains, layout)
    team = team_of(mesh_of(stage))
    show = show and team.leads
    memory, drained = Memory(), session.drawn
    sink = memory if sink is None else sink
    begun = int(np.min(np.asarray(session.chains.finished)))
    pauses = sorted({time for review in reviews for time in review.times if time > begun})
    looks: dict[int, PyTree] = {}
    stopped = False
    room = must_fit(
        f"{num_chains:,} chains and the {capacity:,} draws of each that are kept on the device",
        "use fewer chains, or driver=tm.ChainByChain()",
    )
    with room, progress_bar(total, num_warmup, show=show) as update, stop_on_interrupt() as interrupted:
        started = time.perf_counter()
        work = driver.load(problem, session.chains, layout.shapes((num_chains, capacity)))
        if ahead:
            work = driver.put(work, drained, ahead)
        if not pauses:
            _settle(sink, layout, session)
        pace = _Pace(driver.seconds_per_block(num_chains))
        while (before := int(driver.finished(work).min())) < total and not stopped:
            # No chain may write over a draw that is not drained yet, or run past a pause.
            most = min([total, num_warmup + drained + capacity, *pauses[:1]])
            until = min(most, before + pace.block)
            with pace:
                work = driver.advance(problem, work, until, most)
            # Processes that share rows wait for each other in compiled code, so all must ask it for the same.
            asked = interrupted(), pace.learned(int(driver.finished(work).min()) - before), not pauses and sink.due()
            said = team.agreed(*asked)
            stopped, pace.block, due = bool(said[0]), int(said[1]), bool(said[2])
            furthest = int(driver.finished(work).max())
            if stopped and furthest > int(driver.finished(work).min()):  # chains moved together are not all as far
                work = driver.advance(problem, work, furthest, furthest)
            reached = int(driver.finished(work).min())
            timing.moved(pace.spent, before, reached, num_warmup)
            ready = reached - num_warmup
            if update.due():
                first = max(before - num_warmup, drained, 0)
                update(reached, layout.unpack(driver.peek(work, first, ready)).stats if ready > first else {})
            if ready > drained and (due or stopped or reached == total or ready - drained >= capacity // 2):
                sink.append(driver.fetch(work, drained, ready))
                drained = ready
            if due:
                now = session._replace(chains=driver.chains(work), drawn=drained)
                sink.checkpoint(now, _ahead(driver, work, now), seconds=time.perf_counter() - started)
            if pauses and reached == pauses[0] and not stopped:
                pauses = pauses[1:]
                session = session._replace(chains=driver.chains(work))
                looks[reached] = jax.tree.map(np.asarray, positions(problem, session.chains))
                changed = _reviewed(session, reviews, reached, looks)
                if changed is not session:
                    problem = _problem(changed, stage)
                    session = changed._replace(chains=_restart(problem, changed.chains))
                    work = driver.load(problem, session.chains, layout.shapes((num_chains, capacity)))
                if not pauses:
                    _settle(sink, layout, session)
        seconds = time.perf_counter() - started
    session, before = session._replace(chains=at_home(driver.chains(work)), drawn=drained), session.drawn
    if not pauses:
        sink.checkpoint(session, {}, seconds=seconds)
    if drained == before and (sink is memory or not drained):
        raise KeyboardInterrupt("stopped during warm-up: no draws to return")
    unfinished = int(np.min(np.asarray(session.chains.finished))) < total
    draws = layout.unpack(memory.collect()) if sink is memory else None
    return Driven(session, draws, seconds, bool(stopped) and unfinished)


def _settle(sink: Sink, layout: Layout, session: Session) -> None:
    """The set-up is done; where draws are kept for good, it is at once."""
    sink.settled(layout, session)
    if sink.due():
        sink.checkpoint(session, {}, seconds=0.0)


def _ahead(driver: Driver, work: Any, session: Session) -> dict[str, np.ndarray]:
    """Records of draws that some chains have made and others not; of these others, whatever is in their place."""
    furthest = int(driver.finished(work).max()) - session.num_warmup
    return driver.fetch(work, session.drawn, furthest) if furthest > session.drawn else {}


def _reviewed(session: Session, reviews: Sequence[Review], reached: int, looks: dict[int, PyTree]) -> Session:
    """What the reviews that are due make of a session: itself, if nothing is to change."""
    for review in reviews:
        if reached in review.times:
            seen = tuple(looks[time] for time in review.times if time in looks)
            session = review.decide(session, seen) or session
    return session


class _Pace:
    """How many transitions make a block of the wanted length, whatever a transition takes."""

    def __init__(self, seconds: float):
        self.wanted, self.block, self.spent = seconds, _FIRST_BLOCK, 0.0

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.spent = time.perf_counter() - self._started

    def learned(self, transitions: int) -> int:
        """How many transitions the next block should have: other than this one's, but by not too much at once."""
        seconds = self.spent * self.block / max(transitions, 1)
        return max(1, int(self.block * np.clip(self.wanted / max(seconds, 1e-6), 0.1, 8)))


def _problem(session: Session, stage: PyTree) -> Problem:
    return placed(Problem(session.kernel, session.model, session.feed, stage, np.int32(session.num_warmup)))


@program
def _restart(problem: Problem, chains: Chain) -> Chain:
    return jax.vmap(lambda chain: restart_chain(problem, chain))(chains)
