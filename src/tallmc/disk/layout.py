"""From columns as they come to arrays as they are sampled: which go where, one-hot, standardised, checked."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tallmc.disk.manifest import Leaf
from tallmc.disk.sources import BARE, Batch, Source

Columns: TypeAlias = Sequence[str] | Mapping[str, str | Sequence[str]] | None
_MOST_CATEGORIES = 1000  # of a column; a number for each person or each second is no category
INTERCEPT = "(intercept)"


class Settings(NamedTuple):
    """What a caller wants; see `tm.ingest`."""

    columns: Columns
    outcome: str | None
    one_hot: tuple[str, ...]
    standardise: bool | tuple[str, ...]
    intercept: bool
    dtype: str | None

    def wanted(self, source: Source) -> list[str] | None:
        """Names to read; None: all."""
        if self.columns is None:
            return None
        if isinstance(self.columns, Mapping):
            chosen = [name for names in self.columns.values() for name in _listed(names)]
        else:
            chosen = list(self.columns)
        names = chosen + ([self.outcome] if self.outcome is not None else [])
        return list(dict.fromkeys(names))


def _listed(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


class Column(NamedTuple):
    """One or more columns of an array that come from one column of the source.

    Args:
        source: Its name there; None: ones.
        width: Numbers of it in a row, before one-hot.
        one_hot: Whether its values are categories.
        standardised: Whether it is to have mean 0 and standard deviation 1.
        shift: Subtracted on the way, so that numbers far from zero keep their digits.
        scale: What it is divided by on the way.
    """

    source: str | None
    width: int = 1
    one_hot: bool = False
    standardised: bool = False
    shift: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()


class Part(NamedTuple):
    """One array of the dataset.

    Args:
        name: Of the array.
        dtype: As NumPy writes it.
        shape: Of a row; None: a row is as long as its columns make it.
        columns: What it is made of.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    columns: tuple[Column, ...]

    @property
    def spilled(self) -> int:
        """Numbers of a row before one-hot."""
        return sum(column.width for column in self.columns)


def plan(settings: Settings, first: Batch, source: Source) -> tuple[Part, ...]:
    """Which arrays there will be, from the first batch."""
    parts = _parts(settings, list(first), source)
    categories = set(settings.one_hot)
    named = {name for _, names, _ in parts for name in names}
    missing = [name for name in settings.one_hot if name not in named]
    if not isinstance(settings.standardise, bool):
        missing += [name for name in settings.standardise if name not in named]
    if missing:
        raise ValueError(f"there is no column {missing[0]!r} among those ingested: {', '.join(sorted(named))}")
    return tuple(_part(settings, name, names, flat, first, source, categories) for name, names, flat in parts)


def _parts(settings: Settings, names: list[str], source: Source) -> list[tuple[str, list[str], bool]]:
    """For each array its name, the columns it is made of, and whether it is a vector."""
    columns, outcome = settings.columns, settings.outcome
    if outcome is not None and outcome not in names:
        raise ValueError(f"there is no column {outcome!r}; there are {', '.join(names)}")
    if isinstance(columns, Mapping):
        if outcome is not None:
            raise ValueError("columns names every array already; leave outcome out, or name it in columns")
        return [(name, _listed(given), isinstance(given, str)) for name, given in columns.items()]
    if columns is None and outcome is None and not source.table:
        return [(name or "rows", [name], True) for name in names]
    chosen = [name for name in (names if columns is None else columns) if name != outcome]
    if not chosen:
        raise ValueError("no columns are left beside the outcome; name some in columns")
    return [("x", chosen, False)] + ([("y", [outcome], True)] if outcome is not None else [])


def _part(
    settings: Settings, name: str, names: list[str], flat: bool, first: Batch, source: Source, categories: set[str]
) -> Part:
    if not source.table and flat and len(names) == 1 and names[0] not in categories:
        shape: tuple[int, ...] | None = np.shape(first[names[0]])[1:]
    else:
        shape = () if flat and names[0] not in categories else None
    dtype = _dtype(settings.dtype, [first[one] for one in names if one not in categories], source)
    if categories & set(names) and np.dtype(dtype).itemsize < 2:
        raise ValueError(f"{dtype} is too narrow for the categories of {name}; pass dtype='float32'")
    regular = name != "y" or settings.outcome is None
    columns = [_column(settings, one, first, categories, regular) for one in names]
    if settings.intercept and name == "x":
        columns.insert(0, Column(None))
        shape = None
    return Part(name, dtype, shape, tuple(columns))


