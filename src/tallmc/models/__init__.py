"""Ready-made posteriors, one a file."""

from tallmc.models.columns import NormalPrior
from tallmc.models.gaussian_mixture import gaussian_mixture, generate_mixture
from tallmc.models.ica import ica
from tallmc.models.ica_mode import IcaMode, ica_mode
from tallmc.models.linear_regression import linear_regression
from tallmc.models.log_link import LogLink
from tallmc.models.logistic_regression import generate_logistic, logistic_regression
from tallmc.models.poisson_regression import poisson_regression
from tallmc.models.probit_regression import probit_regression
from tallmc.models.random_field import generate_dense_field, random_field
from tallmc.models.robust_regression import robust_regression
from tallmc.models.softplus_link import SoftplusLink
from tallmc.models.unmixing import aligned
from tallmc.models.variable_selection import SelectionPrior, variable_selection
from tallmc.models.whitening import Whitening
from tallmc.posterior.orthonormal import OrthonormalColumns

__all__ = [
    "IcaMode",
    "LogLink",
    "NormalPrior",
    "OrthonormalColumns",
    "SelectionPrior",
    "SoftplusLink",
    "Whitening",
    "aligned",
    "gaussian_mixture",
    "generate_dense_field",
    "generate_logistic",
    "generate_mixture",
    "ica",
    "ica_mode",
    "linear_regression",
    "logistic_regression",
    "poisson_regression",
    "probit_regression",
    "random_field",
    "robust_regression",
    "variable_selection",
]
