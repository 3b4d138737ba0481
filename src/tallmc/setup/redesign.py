"""Tests that warm-up designs anew, from the moves that chains are making (Korattikara et al., 2014, supplement D)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from tallmc.acceptance import AustereMH
from tallmc.design import epsilon_within
from tallmc.diagnostics.audit_programs import ask_again
from tallmc.diagnostics.moves import Moves, move_moments, possible_moves
from tallmc.feed.contract import begins_with_rows
from tallmc.kernel import Kernel
from tallmc.metropolis import MetropolisHastings
from tallmc.numerics.keys import folded_on_host, part_of, split_on_host
from tallmc.numerics.schedule import Redesigned
from tallmc.posterior import Rows
from tallmc.run.session import Session

_NUM_MOVES = 100  # as in the paper's experiment 6.5
_LAST = 0.8  # share of warm-up after which nothing is designed: what is left is for steps to settle under the last test
_LEAST_WARMUP = 10  # transitions of warm-up for each design, or chains have hardly gone anywhere between two of them


class Redesigns:
    """Designs the tests of a kernel whenever chains pause for it, and keeps account of it.

    Args:
        rows: All rows; each design reads every row once.
        num_warmup: Transitions of each chain before its first draw.
        key: For the moves that designs rest on.
    """

    def __init__(self, rows: Rows, num_warmup: int, key: Array):
        self.rows, self.num_warmup, self.key = rows, num_warmup, key
        self.rows_read = 0

    def times(self, kernel: Kernel) -> list[int]:
        """Transitions after which to design; none if no part of the kernel wants it."""
        planned = [part.rule.epsilon.planned for _, part in _designed_parts(kernel)]
        return [int(_LAST * self.num_warmup * k / max(planned)) for k in range(1, max(planned) + 1)] if planned else []

    def check(self, kernel: Kernel) -> None:
        """Raises `ValueError` if warm-up is too short for these designs, or moves cannot be drawn beforehand."""
        for _, part in _designed_parts(kernel):
            planned = part.rule.epsilon.planned
            if planned * _LEAST_WARMUP > self.num_warmup:
                raise ValueError(
                    f"{planned} designs of a test need a num_warmup of at least {_LEAST_WARMUP * planned}, got "
                    f"{self.num_warmup}; or take a fixed epsilon, such as that of tm.design.average(...)"
                )
            if part.proposal.needs is not None:
                raise ValueError(
                    f"{type(part.proposal).__name__} reads rows to propose, so a test cannot be designed from its "
                    "moves beforehand; use a fixed epsilon, or a schedule such as tm.schedule.power(0.2)"
                )

    def decide(self, session: Session, looks: tuple[PyTree, ...]) -> Session:
        """The same session, whose tests are those designed now."""
        kernel, time = session.kernel, int(np.min(np.asarray(session.chains.finished)))
        for number, part in _designed_parts(kernel):
            schedule = part.rule.epsilon
            if schedule.made == schedule.planned:
                continue
            epsilon = self._design(session, number, part, looks, time)
            kernel = _with_schedule(kernel, number, schedule.designed(time, epsilon))
        return session._replace(kernel=kernel)

    def _design(
        self, session: Session, number: int, part: MetropolisHastings, looks: tuple[PyTree, ...], time: int
    ) -> float:
        rule: Any = part.rule
        late = looks[len(looks) // 2 :]
        chain, look = (
            np.arange(_NUM_MOVES) % session.num_chains,
            np.arange(_NUM_MOVES) // session.num_chains % len(late),
        )
        positions = jax.tree.map(lambda *leaves: np.stack(leaves)[look, chain], *late)
        states = part_of(session.chains.state, chain)
        keys = split_on_host(folded_on_host(self.key, time), _NUM_MOVES)
        times = np.full(_NUM_MOVES, time, np.int32)
        feed, reads = session.feed, begins_with_rows(session.kernel.needs)
        source = (feed, feed.arrange(self.rows, session.shuffle_seed)) if reads else None
        asked = ask_again(session.kernel, session.model, number, keys, positions, states, times, source)
        question, kept = asked.question, np.flatnonzero(np.asarray(asked.possible))
        if not len(kept):
            return float(rule.epsilon.values[rule.epsilon.made])
        start, end = jax.tree.map(lambda leaf: jnp.asarray(leaf)[kept], (question.position, question.proposed))
        moves = Moves(start, end, np.asarray(question.offset, float)[kept])
        model = session.model.at_time(jnp.int32(time))
        self.rows_read += self.rows.num_rows
        found = possible_moves(move_moments(model, self.rows, moves))
        share = min(1.0, rule.batch_size / self.rows.num_rows)
        return epsilon_within(rule.epsilon.max_error, found, share, rule.boundary)

    def choices(self, kernel: Kernel) -> tuple[str, ...]:
        """What was designed, in words."""
        said = []
        for _, part in _designed_parts(kernel):
            schedule = part.rule.epsilon
            values = ", ".join(f"{value:.3g}" for value in schedule.corners())
            said.append(
                f"epsilon was designed {schedule.made} times during warm-up ({values}); from transition "
                f"{int(np.asarray(schedule.times)[schedule.made - 1]):,} on it stayed as it was"
            )
        return tuple(said)


def _designed_parts(kernel: Kernel) -> list[tuple[int, Any]]:
    """Number and part of those whose test is to be designed in warm-up."""
    return [
        (number, part)
        for number, part in enumerate(kernel.parts())
        if isinstance(part, MetropolisHastings)
        and isinstance(part.rule, AustereMH)
        and isinstance(part.rule.epsilon, Redesigned)
    ]


def _with_schedule(kernel: Kernel, number: int, schedule: Redesigned) -> Kernel:
    """The kernel with another schedule in the test of one part."""
    return eqx.tree_at(lambda k: k.parts()[number].rule.epsilon, kernel, schedule)
