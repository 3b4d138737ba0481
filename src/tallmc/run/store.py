"""Draws on disk while they are made, and checkpoints from which a killed run goes on, the same bit for bit.

A store is a folder in the Zarr format, with one array for each variable, and beside them a folder of this library:

    tallmc/setup.zip                 what the set-up found, written once
    tallmc/checkpoint-00000042.zip   chains, and the draws that do not fill a chunk yet
    tallmc/lock                      held by whoever writes
    posterior/beta/c/0/7/0           chunk 7 of the draws of beta

A checkpoint is one file that appears by being given its name, which a file system does at once or not at all; before
that, the chunks that it counts on are on the disk. Two checkpoints and the first are kept: should the newest turn out
to be damaged, as may happen if a disk lies about what it has written, the one before takes its place. Chunks that are
full are never changed.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from tallmc.posterior import Posterior
from tallmc.run import archive, chunks, files, fingerprints
from tallmc.run.encoding import Encoder
from tallmc.run.fingerprints import Facts
from tallmc.run.records import Layout, Sink
from tallmc.run.session import Session
from tallmc.run.stored import FORMAT, INSIDE, LOCK, SETUP, Stored, checkpoint_name, generations
from tallmc.run.variables import Column, Kept

_SECONDS_BETWEEN = 10.0  # checkpoints: what a killed run has to make again
_SHARE = 0.02  # of the time at most that goes into checkpoints: on a slow disk they come less often


class Store(Sink):
    """Takes draws from a run and writes them down.

    Args:
        root: Folder of the store, which this process has locked.
        lock: That it holds.
        facts: What the call was made with.
        posterior: What is sampled, as the caller gave it.
        stored: What is there already, if the run goes on.
    """

    def __init__(self, root: Path, lock: files.Lock, facts: Facts, posterior: Posterior, stored: Stored | None = None):
        self.root, self.lock, self.facts, self.posterior, self.stored = root, lock, facts, posterior, stored
        self.context: Callable[[Session], dict[str, Any]] = lambda session: {}
        self.seconds, self.expected = 0.0, 0
        self._columns: list[Column] = []
        self._tail: dict[Column, list[np.ndarray]] = {}
        self._unsynced: list[Path] = []
        self._drawn = self._full = self._described = self._added = 0
        self._generation, self._spent, self._last = 0, 0.0, -np.inf
        if stored is not None:
            self._go_on(stored)

    def _go_on(self, stored: Stored) -> None:
        self._columns, self._length = stored.setup.columns, stored.setup.length
        self._num_chains = stored.num_chains
        self._identity = stored.setup.archive.about["identity"]
        self._tail = {column: [draws] for column, draws in stored.tail.items()}
        self._drawn, self._full = stored.num_draws, stored.checkpoint.full
        self._described = -1
        newest = generations(self.root)
        for generation in newest:
            if generation > stored.checkpoint.generation:
                files.remove(self._path(checkpoint_name(generation)))
        self._generation = stored.checkpoint.generation + 1
        self.seconds = float(stored.checkpoint.archive.about["seconds"])
        self._last = time.monotonic()

    @property
    def drawn(self) -> int:
        """Draws of each chain so far, written or not."""
        return self._drawn

    def _path(self, name: str) -> Path:
        return files.inside(self.root, INSIDE, name)

    def settled(self, layout: Layout, session: Session) -> None:
        """The set-up is done: writes down what came of it, unless it is there."""
        self._layout, self._session = layout, session
        if self._columns:
            return
        blank = {name: np.zeros(like.shape, like.dtype) for name, like in layout.shapes((1, 1)).items()}
        position = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), layout.like.position)
        self.facts = {**self.facts, **fingerprints.likelihood(self.posterior, position)}
        self.set_up(Kept.of(layout.unpack(blank), session, self.posterior), session, position)

    def set_up(self, like: Kept, session: Session, position: PyTree) -> None:
        """Writes down all but draws and chains.

        Args:
            like: Draws for their shapes.
            session: For all that does not change any more.
            position: One, of the numbers that chains move.
        """
        self._session, self._columns, self._num_chains = session, like.columns(), session.num_chains
        self._length = chunks.draws_in_chunk(self._columns, session.num_chains, self.expected)
        self._tail = {column: [] for column in self._columns}
        self._identity = os.urandom(16).hex()
        encoder = Encoder()
        values = {
            **self.context(session),
            "template": like.template(),
            "position": position,
            "session": session._replace(chains=None),
        }
        about = {
            "format": FORMAT,
            "identity": self._identity,
            "facts": self.facts,
            "columns": self._columns,
            "num_chains": session.num_chains,
            "length": self._length,
            "values": {name: encoder.encode(value) for name, value in values.items()},
        }
        folders = [files.folder(self.root, *column.folder, "c", "0") for column in self._columns]
        above = [path for folder in folders for path in (folder, *folder.parents) if path.is_relative_to(self.root)]
        archive.write(self._path(SETUP), about, encoder.arrays)
        files.sync([*dict.fromkeys(above), self.root.parent])

    def append(self, block: dict[str, np.ndarray]) -> None:
        """Takes the next draws of all chains, and writes the chunks that they fill."""
        self.take(Kept.of(self._layout.unpack(block), self._session, self.posterior))

    def take(self, kept: Kept) -> None:
        """The same of draws as a run shows them."""
        named = kept.named()
        for column in self._columns:
            self._tail[column].append(np.asarray(named[column.group, column.name]))
        self._drawn += next(iter(named.values())).shape[1]
        if self._drawn - self._full * self._length >= self._length:
            self._write_full()

    def _write_full(self) -> None:
        count = self._drawn // self._length - self._full
        with _explained(self.root):
            for column in self._columns:
                draws = self._joined(column)
                for number in range(count):
                    part = draws[:, number * self._length : (number + 1) * self._length]
                    path = chunks.write_chunk(self.root, column, self._full + number, self._length, part)
                    self._unsynced.append(path)
                self._tail[column] = [draws[:, count * self._length :].copy()]
        self._full, self._added = self._full + count, self._added + count

    def _joined(self, column: Column) -> np.ndarray:
        parts = self._tail[column]
        if not parts:
            return np.zeros((self._num_chains, 0, *column.shape), column.dtype)
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return time.monotonic() - self._last >= max(_SECONDS_BETWEEN, self._spent / _SHARE)

    def checkpoint(
        self, session: Session, ahead: dict[str, np.ndarray], *, seconds: float, result: dict[str, Any] | None = None
    ) -> None:
        """Makes what there is last: from here a killed run goes on.

        Args:
            session: The run after the draws that were appended.
            ahead: Records of draws that some chains have made beyond these.
            seconds: That chains were moved, in this process.
            result: What is known of a run that has come to its end.
        """
        began = time.monotonic()
        with _explained(self.root):
            files.sync(self._unsynced)
            self._unsynced = []
            self._write_checkpoint(session, ahead, seconds, result)
            finished = result is not None
            if finished:
                self._write_rest()
            if finished or self._described != self._full:
                self._describe(self._drawn if finished else self._full * self._length, each=finished)
            self._forget()
        self._added, self._last = 0, time.monotonic()
        self._spent = self._last - began

    def _write_checkpoint(
        self, session: Session, ahead: dict[str, np.ndarray], seconds: float, result: dict[str, Any] | None
    ) -> None:
        encoder = Encoder()
        values = {"chains": session.chains, "ahead": ahead, "result": result}
        coded = {name: encoder.encode(value) for name, value in values.items()}
        tail = [len(encoder.arrays) + number for number in range(len(self._columns))]
        about = {
            "setup": self._identity,
            "drawn": self._drawn,
            "full": self._full,
            "added": self._added,
            "seconds": self.seconds + seconds,
            "tail": tail,
            "values": coded,
        }
        tails = [self._joined(column) for column in self._columns]
        archive.write(self._path(checkpoint_name(self._generation)), about, [*encoder.arrays, *tails])
        self._generation += 1

    def _write_rest(self) -> None:
        """Puts draws that fill no chunk where other readers of Zarr find them; the checkpoint has them too."""
        if self._drawn > self._full * self._length:
            for column in self._columns:
                draws = self._joined(column)
                chunks.write_chunk(self.root, column, self._full, self._length, draws)

    def _describe(self, shown: int, *, each: bool) -> None:
        attributes = {"tallmc": {"format": FORMAT, **self.facts}}
        chunks.describe(self.root, self._columns, self._num_chains, shown, self._length, attributes, each=each)
        self._described = self._full

    def _forget(self) -> None:
        """Removes checkpoints but for the first, from which all can be made again, and the last two."""
        for generation in generations(self.root)[2:-1]:
            files.remove(self._path(checkpoint_name(generation)))

    def close(self) -> None:
        """Lets others write."""
        self.lock.release()


@contextlib.contextmanager
def _explained(root: Path) -> Iterator[None]:
    """Says what a full disk, or another trouble with it, means for the run."""
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno,
            f"{os.strerror(error.errno or 0)} while draws were written to {root}; what it had at its last checkpoint "
            "is kept: make room, and call again with resume=True",
        ) from error


def opened(path: str | os.PathLike[str], facts: Facts, posterior: Posterior, *, resume: bool) -> Store:
    """A store to write to: a new one, or one that goes on.

    Args:
        path: Of its folder.
        facts: What the call is made with.
        posterior: What is sampled, as the caller gave it.
        resume: Whether to go on with what is there, if anything is.

    Raises:
        ValueError: If something is there and should not be, was made with something else, or is being written.
    """
    root = Path(path)
    if not isinstance(resume, bool):
        raise ValueError(f"resume must be True or False, not {resume!r}")
    if files.is_link(root):
        root = root.resolve()
    if root.exists() and not root.is_dir():
        raise ValueError(f"{root} is a file; a store is a folder: choose another path")
    if root.is_dir() and any(root.iterdir()):
        if not (root / INSIDE / LOCK).exists():
            raise ValueError(f"{root} exists and is not a store; choose another path")
        if not resume:
            raise ValueError(f"{root} exists; pass resume=True to go on with it, or choose another path")
    root.parent.mkdir(parents=True, exist_ok=True)
    lock = files.Lock(files.folder(root, INSIDE) / LOCK, root)
    try:
        return _begun(root, lock, facts, posterior)
    except BaseException:
        lock.release()
        raise


def reopened(stored: Stored, posterior: Posterior) -> Store:
    """The store of a run that goes on in the same process, or in another.

    Args:
        stored: What the run has.
        posterior: What is sampled, with its rows.
    """
    lock = files.Lock(files.inside(stored.root, INSIDE, LOCK), stored.root)
    try:
        if Stored.open(stored.root).num_draws != stored.num_draws:
            raise ValueError(f"{stored.root} has more draws than this run; load it again: tm.load(path, posterior)")
        return Store(stored.root, lock, stored.setup.facts, posterior, stored)
    except BaseException:
        lock.release()
        raise


def _begun(root: Path, lock: files.Lock, facts: Facts, posterior: Posterior) -> Store:
    for path in files.unfinished(root):
        files.remove(path)
    if not generations(root):
        return Store(root, lock, facts, posterior)
    stored = Stored.open(root)
    now = {**facts, **fingerprints.likelihood(posterior, stored.setup.decode("position"))}
    fingerprints.check(root, stored.setup.facts, now)
    return Store(root, lock, stored.setup.facts, posterior, stored)
