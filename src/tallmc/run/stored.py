"""Reads a store: the newest checkpoint that is whole, and draws out of chunks when they are asked for.

Nothing that a store says is believed without a look: names stay inside its folder, files have the size that their
numbers need before any memory is taken, and every checksum is verified. `tallmc.run.encoding` says what becomes of the
names of classes and functions.
"""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tallmc.run import chunks, files
from tallmc.run.archive import Archive, DamagedError
from tallmc.run.encoding import Decoder
from tallmc.run.variables import Column, Kept

FORMAT = 2
INSIDE = "tallmc"  # what only this library reads
SETUP, LOCK = "setup.zip", "lock"
_CHECKPOINT = re.compile(r"checkpoint-(\d{8,12})\.zip\Z")
# Draws in memory at most when a run on disk is looked at as a whole, for R-hat and warnings: every so many then count.
_LOOKED_AT = 2**28


def checkpoint_name(generation: int) -> str:
    """File of a checkpoint."""
    return f"checkpoint-{generation:08d}.zip"


def generations(root: Path) -> list[int]:
    """Numbers of all checkpoints that are there, the newest first."""
    folder = files.inside(root, INSIDE)
    found = [_CHECKPOINT.match(path.name) for path in folder.iterdir()] if folder.is_dir() else []
    return sorted((int(match[1]) for match in found if match), reverse=True)


def is_store(root: Path) -> bool:
    """Whether a folder is a store, or the beginning of one."""
    return (root / INSIDE / LOCK).is_file() or (root / INSIDE / SETUP).is_file()


def decoded(found: Archive, name: str, functions: Mapping[str, Any]) -> Any:
    """A value of a file; what cannot be made of it is damage, or says what is missing here."""
    try:
        return Decoder(found.array, functions).decode(found.about["values"][name])
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError, OverflowError) as error:
        raise DamagedError(f"{name} in {found.name} is damaged: {error!r}") from error


class Setup(NamedTuple):
    """What a store says of its draws, from the end of the set-up on.

    Args:
        archive: The file that it is from.
        facts: What the call was made with.
        columns: Variables.
        num_chains: How many chains there are.
        length: Draws of a chunk.
    """

    archive: Archive
    facts: dict[str, str]
    columns: list[Column]
    num_chains: int
    length: int

    @classmethod
    def read(cls, root: Path) -> "Setup":
        """Reads it, and checks that it can be."""
        found = Archive(root, INSIDE, SETUP)
        try:
            about = found.about
            if about["format"] != FORMAT:
                raise ValueError(
                    f"{root} was written in format {about['format']} by tallmc {about['facts'].get('tallmc')}, and "
                    f"this version reads format {FORMAT}; load it with that version"
                )
            columns = [Column.checked(*one) for one in about["columns"]]
            chains, length = int(about["num_chains"]), int(about["length"])
            if chains < 1 or length < 1 or not columns or len({column.folder for column in columns}) < len(columns):
                raise DamagedError(f"{found.name} describes no draws")
            facts = {str(name): str(value) for name, value in about["facts"].items()}
        except (KeyError, TypeError) as error:
            raise DamagedError(f"{found.name} is damaged: {error!r}") from error
        return cls(found, facts, columns, chains, length)

    def decode(self, name: str, functions: Mapping[str, Any] | None = None) -> Any:
        """One of the values that were stored, with the caller's functions for those that could not be."""
        return decoded(self.archive, name, functions or {})


class Checkpoint(NamedTuple):
    """A run between two blocks, as it was written down.

    Args:
        archive: The file that it is from.
        generation: Its number.
        drawn: Draws of each chain up to then.
        full: Chunks that are full.
    """

    archive: Archive
    generation: int
    drawn: int
    full: int

    @classmethod
    def read(cls, root: Path, generation: int, setup: Setup) -> "Checkpoint":
        """Reads one, and checks that it fits its store."""
        found = Archive(root, INSIDE, checkpoint_name(generation), held=True)
        try:
            drawn, full, tail = (found.about[name] for name in ("drawn", "full", "tail"))
            left = drawn - full * setup.length
            if not (isinstance(drawn, int) and isinstance(full, int) and full >= 0 and 0 <= left < setup.length):
                raise DamagedError(f"{found.name} speaks of {drawn} draws in {full} chunks")
            if len(tail) != len(setup.columns):
                raise DamagedError(f"{found.name} has {len(tail)} variables, and there are {len(setup.columns)}")
            if found.about["setup"] != setup.archive.about["identity"]:
                raise DamagedError(f"{found.name} belongs to another run")
        except (KeyError, TypeError) as error:
            raise DamagedError(f"{found.name} is damaged: {error!r}") from error
        return cls(found, generation, drawn, full)

    def decode(self, name: str) -> Any:
        """One of the values that were stored."""
        return decoded(self.archive, name, {})

    def tail(self, setup: Setup) -> dict[Column, np.ndarray]:
        """Draws that do not fill a chunk yet."""
        found = {}
        for column, number in zip(setup.columns, self.archive.about["tail"], strict=True):
            draws = self.archive.array(number)
            wanted = (setup.num_chains, self.drawn - self.full * setup.length, *column.shape)
            if draws.shape != wanted or draws.dtype.name != column.dtype:
                raise DamagedError(f"{self.archive.name} has {draws.dtype} {draws.shape} for {column.name}")
            found[column] = draws
        return found


