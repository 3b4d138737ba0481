"""What users have, as batches of named columns: never all of it at once, and never more of it than was asked for."""

import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np

Batch: TypeAlias = dict[str, Any]
"""Columns by name: NumPy arrays of numbers with one or more axes, or Arrow arrays of text."""

BARE = ""  # what the only column of a bare array is called
_ROWS = 65_536  # of a batch: some 5 MB of 20 columns, so that batches that wait for each other are no weight
_CSV_BLOCK = 8 * 2**20  # bytes
_NEEDS_ARROW = "takes pyarrow: pip install 'tallmc[disk]'"


class Source(NamedTuple):
    """Something that can be read.

    Args:
        batches: Given the names that are wanted (None: all), reads from the start.
        table: Whether columns are single ones, to be put together; otherwise they are arrays that stay what they are.
        num_rows: If it is known beforehand.
        identity: What it is, to be recognised by: file names, sizes and times of change. None: it cannot be.
    """

    batches: Callable[[Sequence[str] | None], Iterator[Batch]]
    table: bool
    num_rows: int | None = None
    identity: tuple[Any, ...] | None = None


def source_of(source: Any) -> Source:
    """Whatever `tm.ingest` takes, ready to be read."""
    if isinstance(source, str | Path):
        return _of_files([str(source)])
    if isinstance(source, list | tuple) and source and all(isinstance(part, str | Path) for part in source):
        return _of_files([str(part) for part in source])
    if isinstance(source, np.ndarray):
        return _of_arrays({BARE: source})
    if isinstance(source, Mapping):
        return _of_arrays({str(name): np.asarray(array) for name, array in source.items()})
    if _is_table(source):
        return Source(lambda wanted: _of_table(source, wanted), table=True, num_rows=len(source))
    if isinstance(source, Iterable):
        return _of_iterator(iter(source))
    raise ValueError(
        f"a {type(source).__name__} cannot be ingested; pass the name of a Parquet, CSV, Arrow, .npy or .npz file, an "
        "array, a dictionary of arrays, a data frame, or an iterator of such batches"
    )


def _of_files(names: list[str]) -> Source:
    paths = [path for name in names for path in _found(name)]
    kinds = {_kind(path) for path in paths}
    if len(kinds) != 1:
        raise ValueError(f"files of several kinds were given ({', '.join(sorted(kinds))}); ingest those of one kind")
    (kind,) = kinds
    sizes = [_described(path) for path in paths]
    if kind in ("npy", "npz"):
        if len(paths) > 1:
            raise ValueError("several .npy or .npz files were given; pass an iterator of their arrays instead")
        read = _npy if kind == "npy" else _npz
        return Source(lambda wanted: read(paths[0], wanted), table=False, identity=("files", *sizes))
    read = {"parquet": _parquet, "csv": _csv, "arrow": _ipc}[kind]
    return Source(
        lambda wanted: (batch for path in paths for batch in read(path, wanted)),
        table=True,
        num_rows=_parquet_rows(paths) if kind == "parquet" else None,
        identity=("files", *sizes),
    )


def _found(name: str) -> list[str]:
    if "://" in name:
        filesystem, path = _filesystem(name)
        found = sorted(filesystem.glob(path)) if any(mark in path for mark in "*?[") else [path]
        return [filesystem.unstrip_protocol(one) for one in found]
    path = Path(name)
    if path.is_dir():
        inside = sorted(one for one in path.rglob("*") if one.is_file() and not one.name.startswith((".", "_")))
    elif any(mark in name for mark in "*?["):
        inside = sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor or "."))))
    else:
        inside = [path]
    if not inside or not all(one.is_file() for one in inside):
        raise ValueError(f"there is no file {name}; check the name")
    return [str(one) for one in inside]


def _kind(path: str) -> str:
    suffix = Path(path).suffix.lower()
    kinds = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".npy": "npy", ".npz": "npz"}
    kinds |= {".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow"}
    if suffix not in kinds:
        raise ValueError(f"{path} is of no kind that can be read; they are told by their ends: {', '.join(kinds)}")
    return kinds[suffix]


def _described(path: str) -> tuple[Any, ...]:
    if "://" in path:
        filesystem, inside = _filesystem(path)
        return path, filesystem.size(inside)
    known = Path(path).stat()
    return str(Path(path).resolve()), known.st_size, known.st_mtime_ns


