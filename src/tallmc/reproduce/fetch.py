"""Fetches what the public has: checked before it is used, kept in the user's cache folder."""

import gzip
import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
# Of the files after they are unpacked, as generally published.
_IDX_FILES = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_BLOCK = 1 << 16
_SECONDS = 20.0  # without an answer


def cache_folder() -> Path:
    """Where fetched data are kept."""
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "tallmc-data"


def fetched(name: str, about: dict[str, Any], say: Callable[[str], None]) -> Path:
    """A file made of what the public has; the arrays are those of the file that `data.toml` describes."""
    target = cache_folder() / name
    if not target.is_file():
        arrays = {"mnist": _mnist}[about["fetch"]](say)
        target.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(target, **_of_digits(arrays, name))  # pyright: ignore
    return target


def _mnist(say: Callable[[str], None]) -> dict[str, np.ndarray]:
    names = ("X_train", "y_train", "X_test", "y_test")
    return {name: _read_idx(_checked(file, say)) for name, file in zip(names, _IDX_FILES, strict=True)}


def _checked(file: str, say: Callable[[str], None]) -> bytes:
    try:
        content = gzip.decompress(download(f"{_MNIST}{file}.gz", say))
    except (gzip.BadGzipFile, EOFError) as error:
        raise ValueError(f"{file}.gz from {_MNIST} is damaged: {error}") from error
    if hashlib.sha256(content).hexdigest() != _IDX_FILES[file]:
        raise ValueError(f"{file} from {_MNIST} has another checksum than the file that is generally published")
    return content


def download(address: str, say: Callable[[str], None]) -> bytes:
    """All of a file on the web, with progress; says in one line if there is no network."""
    try:
        with urllib.request.urlopen(address, timeout=_SECONDS) as answer:
            size, content = int(answer.headers.get("Content-Length") or 0), bytearray()
            shown = 0
            while block := answer.read(_BLOCK):
                content += block
                if size and 4 * len(content) // size > shown:
                    shown = 4 * len(content) // size
                    say(f"  {address.rpartition('/')[2]}: {len(content) / 1e6:.1f} of {size / 1e6:.1f} MB")
            return bytes(content)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise ValueError(
            f"cannot fetch {address} ({reason}); without a network, name a folder that has the data by --data-dir or "
            "TALLMC_DATA"
        ) from error


def _read_idx(content: bytes) -> np.ndarray:
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, offset=4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions)
    return values.reshape(shape[0], -1) if dimensions > 1 else values


def _of_digits(arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """All digits, or the two of `mnist_1v7.npz` and its like, in their order."""
    _, _, pair = name.removesuffix(".npz").partition("_")
    if not pair:
        return arrays
    digits, found = [int(digit) for digit in pair.split("v")], {}
    for part in ("train", "test"):
        index = np.flatnonzero(np.isin(arrays[f"y_{part}"], digits)).astype(np.int32)
        found |= {f"X_{part}": arrays[f"X_{part}"][index], f"y_{part}": arrays[f"y_{part}"][index]}
        found[f"index_{part}"] = index
    return found
