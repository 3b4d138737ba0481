"""One file with JSON and arrays in it: a zip of .npy files, as NumPy writes them. Nothing in it is ever executed.

What a file says about sizes is believed only as far as the file is long: nothing is compressed, so an array takes as
many bytes in the file as in memory.
"""

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from tallmc.run import files

_ABOUT = "about.json"
_KINDS = "biufc"  # truth values and numbers; anything else could hide objects
# Types that NumPy does not know by itself are kept as whole numbers of their size.
_OTHERS = {name: np.dtype(getattr(jnp, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}


class DamagedError(ValueError):
    """A file of a store is not what was written."""


def write(path: Path, about: Any, arrays: Sequence[np.ndarray], *, lasting: bool = True) -> None:
    """Writes JSON and arrays to one file, all of it or nothing."""
    names = [array.dtype.name for array in arrays]

    def produce(file: io.BufferedWriter) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for number, array in enumerate(arrays):
                plain = array.view(f"u{array.itemsize}") if array.dtype.name in _OTHERS else array
                with archive.open(_dated(f"{number}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asarray(plain, order="C"), allow_pickle=False)
            archive.writestr(_dated(_ABOUT), json.dumps({"dtypes": names, "about": about}))

    files.write(path, produce, lasting=lasting)


def _dated(name: str) -> zipfile.ZipInfo:
    """A member without the time of day, so that the same content makes the same file."""
    return zipfile.ZipInfo(name)


class Archive:
    """A file that `write` made.

    Args:
        root: Folder of the store.
        *names: Of the file in it, folder by folder.
        held: Whether to read all of it now, because the file may be gone later.

    Raises:
        DamagedError: If it is cut short or changed.
    """

    def __init__(self, root: Path, *names: str, held: bool = False):
        self.name, self._root, self._names = "/".join(names), root, names
        self._held = self._content() if held else None
        about = self._read(_ABOUT, lambda content: json.loads(content))
        try:
            self.dtypes, self.about = [str(name) for name in about["dtypes"]], about["about"]
        except (KeyError, TypeError) as error:
            raise DamagedError(f"{self.name} is damaged: {error!r}") from error

    def array(self, number: int) -> np.ndarray:
        """The array of this number."""
        if not 0 <= number < len(self.dtypes):
            raise DamagedError(f"{self.name} has no array {number}")
        return self._read(f"{number}.npy", lambda content: _array(content, self.dtypes[number]))

    def arrays(self) -> list[np.ndarray]:
        """All of them, in their order."""
        return [self.array(number) for number in range(len(self.dtypes))]

    def check(self) -> None:
        """Raises `DamagedError` unless every array is what was written."""
        for number in range(len(self.dtypes)):
            self.array(number)

    def _content(self) -> bytes:
        with files.open_inside(self._root, *self._names) as file:
            return file.read()

    def _read(self, member: str, parse: Callable[[bytes], Any]) -> Any:
        held = self._held
        try:
            with files.open_inside(self._root, *self._names) if held is None else io.BytesIO(held) as file:
                return parse(_member(file, member))
        except FileNotFoundError:
            raise
        except (OSError, zipfile.BadZipFile, ValueError, KeyError, TypeError, EOFError, RecursionError) as error:
            raise DamagedError(f"{member} of {self.name} is damaged: {error}") from error


def _member(file: Any, name: str) -> bytes:
    """One file of a zip, if it is as long as it says."""
    length = file.seek(0, io.SEEK_END)
    with zipfile.ZipFile(file) as found:
        member = found.getinfo(name)
        if member.compress_type != zipfile.ZIP_STORED or not member.file_size == member.compress_size <= length:
            raise ValueError(f"{name} claims another size than it has")
        return found.read(member)


def _array(content: bytes, name: str) -> np.ndarray:
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        raise ValueError(f"its header has version {version}")
    shape, by_column, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind not in _KINDS or by_column:
        raise ValueError(f"it holds {dtype}")
    count = 1
    for length in shape:
        count *= length
    if count * dtype.itemsize != len(content) - stream.tell():
        raise ValueError(f"its shape {shape} is not that of {len(content):,} bytes")
    array = np.frombuffer(content, dtype, count, stream.tell()).reshape(shape)
    return array.view(_OTHERS[name]) if name in _OTHERS else array
