"""Columns of a frame or an array as they are, and labels as indicators of their levels."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import Real

from tallmc.frames.design import Coding
from tallmc.frames.read import Frame, Table, is_frame

INTERCEPT = "Intercept"
# A column of labels with more levels than that is a key or a name: an indicator each would be more coefficients than
# exact tests on few rows are for, and the matrix would not fit.
_MOST_LEVELS = 500


@dataclasses.dataclass(frozen=True, eq=False)
class Numeric:
    """A column of numbers.

    Args:
        name: Of the column.
    """

    name: str

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the coefficients."""
        return (self.name,)

    def write(self, frame: Frame, into: Real[np.ndarray, "rows k"]) -> None:
        """Writes the column of a frame."""
        if frame.is_category(self.name):
            raise ValueError(f"column '{self.name}' holds labels here, but numbers in the model's rows; convert it")
        into[:, 0] = frame.numbers(self.name, into.dtype)


@dataclasses.dataclass(frozen=True, eq=False)
class Category:
    """A column of labels, as an indicator of each level but perhaps the first, which the others are compared to.

    Args:
        name: Of the column.
        levels: As recorded.
        skipped: 1 if the first level has no indicator.
    """

    name: str
    levels: tuple[Any, ...]
    skipped: int

    @classmethod
    def of(cls, frame: Frame, name: str, skipped: int) -> "Category":
        """With the levels that a frame has."""
        levels = frame.levels(name)
        if len(levels) > _MOST_LEVELS:
            raise ValueError(
                f"column '{name}' has {len(levels):,} different labels, too many for a coefficient each; drop it, or "
                "group its labels first"
            )
        if len(levels) == 1:
            raise ValueError(
                f"column '{name}' has one level only, {levels[0]!r}, and nothing to compare it with; drop it"
            )
        return cls(name, levels, skipped)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the coefficients."""
        return tuple(f"{self.name}[{level}]" for level in self.levels[self.skipped :])

    def write(self, frame: Frame, into: Real[np.ndarray, "rows k"]) -> None:
        """Writes the indicators of a frame's column."""
        codes = frame.codes(self.name, self.levels)
        for column in range(into.shape[1]):
            into[:, column] = codes == column + self.skipped


@dataclasses.dataclass(frozen=True, eq=False)
class FrameCoding(Coding):
    """Columns of a frame, in its order.

    Args:
        parts: The columns.
        intercept: Whether a column of ones comes first.
    """

    parts: tuple[Numeric | Category, ...]
    intercept: bool

    @classmethod
    def of(cls, frame: Frame, target: str | None, intercept: bool) -> "FrameCoding":
        """Of every column but the outcome's."""
        parts, skipped = [], int(intercept)
        for name in frame.names:
            if name == target:
                continue
            if frame.is_category(name):
                parts.append(Category.of(frame, name, skipped))
                skipped = 1  # indicators of all levels of two columns would add up to the same
            else:
                parts.append(Numeric(name))
        if not parts and not intercept:
            raise ValueError(f"{frame.called} has no columns beside the outcome; pass some, or intercept=True")
        return cls(tuple(parts), intercept)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the coefficients."""
        return (INTERCEPT,) * self.intercept + tuple(label for part in self.parts for label in part.labels)

    def matrix(self, rows: Table, dtype: np.dtype) -> Real[np.ndarray, "rows columns"]:
        """Columns by name, whatever order they are in; others are not looked at."""
        if isinstance(rows, np.ndarray | jax.Array) or not is_frame(rows):
            raise ValueError(
                f"new rows must be a frame with the columns {', '.join(part.name for part in self.parts)}, not "
                f"{type(rows).__name__}"
            )
        return self.written(Frame(rows, "new rows"), dtype)

    def written(self, frame: Frame, dtype: np.dtype) -> Real[np.ndarray, "rows columns"]:
        """The same of a frame that was opened already."""
        matrix = np.empty((frame.num_rows, len(self.names)), dtype)
        matrix[:, : int(self.intercept)] = 1
        start = int(self.intercept)
        for part in self.parts:
            frame.require(part.name, "the model needs column")
            part.write(frame, matrix[:, start : start + len(part.labels)])
            start += len(part.labels)
        return matrix


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayCoding(Coding):
    """A matrix as it is, perhaps with a column of ones before it.

    Args:
        num_columns: Of the matrix.
        intercept: Whether a column of ones comes first.
    """

    num_columns: int
    intercept: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Of the coefficients: x0, x1 and so on."""
        return (INTERCEPT,) * self.intercept + tuple(f"x{number}" for number in range(self.num_columns))

    def matrix(self, rows: Table, dtype: np.dtype) -> Real[np.ndarray, "rows columns"]:
        """Rows with as many columns."""
        given = rows if isinstance(rows, np.ndarray) or is_frame(rows) else np.asarray(rows)
        if is_frame(given):
            raise ValueError("the model was made from an array, so it knows no names of columns; pass frame.to_numpy()")
        if given.ndim != 2 or given.shape[1] != self.num_columns:
            raise ValueError(
                f"new rows have shape {given.shape}; pass a matrix with {self.num_columns} columns, one line a row"
            )
        if given.dtype.kind not in "buif":
            raise ValueError(f"new rows must hold numbers, not {given.dtype}; convert them to floats first")
        if not np.isfinite(given).all():
            row = int(np.argmax(~np.isfinite(given).all(axis=1)))
            raise ValueError(f"new rows hold NaN or infinity, first in row {row}; drop or fill such rows first")
        return self.with_ones(given.astype(dtype, copy=False))

    def with_ones(self, X: Real[np.ndarray, "rows k"]) -> Real[np.ndarray, "rows columns"]:
        """The matrix itself if there is no intercept, else a copy with one."""
        if not self.intercept:
            return X
        whole = np.empty((len(X), 1 + self.num_columns), X.dtype)
        whole[:, 0], whole[:, 1:] = 1, X
        return whole
