"""What a kind of experiment must say: what it measures, part by part, and the pictures of that."""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tallmc.reproduce.folder import DataFolder
from tallmc.run import Run


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number that was measured.

    Args:
        value: The number.
        error: Its standard error, if chance is in it.
    """

    value: float
    error: float | None = None


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a part of an experiment found; all of it can be written as JSON.

    Args:
        figures: Numbers by name; those that the paper printed have the names that `experiment.toml` gives them.
        curves: What pictures are drawn from.
        notes: Sentences for the reader: what was read otherwise than printed, or stood in for what cannot be had.
    """

    figures: Mapping[str, Figure] = dataclasses.field(default_factory=dict)
    curves: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Bench:
    """What an experiment may use while it measures.

    Args:
        data: Public data.
        draws: Folder that keeps the draws; made when the first run is kept.
        say: Tells the user what is being done.
    """

    data: DataFolder
    draws: Path
    say: Callable[[str], None] = print

    def keep(self, name: str, run: Run) -> None:
        """Saves a run's draws under this name, without its rows: those can be had again."""
        self.draws.mkdir(parents=True, exist_ok=True)
        try:
            run.save(self.draws / name, rows=False)
        except ValueError as error:  # what Run.save cannot write is no reason to lose the figures
            self.say(f"  draws of {name} are not kept: {error}")


class Kind(abc.ABC):
    """A kind of experiment; its fields are the settings that `experiment.toml` gives.

    Parts are measured one after the other and kept, so that an interrupted experiment goes on where it stopped. So a
    part must not depend on what another one left in memory.
    """

    @property
    def data_files(self) -> tuple[str, ...]:
        """Files of public data that it reads."""
        return ()

    @property
    @abc.abstractmethod
    def parts(self) -> tuple[str, ...]:
        """Names of its parts."""

    @abc.abstractmethod
    def measure(self, part: str, bench: Bench) -> Measured:
        """Measures one part."""

    def pictures(self, found: Mapping[str, Measured]) -> dict[str, str]:
        """SVG pictures by title, of what all parts found."""
        del found
        return {}
