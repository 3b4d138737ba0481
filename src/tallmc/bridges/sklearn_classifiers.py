"""Logistic and probit regression as scikit-learn classifiers."""

from typing import Any

import numpy as np
import scipy.special
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from tallmc.bridges.sklearn_fit import BayesianRegression
from tallmc.models.logistic_regression import LogisticLink
from tallmc.models.probit_regression import ProbitLink
from tallmc.posterior.linear_predictor import Link


class _BinaryRegression(ClassifierMixin, BayesianRegression):
    """Of two classes."""

    def _fit(self, link: Link, X: Any, y: Any) -> None:
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        if kind != "binary":
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {kind}. For several classes wrap "
                "the estimator in sklearn.multiclass.OneVsRestClassifier"
            )
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"the target has only one class, {self.classes_[0]!r}; a classifier needs rows of both classes"
            )
        self._draw(link, X, codes.astype(X.dtype))
        self.coef_ = self.coef_draws_.mean(0)[None]
        self.intercept_ = np.atleast_1d(self.intercept_draws_.mean())

    def _proba(self, X: Any, function: Any, return_std: bool) -> Any:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        mean, variance = self._moments(X, function)
        chances = np.column_stack([1 - mean, mean])
        spread = np.sqrt(variance)
        return (chances, np.column_stack([spread, spread])) if return_std else chances

    def _label(self, chances: np.ndarray) -> np.ndarray:
        return self.classes_[(chances[:, 1] > 0.5).astype(int)]

    def __sklearn_tags__(self) -> Any:
        """Two classes, no more."""
        tags: Any = BayesianRegression.__sklearn_tags__(self)
        tags.estimator_type, tags.target_tags.required = "classifier", True
        from sklearn.utils import ClassifierTags

        tags.classifier_tags = ClassifierTags(multi_class=False)
        return tags


class BayesianLogisticRegression(_BinaryRegression):
    """Bayesian logistic regression of two classes, by `tm.sample`.

    Args:
        prior_precision: Of the centred normal prior of the coefficients: one number, or one for each column.
        intercept_precision: The same for the intercept.
        fit_intercept: Whether there is one.
        num_samples: Draws of each chain.
        num_warmup: Draws before those.
        num_chains: Independent chains.
        kernel: How to move; chosen by `tm.sample` if left out.
        random_state: Of the chains; an int, a `numpy.random.RandomState`, or None for another every time.
        progress: Whether to show progress.

    Attributes:
        coef_: Posterior means of the coefficients, (1, columns).
        intercept_: That of the intercept, (1,).
        coef_draws_: Draws of the coefficients, (draws, columns).
        intercept_draws_: Of the intercept, (draws,).
        classes_: The two labels.
        run_: The `tm.Run`; not kept in pickles.
        doubts_: What is known against the draws.

    Example:
        >>> import tallmc as tm
        >>> X, y, _ = tm.models.generate_logistic(num_rows=500, num_columns=3)
        >>> model = tm.sklearn.BayesianLogisticRegression(num_samples=200).fit(X[:, 1:], y)
        >>> chances, spread = model.predict_proba(X[:5, 1:], return_std=True)
        >>> model.coef_.shape, chances.shape, spread.shape
        ((1, 2), (5, 2), (5, 2))
    """

    def __init__(
        self,
        prior_precision: Any = 1.0,
        intercept_precision: Any = 0.01,
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
        self.fit_intercept, self.kernel = fit_intercept, kernel
        self.num_samples, self.num_warmup, self.num_chains = num_samples, num_warmup, num_chains
        self.random_state, self.progress = random_state, progress

    def fit(self, X: Any, y: Any) -> "BayesianLogisticRegression":
        """Draws the coefficients.

        Args:
            X: (rows, columns).
            y: One of two labels for each row.
        """
        self._fit(LogisticLink(), X, y)
        return self

    def predict_proba(self, X: Any, return_std: bool = False) -> Any:
        """Chances of both classes, means over the posterior.

        Args:
            X: (rows, columns).
            return_std: Whether to give their posterior standard deviations as well.
        """
        return self._proba(X, scipy.special.expit, return_std)

    def predict(self, X: Any) -> np.ndarray:
        """The more probable label of each row."""
        return self._label(self.predict_proba(X))


class BayesianProbitRegression(_BinaryRegression):
    """Bayesian probit regression of two classes, by `tm.sample`.

    Arguments and attributes are those of `BayesianLogisticRegression`.

    Example:
        >>> import tallmc as tm
        >>> X, y, _ = tm.models.generate_logistic(num_rows=500, num_columns=3)
        >>> tm.sklearn.BayesianProbitRegression(num_samples=200).fit(X[:, 1:], y).predict(X[:5, 1:]).shape
        (5,)
    """

    def __init__(
        self,
        prior_precision: Any = 1.0,
        intercept_precision: Any = 0.01,
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
        self.fit_intercept, self.kernel = fit_intercept, kernel
        self.num_samples, self.num_warmup, self.num_chains = num_samples, num_warmup, num_chains
        self.random_state, self.progress = random_state, progress

    def fit(self, X: Any, y: Any) -> "BayesianProbitRegression":
        """Draws the coefficients.

        Args:
            X: (rows, columns).
            y: One of two labels for each row.
        """
        self._fit(ProbitLink(), X, y)
        return self

    def predict_proba(self, X: Any, return_std: bool = False) -> Any:
        """Chances of both classes, means over the posterior.

        Args:
            X: (rows, columns).
            return_std: Whether to give their posterior standard deviations as well.
        """
        return self._proba(X, scipy.special.ndtr, return_std)

    def predict(self, X: Any) -> np.ndarray:
        """The more probable label of each row."""
        return self._label(self.predict_proba(X))
