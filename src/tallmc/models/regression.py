"""What all regressions share: columns, outcomes, a normal prior on the coefficients, and bounds from the link."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from tallmc.models.columns import NormalPrior, Numbers, float_column
from tallmc.models.linear_bounds import LinearBounds
from tallmc.numerics.flat import as_device_array
from tallmc.posterior import Posterior, RowsInMemory, Temperature
from tallmc.posterior.linear_predictor import LinearPredictor, Link

Columns = dict[str, Array | np.ndarray]


def regression_columns(X: Numbers, y: Numbers) -> Columns:
    """Float columns `x` and `y` of equal length."""
    columns = {"x": float_column("X", X, 2), "y": float_column("y", y, 1)}
    num_rows, num_columns = columns["x"].shape
    if columns["y"].shape[0] != num_rows:
        raise ValueError(f"X has {num_rows} rows but y has {columns['y'].shape[0]}; give each row of X one entry of y")
    if num_columns == 0:
        raise ValueError("X has no columns; add at least a column of ones for an intercept")
    return columns


def regression(link: Link, columns: Columns, prior_precision: Numbers, temperature: Temperature) -> Posterior:
    """The posterior of one coefficient for each column."""
    precision = as_device_array(prior_precision, jnp.result_type(float))
    num_columns = columns["x"].shape[1]
    if precision.shape not in ((), (num_columns,)):
        raise ValueError(
            f"prior_precision has shape {precision.shape}; pass one number, or {num_columns} of them, one a column of X"
        )
    rows = RowsInMemory(columns)
    bounds = LinearBounds(link, rows) if _is_bounded(link) else None
    return Posterior(LinearPredictor(link), rows, NormalPrior(precision), temperature, bounds)


def _is_bounded(link: Link) -> bool:
    """Whether some derivative has a bound, so that rules that need bounds can be used, at least with an expansion."""
    return any(link.largest_derivative(order, np.ones(1, np.float32)) is not None for order in (1, 2, 3))
