"""Ready-made posteriors, one a file."""

from tallmc.models.columns import NormalPrior
from tallmc.models.gaussian_mixture import gaussian_mixture, generate_mixture
from tallmc.models.linear_regression import linear_regression
from tallmc.models.log_link import LogLink
from tallmc.models.logistic_regression import generate_logistic, logistic_regression
from tallmc.models.poisson_regression import poisson_regression
from tallmc.models.probit_regression import probit_regression
from tallmc.models.robust_regression import robust_regression
from tallmc.models.softplus_link import SoftplusLink
from tallmc.models.variable_selection import SelectionPrior, variable_selection

__all__ = [
    "LogLink",
    "NormalPrior",
    "SelectionPrior",
    "SoftplusLink",
    "gaussian_mixture",
    "generate_logistic",
    "generate_mixture",
    "linear_regression",
    "logistic_regression",
    "poisson_regression",
    "probit_regression",
    "robust_regression",
    "variable_selection",
]
