"""Optimisers that read only as many rows as a step needs (Korattikara et al., section 2)."""

from tallmc.optimise.contract import Equations, LeastSquares, Problem, Sums
from tallmc.optimise.direction_test import DirectionTest, Printed, SplitHalves
from tallmc.optimise.irls import irls
from tallmc.optimise.mode import mode
from tallmc.optimise.regress import least_absolute_deviation, logistic, poisson, probit
from tallmc.optimise.regressions import (
    LeastAbsoluteDeviation,
    Logistic,
    Poisson,
    Probit,
    Regression,
    SoftplusPoisson,
    Terms,
)
from tallmc.optimise.result import OptimiseResult
from tallmc.optimise.update_kind import GradientStep, NewtonStep, UpdateKind

__all__ = [
    "DirectionTest",
    "Equations",
    "GradientStep",
    "LeastAbsoluteDeviation",
    "LeastSquares",
    "Logistic",
    "NewtonStep",
    "OptimiseResult",
    "Poisson",
    "Printed",
    "Probit",
    "Problem",
    "Regression",
    "SoftplusPoisson",
    "SplitHalves",
    "Sums",
    "Terms",
    "UpdateKind",
    "irls",
    "least_absolute_deviation",
    "logistic",
    "mode",
    "poisson",
    "probit",
]
