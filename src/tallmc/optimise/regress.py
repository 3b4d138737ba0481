"""One function for each ready regression: builds the problem and hands it to `irls`."""

from typing import Any

from tallmc.models.columns import Numbers
from tallmc.models.log_link import LogLink
from tallmc.models.poisson_regression import check_count_link
from tallmc.optimise.irls import irls
from tallmc.optimise.regressions import LeastAbsoluteDeviation, Logistic, Poisson, Probit, SoftplusPoisson
from tallmc.optimise.result import OptimiseResult
from tallmc.posterior.linear_predictor import Link

_LOG = LogLink()


def logistic(
    X: Numbers, y: Numbers, epsilon: float = 0.01, *, prior_precision: Any = 0.0, **options: Any
) -> OptimiseResult:
    """Logistic regression by sequential tests.

    Args:
        X: One line a row. Add a column of ones for an intercept.
        y: 0 or 1 for each row.
        epsilon: Largest share of tested updates that may point more than 90 degrees away from the full-data update.
        prior_precision: Of the centred normal prior: one number, or one for each coefficient; 0 is flat.
        **options: As for `irls`.

    Returns:
        The coefficients and what they took.

    Example:
        >>> import tallmc as tm
        >>> X, y, _ = tm.models.generate_logistic(num_rows=20_000, num_columns=3)
        >>> tm.optimise.logistic(X, y, prior_precision=1.0).converged
        True
    """
    return irls(Logistic(X, y, prior_precision), epsilon=epsilon, **options)


def probit(
    X: Numbers, y: Numbers, epsilon: float = 0.01, *, prior_precision: Any = 0.0, **options: Any
) -> OptimiseResult:
    """Probit regression by sequential tests.

    Args:
        X: One line a row. Add a column of ones for an intercept.
        y: 0 or 1 for each row.
        epsilon: Largest share of tested updates that may point more than 90 degrees away from the full-data update.
        prior_precision: Of the centred normal prior: one number, or one for each coefficient; 0 is flat.
        **options: As for `irls`.

    Returns:
        The coefficients and what they took.

    Example:
        >>> import tallmc as tm
        >>> X, y, _ = tm.models.generate_logistic(num_rows=20_000, num_columns=3)
        >>> tm.optimise.probit(X, y).converged
        True
    """
    return irls(Probit(X, y, prior_precision), epsilon=epsilon, **options)


def poisson(
    X: Numbers,
    y: Numbers,
    epsilon: float = 0.01,
    *,
    prior_precision: Any = 0.0,
    link: Link = _LOG,
    **options: Any,
) -> OptimiseResult:
    """Poisson regression by sequential tests.

    The two links are different models. With `LogLink()`, the default here, a row's mean is `exp(z)`; with
    `SoftplusLink()` it is `log(1 + exp(z))`, which is the default of `tm.models.poisson_regression`. Pass the same link
    to both if their results are to be compared.

    Args:
        X: One line a row. Add a column of ones for an intercept.
        y: A count for each row.
        epsilon: Largest share of tested updates that may point more than 90 degrees away from the full-data update.
        prior_precision: Of the centred normal prior: one number, or one for each coefficient; 0 is flat.
        link: `tm.models.LogLink()` or `tm.models.SoftplusLink()`.
        **options: As for `irls`.

    Returns:
        The coefficients and what they took.

    Example:
        >>> import numpy as np, tallmc as tm
        >>> X = np.stack([np.ones(20_000), np.linspace(-1, 1, 20_000)], axis=1)
        >>> y = np.random.default_rng(0).poisson(np.exp(X @ [1.0, 0.5]))
        >>> tm.optimise.poisson(X, y).position.round(1).tolist()
        [1.0, 0.5]
    """
    check_count_link(link)
    problem = Poisson if isinstance(link, LogLink) else SoftplusPoisson
    return irls(problem(X, y, prior_precision), epsilon=epsilon, **options)


def least_absolute_deviation(
    X: Numbers,
    y: Numbers,
    epsilon: float = 0.01,
    *,
    prior_precision: Any = 0.0,
    floor: float | None = None,
    **options: Any,
) -> OptimiseResult:
    """Least absolute deviation (median) regression by sequential tests.

    Args:
        X: One line a row. Add a column of ones for an intercept.
        y: One number a row.
        epsilon: Largest share of tested updates that may point more than 90 degrees away from the full-data update.
        prior_precision: Of the centred normal prior: one number, or one for each coefficient; 0 is flat.
        floor: Absolute residuals below this count as this, because a row's weight is one over its own.
        **options: As for `irls`.

    Returns:
        The coefficients and what they took.

    Example:
        >>> import numpy as np, tallmc as tm
        >>> y = np.random.default_rng(0).exponential(size=20_001)
        >>> result = tm.optimise.least_absolute_deviation(np.ones((20_001, 1)), y)
        >>> bool(abs(result.position[0] - np.median(y)) < 1e-3)
        True
    """
    return irls(LeastAbsoluteDeviation(X, y, prior_precision, floor), epsilon=epsilon, **options)