def _column(settings: Settings, name: str, first: Batch, categories: set[str], regular: bool) -> Column:
    if name in categories:
        return Column(name, one_hot=True)
    values = numbers(name, first[name], 0)
    every = settings.standardise is True and regular and first[name].dtype.kind == "f"
    if not (every or (not isinstance(settings.standardise, bool) and name in settings.standardise)):
        return Column(name, values.shape[1])
    spread = values.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    return Column(name, values.shape[1], False, True, tuple(values.mean(axis=0).tolist()), tuple(scale.tolist()))


def _dtype(wanted: str | None, arrays: list[Any], source: Source) -> str:
    if wanted is not None:
        return wanted
    if source.table:
        return "<f4"
    kinds = {array.dtype for array in arrays if isinstance(array, np.ndarray)}
    found = np.result_type(*kinds) if kinds else np.dtype(np.float32)
    return found.newbyteorder("<").str if found.kind in "fiub" else "<f4"


def numbers(name: str, values: Any, row: int) -> np.ndarray:
    """A column of a batch as a matrix of float64, or what is wrong with it. `row` is the number of its first row."""
    label = _label(name)
    if not isinstance(values, np.ndarray):
        at, example = _first_text(values)
        raise ValueError(
            f"{label} holds {example!r} in row {row + at}, not a number; mend it, name the column in one_hot, or "
            "leave it out of columns"
        )
    if values.dtype.kind not in "fiub":
        raise ValueError(
            f"{label} holds {values.dtype}, not numbers (row {row}); convert it, or leave it out of columns"
        )
    return values.reshape(len(values), -1).astype(np.float64, copy=False)


def _label(name: str) -> str:
    return f"column {name!r}" if name != BARE else "the array"


def _first_text(values: Any) -> tuple[int, Any]:
    """The first entry of an Arrow array that is no number, and its place."""
    for at, value in enumerate(values.to_pylist()):
        try:
            float(value)
        except (TypeError, ValueError):
            return at, value
    return 0, values[0].as_py()  # numbers, written as text


class Codes:
    """Categories of columns, numbered as they come.

    Args:
        known: From the columns' names to their categories so far.
    """

    def __init__(self, known: Mapping[str, Sequence[Any]] | None = None):
        self.known: dict[str, list[Any]] = {name: list(values) for name, values in (known or {}).items()}

    def of(self, name: str, values: Any, row: int) -> np.ndarray:
        """The numbers of a batch's categories."""
        if isinstance(values, np.ndarray):
            if values.ndim > 1:
                raise ValueError(f"column {name!r} has several numbers in a row; only single ones can be categories")
            missing = np.flatnonzero(np.isnan(values)) if values.dtype.kind == "f" else np.zeros(0, int)
            distinct, inverse = np.unique(values, return_inverse=True)
            found = distinct.tolist()
        else:
            missing = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
            encoded = values.dictionary_encode() if not _is_dictionary(values) else values
            found = encoded.dictionary.to_pylist()
            inverse = None if len(missing) else encoded.indices.to_numpy(zero_copy_only=False)
        if len(missing):
            raise ValueError(
                f"column {name!r} has no value in row {row + missing[0]}; fill it, or drop such rows first"
            )
        codes = self.known.setdefault(name, [])
        places = {value: number for number, value in enumerate(codes)}
        for value in found:
            if value not in places:
                places[value] = len(codes)
                codes.append(value)
        if len(codes) > _MOST_CATEGORIES:
            raise ValueError(
                f"column {name!r} has more than {_MOST_CATEGORIES} categories (row {row} and before); leave it out of "
                "one_hot"
            )
        return np.asarray([places[value] for value in found], np.float64)[inverse]

    def order(self, name: str) -> tuple[list[Any], np.ndarray]:
        """The categories in their own order, and for each number given so far its place there."""
        codes = self.known[name]
        ordered = sorted(codes, key=lambda value: (str(type(value)), value))
        place = {value: number for number, value in enumerate(ordered)}
        return ordered, np.asarray([place[value] for value in codes])


def _is_dictionary(values: Any) -> bool:
    import pyarrow

    return pyarrow.types.is_dictionary(values.type)


def spilled(part: Part, batch: Batch, row: int, codes: Codes, out: np.ndarray) -> None:
    """Fills in an array's numbers of a batch, checked; `out` has a line for each row."""
    at = 0
    for column in part.columns:
        if column.source is None:
            out[:, at] = 1
            at += 1
            continue
        name, given = column.source, batch[column.source]
        values = codes.of(name, given, row)[:, None] if column.one_hot else _matrix(name, given, row, out.dtype)
        if values.shape[1] != column.width:
            raise ValueError(
                f"column {name!r} has {values.shape[1]} numbers in row {row} and {column.width} in those before; "
                "give every row as many"
            )
        if column.standardised:
            values = (values - np.asarray(column.shift)) / np.asarray(column.scale)
        place = out[:, at : at + column.width]
        with np.errstate(over="ignore", invalid="ignore"):
            place[...] = values
        _check(name, values, place, row)
        at += column.width


