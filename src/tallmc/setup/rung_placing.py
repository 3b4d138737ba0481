"""The warm-up of a ladder that adapts: temperatures are placed anew between its rounds."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PyTree

from tallmc.compose import Ladder
from tallmc.numerics.programs import program
from tallmc.run.chain import Chain, Problem, positions, restart_chain
from tallmc.run.drive import drive
from tallmc.run.drivers import Driver
from tallmc.run.records import Draw
from tallmc.run.session import Session
from tallmc.run.start import start_chains
from tallmc.setup.rungs import num_rungs, placed_evenly

# Shares of warm-up after which temperatures are placed anew; the second half of it tunes steps at those that stay.
_ROUNDS = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
_FEWEST_SCANS = 8  # of a round: of fewer, swaps are too rare to say where rejections are. A judgement
# By how much the number of rungs may miss what the barrier asks for before it is worth compiling another ladder.
_MISSED = 0.35


class Placed(NamedTuple):
    """A ladder after its warm-up.

    Args:
        session: To draw from.
        rows: Rows that a ladder with another number of rungs read before it.
        interrupted: Whether Ctrl-C came.
    """

    session: Session
    rows: int
    interrupted: bool


def warmed_up(session: Session, stage: PyTree, driver: Driver) -> Placed:
    """Makes the warm-up of a ladder that adapts, and places its temperatures as it goes.

    Args:
        session: Of chains that have not moved; its warm-up is made here.
        stage: Its rows.
        driver: Moves them.
    """
    rows, thrown_away, renumbered = 0, 0, False
    first, keys = positions(_problem(session, stage), session.chains), session.chains.key
    left = _rounds(session.num_warmup)
    session = session._replace(num_warmup=0)
    while left:
        done = drive(driver, session, stage, left.pop(0), show=False)
        rows += int(done.draws.stats["rows"].sum())
        session = done.session
        if done.interrupted:
            break
        if not left:
            continue  # the last round tunes steps at the temperatures that stay
        ladder, rejection = session.kernel, _rejection(done.draws)
        assert isinstance(ladder, Ladder)
        wanted = num_rungs(float(rejection.sum()))
        if not renumbered and len(ladder.groups) == 1 and abs(wanted / ladder.num_rungs - 1) > _MISSED:
            renumbered, thrown_away = True, rows
            ladder = ladder.with_rungs(placed_evenly(ladder.temperatures, rejection, wanted))
            session = session._replace(kernel=ladder, drawn=0)
            problem = _problem(session, stage)
            session = session._replace(chains=start_chains(problem, keys, first, driver))
            left = _rounds(int(ladder.groups[0].num_warmup))
        else:
            ladder = ladder.at(placed_evenly(ladder.temperatures, rejection, ladder.num_rungs))
            session = session._replace(kernel=ladder)
            session = session._replace(chains=_restart(_problem(session, stage), session.chains))
    made = int(np.asarray(session.chains.finished).max())
    return Placed(session._replace(num_warmup=made, drawn=0), thrown_away, bool(left))


def _rounds(num_warmup: int) -> list[int]:
    """Scans of each round."""
    rounds = [int(share * num_warmup) for share in _ROUNDS]
    rounds = [scans for scans in rounds[:-1] if scans >= _FEWEST_SCANS]
    return [*rounds, num_warmup - sum(rounds)] if num_warmup else []


def _rejection(draws: Draw) -> Float[np.ndarray, " pairs"]:
    """Of each pair, all chains together; the first third of the scans is left out, for rungs spread out in it."""
    tried, accepted = (draws.stats[name] for name in ("swap_tried", "swap_accepted"))
    later = slice(tried.shape[1] // 3, None)
    counts = tried[:, later].sum(axis=(0, 1))
    return 1 - accepted[:, later].sum(axis=(0, 1)) / np.maximum(counts, 1)


def _problem(session: Session, stage: PyTree) -> Problem:
    return Problem(session.kernel, session.model, session.feed, stage, np.int32(session.num_warmup))


@program
def _restart(problem: Problem, chains: Chain) -> Chain:
    return jax.vmap(lambda chain: restart_chain(problem, chain))(chains)
