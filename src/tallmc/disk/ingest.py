"""`tm.ingest`: whatever the rows are in, into a shuffled dataset on disk, in bounded memory."""

import hashlib
import json
import os
import shutil
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from tallmc.console.progress import say, working
from tallmc.disk.layout import Codes, Column, Columns, Finish, Moments, Part, Settings, finish, plan, spilled
from tallmc.disk.manifest import FILE, VERSION, Manifest, write_atomically
from tallmc.disk.shuffle import KEY, Spill, keys_of
from tallmc.disk.sources import BARE, Batch, Source, source_of
from tallmc.numerics import watch

_CHUNK = 65_536  # rows: some 5 MB of 20 columns, read in a few milliseconds
# First rows that stand once more at the end. Windows are up to this long without a copy of the data.
_REPEATED = 65_536
_SECONDS = 5.0  # between two notes of how far it is, at most that much is done again
_WORK, _STATE = ".ingest", "state.json"


def ingest(
    source: Any,
    path: str | os.PathLike[str],
    *,
    columns: Columns = None,
    outcome: str | None = None,
    one_hot: Sequence[str] = (),
    standardise: bool | Sequence[str] = False,
    intercept: bool = False,
    dtype: Any = None,
    seed: int = 0,
    memory: int = 2**28,
    resume: bool = False,
    progress: bool = True,
) -> Path:
    """Writes rows in random order to a folder, from which `tm.open_dataset` reads them.

    Rows are read once, thrown into 256 files by a keyed hash of their number, and these are sorted one after another.
    So memory does not depend on how many rows there are, and the order on nothing but the seed.

    Args:
        source: The name of a file, a folder or a pattern (Parquet, CSV, Arrow, .npy, .npz; also a URL that fsspec
            knows); an array or a dictionary of arrays; a data frame; or an iterator of any of these, as batches.
        path: The folder to make.
        columns: Which columns. A list: these make the matrix `x`. A dictionary such as
            `{"x": ["age", "dose"], "group": "site"}`: from the arrays of a row to their columns, a name alone making
            one number a row. If left out, arrays stay what they are, and tables become `x` and the outcome.
        outcome: The column that becomes `y`.
        one_hot: Columns of categories, each of which becomes a column of zeros and ones.
        standardise: Columns to have mean 0 and standard deviation 1; True: all of fractional numbers but the outcome.
            What was subtracted and divided by is kept in the manifest.
        intercept: Whether `x` begins with a column of ones.
        dtype: Of all numbers. If left out, float32 for tables, and what they are for arrays.
        seed: Of the shuffle.
        memory: Bytes that may be taken, roughly; besides what the reader of a file takes.
        resume: Whether to go on where an ingest of the same data was interrupted.
        progress: Whether to show how far it is, if output is a terminal.

    Returns:
        The folder.

    Example:
        >>> import tempfile, numpy as np, tallmc as tm
        >>> arrays = {"x": np.ones((100, 3), np.float32), "y": np.arange(100) % 2}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rows = tm.open_dataset(tm.ingest(arrays, folder + "/rows", progress=False))
        ...     rows.num_rows, rows.like["x"].shape
        (100, (3,))
    """
    folder, work = Path(path), Path(path) / _WORK
    settings = _settings(columns, outcome, one_hot, standardise, intercept, dtype)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be a whole number of at least 0, got {seed!r}")
    if memory < 2**20:
        raise ValueError(f"memory is in bytes; {memory} is less than a mebibyte")
    read = source_of(source)
    fingerprint = _fingerprint(settings, int(seed), read)
    _check_folder(folder, resume)
    work.mkdir(parents=True, exist_ok=True)
    with _alone(work), working(f"ingesting into {folder}", show=progress):
        state = _resumed(work, fingerprint) if resume else None
        state = state or {"fingerprint": fingerprint, "rows": 0}
        spill = _read_all(read, settings, work, int(seed), state)
        manifest = _write_all(folder, work, state, spill, int(seed), memory)
    shutil.rmtree(work)
    say(f"{manifest.num_rows:,} rows in {folder}, checksum {manifest.checksum:08x}", show=progress)
    return folder


def _settings(
    columns: Columns, outcome: str | None, one_hot: Any, standardise: Any, intercept: bool, dtype: Any
) -> Settings:
    if isinstance(columns, str) or isinstance(one_hot, str) or isinstance(standardise, str):
        raise ValueError("columns, one_hot and standardise take lists of names; put the one name into a list")
    kind = None if dtype is None else np.dtype(dtype)
    if kind is not None and kind.kind not in "fiub":
        raise ValueError(f"dtype must be one of numbers, not {kind}; pass 'float32' or leave it out")
    several = standardise if isinstance(standardise, bool) else tuple(standardise)
    chosen = None if kind is None else kind.newbyteorder("<").str
    return Settings(columns, outcome, tuple(one_hot), several, bool(intercept), chosen)