def _filesystem(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise ValueError(f"reading {url} takes fsspec: pip install 'tallmc[disk]'") from error
    return fsspec.core.url_to_fs(url)


def _opened(path: str) -> IO[bytes]:
    if "://" in path:
        filesystem, inside = _filesystem(path)
        return filesystem.open(inside, "rb")
    return open(path, "rb")


def _of_arrays(arrays: dict[str, np.ndarray]) -> Source:
    for name, array in arrays.items():
        if array.ndim == 0:
            raise ValueError(f"{name or 'the array'} has no rows; pass arrays with one row per first index")
    if not arrays:
        raise ValueError("there are no arrays to ingest; pass at least one")
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns have different lengths: {lengths}; give every array the same first axis")
    (count,) = set(lengths.values())

    def batches(wanted: Sequence[str] | None) -> Iterator[Batch]:
        chosen = arrays if wanted is None else {name: _named(arrays, name) for name in wanted}
        for start in range(0, count, _ROWS):
            yield {name: array[start : start + _ROWS] for name, array in chosen.items()}

    return Source(batches, table=False, num_rows=count)


def _of_iterator(batches: Iterator[Any]) -> Source:
    first = next(batches, None)
    if first is None:
        raise ValueError("the iterator gave no batch; there are no rows to ingest")
    consumed = False

    def read(wanted: Sequence[str] | None) -> Iterator[Batch]:
        nonlocal consumed
        if consumed:
            raise ValueError("an iterator can be read once only; pass a new one")
        consumed = True
        yield from _pieces(first, wanted)
        for batch in batches:
            yield from _pieces(batch, wanted)

    return Source(read, table=_is_table(first))


def _pieces(batch: Any, wanted: Sequence[str] | None) -> Iterator[Batch]:
    return _of_table(batch, wanted) if _is_table(batch) else source_of(batch).batches(wanted)


def _is_table(value: Any) -> bool:
    """Data frames and Arrow tables alike say what they are by this method; Arrow's protocol asks for just that."""
    return any(callable(getattr(type(value), name, None)) for name in ("__arrow_c_stream__", "__arrow_c_array__"))


def _of_table(table: Any, wanted: Sequence[str] | None) -> Iterator[Batch]:
    arrow = _arrow()
    whole = arrow.table(table)
    for batch in whole.to_batches(max_chunksize=_ROWS):
        yield _columns(batch, wanted)


def _parquet(path: str, wanted: Sequence[str] | None) -> Iterator[Batch]:
    from pyarrow import parquet

    with _opened(path) as file:
        reader = parquet.ParquetFile(file)
        _check_names(reader.schema_arrow.names, wanted)
        chosen = None if wanted is None else list(dict.fromkeys(wanted))
        # One row group at a time: of all at once the reader has been seen to keep those that it had given already.
        for group in range(reader.num_row_groups):
            for batch in reader.iter_batches(_ROWS, row_groups=[group], columns=chosen, use_threads=False):
                yield _columns(batch, wanted)


def _parquet_rows(paths: list[str]) -> int:
    _arrow()
    from pyarrow import parquet

    count = 0
    for path in paths:
        with _opened(path) as file:
            count += parquet.ParquetFile(file).metadata.num_rows
    return count


def _ipc(path: str, wanted: Sequence[str] | None) -> Iterator[Batch]:
    arrow = _arrow()
    with _opened(path) as file:
        try:
            reader = arrow.ipc.open_file(file)
            stored = (reader.get_batch(number) for number in range(reader.num_record_batches))
        except arrow.ArrowInvalid:
            file.seek(0)
            stored = reader = arrow.ipc.open_stream(file)
        _check_names(reader.schema.names, wanted)
        for batch in stored:
            for start in range(0, batch.num_rows, _ROWS):
                yield _columns(batch.slice(start, _ROWS), wanted)


def _csv(path: str, wanted: Sequence[str] | None) -> Iterator[Batch]:
    arrow = _arrow()
    from pyarrow import csv

    # In one thread, or it does not say in which row it stumbles.
    reading = csv.ReadOptions(block_size=_CSV_BLOCK, use_threads=False)
    names: list[str] = []
    try:
        with _opened(path) as file:
            fields = csv.open_csv(file, read_options=reading).schema
        names = fields.names
        _check_names(names, wanted)
        # Numbers as such, whatever the first block suggests; text where the first block has text.
        types = {
            field.name: field.type if arrow.types.is_string(field.type) else arrow.float64()
            for field in fields
            if not arrow.types.is_boolean(field.type)
        }
        convert = csv.ConvertOptions(column_types=types, include_columns=list(wanted) if wanted else None)
        with _opened(path) as file:
            for batch in csv.open_csv(file, read_options=reading, convert_options=convert):
                yield _columns(batch, wanted)
    except arrow.ArrowInvalid as error:
        raise ValueError(_csv_trouble(path, str(error), names)) from error


def _csv_trouble(path: str, message: str, names: list[str]) -> str:
    """In our words: Arrow counts lines from 1 on, with the header, and columns by number."""
    ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message)
    if ragged:
        row, expected, got = map(int, ragged.groups())
        return f"{path} is ragged: row {row - 2} has {got} columns where {expected} are expected; mend the file"
    text = re.search(r"In CSV column #(\d+): Row #(\d+): .*invalid value '(.*?)'", message)
    if text and int(text[1]) < len(names):
        return (
            f"column {names[int(text[1])]!r} holds {text[3]!r} in row {int(text[2]) - 2}, not a number; mend it, "
            "leave it out, or name it in one_hot"
        )
    return f"{path} cannot be read: {message}"


