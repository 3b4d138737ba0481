"""Control variates: what makes the rows of a posterior say less."""

from tallmc.control_variates.expansion import ExpandedModel, Expansion, covariance_factor
from tallmc.control_variates.selection import ExpandedSelection, expand_selection
from tallmc.control_variates.taylor import Controlled, Taylor

__all__ = [
    "Controlled",
    "ExpandedModel",
    "ExpandedSelection",
    "Expansion",
    "Taylor",
    "covariance_factor",
    "expand_selection",
]
