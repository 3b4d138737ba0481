"""A random order of more rows than fit into memory: sorted by a keyed hash of the row number, in two passes.

The first pass throws every row into one of 256 files by the first byte of its hash, the second sorts one file after
another. What comes out depends on the seed and on the rows, and on nothing else: not on batches, memory or interruptions.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import UInt64

_BUCKETS = 256
KEY = "key"  # the field of a record with its hash


def keys_of(first: int, count: int, seed: int) -> UInt64[np.ndarray, " count"]:
    """Hashes of consecutive row numbers: two rounds of SplitMix64, keyed with the seed; no two rows share one.

    Example:
        >>> len(set(keys_of(0, 1000, seed=1).tolist()))
        1000
    """
    with np.errstate(over="ignore"):
        numbers = np.arange(first, first + count, dtype=np.uint64)
        return _mixed(_mixed(numbers ^ _mixed(np.uint64([seed]))) + np.uint64(seed))


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
        self._files: list[int] = []

    def __enter__(self) -> "Spill":
        for number, size in enumerate(self._sizes):
            path = self.path(number)
            if size and (not path.exists() or path.stat().st_size < size):
                raise ValueError(f"{self._folder} is damaged: delete it, and begin again without resume")
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            os.ftruncate(descriptor, size)
            os.lseek(descriptor, size, os.SEEK_SET)
            self._files.append(descriptor)
        return self

    def __exit__(self, *_: object) -> None:
        while self._files:
            os.close(self._files.pop())

    def path(self, number: int) -> Path:
        """Of a file."""
        return self._folder / f"{number:03}.spill"

    @property
    def sizes(self) -> list[int]:
        """Bytes of each file so far."""
        return list(self._sizes)

    def add(self, records: np.ndarray) -> None:
        """Throws records into their files."""
        buckets = (records[KEY] >> np.uint64(56)).astype(np.uint8)
        sorted_records = records[np.argsort(buckets, kind="stable")]
        ends = np.cumsum(np.bincount(buckets, minlength=_BUCKETS))
        content = sorted_records.view(np.uint8).reshape(len(records), -1)
        for number, (start, stop) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if stop > start:
                self._sizes[number] += _write(self._files[number], content[start:stop])

    def sorted(self, first: int, memory: int) -> Iterator[tuple[int, np.ndarray]]:
        """The records of each file from number `first` on, in the order of their hashes.

        Each comes with the number of the file from which to go on after it: that of a file given in parts is the next
        one's for its last part only.

        Args:
            first: The first file.
            memory: Bytes that may be taken for it.
        """
        for number in range(first, _BUCKETS):
            parts = _parts(self.path(number), self._dtype, memory)
            for part in range(parts):
                records = _some_of(self.path(number), self._dtype, memory, part, parts)
                yield number + (part == parts - 1), records[np.argsort(records[KEY])]


def _parts(path: Path, dtype: np.dtype, memory: int) -> int:
    """Into how many a file is divided: by the bits of the hash that follow its first byte."""
    wanted = 3 * path.stat().st_size / memory  # the records, in order, and what is made of them
    return 1 << max(0, int(np.ceil(np.log2(max(wanted, 1)))))


def _some_of(path: Path, dtype: np.dtype, memory: int, part: int, parts: int) -> np.ndarray:
    if parts == 1:
        return np.fromfile(path, dtype)
    shift, chosen = np.uint64(56 - (parts.bit_length() - 1)), []
    with open(path, "rb") as file:
        while len(block := np.fromfile(file, dtype, max(1, memory // (8 * dtype.itemsize)))):
            chosen.append(block[((block[KEY] >> shift) & np.uint64(parts - 1)) == part])
    return np.concatenate(chosen)


def _write(descriptor: int, content: np.ndarray) -> int:
    left = memoryview(np.ascontiguousarray(content)).cast("B")
    total = len(left)
    while len(left):
        left = left[os.write(descriptor, left) :]
    return total
