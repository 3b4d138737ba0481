"""Control variates: what makes the rows of a posterior say less."""

from tallmc.control_variates.expansion import ControlledPosterior, Expansion, covariance_factor
from tallmc.control_variates.taylor import Controlled, Taylor

__all__ = ["Controlled", "ControlledPosterior", "Expansion", "Taylor", "covariance_factor"]
