"""Ready problems: regressions, in which a row acts through the inner product of its columns and the coefficients."""

import abc
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallmc.models.columns import Numbers, check_binary, check_numbers
from tallmc.optimise.contract import Equations, LeastSquares, Sums

_LOG_2 = float(np.log(2))


class Terms(NamedTuple):
    """Of each row: minus the loss's first derivative by the predictor, its second (or what stands for it), the loss."""

    score: np.ndarray
    weight: np.ndarray
    loss: np.ndarray


class Table(NamedTuple):
    """The data of a regression: one line of columns `X` and one outcome `y` for each row."""

    X: np.ndarray
    y: np.ndarray


class Regression(LeastSquares):
    """A regression with one coefficient a column; the equations are those of weighted least squares.

    Args:
        X: One line a row, float32 or float64. Add a column of ones for an intercept.
        y: One number a row.
        prior_precision: Of the centred normal prior: one number, or one for each coefficient; 0 is flat.
    """

    parallel: ClassVar[bool] = True

    def __init__(self, X: Numbers, y: Numbers, prior_precision: Any = 0.0):
        columns, target = _floats("X", X, 2), _floats("y", y, 1)
        if len(columns) != len(target):
            raise ValueError(f"X has {len(columns)} rows but y has {len(target)}; give each row of X one entry of y")
        if 0 in columns.shape:
            raise ValueError(f"X has shape {columns.shape}; it needs at least one row and one column")
        self.data = Table(columns, target.astype(columns.dtype, copy=False))
        self.dimension = columns.shape[1]
        precision = np.asarray(prior_precision, np.float64)
        if precision.shape not in ((), (self.dimension,)):
            raise ValueError(f"prior_precision has shape {precision.shape}; pass one number, or one a column of X")
        if not (np.all(np.isfinite(precision)) and np.all(precision >= 0)):
            raise ValueError(f"prior_precision must be a finite number of at least 0, got {prior_precision}")
        self.prior_precision = precision

    @abc.abstractmethod
    def terms(self, predictor: np.ndarray, y: np.ndarray) -> Terms:
        """The loss of each row and its derivatives by the linear predictor."""

    def equations(self, position: np.ndarray, rows: Table) -> Equations:
        """Weighted least squares, row by row; `sums` says the same in fewer operations."""
        x, y = rows
        predictor = x @ position.astype(x.dtype)
        score, weight, loss = self.terms(predictor, y)
        root = np.sqrt(np.maximum(weight, np.finfo(x.dtype).tiny))
        return Equations(x * root[:, None], root * predictor + score / root, loss)

    def sums(self, position: np.ndarray, rows: Table, *, curvature: bool) -> Sums:
        """The normal equations, without dividing by weights that may be tiny."""
        x, y = rows
        score, weight, loss = self.terms(x @ position.astype(x.dtype), y)
        total, slope = float(np.sum(loss, dtype=np.float64)), (score @ x).astype(np.float64)
        if not curvature:
            return Sums(len(x), total, slope, None)
        a = x * np.sqrt(weight)[:, None]
        return Sums(len(x), total, slope, (a.T @ a).astype(np.float64))

    def influences(self, position: np.ndarray, rows: Table, along: np.ndarray, step: np.ndarray) -> np.ndarray:
        """Each row's part in the error of an update."""
        x, y = rows
        predictor, projected, change = (x @ np.stack([position, along, step], axis=1).astype(x.dtype)).T
        score, weight, _ = self.terms(predictor, y)
        return projected * (score - weight * change)


class Logistic(Regression):
    """Logistic regression: `y` is 0 or 1, the loss is the negative log likelihood."""

    def __init__(self, X: Numbers, y: Numbers, prior_precision: Any = 0.0):
        super().__init__(X, y, prior_precision)
        check_binary(self.data.y)

    def terms(self, predictor: np.ndarray, y: np.ndarray) -> Terms:
        """Arranged so that nothing overflows and small chances keep their digits."""
        small = np.exp(-np.abs(predictor))
        large = 1 / (1 + small)
        chance = np.where(predictor > 0, large, small * large)
        loss = np.log1p(small) + np.maximum(predictor, 0) - y * predictor
        return Terms(y - chance, small * large * large, loss)

    def separates(self, loss: float) -> bool:
        """A row on the wrong side costs at least log 2."""
        return loss < _LOG_2 and bool(np.all(self.prior_precision == 0))


class Probit(Regression):
    """Probit regression: `y` is 0 or 1, with chance `Phi(predictor)` of 1; the loss is the negative log likelihood."""

    def __init__(self, X: Numbers, y: Numbers, prior_precision: Any = 0.0):
        super().__init__(X, y, prior_precision)
        check_binary(self.data.y)

    def terms(self, predictor: np.ndarray, y: np.ndarray) -> Terms:
        """By the log of the normal distribution function and the inverse Mills ratio."""
        import scipy.special

        sign = 2 * y - 1
        margin = sign * predictor
        loss = -scipy.special.log_ndtr(margin)
        ratio = np.exp(loss - 0.5 * np.square(margin) - 0.5 * np.log(2 * np.pi).astype(margin.dtype))
        # The exact second derivative, which is positive; rounding far out must not make it less than nothing.
        return Terms(sign * ratio, np.maximum(ratio * (ratio + margin), 0), loss)

    def separates(self, loss: float) -> bool:
        """A row on the wrong side costs at least log 2."""
        return loss < _LOG_2 and bool(np.all(self.prior_precision == 0))


