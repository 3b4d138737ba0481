"""Room for one number a row, where rows are so many that even these may not fit into memory."""

import math
import mmap
import os
import sys
import tempfile

import numpy as np


class _Scratch(mmap.mmap):
    """A mapped file without a name, and the folder that it is in."""

    folder: str


def on_disk(shape: tuple[int, ...], dtype: np.dtype | type, folder: str) -> np.ndarray:
    """Zeros in a file without a name, which is gone with the array: the system may put them aside.

    Args:
        shape: Of the array.
        dtype: Of its numbers.
        folder: Where to put the file; the system's place for such, if that cannot be written to.

    Example:
        >>> on_disk((3,), np.float32, "/tmp").tolist()
        [0.0, 0.0, 0.0]
    """
    size = max(1, math.prod(shape)) * np.dtype(dtype).itemsize
    with tempfile.TemporaryFile(dir=folder if os.access(folder, os.W_OK) else None) as file:
        file.truncate(size)
        if sys.platform == "linux":
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk says so here, and not by a signal later
        memory = _Scratch(file.fileno(), size)
    memory.folder = folder
    return np.frombuffer(memory, dtype, math.prod(shape)).reshape(shape)


def like(array: np.ndarray, dtype: np.dtype | type) -> np.ndarray | None:
    """Zeros of the same shape where an array lies that `on_disk` made; None for any other array.

    Example:
        >>> like(on_disk((3,), np.float32, "/tmp")[1:], np.int32).tolist(), like(np.zeros(3), np.int32)
        ([0, 0], None)
    """
    base: object = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return on_disk(array.shape, dtype, base.folder) if isinstance(base, _Scratch) else None


def in_parts(array: np.ndarray, size: int = 2**20) -> list[np.ndarray]:
    """Views of an array, part by part, so that what is worked out of it takes little memory."""
    return [array[start : start + size] for start in range(0, len(array), size)]
