"""Poisson regression: a count for each row, whose mean depends on its columns through one of two links."""

import numpy as np
from jaxtyping import Array

from tallmc.frames import Table
from tallmc.models.columns import Numbers, parts_of, refuse_nan
from tallmc.models.log_link import LogLink
from tallmc.models.regression import regression, regressors
from tallmc.models.softplus_link import SoftplusLink
from tallmc.posterior import Posterior, Temperature
from tallmc.posterior.linear_predictor import Link

_SOFTPLUS = SoftplusLink()


def poisson_regression(
    X: Table,
    y: Table = None,
    prior_precision: Numbers = 1.0,
    temperature: Temperature = 1.0,
    link: Link = _SOFTPLUS,
    *,
    intercept: bool = False,
    standardise: bool = False,
) -> Posterior:
    """Bayesian regression of counts; a position is one coefficient for each column of `X`.

    Row i counts `y_i` events, with `z_i` the inner product of its columns and the coefficients. The link says how many
    events are expected, and the two links are different models with different coefficients:

    - `SoftplusLink()`, the default: `log(1 + exp(z_i))` events. It is nearly an exponential for rare events and a
      straight line for frequent ones. It is the default because only this link bounds what a row can say, and exact
      tests on a few rows (`MHSS`) need bounds.
    - `LogLink()`: `exp(z_i)` events, the Poisson regression of textbooks and of `tm.optimise.poisson`. Take it to
      compare with other software or to read a coefficient as the logarithm of a rate ratio. There are no bounds, so
      `tm.sample` uses approximate tests (`MHMinibatch`) and audits them, or reads all rows.

    The log likelihood leaves out `log(y_i!)`, and is computed in the coefficients' precision, so float32 rows do for
    float64 chains.

    Args:
        X: One line a row: an array, or a data frame, whose columns of labels become an indicator a level. Or a formula,
            such as "late ~ distance + C(carrier)", and `y` is then the frame. Or a dataset with `x` and `y`, alone; see
            `tm.ingest`.
        y: A count for each row, or the name of the frame's column that has them.
        prior_precision: Of the centred normal prior: one number, or one for each coefficient; 0 is flat.
        temperature: Divides the log likelihood.
        link: `tm.models.SoftplusLink()` or `tm.models.LogLink()`.
        intercept: Whether to put a column of ones first. Formulas have it unless they say `0 +`.
        standardise: Whether to bring columns to mean 0 and standard deviation 1. The prior is then about those columns;
            draws are reported for the columns as they came.

    Returns:
        The posterior of the coefficients.

    Example:
        >>> X = [[1.0, 0.2], [1.0, -1.3], [1.0, 0.7]]
        >>> poisson_regression(X, [2, 0, 3]).num_rows
        3
        >>> poisson_regression(X, [2, 0, 3], link=LogLink()).bounds is None
        True
    """
    check_count_link(link)
    rows = regressors(X, y, intercept=intercept, standardise=standardise)
    _check_counts(rows.columns["y"], rows.outcome)
    return regression(link, rows, prior_precision, temperature)


def check_count_link(link: object) -> None:
    """Raises `ValueError` unless this is one of the two links for counts, and not its class.

    Example:
        >>> check_count_link(LogLink())
    """
    if not isinstance(link, LogLink | SoftplusLink):
        name = link.__name__ if isinstance(link, type) else repr(link)
        raise ValueError(f"link must be tm.models.LogLink() or tm.models.SoftplusLink(), with brackets; got {name}")


def _check_counts(y: Array | np.ndarray, name: str) -> None:
    if not all(bool(((part >= 0) & (part < np.inf) & (part == part.round())).all()) for part in parts_of(y)):
        refuse_nan(f"{name} must hold only whole numbers of at least 0", y)
        raise ValueError(
            f"{name} must hold only whole numbers of at least 0; pass counts, not rates or logarithms of counts"
        )
