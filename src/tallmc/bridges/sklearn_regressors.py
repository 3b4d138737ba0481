"""Linear, robust and Poisson regression as scikit-learn regressors."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import RegressorTags
from sklearn.utils.validation import check_is_fitted, validate_data

from tallmc.bridges.noise import noise_left
from tallmc.bridges.sklearn_fit import BayesianRegression
from tallmc.models.columns import positive_number
from tallmc.models.linear_regression import NormalLink
from tallmc.models.log_link import LogLink
from tallmc.models.robust_regression import StudentLink
from tallmc.models.softplus_link import SoftplusLink
from tallmc.posterior.linear_predictor import Link


class _NumberRegression(RegressorMixin, BayesianRegression):
    """Of a number."""

    def _columns(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], y_numeric=True)
        return X, y.astype(X.dtype)

    def _fit(self, link: Link, X: np.ndarray, y: np.ndarray) -> None:
        self._draw(link, X, y)
        self.coef_, self.intercept_ = self.coef_draws_.mean(0), float(self.intercept_draws_.mean())

    def _predicted(self, X: Any, function: Any, noise: Any, return_std: bool) -> Any:
        """Means, and standard deviations of an outcome: what the posterior leaves open, and the noise."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        mean, variance = self._moments(X, function)
        return (mean, np.sqrt(variance + noise(mean))) if return_std else mean

    def __sklearn_tags__(self) -> Any:
        """One number a row."""
        tags: Any = BayesianRegression.__sklearn_tags__(self)
        tags.estimator_type, tags.target_tags.required, tags.regressor_tags = "regressor", True, RegressorTags()
        return tags


def _noise(X: np.ndarray, y: np.ndarray, *, intercept: bool, robust: bool = False) -> float:
    """What least squares leave of the outcomes."""
    return noise_left(np.hstack([X, np.ones((len(X), 1 if intercept else 0))]), y, robust=robust)


def _scale(name: str, value: Any, estimated: float) -> Any:
    """As it was given, or as it was estimated."""
    return jnp.asarray(estimated, jnp.result_type(float)) if value is None else positive_number(name, value)


class BayesianLinearRegression(_NumberRegression):
    """Bayesian linear regression, by `tm.sample`.

    Args:
        prior_precision: Of the centred normal prior of the coefficients: one number, or one for each column.
        intercept_precision: The same for the intercept; 0 is flat.
        noise_sd: Standard deviation of the noise; that of what least squares leave, if left out.
        fit_intercept: Whether there is an intercept.
        num_samples: Draws of each chain.
        num_warmup: Draws before those.
        num_chains: Independent chains.
        kernel: How to move; chosen by `tm.sample` if left out.
        random_state: Of the chains; an int, a `numpy.random.RandomState`, or None for another every time.
        progress: Whether to show progress.

    Attributes:
        coef_: Posterior means of the coefficients, (columns,).
        intercept_: That of the intercept.
        coef_draws_: Draws of the coefficients, (draws, columns).
        intercept_draws_: Of the intercept, (draws,).
        noise_sd_: The noise that was taken.
        run_: The `tm.Run`; not kept in pickles.
        doubts_: What is known against the draws.

    Example:
        >>> import numpy as np, tallmc as tm
        >>> X = np.random.default_rng(0).normal(size=(500, 2))
        >>> model = tm.sklearn.BayesianLinearRegression(num_samples=200).fit(X, X @ [1.0, -1.0] + 2)
        >>> mean, spread = model.predict(X[:5], return_std=True)
        >>> model.coef_.round(1).tolist(), mean.shape, spread.shape
        ([1.0, -1.0], (5,), (5,))
    """

    def __init__(
        self,
        prior_precision: Any = 1.0,
        intercept_precision: Any = 0.0,
        noise_sd: Any = None,
        *,
        fit_intercept: Any = True,
        num_samples: Any = 1000,
        num_warmup: Any = 1000,
        num_chains: Any = 4,
        kernel: Any = None,
        random_state: Any = 0,
        progress: Any = False,
    ):
        self.prior_precision, self.intercept_precision = prior_precision, intercept_precision
        self.noise_sd, self.fit_intercept, self.kernel = noise_sd, fit_intercept, kernel
        self.num_samples, self.num_warmup, self.num_chains = num_samples, num_warmup, num_chains
        self.random_state, self.progress = random_state, progress

    def fit(self, X: Any, y: Any) -> "BayesianLinearRegression":
        """Draws the coefficients.

        Args:
            X: (rows, columns).
            y: One number a row.
        """
        X, y = self._columns(X, y)
        noise = _scale("noise_sd", self.noise_sd, _noise(X, y, intercept=self.fit_intercept))
        self.noise_sd_ = float(noise)
        self._fit(NormalLink(noise), X, y)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The expected outcome of each row.

        Args:
            X: (rows, columns).
            return_std: Whether to give the standard deviation of an outcome as well, the noise included.
        """
        return self._predicted(X, lambda z: z, lambda mean: self.noise_sd_**2, return_std)


class BayesianRobustRegression(_NumberRegression):
    """Bayesian regression with Student's noise, which outliers cannot pull far, by `tm.sample`.

    Other arguments and attributes are those of `BayesianLinearRegression`.

    Args:
        prior_precision: Of the coefficients.
        intercept_precision: Of the intercept.
        scale: Of the noise; 1.48 times the median size of what least squares leave, if left out.
        degrees_of_freedom: Of the noise: the fewer, the heavier its tails.
        fit_intercept: Whether there is an intercept.
        num_samples: Draws of each chain.
        num_warmup: Draws before those.
        num_chains: Independent chains.
        kernel: How to move.
        random_state: Of the chains.
        progress: Whether to show progress.

    Example:
        >>> import numpy as np, tallmc as tm
        >>> X = np.random.default_rng(0).normal(size=(500, 1))
        >>> y = X[:, 0] + np.where(np.arange(500) < 10, 100.0, 0.0)
        >>> tm.sklearn.BayesianRobustRegression(scale=0.1, num_samples=200).fit(X, y).coef_.round(1).tolist()
        [1.0]
    """

    def __init__(
        self,
        prior_precision: Any = 1.0,
        intercept_precision: Any = 0.0,
        scale: Any = None,
        degrees_of_freedom: Any = 4.0,
        *,
        fit_intercept: Any = True,
        num_samples: Any = 1000,
        num_warmup: Any = 1000,
        num_chains: Any = 4,
        kernel: Any = None,
        random_state: Any = 0,
        progress: Any = False,
    ):
        self.prior_precision, self.intercept_precision = prior_precision, intercept_precision
        self.scale, self.degrees_of_freedom = scale, degrees_of_freedom
        self.fit_intercept, self.kernel = fit_intercept, kernel
        self.num_samples, self.num_warmup, self.num_chains = num_samples, num_warmup, num_chains
        self.random_state, self.progress = random_state, progress

    def fit(self, X: Any, y: Any) -> "BayesianRobustRegression":
        """Draws the coefficients.

        Args:
            X: (rows, columns).
            y: One number a row.
        """
        X, y = self._columns(X, y)
        scale = _scale("scale", self.scale, _noise(X, y, intercept=self.fit_intercept, robust=True))
        self.scale_ = float(scale)
        self._fit(StudentLink(scale, positive_number("degrees_of_freedom", self.degrees_of_freedom)), X, y)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The expected outcome of each row.

        Args:
            X: (rows, columns).
            return_std: Whether to give the standard deviation of an outcome as well, the noise included: infinite for
                2 degrees of freedom or fewer.
        """
        degrees = float(self.degrees_of_freedom)
        spread = degrees / (degrees - 2) if degrees > 2 else np.inf
        return self._predicted(X, lambda z: z, lambda mean: self.scale_**2 * spread, return_std)


