"""Ready-made posteriors, one a file."""

from tallmc.models.columns import NormalPrior
from tallmc.models.gaussian_mixture import gaussian_mixture, generate_mixture
from tallmc.models.logistic_regression import generate_logistic, logistic_regression

__all__ = ["NormalPrior", "gaussian_mixture", "generate_logistic", "generate_mixture", "logistic_regression"]
