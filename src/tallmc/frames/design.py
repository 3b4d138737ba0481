"""How rows as a caller has them become columns of numbers, recorded so that new rows become the same ones."""

import abc
import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float, Real

from tallmc.frames.read import Frame, Table, is_frame, is_series, read_series

_ROWS_AT_A_TIME = 65_536


class Coding(abc.ABC):
    """Makes a matrix of rows: one column a coefficient, named."""

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """Of the coefficients."""

    @abc.abstractmethod
    def matrix(self, rows: Table, dtype: np.dtype) -> Real[np.ndarray, "rows columns"]:
        """Rows as the model reads them; raises `ValueError` if they cannot be what it was made from."""


@dataclasses.dataclass(frozen=True, eq=False)
class Rescaling:
    """Columns were brought to mean 0 and standard deviation 1; this takes coefficients from one scale to the other.

    Args:
        centre: What was subtracted from each column; 0 for the intercept.
        scale: What each was then divided by; 1 for the intercept.
        anchor: Number of the intercept's column, None if there is none (then nothing was subtracted).
        level: What stands in the intercept's column: 1, unless the caller brought another constant.

    Example:
        >>> rescaling = Rescaling((0.0, 10.0), (1.0, 2.0), 0, 1.0)
        >>> rescaling.outward(np.array([1.0, 4.0])).tolist()
        [-19.0, 2.0]
        >>> rescaling.inward(np.array([-19.0, 2.0])).tolist()
        [1.0, 4.0]
    """

    centre: tuple[float, ...]
    scale: tuple[float, ...]
    anchor: int | None
    level: float

    def outward(self, coefficients: Any) -> Any:
        """Coefficients of standardised columns as those of the columns themselves; leading axes are kept."""
        return self._anchored(coefficients / self._as(self.scale, coefficients), -1)

    def inward(self, coefficients: Any) -> Any:
        """Coefficients of the columns themselves as those of standardised columns."""
        return self._anchored(coefficients, 1) * self._as(self.scale, coefficients)

    def _anchored(self, coefficients: Any, sign: int) -> Any:
        """The intercept takes up what the centring of the other columns amounts to."""
        if self.anchor is None:
            return coefficients
        moved = (coefficients * self._as(self.centre, coefficients)).sum(-1, keepdims=True) * (sign / self.level)
        at_anchor = np.zeros(len(self.centre))
        at_anchor[self.anchor] = 1
        return coefficients + moved * self._as(at_anchor, coefficients)

    @staticmethod
    def _as(values: Any, like: Any) -> np.ndarray:
        # Of NumPy's draws in double precision; of what is traced, in its own.
        return np.asarray(values, like.dtype)


@dataclasses.dataclass(frozen=True, eq=False)
class Design:
    """What the ready regressions remember of the frame that they were made from.

    Args:
        coding: From rows to a matrix.
        target: Name of the outcome's column; None if it came by itself.
        rescaling: If columns were standardised.
    """

    coding: Coding
    target: str | None = None
    rescaling: Rescaling | None = None

    def columns(self, rows: Table, dtype: np.dtype, *, outcomes: bool = False) -> dict[str, np.ndarray]:
        """New rows as a matrix `x` on the scale that they came in, with outcomes `y` if asked for.

        Args:
            rows: A frame with the columns of the old one, a matrix with its columns, or `{"x": matrix, "y": outcomes}`.
            dtype: Of the numbers.
            outcomes: Whether outcomes are needed.
        """
        y = None
        if isinstance(rows, dict):
            if "x" not in rows:
                raise ValueError(f'rows have the parts {list(rows)}; pass a frame, a matrix or {{"x": matrix}}')
            rows, y = rows["x"], rows.get("y")
        columns = {"x": self.coding.matrix(rows, dtype)}
        if not outcomes:
            return columns
        if y is None and is_frame(rows) and self.target is not None:
            frame = Frame(rows, "new rows")
            frame.require(self.target, "the outcome is column")
            y = frame.numbers(self.target, dtype)
        if y is None:
            raise ValueError('new rows need their outcomes here; pass a frame that has them, or {"x": rows, "y": y}')
        columns["y"] = read_series("y", y, dtype) if is_series(y) else np.asarray(y, dtype)
        if columns["y"].shape != (len(columns["x"]),):
            raise ValueError(f"new rows are {len(columns['x'])}, but y has shape {columns['y'].shape}; pass one a row")
        return columns


def standardised(
    X: Real[np.ndarray, "rows columns"], names: tuple[str, ...], intercept: int | None
) -> tuple[Real[np.ndarray, "rows columns"], Rescaling]:
    """A copy of the rows with columns of mean 0 and standard deviation 1, and the way back.

    Without an intercept columns are divided only: to subtract something would change the model.

    Args:
        X: The rows.
        names: Of the columns, for messages.
        intercept: Number of a column of ones; None: the first constant column, if there is one.
    """
    mean, spread = _moments(X)
    still = np.flatnonzero(spread <= 1e-7 * np.abs(mean))  # float32 leaves a constant column about so much
    if intercept is None and len(still) and mean[still[0]] != 0:
        intercept = int(still[0])
    for column in still:
        if column != intercept:
            raise ValueError(
                f"column '{names[column]}' has the same value in every row and cannot be standardised; drop it"
            )
    level = 1.0 if intercept is None else float(mean[intercept])
    centre = np.zeros_like(mean) if intercept is None else mean.copy()
    if intercept is not None:
        centre[intercept], spread[intercept] = 0, 1
    scaled = np.empty_like(X)
    for start in range(0, len(X), _ROWS_AT_A_TIME):
        some = slice(start, start + _ROWS_AT_A_TIME)
        scaled[some] = (X[some] - centre) / spread
    return scaled, Rescaling(tuple(centre.tolist()), tuple(spread.tolist()), intercept, level)


def _moments(X: Real[np.ndarray, "rows columns"]) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """Means and standard deviations in double precision, in two passes."""
    blocks = range(0, len(X), _ROWS_AT_A_TIME)
    mean = sum((X[s : s + _ROWS_AT_A_TIME].sum(axis=0, dtype=float) for s in blocks), np.zeros(X.shape[1])) / len(X)
    squares = np.zeros(X.shape[1])
    for start in blocks:
        squares += ((X[start : start + _ROWS_AT_A_TIME] - mean) ** 2).sum(axis=0)
    return mean, np.sqrt(squares / len(X))