def _columns(batch: Any, wanted: Sequence[str] | None) -> Batch:
    """The columns of an Arrow batch, numbers as NumPy arrays."""
    _check_names(batch.schema.names, wanted)
    names = batch.schema.names if wanted is None else wanted
    return {name: _numbers(batch.column(name)) for name in names}


def _numbers(column: Any) -> Any:
    types = _arrow().types
    kind = column.type
    plain = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    if types.is_decimal(kind):
        column, plain = column.cast("float64"), True
    if column.null_count and plain:
        column = column.cast("float64")
        values = column.to_numpy(zero_copy_only=False)
        return np.where(column.is_null().to_numpy(zero_copy_only=False), np.nan, values)
    if types.is_fixed_size_list(kind):
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), kind.list_size)
    return column.to_numpy(zero_copy_only=False) if plain else column


def _npy(path: str, wanted: Sequence[str] | None) -> Iterator[Batch]:
    if "://" not in path:
        array = _trusted(path, lambda: np.load(path, mmap_mode="r", allow_pickle=False))
        yield from _of_arrays({BARE: array}).batches(wanted)
        return
    with _opened(path) as file:
        for block in _streamed(path, file):
            yield from _of_arrays({BARE: block}).batches(wanted)


def _npz(path: str, wanted: Sequence[str] | None) -> Iterator[Batch]:
    """All arrays side by side, each out of its own place of the archive."""
    with _opened(path) as file, zipfile.ZipFile(file) as archive:
        inside = {Path(name).stem: name for name in archive.namelist() if name.endswith(".npy")}
        chosen = inside if wanted is None else {name: _named(inside, name) for name in wanted}
        streams = {name: _streamed(f"{path}: {name}", archive.open(member)) for name, member in chosen.items()}
        while True:
            blocks = {name: next(stream, None) for name, stream in streams.items()}
            lengths = {name: 0 if block is None else len(block) for name, block in blocks.items()}
            if len(set(lengths.values())) > 1:
                raise ValueError(f"the arrays of {path} have different lengths; give each the same first axis")
            if not any(lengths.values()):
                return
            yield blocks


def _streamed(name: str, file: Any) -> Iterator[np.ndarray]:
    """Blocks of rows of an array in NumPy's format, read one after another."""
    form = np.lib.format
    version = _trusted(name, lambda: form.read_magic(file))
    read = form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0
    shape, fortran, dtype = _trusted(name, lambda: read(file))
    if dtype.hasobject or not shape:
        raise ValueError(f"{name} holds {'objects' if shape else 'no rows'}, not rows of numbers; save it as such")
    if fortran and len(shape) > 1:  # stored by columns: its first row ends with its last number, so all of it is read
        whole = np.frombuffer(file.read(), dtype).reshape(shape, order="F")
        yield from (whole[start : start + _ROWS] for start in range(0, shape[0], _ROWS))
        return
    row = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
    for start in range(0, shape[0], _ROWS):
        count = min(_ROWS, shape[0] - start)
        content = file.read(count * row)
        if len(content) < count * row:
            raise ValueError(f"{name} ends in row {start + len(content) // max(row, 1)} of {shape[0]}; copy it again")
        yield np.frombuffer(content, dtype).reshape(count, *shape[1:])


def _trusted(name: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{name} cannot be read without running code from it, or is damaged: {error}") from error


def _check_names(names: Sequence[str], wanted: Sequence[str] | None) -> None:
    for name in wanted or ():
        if name not in names:
            raise ValueError(f"there is no column {name!r}; there are {', '.join(map(str, names))}")


def _named(arrays: Mapping[str, Any], name: str) -> Any:
    _check_names(list(arrays), [name])
    return arrays[name]


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError as error:
        raise ValueError(f"reading tables {_NEEDS_ARROW}") from error
    return pyarrow
