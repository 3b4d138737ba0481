"""Times a run block by block, so that compilation can be told apart from sampling."""

import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Int

from tallmc.run.chain import Chain, Problem
from tallmc.run.drivers import Driver
from tallmc.run.records import Layout


class Lap(NamedTuple):
    """One block: how long it took, and the transitions that all chains made in it."""

    seconds: float
    transitions: int


class Stopwatch(Driver):
    """Drives chains as another driver does, and takes the time.

    Args:
        inner: The driver that does the work.
        laps: Where the times go.
    """

    inner: Driver
    laps: list[Lap] = eqx.field(default_factory=list, static=True)

    def seconds_per_block(self, num_chains: int) -> float:
        """Left to the inner driver."""
        return self.inner.seconds_per_block(num_chains)

    def capacity(self, num_chains: int, layout: Layout) -> int:
        """Left to the inner driver."""
        return self.inner.capacity(num_chains, layout)

    def prepare(self, problem: Problem, chains: Chain) -> None:
        """Left to the inner driver, and timed as part of what it does before it starts."""
        started = time.perf_counter()
        self.inner.prepare(problem, chains)
        self.laps.append(Lap(time.perf_counter() - started, 0))

    def load(self, problem: Problem, chains: Chain, records: dict[str, jax.ShapeDtypeStruct]) -> Any:
        """Times what the inner driver does before it starts, which may be all of the compilation."""
        started = time.perf_counter()
        work = self.inner.load(problem, chains, records)
        self.laps.append(Lap(time.perf_counter() - started, 0))
        return work

    def put(self, work: Any, start: int, block: dict[str, np.ndarray]) -> Any:
        """Lets the inner driver."""
        return self.inner.put(work, start, block)

    def advance(self, problem: Problem, work: Any, until: int, most: int) -> Any:
        """Lets the inner driver move the chains, and notes how long it took and how many transitions they made."""
        before, started = int(self.inner.finished(work).sum()), time.perf_counter()
        work = self.inner.advance(problem, work, until, most)
        after = int(self.inner.finished(work).sum())  # waits for the block to end
        self.laps.append(Lap(time.perf_counter() - started, after - before))
        return work

    def finished(self, work: Any) -> Int[np.ndarray, " chains"]:
        """Left to the inner driver."""
        return self.inner.finished(work)

    def chains(self, work: Any) -> Chain:
        """All chains, stacked, as the inner driver has them now."""
        return self.inner.chains(work)

    def peek(self, work: Any, start: int, stop: int) -> dict[str, np.ndarray]:
        """Left to the inner driver."""
        return self.inner.peek(work, start, stop)

    def fetch(self, work: Any, start: int, stop: int) -> dict[str, np.ndarray]:
        """Left to the inner driver."""
        return self.inner.fetch(work, start, stop)

    @property
    def steps_per_second(self) -> float:
        """Transitions of all chains together, per second, without the first block."""
        laps = self.laps[3:] or self.laps[2:]
        return sum(lap.transitions for lap in laps) / sum(lap.seconds for lap in laps)
