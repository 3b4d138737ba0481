"""What is wrong with a store, and what of it can be saved."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tallmc.run import archive, chunks, files
from tallmc.run.archive import DamagedError
from tallmc.run.stored import INSIDE, LOCK, SETUP, Checkpoint, Setup, Stored, checkpoint_name, generations, is_store

_NAMED = 3  # pieces of damage of one kind that are named one by one


class Finding(NamedTuple):
    """One thing that was looked at.

    Args:
        ok: Whether it is as it should be.
        name: What it is.
        figure: What was found.
    """

    ok: bool
    name: str
    figure: str


class Examined(NamedTuple):
    """A store after it was looked through.

    Args:
        findings: About all that was looked at.
        whole: Draws of each chain before the first that is lost.
        advice: What can be done, a sentence each.
    """

    findings: list[Finding]
    whole: int
    advice: list[str]

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return all(finding.ok for finding in self.findings)


def examine(path: str | os.PathLike[str]) -> Examined:
    """Reads every file of a store, and says what is wrong with it.

    Args:
        path: Of its folder.
    """
    root = Path(path)
    if not root.is_dir() or not is_store(root):
        raise ValueError(f"{root} is not a store; pass the folder that was given as store=, or to run.save")
    links = [str(found.relative_to(root)) for found in _links(root)]
    findings = [Finding(not links, "links out of the store", _some(links))]
    held = files.is_locked(root / INSIDE / LOCK)
    findings.append(Finding(True, "being written now", "yes" if held else "no"))
    left = [found.name for found in files.unfinished(root)]
    findings.append(Finding(True, "files left unfinished by a process that was stopped", _some(left)))
    try:
        setup = Setup.read(root)
    except (FileNotFoundError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        findings.append(Finding(missing, "set-up", "has not come to its end" if missing else str(error)))
        return Examined(findings, 0, [_ADVICE_AFRESH if missing else _ADVICE_WITHOUT_SETUP])
    findings.append(Finding(True, "set-up", f"{len(setup.columns)} variables of {setup.num_chains} chains"))
    return _look_through(root, setup, findings)


_ADVICE_AFRESH = "the same call with resume=True begins the run anew; no draw was made yet"
_ADVICE_WITHOUT_SETUP = (
    "without its set-up the run cannot go on; draws in chunks that are whole can still be read as plain Zarr, with "
    'xarray.open_datatree(path, engine="zarr")'
)


def _look_through(root: Path, setup: Setup, findings: list[Finding]) -> Examined:
    good: list[Checkpoint] = []
    for generation in generations(root):
        try:
            checkpoint = Checkpoint.read(root, generation, setup)
            checkpoint.archive.check()
            checkpoint.tail(setup)
        except (DamagedError, FileNotFoundError) as error:
            findings.append(Finding(False, checkpoint_name(generation), str(error)))
        else:
            findings.append(Finding(True, checkpoint_name(generation), f"{checkpoint.drawn:,} draws of each chain"))
            good.append(checkpoint)
    if not good:
        findings.append(Finding(False, "checkpoints", "none can be used"))
        return Examined(findings, 0, [_ADVICE_AFRESH])
    newest, lost = good[0], dict[int, list[str]]()
    for number in range(newest.full):
        for column in setup.columns:
            try:
                chunks.read_chunk(root, column, number, setup.num_chains, setup.length)
            except (DamagedError, ValueError) as error:
                lost.setdefault(number, []).append(str(error))
    troubles = [trouble for found in lost.values() for trouble in found]
    findings.append(
        Finding(
            not troubles, f"damage in {newest.full:,} full chunks of {len(setup.columns)} variables", _some(troubles)
        )
    )
    findings.append(_description(root))
    whole = min(lost) * setup.length if lost else newest.drawn
    return Examined(findings, whole, _advice(root, newest, len(good) == len(generations(root)), whole, bool(lost)))


def _advice(root: Path, newest: Checkpoint, unharmed: bool, whole: int, lost: bool) -> list[str]:
    if not lost:
        how = "all" if unharmed else "those of the newest checkpoint that is whole"
        return [
            f"{newest.drawn:,} draws of each chain are there ({how}); the same call with resume=True goes on after "
            "them, and tm.load reads them"
        ]
    return [
        f"{whole:,} draws of each chain, before the first that is lost, can be copied to a store of their own: "
        f"tallmc doctor --store {root} --rescue OTHER",
        "or remove the damaged chunks: the same call with resume=True then makes draws again from the last checkpoint "
        "before them, or from the end of set-up, the same bit for bit",
    ]


def _description(root: Path) -> Finding:
    """What other readers of Zarr go by; nobody here does, and it is written anew when a run goes on."""
    try:
        with files.open_inside(root, "zarr.json") as file:
            sound = "consolidated_metadata" in json.load(file)
    except (OSError, ValueError):
        sound = False
    return Finding(sound, "description for other readers", "there" if sound else "damaged; resume=True mends it")


def _links(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            if files.is_link(Path(folder) / name):
                yield Path(folder) / name


def _some(found: list[str]) -> str:
    if not found:
        return "none"
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return "; ".join(found[:_NAMED]) + more


def rescue(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> int:
    """Copies the draws of a store before the first that is lost. They can be looked at; the chains cannot go on.

    Args:
        path: Of the damaged store.
        target: Where there is nothing yet.

    Returns:
        How many draws of each chain.
    """
    root, other = Path(path), Path(target)
    if other.exists():
        raise ValueError(f"{other} exists; choose another path to rescue draws to")
    count = examine(root).whole
    if not count:
        raise ValueError(f"there are no draws of {root} to rescue")
    setup = Setup.read(root)
    stored, first = _before(root, setup, count), Checkpoint.read(root, generations(root)[-1], setup)
    files.folder(other, INSIDE)
    full, length = count // setup.length, setup.length
    for column in setup.columns:
        for number in range(full):
            draws = stored.read(column, number * length, (number + 1) * length)
            chunks.write_chunk(other, column, number, length, draws)
    _copy_set_up(other, setup)
    tails = [stored.read(column, full * length, count) for column in setup.columns]
    _write_end(other, first.archive, count, full, tails)
    chunks.describe(other, setup.columns, setup.num_chains, full * length, length, {})
    return count


def _copy_set_up(other: Path, setup: Setup) -> None:
    about = {**setup.archive.about, "facts": {**setup.facts, "call": "run.save"}}  # nothing appends to it
    archive.write(files.inside(other, INSIDE, SETUP), about, setup.archive.arrays())


def _write_end(other: Path, first: archive.Archive, count: int, full: int, tails: list[np.ndarray]) -> None:
    """A checkpoint with the chains of the first: where they were before any draw."""
    arrays = first.arrays()
    arrays = arrays[: len(arrays) - len(tails)]
    about = {
        **first.about,
        "drawn": count,
        "full": full,
        "tail": [len(arrays) + number for number in range(len(tails))],
        "values": {**first.about["values"], "result": {"dict": {"interrupted": True}}},
    }
    archive.write(files.inside(other, INSIDE, checkpoint_name(0)), about, [*arrays, *tails])


def _before(root: Path, setup: Setup, count: int) -> Stored:
    """The draws up to so many, whichever checkpoint has them."""
    for generation in generations(root):
        try:
            checkpoint = Checkpoint.read(root, generation, setup)
        except DamagedError:
            continue
        if checkpoint.drawn >= count:
            return Stored(root, setup, checkpoint)
    raise DamagedError(f"no checkpoint of {root} has {count} draws")
