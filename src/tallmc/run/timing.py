"""Where the time of a call went."""

import contextlib
import time
from collections.abc import Iterator

from tallmc.numerics.programs import programs_ledger

PHASES = ("reading", "mode", "expansion", "pilot", "compiling", "warmup", "sampling", "audit")


class Timing:
    """Seconds of each phase of a call. What compiling took is taken out of the phase that it fell into."""

    def __init__(self):
        self.seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self._began = time.perf_counter()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time of a `with` block to a phase."""
        began, ledger = time.perf_counter(), programs_ledger()
        try:
            yield
        finally:
            spent = time.perf_counter() - began
            compiling = spent if name == "compiling" else min((programs_ledger() - ledger).elapsed, spent)
            self.seconds["compiling"] += compiling
            self.seconds[name] += spent - compiling if name != "compiling" else 0.0

    def moved(self, seconds: float, before: int, after: int, num_warmup: int) -> None:
        """Adds the time of a block of transitions to warm-up and sampling, in proportion.

        Args:
            seconds: That the block took.
            before: Transitions before it.
            after: Transitions after it.
            num_warmup: Transitions of warm-up.
        """
        share = min(max(num_warmup - before, 0) / max(after - before, 1), 1.0)
        self.seconds["warmup"] += share * seconds
        self.seconds["sampling"] += (1 - share) * seconds

    def worth_an_audit(self) -> float:
        """Seconds that an audit may take: as long as the set-up, or half a one."""
        return max(0.5, sum(self.seconds[name] for name in ("reading", "mode", "expansion", "pilot")))

    def total(self) -> dict[str, float]:
        """All phases, and the call as a whole, which is a little more."""
        return {**self.seconds, "total": time.perf_counter() - self._began}
