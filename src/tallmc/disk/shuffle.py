"""A random order of more rows than fit into memory: sorted by a keyed hash of the row number, in two passes.

The first pass throws every row into one of 256 files by the first byte of its hash, the second sorts one file after
another. What comes out depends on the seed and on the rows, and on nothing else: not on batches, memory or
interruptions.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import UInt64

_BUCKETS = 256
_KEPT = 2**24  # bytes that wait for more before there are files: making and deleting 256 of them takes a second
KEY = "key"  # the field of a record with its hash


def keys_of(first: int, count: int, seed: int) -> UInt64[np.ndarray, " count"]:
    """Hashes of consecutive row numbers: two rounds of SplitMix64, keyed with the seed; no two rows share one.

    Example:
        >>> len(set(keys_of(0, 1000, seed=1).tolist()))
        1000
    """
    with np.errstate(over="ignore"):
        numbers = np.arange(first, first + count, dtype=np.uint64)
        return _mixed(_mixed(numbers ^ _mixed(np.asarray([seed], np.uint64))) + np.asarray([seed], np.uint64))


def _mixed(words: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014), which is one to one."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


class Spill:
    """Records on disk, in files by their hash.

    Args:
        folder: For the files.
        dtype: Of a record, with the field `KEY`.
        sizes: Bytes of each file to go on from; what is beyond them is forgotten.
    """

    def __init__(self, folder: Path, dtype: np.dtype, sizes: list[int] | None = None):
        self._folder, self._dtype, self._sizes = folder, dtype, sizes or [0] * _BUCKETS
        self._files: dict[int, int] = {}
        self._waiting: list[np.ndarray] = []  # not written yet: few rows need no files at all

    def __enter__(self) -> "Spill":
        for number, size in enumerate(self._sizes):
            path = self.path(number)
            if size and (not path.exists() or path.stat().st_size < size):
                raise ValueError(f"{self._folder} is damaged: delete it, and begin again without resume")
        return self

    def __exit__(self, *_: object) -> None:
        while self._files:
            os.close(self._files.popitem()[1])

    def _file(self, number: int) -> int:
        """Opened when something is written to it; what an interrupted ingest left beyond its note is cut off."""
        if number not in self._files:
            self._files[number] = os.open(self.path(number), os.O_WRONLY | os.O_CREAT, 0o666)
            os.ftruncate(self._files[number], self._sizes[number])
            os.lseek(self._files[number], self._sizes[number], os.SEEK_SET)
        return self._files[number]

    def path(self, number: int) -> Path:
        """Of a file."""
        return self._folder / f"{number:03}.spill"

    @property
    def sizes(self) -> list[int]:
        """Bytes of each file so far."""
        return list(self._sizes)

    def add(self, records: np.ndarray) -> None:
        """Throws records into their files; the first ones wait until they are many."""
        self._waiting.append(records)
        if any(self._sizes) or sum(part.nbytes for part in self._waiting) > _KEPT:
            self.flush()

    def flush(self) -> None:
        """Writes what waits."""
        while self._waiting:
            self._throw(self._waiting.pop(0))

    def _throw(self, records: np.ndarray) -> None:
        buckets = (records[KEY] >> np.uint64(56)).astype(np.uint8)
        sorted_records = records[np.argsort(buckets, kind="stable")]
        ends = np.cumsum(np.bincount(buckets, minlength=_BUCKETS))
        content = sorted_records.view(np.uint8).reshape(len(records), -1)
        for number, (start, stop) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if stop > start:
                self._sizes[number] += _write(self._file(number), content[start:stop])

    def sorted(self, first: int, memory: int) -> Iterator[tuple[int, np.ndarray]]:
        """The records of each file from number `first` on, in the order of their hashes.

        Each comes with the number of the file from which to go on after it: that of a file given in parts is the next
        one's for its last part only.

        Args:
            first: The first file.
            memory: Bytes that may be taken for it.
        """
        if self._waiting and not any(self._sizes):
            records = np.concatenate(self._waiting)
            yield _BUCKETS, records[np.argsort(records[KEY])]
            return
        for number in range(first, _BUCKETS):
            if not self._sizes[number]:
                continue
            parts = _parts(self._sizes[number], memory)
            for part in range(parts):
                records = _some_of(self.path(number), self._dtype, self._sizes[number], memory, part, parts)
                yield number + (part == parts - 1), records[np.argsort(records[KEY])]


def _parts(size: int, memory: int) -> int:
    """Into how many a file is divided: by the bits of the hash that follow its first byte."""
    wanted = 3 * size / memory  # the records, in order, and what is made of them
    return 1 << max(0, int(np.ceil(np.log2(max(wanted, 1)))))


def _some_of(path: Path, dtype: np.dtype, size: int, memory: int, part: int, parts: int) -> np.ndarray:
    count = size // dtype.itemsize
    if parts == 1:
        return np.fromfile(path, dtype, count)
    shift, chosen = np.uint64(56 - (parts.bit_length() - 1)), []
    at_once = max(1, memory // (8 * dtype.itemsize))
    with open(path, "rb") as file:
        for start in range(0, count, at_once):
            block = np.fromfile(file, dtype, min(at_once, count - start))
            chosen.append(block[((block[KEY] >> shift) & np.uint64(parts - 1)) == part])
    return np.concatenate(chosen)


def _write(descriptor: int, content: np.ndarray) -> int:
    left = np.ascontiguousarray(content).data.cast("B")
    total = len(left)
    while len(left):
        left = left[os.write(descriptor, left) :]
    return total