class BayesianPoissonRegression(_NumberRegression):
    """Bayesian regression of counts, by `tm.sample`.

    Other arguments and attributes are those of `BayesianLinearRegression`.

    Args:
        prior_precision: Of the coefficients.
        intercept_precision: Of the intercept.
        link: `tm.models.LogLink()`, if left out, or `tm.models.SoftplusLink()`.
        fit_intercept: Whether there is an intercept.
        num_samples: Draws of each chain.
        num_warmup: Draws before those.
        num_chains: Independent chains.
        kernel: How to move.
        random_state: Of the chains.
        progress: Whether to show progress.

    Example:
        >>> import numpy as np, tallmc as tm
        >>> X = np.random.default_rng(0).normal(size=(500, 1))
        >>> y = np.random.default_rng(1).poisson(np.exp(X[:, 0]))
        >>> tm.sklearn.BayesianPoissonRegression(num_samples=200).fit(X, y).predict(X[:5]).shape
        (5,)
    """

    def __init__(
        self,
        prior_precision: Any = 1.0,
        intercept_precision: Any = 0.01,
        link: Any = None,
        *,
        fit_intercept: Any = True,
        num_samples: Any = 1000,
        num_warmup: Any = 1000,
        num_chains: Any = 4,
        kernel: Any = None,
        random_state: Any = 0,
        progress: Any = False,
    ):
        self.prior_precision, self.intercept_precision, self.link = prior_precision, intercept_precision, link
        self.fit_intercept, self.kernel = fit_intercept, kernel
        self.num_samples, self.num_warmup, self.num_chains = num_samples, num_warmup, num_chains
        self.random_state, self.progress = random_state, progress

    def fit(self, X: Any, y: Any) -> "BayesianPoissonRegression":
        """Draws the coefficients.

        Args:
            X: (rows, columns).
            y: A count for each row; fractions are taken as they come, as scikit-learn does.
        """
        X, y = self._columns(X, y)
        if (y < 0).any():
            raise ValueError(f"y must hold counts, not negative values such as {y.min():g} (Negative values in data)")
        self._fit(_count_link(self.link), X, y)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The expected count of each row.

        Args:
            X: (rows, columns).
            return_std: Whether to give the standard deviation of a count as well.
        """
        softplus = isinstance(_count_link(self.link), SoftplusLink)
        return self._predicted(X, _softplus if softplus else np.exp, lambda mean: mean, return_std)

    def __sklearn_tags__(self) -> Any:
        """Counts are not negative."""
        tags = _NumberRegression.__sklearn_tags__(self)
        tags.target_tags.positive_only = True
        return tags


def _softplus(z: np.ndarray) -> np.ndarray:
    return np.logaddexp(z, 0)


def _count_link(link: Any) -> Link:
    if link is None:
        return LogLink()
    if not isinstance(link, LogLink | SoftplusLink):
        raise ValueError(f"link must be tm.models.LogLink() or tm.models.SoftplusLink(), not {link!r}")
    return link
