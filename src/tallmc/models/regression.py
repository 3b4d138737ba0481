"""What all regressions share: columns, outcomes, a normal prior on the coefficients, and bounds from the link."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from tallmc.models.columns import NormalPrior, Numbers, float_column
from tallmc.models.linear_bounds import LinearBounds
from tallmc.numerics.flat import as_device_array
from tallmc.posterior import Posterior, Rows, RowsInMemory, Temperature
from tallmc.posterior.linear_predictor import LinearPredictor, Link

Columns = dict[str, Array | np.ndarray]


class StoredColumns(dict[str, Array | np.ndarray]):
    """Columns of a dataset that stay where they are.

    Args:
        rows: The dataset.
    """

    def __init__(self, rows: Rows):
        self.rows = rows
        dict.__init__(self, rows.all())


def regression_columns(X: Numbers | Rows, y: Numbers | None) -> Columns:
    """Float columns `x` and `y` of equal length."""
    if isinstance(X, Rows):
        return _stored_columns(X, y)
    if y is None:
        raise ValueError("y is missing; pass one number for each row of X, or a dataset that has x and y")
    columns = {"x": float_column("X", X, 2), "y": float_column("y", y, 1)}
    num_rows, num_columns = columns["x"].shape
    if columns["y"].shape[0] != num_rows:
        raise ValueError(f"X has {num_rows} rows but y has {columns['y'].shape[0]}; give each row of X one entry of y")
    if num_columns == 0:
        raise ValueError("X has no columns; add at least a column of ones for an intercept")
    return columns


def _stored_columns(rows: Rows, y: Numbers | None) -> Columns:
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


def regression_rows(columns: Columns) -> Rows:
    """Where columns are: in memory, or in the dataset that they came from."""
    return columns.rows if isinstance(columns, StoredColumns) else RowsInMemory(columns)


def regression(link: Link, columns: Columns, prior_precision: Numbers, temperature: Temperature) -> Posterior:
    """The posterior of one coefficient for each column."""
    precision = as_device_array(prior_precision, jnp.result_type(float))
    num_columns = columns["x"].shape[1]
    if precision.shape not in ((), (num_columns,)):
        raise ValueError(
            f"prior_precision has shape {precision.shape}; pass one number, or {num_columns} of them, one a column of X"
        )
    rows = regression_rows(columns)
    bounds = LinearBounds(link, rows) if _is_bounded(link) else None
    return Posterior(LinearPredictor(link), rows, NormalPrior(precision), temperature, bounds)


def _is_bounded(link: Link) -> bool:
    """Whether some derivative has a bound, so that rules that need bounds can be used, at least with an expansion."""
    return any(link.largest_derivative(order, np.ones(1, np.float32)) is not None for order in (1, 2, 3))
