"""Columns of a data frame as NumPy arrays, through narwhals; what is missing or no number is named."""

import difflib
import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

Table: TypeAlias = Any
"""An array, or a data frame of pandas, Polars, PyArrow or another library that narwhals reads."""

_LISTED = 6  # names or levels that a message lists before it says how many more there are


def is_frame(value: Table) -> bool:
    """Whether this is a data frame; narwhals is loaded only for what is no array, list or number.

    Example:
        >>> import pandas
        >>> is_frame(pandas.DataFrame({"x": [1.0]})), is_frame(np.ones((2, 2)))
        (True, False)
    """
    if value is None or isinstance(value, np.ndarray | jax.Array | list | tuple | int | float | str | dict):
        return False
    import narwhals as nw

    if nw.dependencies.is_polars_lazyframe(value) or nw.dependencies.is_duckdb_relation(value):
        raise ValueError(
            f"this {type(value).__name__} has not been computed yet; collect it first, such as frame.collect()"
        )
    return nw.dependencies.is_into_dataframe(value)


def is_series(value: Table) -> bool:
    """Whether this is one column of a data frame."""
    if value is None or isinstance(value, np.ndarray | jax.Array | list | tuple | int | float | str | dict):
        return False
    import narwhals as nw

    return nw.dependencies.is_into_series(value)


def listed(names: Sequence[Any]) -> str:
    """The first few, and how many more there are.

    Example:
        >>> listed(["a", "b"])
        "'a', 'b'"
    """
    some = ", ".join(repr(name) for name in names[:_LISTED])
    return some if len(names) <= _LISTED else f"{some} and {len(names) - _LISTED:,} more"


def nearest(name: str, names: Sequence[str]) -> str:
    """What may have been meant, as the end of a message; empty if nothing is like it."""
    alike = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean '{alike[0]}'?" if alike else ""


