"""What all regressions share: columns, outcomes, a normal prior on the coefficients, and bounds from the link."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from tallmc.frames import ArrayCoding, Design, Frame, FrameCoding, Table, is_frame
from tallmc.frames.design import standardised
from tallmc.frames.read import is_series, read_series, same_index
from tallmc.models.columns import NormalPrior, Numbers, float_column
from tallmc.models.linear_bounds import LinearBounds
from tallmc.numerics.flat import as_device_array
from tallmc.posterior import Labels, Posterior, Rows, RowsInMemory, Temperature
from tallmc.posterior.linear_predictor import LinearPredictor, Link

Columns = dict[str, Array | np.ndarray]
COEFFICIENTS, COLUMN = "beta", "column"  # what the variable and its axis are called where columns have names


class StoredColumns(dict[str, Array | np.ndarray]):
    """Columns of a dataset that stay where they are.

    Args:
        rows: The dataset.
    """

    def __init__(self, rows: Rows):
        self.rows = rows
        dict.__init__(self, rows.all())


class Regressors(NamedTuple):
    """Rows of a regression.

    Args:
        columns: Floats `x` and `y` of equal length.
        design: Where they came from; None for arrays that are taken as they are.
        outcome: What the caller calls the outcome.
    """

    columns: Columns
    design: Design | None = None
    outcome: str = "y"

    @property
    def names(self) -> tuple[str, ...] | None:
        """Of the columns of `x`, if they have any."""
        return None if self.design is None else self.design.coding.names


def regressors(X: Table, y: Table, *, intercept: Any = False, standardise: Any = False) -> Regressors:
    """Rows from arrays, from a frame and an outcome, or from a formula and a frame.

    Arrays without options are not copied.
    """
    for name, value in (("intercept", intercept), ("standardise", standardise)):
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, not {value!r}; numbers go into X, y or prior_precision")
    if isinstance(X, Rows):
        if intercept or standardise:
            raise ValueError("a dataset is taken as it is; ask for intercept and standardise where it is ingested")
        return Regressors(_stored_columns(X, y))
    found = _read(X, y, intercept)
    if not standardise:
        return found
    design = Design(ArrayCoding(found.columns["x"].shape[1], False)) if found.design is None else found.design
    names = design.coding.names
    first = names.index("Intercept") if "Intercept" in names else None
    scaled, rescaling = standardised(np.asarray(found.columns["x"]), names, first)
    design = Design(design.coding, design.target, rescaling)
    return Regressors({**found.columns, "x": scaled}, design, found.outcome)


def _read(X: Table, y: Table, intercept: bool) -> Regressors:
    if y is None:
        raise ValueError("y is missing; pass one number for each row of X, or a dataset that has x and y")
    if isinstance(X, str):
        return _by_formula(X, y, intercept)
    if isinstance(y, str) or is_frame(X):
        return _by_frame(X, y, intercept)
    if is_frame(y):
        y = _only_column(y)
    if is_series(y):
        y = read_series("y", y, jnp.result_type(float))
    columns = regression_columns(X, y, needs_columns=not intercept)
    if not intercept:
        return Regressors(columns)
    coding = ArrayCoding(columns["x"].shape[1], True)
    return Regressors({**columns, "x": coding.with_ones(np.asarray(columns["x"]))}, Design(coding))


def _by_formula(formula: str, native: Table, intercept: bool) -> Regressors:
    from tallmc.frames.formula import FormulaCoding, outcome, parse

    if not is_frame(native):
        kind = type(native).__name__
        raise ValueError(f"a formula needs the frame that it is about: pass (formula, frame), not {kind}")
    frame, dtype = Frame(native), jnp.result_type(float)
    parsed = parse(formula, frame)
    y = outcome(parsed, frame, dtype)
    coding, matrix = FormulaCoding.of(parsed, frame, dtype)
    if intercept and "Intercept" not in coding.names:
        raise ValueError(f"formula {formula!r} leaves the intercept out, and intercept=True asks for it; drop one")
    named = parsed.target.text if parsed.target.columns == (parsed.target.text,) else None
    return Regressors({"x": matrix, "y": y}, Design(coding, named), named or parsed.target.text)


def _by_frame(X: Table, y: Table, intercept: bool) -> Regressors:
    if not is_frame(X):
        raise ValueError(f"y is the name of a column, '{y}', so X must be a frame that has it, not {type(X).__name__}")
    frame, dtype, target = Frame(X, "X"), jnp.result_type(float), None
    if is_frame(y):
        y = _only_column(y)
    if isinstance(y, str):
        frame.require(y, "the outcome is column")
        target, outcomes = y, frame.numbers(y, dtype)
    elif is_series(y):
        if not same_index(X, y):
            raise ValueError("X and y have different labels of rows; bring them in line first: y = y.loc[X.index]")
        outcomes = read_series("y", y, dtype)
    else:
        outcomes = float_column("y", y, 1)
    if len(outcomes) != frame.num_rows:
        raise ValueError(f"X has {frame.num_rows} rows but y has {len(outcomes)}; give each row of X one entry of y")
    coding = FrameCoding.of(frame, target, intercept)
    return Regressors({"x": coding.written(frame, dtype), "y": outcomes}, Design(coding, target), target or "y")


def _only_column(frame: Table) -> Any:
    import narwhals as nw

    found = nw.from_native(frame, eager_only=True)
    if len(found.columns) != 1:
        names = ", ".join(str(name) for name in found.columns)
        raise ValueError(f"y must be one outcome, but it has {len(found.columns)} columns ({names}); pass one of them")
    return found.get_column(found.columns[0]).to_native()


def regression_columns(X: Table, y: Table, *, needs_columns: bool = True) -> Columns:
    """Float columns `x` and `y` of equal length."""
    columns: Columns = {"x": float_column("X", X, 2), "y": float_column("y", y, 1)}
    num_rows, num_columns = columns["x"].shape
    if columns["y"].shape[0] != num_rows:
        raise ValueError(f"X has {num_rows} rows but y has {columns['y'].shape[0]}; give each row of X one entry of y")
    if num_columns == 0 and needs_columns:
        raise ValueError("X has no columns; add at least a column of ones for an intercept")
    return columns


def _stored_columns(rows: Rows, y: Table) -> Columns:
    """The columns `x` and `y` of a dataset, read where they lie."""
    if y is not None:
        raise ValueError("a dataset has outcomes of its own; leave y out, and name them when ingesting: outcome='...'")
    like = rows.like
    if not (isinstance(like, dict) and set(like) == {"x", "y"} and len(like["x"].shape) == 1 and like["y"].shape == ()):
        raise ValueError(
            "a regression needs a dataset of a matrix x and a vector y; ingest it with outcome='...', the name of the "
            "column that becomes y, or columns={'x': [...], 'y': '...'}"
        )
    return StoredColumns(rows)


def rows_of(columns: Columns) -> Rows:
    """Where columns are: in memory, or in the dataset that they came from."""
    return columns.rows if isinstance(columns, StoredColumns) else RowsInMemory(columns)


def regression(link: Link, rows: Regressors | Columns, prior_precision: Numbers, temperature: Temperature) -> Posterior:
    """The posterior of one coefficient for each column."""
    rows = rows if isinstance(rows, Regressors) else Regressors(rows)
    precision = as_device_array(prior_precision, jnp.result_type(float))
    columns, design = rows.columns, rows.design
    num_columns = columns["x"].shape[1]
    if precision.shape not in ((), (num_columns,)):
        of = "" if rows.names is None else f" ({', '.join(rows.names)})"
        raise ValueError(
            f"prior_precision has shape {precision.shape}; pass one number, or {num_columns} of them, one a column of "
            f"X{of}"
        )
    where = rows_of(columns)
    bounds = LinearBounds(link, where) if _is_bounded(link) else None
    labels = None if design is None else coefficient_labels(design)
    return Posterior(
        LinearPredictor(link), where, NormalPrior(precision), temperature, bounds, labels=labels, design=design
    )


def coefficient_labels(design: Design) -> Labels:
    """One variable, whose axis has the names of the columns."""
    return Labels({COEFFICIENTS: (COLUMN,)}, {COLUMN: tuple(design.coding.names)}, COEFFICIENTS)


def _is_bounded(link: Link) -> bool:
    """Whether some derivative has a bound, so that rules that need bounds can be used, at least with an expansion."""
    return any(link.largest_derivative(order, np.ones(1, np.float32)) is not None for order in (1, 2, 3))
