"""The regressions as scikit-learn estimators: `tm.sklearn.BayesianLogisticRegression` and its siblings.

Needs `pip install 'tallmc[sklearn]'`. scikit-learn is imported when the first of them is asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallmc.bridges.sklearn_classifiers import BayesianLogisticRegression, BayesianProbitRegression
    from tallmc.bridges.sklearn_regressors import (
        BayesianLinearRegression,
        BayesianPoissonRegression,
        BayesianRobustRegression,
    )

__all__ = [
    "BayesianLinearRegression",
    "BayesianLogisticRegression",
    "BayesianPoissonRegression",
    "BayesianProbitRegression",
    "BayesianRobustRegression",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tallmc.sklearn' has no attribute {name!r}; there are {', '.join(__all__)}")
    try:
        from tallmc.bridges import sklearn_classifiers, sklearn_regressors
    except ImportError as error:
        raise ImportError("tm.sklearn needs scikit-learn; pip install 'tallmc[sklearn]'") from error
    return getattr(sklearn_classifiers, name, None) or getattr(sklearn_regressors, name)


def __dir__() -> list[str]:
    return list(__all__)
