"""Arrays of draws in the Zarr format: chunks of so many draws of all chains, uncompressed, each with its checksum.

Nothing is compressed because draws of real numbers hardly get smaller, and because a file then says how much memory it
takes. Chunks are written here and not by the library of the format, for that one does not wait for the disk.
"""

import json
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from tallmc.run import files
from tallmc.run.archive import DamagedError
from tallmc.run.variables import Column

_CHECKSUM = 4  # bytes of a CRC-32C after the numbers of a chunk, as Zarr's codec of this name puts them


def chunk_bytes(column: Column, num_chains: int, length: int) -> int:
    """Size of the file of one chunk."""
    return num_chains * length * column.num_bytes + _CHECKSUM


def chunk_names(column: Column, number: int) -> tuple[str, ...]:
    """Folders and file of one chunk in a store."""
    return (*column.folder, "c", "0", str(number), *("0" for _ in column.shape))


def write_chunk(root: Path, column: Column, number: int, length: int, draws: np.ndarray) -> Path:
    """Writes one chunk; what is missing at its end is zeros.

    Returns:
        Its path. The disk may not have it yet.
    """
    *folders, name = chunk_names(column, number)
    path = files.folder(root, *folders) / name
    missing = length - draws.shape[1]
    if missing:
        draws = np.concatenate([draws, np.zeros((draws.shape[0], missing, *draws.shape[2:]), draws.dtype)], axis=1)
    dtype = np.dtype(column.dtype).newbyteorder("<")
    content: Any = np.ascontiguousarray(draws, dtype).reshape(-1).view(np.uint8)
    checksum = google_crc32c.value(content).to_bytes(_CHECKSUM, "little")

    def produce(file: Any) -> None:
        file.write(content)
        file.write(checksum)

    files.write(path, produce, lasting=False)
    return path


def check_size(root: Path, column: Column, number: int, num_chains: int, length: int) -> None:
    """Raises `DamagedError` if a chunk is not there or has another size than it should, without reading it."""
    path = files.inside(root, *chunk_names(column, number))
    wanted = chunk_bytes(column, num_chains, length)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DamagedError(f"{_label(column, number)} is missing") from error
    if size != wanted:
        raise DamagedError(f"{_label(column, number)} has {size:,} bytes and should have {wanted:,}")


def read_chunk(root: Path, column: Column, number: int, num_chains: int, length: int) -> np.ndarray:
    """The draws of one chunk, of which those that were not made yet are zeros.

    Raises:
        DamagedError: If they are not what was written.
    """
    check_size(root, column, number, num_chains, length)
    wanted = chunk_bytes(column, num_chains, length)
    with files.open_inside(root, *chunk_names(column, number)) as file:
        content = file.read(wanted + 1)
    numbers = content[:-_CHECKSUM]
    if len(content) != wanted or google_crc32c.value(numbers).to_bytes(_CHECKSUM, "little") != content[-_CHECKSUM:]:
        raise DamagedError(f"{_label(column, number)} does not fit its checksum")
    dtype = np.dtype(column.dtype)
    stored = np.frombuffer(numbers, dtype.newbyteorder("<")).reshape(num_chains, length, *column.shape)
    return stored.astype(dtype, copy=False)


def _label(column: Column, number: int) -> str:
    return f"chunk {number} of {column.group}/{column.name}"


def array_metadata(column: Column, num_chains: int, num_draws: int, length: int) -> dict[str, Any]:
    """What Zarr wants to know of an array, with the names of its axes for xarray."""
    dtype = np.dtype(column.dtype)
    endian = {"configuration": {"endian": "little"}} if dtype.itemsize > 1 else {}
    fill = False if dtype.kind == "b" else [0.0, 0.0] if dtype.kind == "c" else 0.0 if dtype.kind == "f" else 0
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [num_chains, num_draws, *column.shape],
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [num_chains, length, *column.shape]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill,
        "codecs": [{"name": "bytes", **endian}, {"name": "crc32c"}],
        "dimension_names": ["chain", "draw", *(f"{column.name}_dim_{axis}" for axis in range(len(column.shape)))],
        "attributes": {},
        "storage_transformers": [],
    }


def group_metadata(attributes: dict[str, Any], members: dict[str, Any] | None = None) -> dict[str, Any]:
    """What Zarr wants to know of a group; with its members, so that one file describes a whole store."""
    found: dict[str, Any] = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    if members is not None:
        found["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": members}
    return found


def describe(
    root: Path,
    columns: list[Column],
    num_chains: int,
    num_draws: int,
    length: int,
    attributes: dict[str, Any],
    *,
    each: bool = True,
) -> None:
    """Writes for other readers of the format what is there; a store is opened without it.

    Args:
        root: Of the store.
        columns: Its variables.
        num_chains: How many chains there are.
        num_draws: Draws of each chain that others can read.
        length: Draws of a chunk.
        attributes: Of the whole.
        each: Whether to write the descriptions of single arrays too; the one of all arrays is enough for most.
    """
    members: dict[str, Any] = {group: group_metadata({}) for group in dict.fromkeys(c.group for c in columns)}
    for column in columns:
        members["/".join(column.folder)] = array_metadata(column, num_chains, num_draws, length)
    for name, found in members.items() if each else ():
        _write_json(files.folder(root, *name.split("/")) / "zarr.json", found)
    _write_json(root / "zarr.json", group_metadata(attributes, members))


def _write_json(path: Path, found: dict[str, Any]) -> None:
    files.write(path, lambda file: file.write(json.dumps(found, indent=1).encode()), lasting=False)


def draws_in_chunk(columns: list[Column], num_chains: int, expected: int) -> int:
    """Draws of a chunk: so many that the chunks of all variables take some megabytes, or as many as there will be."""
    one = max(num_chains * sum(column.num_bytes for column in columns), 1)
    most = min(_MOST_DRAWS, max(expected, _FEWEST_EXPECTED))
    return int(np.clip(_BYTES // one, 1, most))


# Memory of a run is a few times this, and every checkpoint writes down again what does not fill a chunk yet: 8 MiB are
# written in a hundredth of the ten seconds between checkpoints, and files are then large enough to be read quickly.
_BYTES = 2**23
_MOST_DRAWS = 16_384
_FEWEST_EXPECTED = 1000  # draws: a short run may go on to become a long one, whose chunks should not be tiny
