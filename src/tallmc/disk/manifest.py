"""What a dataset on disk says of itself: a small JSON file that is read with suspicion and written last."""

import json
import math
import os
import re
import sys
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FORMAT, VERSION = "tallmc-rows", 1
FILE = "manifest.json"
# Numbers only, of a fixed size and little-endian: nothing that NumPy would have to unpickle.
_KINDS = ("<f4", "<f8", "<f2", "<i4", "<i8", "<i2", "|i1", "|u1", "<u2", "<u4", "|b1")
_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")
_LARGEST = 2**24  # bytes of a manifest; that of 10^9 rows has about a tenth of it
_MOST_ROWS = 2**30  # as in `feed.check_sizes`: compiled code numbers rows with 32 bits


class Leaf(NamedTuple):
    """One array of the dataset, a file of its own.

    Args:
        name: Of the array; its file is named after it.
        dtype: As NumPy writes it, such as `<f4`.
        shape: Of one row.
        columns: What its columns were called where they came from.
        centres: What was subtracted from each column; empty if nothing was.
        scales: What each column was then divided by.
        checksums: CRC-32 of each chunk.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    columns: tuple[str, ...] = ()
    centres: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    checksums: tuple[int, ...] = ()

    @property
    def file(self) -> str:
        """Its name in the folder: never anything that the manifest could point elsewhere with."""
        return f"{self.name}.rows"

    @property
    def row_bytes(self) -> int:
        """Of one row."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class Manifest(NamedTuple):
    """Everything that is known of a dataset besides its numbers.

    Args:
        num_rows: Rows.
        seed: Of the shuffle.
        repeated: First rows that stand once more at the end of every file, so that a window that begins with the last
            row is a contiguous read.
        chunk_rows: Rows of a chunk; the last may be shorter. Repeated rows belong to none.
        bare: Whether the data is one array, and not a dictionary of arrays.
        leaves: The arrays.
    """

    num_rows: int
    seed: int
    repeated: int
    chunk_rows: int
    bare: bool
    leaves: tuple[Leaf, ...]

    @property
    def num_chunks(self) -> int:
        """Chunks of each array."""
        return -(-self.num_rows // self.chunk_rows)

    @property
    def checksum(self) -> int:
        """One number for all of it."""
        return zlib.crc32(json.dumps([leaf._asdict() for leaf in self.leaves]).encode())

    def write(self, folder: Path) -> None:
        """In one step: the file is there as a whole, or not at all."""
        content = {"format": FORMAT, "version": VERSION} | self._asdict()
        content["leaves"] = [leaf._asdict() for leaf in self.leaves]
        write_atomically(folder / FILE, json.dumps(content, indent=1))

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Reads it, believing nothing: names, kinds of numbers and sizes are checked against the files."""
        path = folder / FILE
        try:
            if path.stat().st_size > _LARGEST:
                raise ValueError(f"it is larger than {_LARGEST} bytes")
            manifest = cls._parsed(json.loads(path.read_text(encoding="utf-8")))
            manifest._check_files(folder)
        except FileNotFoundError as error:
            missing = "is no dataset" if not path.exists() else f"lacks {Path(str(error.filename)).name}"
            raise ValueError(f"{folder} {missing}; make one with tm.ingest(source, path)") from error
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError, OSError) as error:
            raise ValueError(f"{folder} is not a dataset that can be opened: {error}; ingest the data again") from error
        return manifest

    @classmethod
    def _parsed(cls, content: Any) -> "Manifest":
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError("its manifest is of another kind")
        if content.get("version") != VERSION:
            raise ValueError(f"it was written by another version ({content.get('version')!r}, not {VERSION})")
        counts = {name: _count(name, content[name]) for name in ("num_rows", "seed", "repeated", "chunk_rows")}
        if not (1 <= counts["num_rows"] <= _MOST_ROWS and 1 <= counts["chunk_rows"] <= _MOST_ROWS):
            raise ValueError(f"it claims {counts['num_rows']} rows in chunks of {counts['chunk_rows']}")
        if counts["repeated"] > counts["num_rows"]:
            raise ValueError(f"it repeats {counts['repeated']} of {counts['num_rows']} rows")
        leaves, bare = content["leaves"], content["bare"]
        if not isinstance(leaves, list) or not 1 <= len(leaves) <= 1000 or not isinstance(bare, bool):
            raise ValueError("it names no arrays")
        manifest = cls(**counts, bare=bare, leaves=tuple(_leaf(leaf) for leaf in leaves))
        names = [leaf.name for leaf in manifest.leaves]
        if len(set(names)) < len(names) or (bare and len(names) > 1):
            raise ValueError(f"its arrays are {names}")
        for leaf in manifest.leaves:
            if len(leaf.checksums) != manifest.num_chunks:
                raise ValueError(f"{leaf.name} has {len(leaf.checksums)} checksums for {manifest.num_chunks} chunks")
        return manifest

    def _check_files(self, folder: Path) -> None:
        for leaf in self.leaves:
            path = folder / leaf.file
            if path.is_symlink() or not path.is_file():
                if path.is_symlink():
                    raise ValueError(f"{leaf.file} points elsewhere")
                raise FileNotFoundError(2, "no such file", str(path))
            wanted, found = (self.num_rows + self.repeated) * leaf.row_bytes, path.stat().st_size
            if found != wanted:
                raise ValueError(f"{leaf.file} has {found} bytes where {wanted} are expected")


def write_atomically(path: Path, text: str) -> None:
    """Writes a small file so that a crash leaves the old one or the new one."""
    beside = path.with_name(path.name + ".new")
    with open(beside, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    if sys.platform == "win32":
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _leaf(content: Any) -> Leaf:
    name, dtype, shape = content["name"], content["dtype"], content["shape"]
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise ValueError(f"an array is called {name!r}")
    if dtype not in _KINDS:
        raise ValueError(f"{name} holds {dtype!r}, not one of {', '.join(_KINDS)}")
    if not isinstance(shape, list) or len(shape) > 8 or math.prod(_count("shape", size) for size in shape) > 2**24:
        raise ValueError(f"{name} has rows of shape {shape!r}")
    if 0 in shape:
        raise ValueError(f"{name} has rows of shape {shape!r}")
    columns = tuple(str(column) for column in content["columns"])
    centres, scales = (tuple(float(value) for value in content[part]) for part in ("centres", "scales"))
    checksums = tuple(_count("checksums", value) for value in content["checksums"])
    return Leaf(name, dtype, tuple(shape), columns, centres, scales, checksums)


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0 or value >= 2**63:
        raise ValueError(f"{name} is {value!r}")
    return value