class Poisson(Regression):
    """Poisson regression with mean `exp(predictor)`; the loss is the negative log likelihood without `log y!`.

    `y` counts. `SoftplusPoisson` has the other link.
    """

    def __init__(self, X: Numbers, y: Numbers, prior_precision: Any = 0.0):
        super().__init__(X, y, prior_precision)
        _check_counts(self.data.y)

    def terms(self, predictor: np.ndarray, y: np.ndarray) -> Terms:
        """Mean and variance are the exponential of the predictor."""
        mean = np.exp(predictor)
        return Terms(y - mean, mean, mean - y * predictor)

    def start(self, rows: Table) -> np.ndarray:
        """Least squares on the log of the counts, because from zero a first step can go much too far."""
        x, y = rows
        return _least_squares(x, np.log(y + 0.5), y + 0.5)


class SoftplusPoisson(Regression):
    """Poisson regression with mean `log(1 + exp(predictor))`; the loss is the negative log likelihood without `log y!`.

    `y` counts. This is the model of `tm.models.poisson_regression` with its default link; `Poisson` has the log link.
    """

    def __init__(self, X: Numbers, y: Numbers, prior_precision: Any = 0.0):
        super().__init__(X, y, prior_precision)
        _check_counts(self.data.y)

    def terms(self, predictor: np.ndarray, y: np.ndarray) -> Terms:
        """The exact second derivative stands for the curvature; it is never negative."""
        import scipy.special

        # Below -30 the mean is exp(predictor) to float64 precision, and would soon be 0 in float32.
        near = np.maximum(predictor, predictor.dtype.type(-30))
        mean, chance, other = np.logaddexp(0, near), scipy.special.expit(near), scipy.special.expit(-near)
        slope = chance / mean  # of the logarithm of the mean
        # Rounding far out must not make it less than nothing.
        weight = np.maximum(y * slope * (slope - other) + chance * other, 0)
        return Terms(y * slope - chance, weight, mean - y * (np.log(mean) + (predictor - near)))

    def start(self, rows: Table) -> np.ndarray:
        """Least squares on the predictors at which the counts would be the means."""
        x, y = rows
        mean = y + 0.5
        chance = -np.expm1(-mean)
        return _least_squares(x, mean + np.log(chance), np.square(chance) / mean)


class LeastAbsoluteDeviation(Regression):
    """Least absolute deviation (median) regression; the loss is the absolute residual.

    A row's weight is one over its absolute residual, which no row may have at zero. Residuals below `floor` count as
    `floor`: the loss is then quadratic for them, and the optimum moves by about as much.

    Args:
        X: One line a row. Add a column of ones for an intercept.
        y: One number a row.
        prior_precision: Of the centred normal prior on coefficients whose residuals have a Laplace law of scale 1.
        floor: Smallest absolute residual; 1e-4 of the mean absolute deviation of `y` if left out.
    """

    settles: ClassVar[bool] = False

    def __init__(self, X: Numbers, y: Numbers, prior_precision: Any = 0.0, floor: float | None = None):
        super().__init__(X, y, prior_precision)
        if floor is None:
            sample = self.data.y[:: -(-len(self.data.y) // 10_000)].astype(np.float64)
            floor = 1e-4 * float(np.mean(np.abs(sample - np.median(sample)))) or 1e-4
        if not floor > 0:
            raise ValueError(f"floor must be above 0, got {floor}: a weight is one over a residual")
        self.floor = float(floor)

    def terms(self, predictor: np.ndarray, y: np.ndarray) -> Terms:
        """The absolute residual, rounded off below the floor."""
        residual = y - predictor
        weight = 1 / np.maximum(np.abs(residual), np.asarray(self.floor, residual.dtype))
        loss = 0.5 * (weight * np.square(residual) + 1 / weight)
        return Terms(weight * residual, weight, loss)

    def start(self, rows: Table) -> np.ndarray:
        """Begins at the coefficients of ordinary least squares."""
        return _least_squares(*rows, np.ones_like(rows[1]))

    def dispersion(self, mean_loss: float) -> float:
        """The scale of the Laplace law that fits best."""
        return max(mean_loss, np.finfo(float).tiny)


def _check_counts(y: np.ndarray) -> None:
    if np.any(y < 0):
        raise ValueError("y must hold counts, 0 or more")


def _least_squares(x: np.ndarray, target: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weighted; the shortest solution if there are many. What is not finite is found and named by the first pass."""
    import scipy.linalg

    root = np.sqrt(weight.astype(np.float64))
    left, right = x * root[:, None], target * root
    if not (np.all(np.isfinite(left)) and np.all(np.isfinite(right))):
        return np.zeros(x.shape[1])
    return scipy.linalg.lstsq(left, right, lapack_driver="gelsy")[0]  # pyright: ignore[reportOptionalSubscript]


def _floats(name: str, values: Numbers, num_axes: int) -> np.ndarray:
    """As `float_column`, but float64 whatever JAX allows: sums are taken in NumPy."""
    array = np.asarray(values)
    check_numbers(name, array, num_axes)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