class Frame:
    """A data frame, whose columns are read one by one.

    Args:
        native: As the caller has it.
        name: What the caller calls it.

    Example:
        >>> import pandas
        >>> frame = Frame(pandas.DataFrame({"distance": [1, 2], "late": [True, False]}))
        >>> frame.names, frame.numbers("late", np.dtype("float32")).tolist()
        (('distance', 'late'), [1.0, 0.0])
    """

    def __init__(self, native: Table, name: str = "the frame"):
        import narwhals as nw

        self.called = name
        try:
            self._frame: Any = nw.from_native(native, eager_only=True)
        except nw.exceptions.DuplicateError as error:
            twice = str(error).splitlines()[1].strip("- ") if "\n" in str(error) else ""
            raise ValueError(f"{name} has two columns of one name ({twice}); rename one of them") from None
        except TypeError as error:
            raise ValueError(f"{name} cannot be read as a data frame: {error}; pass a pandas or Polars frame") from None
        self._keys = {str(key): key for key in self._frame.columns}
        if not len(self._frame):
            raise ValueError(f"{name} has no rows; pass at least one")

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(self._keys)

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self._frame)

    def require(self, name: str, who: str) -> None:
        """Raises `ValueError` unless there is such a column."""
        if name not in self._keys:
            raise ValueError(
                f"{who} '{name}', but {self.called} {'have' if self.called.endswith('rows') else 'has'} no such column"
                f"{nearest(name, self.names) or '; add it, or mend the name'} (there is {listed(self.names)})"
            )

    def is_category(self, name: str) -> bool:
        """Whether a column holds labels; raises `ValueError` if it holds neither labels nor numbers."""
        import narwhals as nw

        dtype = self._series(name).dtype
        if isinstance(dtype, nw.String | nw.Categorical | nw.Enum):
            return True
        if dtype.is_numeric() or isinstance(dtype, nw.Boolean):
            return False
        raise ValueError(f"column '{name}' holds {_kind(dtype)}; {_cure(dtype, name)}")

    def numbers(self, name: str, dtype: Any = None) -> np.ndarray:
        """A column of numbers or truth values; raises `ValueError` where one is missing or not finite.

        Without a dtype whole numbers are int64, and all others float64.
        """
        import narwhals as nw

        if self.is_category(name):
            raise ValueError(
                f"column '{name}' holds labels, not numbers; make numbers of them first, such as "
                f"frame['{name}'] == 'yes', or write C({name}) in a formula"
            )
        series = self._series(name)
        self._refuse_missing(name, series.is_null())
        if isinstance(series.dtype, nw.Decimal | nw.Boolean):
            series = series.cast(nw.Float64)
        values = np.asarray(series.to_numpy())
        if values.dtype.kind not in "iuf":
            values = np.asarray(series.cast(nw.Float64).to_numpy())
        if values.dtype.kind == "f":
            with np.errstate(over="ignore", invalid="ignore"):  # what is not finite makes a sum that is not
                finite = np.isfinite(np.sum(values, dtype=float))
            if not finite:
                self._refuse_not_finite(name, values)
        natural = int if values.dtype.kind in "iu" else float
        return values.astype(natural if dtype is None else dtype, copy=False)

    def levels(self, name: str) -> tuple[Any, ...]:
        """The different labels or values of a column, in the order of its categories or sorted."""
        series = self._series(name)
        self._refuse_missing(name, series.is_null())
        found = [_plain(value) for value in series.unique().to_list()]
        if any(value != value for value in found):
            self._refuse_missing(name, series.is_nan())
        order = self._category_order(series)
        return tuple(sorted(found) if order is None else sorted(found, key=order.index))

    def codes(self, name: str, levels: tuple[Any, ...]) -> np.ndarray:
        """For each row the number of its level; raises `ValueError` for a level that is not among them."""
        import narwhals as nw

        found = set(self.levels(name))
        if unseen := found - set(levels):
            level = sorted(unseen, key=str)[0]
            row = int(np.argmax(np.asarray(self._as_labels(name).to_numpy()) == level))
            raise ValueError(
                f"column '{name}' has the level {level!r} in row {row}, which the model has not seen (it knows "
                f"{listed(levels)}); drop such rows, or fit the model again with them"
            )
        series = self._as_labels(name)
        return np.asarray(
            series.replace_strict(list(levels), list(range(len(levels))), return_dtype=nw.Int32).to_numpy()
        )

    def _series(self, name: str) -> Any:
        return self._frame.get_column(self._keys[name])

    def _as_labels(self, name: str) -> Any:
        import narwhals as nw

        series = self._series(name)
        return series.cast(nw.String) if isinstance(series.dtype, nw.Categorical | nw.Enum) else series

    def _category_order(self, series: Any) -> list[Any] | None:
        import narwhals as nw

        if isinstance(series.dtype, nw.Enum):
            return list(series.dtype.categories)
        if isinstance(series.dtype, nw.Categorical) and series.implementation.is_pandas():
            return [_plain(value) for value in series.to_native().cat.categories]
        return None

    def _refuse_missing(self, name: str, missing: Any) -> None:
        count = int(missing.sum())
        if count:
            row = int(np.argmax(np.asarray(missing.to_numpy())))
            raise ValueError(
                f"column '{name}' is missing {count:,} value{'s' if count > 1 else ''}, first in row {row}; drop or "
                "fill such rows first"
            )

    def _refuse_not_finite(self, name: str, values: np.ndarray) -> None:
        missing = np.isnan(values)
        if missing.any():
            count = int(missing.sum())
            raise ValueError(
                f"column '{name}' is missing {count:,} value{'s' if count > 1 else ''} (NaN), first in row "
                f"{int(np.argmax(missing))}; drop or fill such rows first"
            )
        infinite = np.isinf(values)
        if infinite.any():
            raise ValueError(
                f"column '{name}' is infinite in row {int(np.argmax(infinite))}; drop such rows, or limit its values"
            )


def read_series(name: str, values: Table, dtype: Any) -> np.ndarray:
    """One column that was passed by itself, with the same checks as the columns of a frame."""
    return Frame(_as_frame(values, name), name).numbers(name, dtype)


def same_index(first: Table, second: Table) -> bool:
    """Whether two frames or columns have the same labels of rows; True unless both are of pandas."""
    import narwhals as nw

    pandas_like = nw.dependencies.is_pandas_dataframe, nw.dependencies.is_pandas_series
    if not all(any(check(value) for check in pandas_like) for value in (first, second)):
        return True
    return len(first) != len(second) or first.index.equals(second.index)


def _as_frame(values: Table, name: str) -> Table:
    import narwhals as nw

    return nw.from_native(values, series_only=True).alias(name).to_frame().to_native()


def _plain(value: Any) -> Any:
    """A label as Python has it, so that it can be written to a file."""
    return value.item() if isinstance(value, np.generic) else value


def _kind(dtype: Any) -> str:
    return str(dtype).split("(")[0].lower()


@functools.cache
def _cures() -> dict[str, str]:
    number = "make a number of it first, such as frame['{name}'].dt.hour, or the days since a date"
    return {
        "datetime": number,
        "date": number,
        "time": number,
        "duration": "make a number of it first, such as frame['{name}'].dt.total_seconds()",
        "object": "it is a mix of kinds; convert it first, to numbers by .astype(float) or to labels by .astype(str)",
    }


def _cure(dtype: Any, name: str) -> str:
    cure = _cures().get(_kind(dtype), "drop it, or make a column of numbers or labels of it first")
    return cure.format(name=name)
