"""The store of a run that several processes make together: the first writes, and the others know what it knows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tallmc.numerics.processes import Team
from tallmc.posterior import Posterior
from tallmc.run.records import Layout, Sink
from tallmc.run.session import Session
from tallmc.run.store import Store
from tallmc.run.stored import Stored


class SharedStore(Sink):
    """Hands everything to the store of the first process. What fails there fails everywhere.

    Args:
        team: The processes.
        root: Folder of the store, which all of them see.
        posterior: What is sampled, as the caller gave it.
        opened: Opens the store; called by the first process.
    """

    def __init__(self, team: Team, root: Path, posterior: Posterior, opened: Callable[[], Store]):
        self.team, self.root, self.posterior = team, root, posterior
        self.store: Store | None = None
        self.context: Callable[[Session], dict[str, Any]] = lambda session: {}
        self.seconds, self.expected = 0.0, 0

        def open_first() -> None:
            self.store = opened()

        self._first(open_first)
        has_some = self.store is not None and self.store.stored is not None
        goes_on = bool(team.agreed(has_some)[0])
        if self.store is not None:
            self.stored = self.store.stored
            self.seconds = self.store.seconds
        else:
            self.stored = Stored.open(root) if goes_on else None
        (self.seconds,) = team.agreed(self.seconds)

    @property
    def drawn(self) -> int:
        """Draws of each chain so far, by what the first process has."""
        return int(self.team.agreed(0 if self.store is None else self.store.drawn)[0])

    def settled(self, layout: Layout, session: Session) -> None:
        """The set-up is done."""
        if self.store is not None:
            self.store.expected, self.store.context = self.expected, self.context
        self._first(lambda: self._its().settled(layout, session))

    def append(self, block: dict[str, np.ndarray]) -> None:
        """Takes the next draws of all chains."""
        self._first(lambda: self._its().append(block))

    def due(self) -> bool:
        """Whether the first process thinks so."""
        return bool(self.team.agreed(self.store is not None and self.store.due())[0])

    def checkpoint(
        self, session: Session, ahead: dict[str, np.ndarray], *, seconds: float, result: dict[str, Any] | None = None
    ) -> None:
        """Makes what there is last."""
        self._first(lambda: self._its().checkpoint(session, ahead, seconds=seconds, result=result))

    def close(self) -> None:
        """Lets others write."""
        if self.store is not None:
            self.store.close()

    def _its(self) -> Store:
        assert self.store is not None
        return self.store

    def _first(self, action: Callable[[], None]) -> None:
        """Lets the first process do something, and the others wait until it is done."""
        trouble: Exception | None = None
        if self.team.leads:
            try:
                action()
            except Exception as error:
                trouble = error
        (failed,) = self.team.agreed(trouble is not None)
        if trouble is not None:
            raise trouble
        if failed:
            raise ValueError(f"the first process could not use the store {self.root}; its own message says why")