def _fingerprint(settings: Settings, seed: int, source: Source) -> str:
    """Of all that decides what the dataset will be."""
    known = [VERSION, settings, seed, source.identity, source.num_rows, source.table]
    return hashlib.sha256(json.dumps(known, default=str).encode()).hexdigest()


def _check_folder(folder: Path, resume: bool) -> None:
    if (folder / FILE).exists():
        raise ValueError(f"{folder} is a dataset already; choose another folder, or delete it")
    there = (folder / _WORK / _STATE).exists()
    if there and not resume:
        raise ValueError(f"an ingest into {folder} was interrupted; go on with resume=True, or delete the folder")
    if (
        folder.exists()
        and not (folder.is_dir() and all(child.name == _WORK for child in folder.iterdir()))
        and not there
    ):
        raise ValueError(f"{folder} is there already and is not empty; choose another folder")


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """Nobody else writes here meanwhile."""
    with open(work / "lock", "w") as lock:
        if sys.platform == "win32":
            yield  # which has no such locks
            return
        import fcntl

        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ValueError(f"another process is ingesting into {work.parent}; wait for it") from error
        yield


def _resumed(work: Path, fingerprint: str) -> dict[str, Any] | None:
    try:
        state = json.loads((work / _STATE).read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ValueError(f"{work} is damaged ({error}); delete {work.parent} and begin again") from error
    if state.get("fingerprint") != fingerprint:
        raise ValueError(
            f"what was interrupted in {work.parent} was another source, seed or choice of columns; pass the same, or "
            "delete the folder"
        )
    return state


def _record_type(parts: Sequence[Part]) -> np.dtype:
    return np.dtype([(KEY, "<u8"), *((f"_{part.name}", part.dtype, (part.spilled,)) for part in parts)])


def _read_all(source: Source, settings: Settings, work: Path, seed: int, state: dict[str, Any]) -> Spill:
    """The first pass: every row into the file that its hash says."""
    if "bucket" in state:
        return Spill(work, _record_type(_parts_from(state["parts"])), state["sizes"])
    batches = source.batches(settings.wanted(source))
    codes = Codes(state.get("categories"))
    moments = {name: Moments(*kept) for name, kept in state.get("moments", {}).items()}
    row, skipped, noted = int(state["rows"]), 0, time.monotonic()
    begun = noted
    parts = _parts_from(state["parts"]) if "parts" in state else None
    spill: Spill | None = None
    try:
        for batch in batches:
            size = _length(batch, skipped)
            if parts is None:
                parts = plan(settings, batch, source)
            if spill is None:
                spill = Spill(work, _record_type(parts), state.get("sizes")).__enter__()
            if skipped + size <= row:
                skipped += size
                continue
            if skipped < row:
                batch = {name: column[row - skipped :] for name, column in batch.items()}
                size -= row - skipped
            skipped = row + size
            spill.add(_records(parts, batch, row, size, seed, codes, moments))
            row += size
            watch.done(row, 2 * (source.num_rows or row))
            if time.monotonic() - noted > _SECONDS:
                _note(work, state, row, spill, codes, moments, parts)
                noted = time.monotonic()
        if parts is None or spill is None or row == 0:
            raise ValueError("there are no rows to ingest; check the source")
        if skipped < row:
            raise ValueError(f"the source has {skipped} rows now, and {row} were read before; begin again")
        state["bucket"], state["written"] = 0, 0
        if time.monotonic() - begun > _SECONDS:  # else it is as soon done again
            _note(work, state, row, spill, codes, moments, parts)
        else:
            _noted(state, row, spill, codes, moments, parts)
    finally:
        if spill is not None:
            spill.__exit__()
    assert spill is not None
    return spill


def _length(batch: Batch, row: int) -> int:
    lengths = {name: len(column) for name, column in batch.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"columns have different lengths after row {row}: {lengths}; give all of a batch the same")
    return next(iter(lengths.values()))


def _records(
    parts: Sequence[Part], batch: Batch, row: int, size: int, seed: int, codes: Codes, moments: dict[str, Moments]
) -> np.ndarray:
    records = np.empty(size, _record_type(parts))
    records[KEY] = keys_of(row, size, seed)
    for part in parts:
        missing = [column.source for column in part.columns if column.source not in {None, *batch}]
        if missing:
            raise ValueError(f"column {missing[0]!r} is missing from row {row} on; give all batches the same columns")
        block = records[f"_{part.name}"]
        spilled(part, batch, row, codes, block)
        if any(column.standardised for column in part.columns):
            moments.setdefault(part.name, Moments()).add(block)
    return records


def _note(work: Path, state: dict[str, Any], row: int, spill: Spill, *others: Any) -> None:
    """Writes down how far it is, and what it takes to go on from here."""
    spill.flush()
    _noted(state, row, spill, *others)
    write_atomically(work / _STATE, json.dumps(state))


def _noted(
    state: dict[str, Any], row: int, spill: Spill, codes: Codes, moments: dict[str, Moments], parts: Sequence[Part]
) -> None:
    """Puts into the state all that it takes to go on from here."""
    kept = {name: (one.count, one.mean.tolist(), one.squares.tolist()) for name, one in moments.items()}
    state |= {"rows": row, "sizes": spill.sizes, "categories": codes.known, "moments": kept}
    state["parts"] = [part._asdict() | {"columns": [column._asdict() for column in part.columns]} for part in parts]


def _parts_from(kept: list[dict[str, Any]]) -> tuple[Part, ...]:
    parts = []
    for part in kept:
        columns = tuple(
            Column(**(column | {"shift": tuple(column["shift"]), "scale": tuple(column["scale"])}))
            for column in part["columns"]
        )
        shape = None if part["shape"] is None else tuple(part["shape"])
        parts.append(Part(part["name"], part["dtype"], shape, columns))
    return tuple(parts)


def _write_all(folder: Path, work: Path, state: dict[str, Any], spill: Spill, seed: int, memory: int) -> Manifest:
    """The second pass: one file after another in the order of the hashes, and the manifest last."""
    parts, codes = _parts_from(state["parts"]), Codes(state["categories"])
    moments = {name: Moments(*kept) for name, kept in state["moments"].items()}
    finishes = [finish(part, moments.get(part.name, Moments()), codes) for part in parts]
    writers = [_Writer(work, one, state) for one in finishes]
    seen, noted = int(state["written"]), time.monotonic()
    for following, records in spill.sorted(state["bucket"], memory):
        for part, writer in zip(parts, writers, strict=True):
            writer.add(records[f"_{part.name}"])
        seen += len(records)
        watch.done(state["rows"] + seen, 2 * state["rows"])
        if following != state["bucket"] and time.monotonic() - noted > _SECONDS:
            state |= {"bucket": following, "written": seen, "sums": {w.name: w.sums for w in writers}}
            for writer in writers:
                writer.flush()
            write_atomically(work / _STATE, json.dumps(state))
            noted = time.monotonic()
    if seen != state["rows"]:
        raise ValueError(f"{seen} rows are left of {state['rows']}: {work} is damaged; delete {folder} and begin again")
    repeated = min(_REPEATED, seen)
    leaves = tuple(writer.close(repeated)._replace(checksums=tuple(writer.sums)) for writer in writers)
    for writer in writers:
        os.replace(writer.path, folder / writer.path.name)
    bare = len(parts) == 1 and parts[0].columns[0].source == BARE
    manifest = Manifest(seen, seed, repeated, _CHUNK, bare, leaves)
    manifest.write(folder)
    return manifest


class _Writer:
    """Writes one array, with a checksum of each chunk.

    Args:
        work: Where.
        finish: What is done to rows on the way.
        state: Of an interrupted writer, to go on from.
    """

    def __init__(self, work: Path, finish: Finish, state: dict[str, Any]):
        self.finish, self.name = finish, finish.leaf.name
        self.path = work / finish.leaf.file
        self.sums: list[int] = list(state.get("sums", {}).get(self.name, []))
        self._rows = int(state["written"])
        size = self._rows * finish.leaf.row_bytes
        self._file: IO[bytes] = open(self.path, "r+b" if size else "w+b", buffering=0)  # noqa: SIM115
        if self._file.seek(0, os.SEEK_END) < size:
            raise ValueError(f"{self.path} is shorter than it was; delete {work.parent} and begin again")
        self._file.truncate(size)
        self._file.seek(size)

    def add(self, block: np.ndarray) -> None:
        """More rows."""
        rows = np.ascontiguousarray(self.finish.apply(block))
        start = 0
        while start < len(rows):
            inside = self._rows % _CHUNK
            if inside == 0:
                self.sums.append(0)
            piece = rows[start : start + _CHUNK - inside]
            content = np.ascontiguousarray(piece).data.cast("B")
            self.sums[-1] = zlib.crc32(content, self.sums[-1])
            while len(content):
                content = content[self._file.write(content) :]
            self._rows, start = self._rows + len(piece), start + len(piece)

    def flush(self) -> None:
        """What is written so far survives a power cut."""
        os.fsync(self._file.fileno())

    def close(self, repeated: int) -> Any:
        """Repeats the first rows, and ends."""
        self._file.seek(0)
        content = self._file.read(repeated * self.finish.leaf.row_bytes)
        self._file.seek(0, os.SEEK_END)
        self._file.write(content)
        self.flush()
        self._file.close()
        return self.finish.leaf