class Stored:
    """Draws on disk, as they are when this is made: others may be added meanwhile.

    Args:
        root: Folder of the store.
        setup: What it says of its draws.
        checkpoint: How far it is.
        passed: Why newer checkpoints were passed over.
    """

    def __init__(self, root: Path, setup: Setup, checkpoint: Checkpoint, passed: tuple[str, ...] = ()):
        self.root, self.setup, self.checkpoint, self.passed = root, setup, checkpoint, passed
        self.num_chains, self.num_draws = setup.num_chains, checkpoint.drawn
        self.tail = checkpoint.tail(setup)

    @classmethod
    def open(cls, root: Path) -> "Stored":
        """The newest checkpoint of which all is whole.

        Raises:
            DamagedError: If there is none.
            FileNotFoundError: If the set-up has not come to its end yet.
        """
        for _ in range(_PATIENCE):
            try:
                return cls._newest(root)
            except FileNotFoundError:  # whoever writes has removed a checkpoint since we looked
                if not generations(root):
                    raise
        return cls._newest(root)

    @classmethod
    def _newest(cls, root: Path) -> "Stored":
        setup, passed = Setup.read(root), []
        for generation in generations(root):
            try:
                checkpoint = Checkpoint.read(root, generation, setup)
                checkpoint.archive.check()
                stored = cls(root, setup, checkpoint, tuple(passed))
                stored.check_sizes()
                stored.check_newest()
            except DamagedError as error:
                passed.append(str(error))
            else:
                return stored
        if passed:
            raise DamagedError(f"no checkpoint of {root} can be used: {'; '.join(passed)}")
        raise FileNotFoundError(f"{root} has no checkpoint yet")

    def check_sizes(self) -> None:
        """Raises `DamagedError` unless every chunk has the size that it should have."""
        for column in self.setup.columns:
            for number in range(self.checkpoint.full):
                chunks.check_size(self.root, column, number, self.num_chains, self.setup.length)

    def check_newest(self) -> None:
        """Raises `DamagedError` unless what the last checkpoint added is what was written: a power cut hits that."""
        first = max(self.checkpoint.full - max(int(self.checkpoint.archive.about["added"]), 1), 0)
        for number in range(first, self.checkpoint.full):
            for column in self.setup.columns:
                self._chunk(column, number)

    def _chunk(self, column: Column, number: int) -> np.ndarray:
        return chunks.read_chunk(self.root, column, number, self.num_chains, self.setup.length)

    def column(self, group: str, name: str) -> Column:
        """The variable of this name."""
        for column in self.setup.columns:
            if (column.group, column.name) == (group, name):
                return column
        raise DamagedError(f"{self.root} has no variable {group}/{name}")

    def pieces(self, column: Column, start: int, stop: int) -> Iterator[np.ndarray]:
        """Draws from `start` to `stop` of a variable, a chunk at a time."""
        length, full = self.setup.length, self.checkpoint.full
        for number in range(start // length, min(-(-stop // length), full)):
            first = number * length
            yield self._chunk(column, number)[:, max(start - first, 0) : stop - first]
        if stop > full * length:
            yield self.tail[column][:, max(start - full * length, 0) : stop - full * length]

    def read(self, column: Column, start: int = 0, stop: int | None = None, step: int = 1) -> np.ndarray:
        """Some or all draws of a variable, (chain, draw, ...)."""
        stop = self.num_draws if stop is None else stop
        count = max(-(-(stop - start) // step), 0)
        found = np.empty((self.num_chains, count, *column.shape), column.dtype)
        done, at = 0, start
        for piece in self.pieces(column, start, stop):
            some = piece[:, -(at - start) % step :: step]
            found[:, done : done + some.shape[1]] = some
            done, at = done + some.shape[1], at + piece.shape[1]
        return found

    def picked(self, column: Column, chain: np.ndarray, draw: np.ndarray) -> np.ndarray:
        """Single draws of a variable, by their chains and numbers."""
        found = np.empty((len(draw), *column.shape), column.dtype)
        numbers = draw // self.setup.length
        for number in np.unique(numbers):
            which, first = np.flatnonzero(numbers == number), int(number) * self.setup.length
            (piece,) = self.pieces(column, first, min(first + self.setup.length, self.num_draws))
            found[which] = piece[chain[which], draw[which] - first]
        return found

    @property
    def appendable(self) -> bool:
        """Whether a call writes its draws here as it goes, unlike `run.save`."""
        return self.setup.facts.get("call") != "run.save"

    @property
    def num_bytes(self) -> int:
        """Of all draws."""
        return self.num_chains * self.num_draws * sum(column.num_bytes for column in self.setup.columns)

    @property
    def stride(self) -> int:
        """Every how many draws are looked at where all of them would take too much memory."""
        return max(1, math.ceil(self.num_bytes / _LOOKED_AT))

    def part(self, name: str, step: int = 1) -> Any:
        """Samples, unconstrained samples or statistics, as a run shows them; statistics when they are asked for."""
        template: Kept = self.setup.decode("template")
        only = template._replace(**{other: None for other in ("samples", "unconstrained") if other != name})
        return getattr(only.filled(lambda *names: self.read(self.column(*names), step=step)), name)


_PATIENCE = 5  # times that a checkpoint may be replaced under a reader's eyes: they come seconds apart
