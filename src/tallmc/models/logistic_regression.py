"""Logistic regression: a yes or no for each row, more or less likely by its columns."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Real

from tallmc.bounds import Lipschitz
from tallmc.models.columns import NormalPrior, Numbers, check_binary, float_column
from tallmc.posterior import Posterior


def logistic_regression(
    X: Numbers, y: Numbers, prior_precision: Numbers = 1.0, temperature: float | Array = 1.0
) -> Posterior:
    """Bayesian logistic regression; a position is one coefficient for each column of `X`.

    Row i has log likelihood `y_i z_i - log(1 + exp(z_i))` with `z_i` the inner product of its columns and the
    coefficients. It is computed in the coefficients' precision, so float32 rows do for float64 chains.

    Args:
        X: One line a row. Add a column of ones for an intercept.
        y: 0 or 1 for each row.
        prior_precision: Of the centred normal prior: one number, or one for each coefficient; 0 is flat.
        temperature: Divides the log likelihood.

    Returns:
        The posterior of the coefficients.

    Example:
        >>> X, y, coefficients = generate_logistic(num_rows=1000, num_columns=3)
        >>> logistic_regression(X, y).num_rows
        1000
    """
    columns = {"x": float_column("X", X, 2), "y": float_column("y", y, 1)}
    num_rows, num_columns = columns["x"].shape
    if columns["y"].shape[0] != num_rows:
        raise ValueError(f"X has {num_rows} rows but y has {columns['y'].shape[0]}; give each row of X one entry of y")
    if num_columns == 0:
        raise ValueError("X has no columns; add at least a column of ones for an intercept")
    check_binary(columns["y"])
    precision = jnp.asarray(prior_precision, jnp.result_type(float))
    if precision.shape not in ((), (num_columns,)):
        raise ValueError(
            f"prior_precision has shape {precision.shape}; pass one number, or {num_columns} of them, one a column of X"
        )
    # The derivative of a row's log likelihood is (y - probability) x, never longer than x.
    longest = float(np.sqrt(np.max(np.einsum("ij,ij->i", columns["x"], columns["x"]))))
    return Posterior(_log_likelihood, columns, NormalPrior(precision), temperature, bounds=Lipschitz(longest))


# At module level, so that two posteriors of this kind share what was compiled for the first.
def _log_likelihood(coefficients: Real[Array, " d"], row: dict[str, Array]) -> Real[Array, ""]:
    x, y = row["x"].astype(coefficients.dtype), row["y"].astype(coefficients.dtype)
    z = x @ coefficients
    return y * z - jax.nn.softplus(z)


def generate_logistic(num_rows: int, num_columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws rows of a logistic regression, for demonstrations and benchmarks.

    Args:
        num_rows: Rows.
        num_columns: Columns: an intercept of ones, then standard normal ones.
        seed: Of the random numbers.

    Returns:
        `X` in float32, `y`, and the coefficients behind them.

    Example:
        >>> X, y, coefficients = generate_logistic(num_rows=5, num_columns=3)
        >>> X.shape, y.shape, coefficients.shape
        ((5, 3), (5,), (3,))
    """
    if num_rows < 1 or num_columns < 1:
        raise ValueError(f"num_rows and num_columns must be at least 1, got {num_rows} and {num_columns}")
    generator = np.random.default_rng(seed)
    coefficients = (generator.normal(size=num_columns) / np.sqrt(num_columns)).astype(np.float32)
    X = generator.standard_normal((num_rows, num_columns), np.float32)
    X[:, 0] = 1
    chance = 1 / (1 + np.exp(-X @ coefficients))
    y = (generator.random(num_rows, np.float32) < chance).astype(np.float32)
    return X, y, coefficients