def _matrix(name: str, values: Any, row: int, wanted: np.dtype) -> np.ndarray:
    """As it is where that will do: a detour by float64 takes longer than all else, and loses large whole numbers."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values.reshape(len(values), -1)
    return numbers(name, values, row)


def _check(name: str, values: np.ndarray, placed: np.ndarray, row: int) -> None:
    """What was finite is so still, and whole numbers are what they were."""
    if placed.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(placed.sum()):
                return
        bad = ~np.isfinite(placed).all(axis=1)
        what = "NaN or infinity" if values.dtype.kind != "f" else None
        if bad.any():
            first = int(np.argmax(bad))
            what = (
                "NaN or infinity" if not np.isfinite(values[first]).all() else f"a number too large for {placed.dtype}"
            )
    else:
        bad, what = (values != placed).any(axis=1), f"a number that {placed.dtype} cannot hold"
    if bad.any():
        raise ValueError(
            f"{_label(name)} holds {what} in row {row + int(np.argmax(bad))}; drop or fill such rows first"
        )


class Moments:
    """Means and spreads of the columns to be standardised, as they are on the way.

    Args:
        count: Rows so far.
        mean: Of each number of a row.
        squares: Sum of squared distances from it.
    """

    def __init__(self, count: int = 0, mean: Sequence[float] = (), squares: Sequence[float] = ()):
        self.count, self.mean, self.squares = count, np.asarray(mean, float), np.asarray(squares, float)

    def add(self, block: np.ndarray) -> None:
        """Another batch (Chan, Golub and LeVeque, 1983)."""
        size, mean = len(block), block.mean(axis=0, dtype=float)
        squares = np.square(block - mean).sum(axis=0, dtype=float)
        if self.count:
            apart, total = mean - self.mean, self.count + size
            squares += self.squares + apart**2 * (self.count * size / total)
            mean = self.mean + apart * (size / total)
        self.count, self.mean, self.squares = self.count + size, mean, squares

    @property
    def spread(self) -> np.ndarray:
        """Standard deviation of each."""
        return np.sqrt(self.squares / max(self.count, 1))


class Finish(NamedTuple):
    """What is left to do to an array's numbers when all rows have been seen.

    Args:
        leaf: The array as it will be.
        steps: For each column where its numbers are, what to multiply them by and to add; or places of its categories.
    """

    leaf: Leaf
    steps: tuple[tuple[slice, np.ndarray | None, np.ndarray | None, np.ndarray | None], ...]

    def apply(self, block: np.ndarray) -> np.ndarray:
        """Rows as they are written."""
        if all(step[1] is None and step[3] is None for step in self.steps):
            return block.reshape(len(block), *self.leaf.shape)
        pieces = []
        for where, factor, offset, places in self.steps:
            some = block[:, where]
            if places is not None:
                some = np.eye(len(places), dtype=block.dtype)[places[some[:, 0].astype(np.int64)]]
            elif factor is not None:
                some = (some * factor + offset).astype(block.dtype)
            pieces.append(some)
        return np.concatenate(pieces, axis=1).reshape(len(block), *self.leaf.shape)


def finish(part: Part, moments: Moments, codes: Codes) -> Finish:
    """The array as it will be, and what it still takes."""
    steps, names, centres, scales, at = [], [], [], [], 0
    for column in part.columns:
        where = slice(at, at + column.width)
        at += column.width
        if column.one_hot:
            assert column.source is not None
            ordered, places = codes.order(column.source)
            steps.append((where, None, None, places))
            names += [f"{column.source}={value}" for value in ordered]
            centres, scales = centres + [0.0] * len(ordered), scales + [1.0] * len(ordered)
            continue
        factor, offset = None, None
        centre, scale = np.zeros(column.width), np.ones(column.width)
        if column.standardised:
            shift, on_the_way = np.asarray(column.shift), np.asarray(column.scale)
            varies = moments.spread[where] > 1e-12  # else it is constant, and stays what it is
            scale = np.where(varies, moments.spread[where] * on_the_way, 1.0)
            centre = np.where(varies, shift + moments.mean[where] * on_the_way, 0.0)
            factor, offset = on_the_way / scale, (shift - centre) / scale
        steps.append((where, factor, offset, None))
        source = INTERCEPT if column.source is None else column.source
        names += [source] if column.width == 1 else [f"{source}[{number}]" for number in range(column.width)]
        centres, scales = centres + centre.tolist(), scales + scale.tolist()
    shape = (len(names),) if part.shape is None else part.shape
    moved = any(column.standardised for column in part.columns)
    kept = (tuple(centres), tuple(scales)) if moved else ((), ())
    return Finish(Leaf(part.name, part.dtype, shape, tuple(names), *kept), tuple(steps))
