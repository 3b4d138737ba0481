"""Columns of a file, by name: Parquet, CSV, or NumPy's .npz."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_KINDS = ".parquet, .csv or .npz"


class Table(NamedTuple):
    """What a regression is of.

    Args:
        X: One line a row.
        y: Outcomes.
        names: Of the columns.
    """

    X: np.ndarray
    y: np.ndarray
    names: tuple[str, ...]


def read_table(path: Path, target: str, wanted: Sequence[str]) -> Table:
    """Reads the target and the columns, all of numbers.

    Args:
        path: The file.
        target: Name of the outcomes.
        wanted: Names of the columns; none means all others.
    """
    found = _columns(path)
    names = tuple(wanted) or tuple(str(name) for name in found if name != target)
    for name in (target, *names):
        if name not in found:
            raise ValueError(f"{path.name} has no column {name!r}; there are {', '.join(map(str, found))}")
    if target in names:
        raise ValueError(f"column {target!r} is the target and among the columns; leave it out of --columns")
    if not names:
        raise ValueError(f"{path.name} has no column but the target {target!r}; a regression needs at least one")
    if not len(found[target]):
        raise ValueError(f"{path.name} has no rows; a regression needs at least one")
    y, columns = _numbers(target, found[target]), [_numbers(name, found[name]) for name in names]
    return Table(np.stack(columns, axis=1), y, names)


def _columns(path: Path) -> dict[str, Any]:
    import pandas

    try:
        if path.suffix == ".npz":
            with path.open("rb") as file, np.load(file) as arrays:
                return _of_arrays(dict(arrays))
        if path.suffix == ".csv":
            return _of_frame(pandas.read_csv(path, skipinitialspace=True))
        if path.suffix in (".parquet", ".pq"):
            return _of_frame(pandas.read_parquet(path))
    except ImportError as error:
        raise ValueError("reading Parquet needs PyArrow: pip install pyarrow; or pass a .csv or .npz file") from error
    except (ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"cannot read {path}: {error}; a {_KINDS} file is needed") from error
    raise ValueError(f"cannot tell what {path} is, whose name ends in {path.suffix!r}; a {_KINDS} file is needed")


def _of_frame(frame: Any) -> dict[str, Any]:
    return {str(name): frame[name] for name in frame.columns}


def _of_arrays(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Vectors by their names, and each column of a matrix by a number after its name."""
    columns: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        if array.ndim == 1:
            columns[name] = array
        elif array.ndim == 2:
            columns |= {f"{name}{number}": array[:, number] for number in range(array.shape[1])}
        else:
            raise ValueError(f"{name} has shape {array.shape}, which is neither a column nor a matrix of columns")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns have different lengths: {lengths}")
    return columns


def _numbers(name: str, column: Any) -> np.ndarray:
    """Finite numbers, in float32: enough for rows, whatever the precision of chains."""
    missing = np.asarray(column.isna()) if callable(getattr(column, "isna", None)) else np.zeros(len(column), bool)
    if missing.any():
        raise ValueError(f"column {name!r} has no value in row {np.argmax(missing)}; drop or fill such rows first")
    if str(column.dtype) == "category" or np.asarray(column).dtype.kind not in "buif":
        raise ValueError(
            f"column {name!r} holds {column.dtype}, not numbers; name the columns to use with --columns, or turn it "
            "into columns of 0 and 1 first"
        )
    values = np.asarray(column, np.float32)
    if not np.isfinite(values).all():
        raise ValueError(
            f"column {name!r} is not finite in row {np.argmax(~np.isfinite(values))}; drop such rows first"
        )
    return values
