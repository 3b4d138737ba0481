"""Choose a sequential test before running it."""

from tallmc.acceptance.sequential_test import SequentialTest, sequential_test
from tallmc.design.acceptance_error import AcceptanceError, acceptance_error, stationary_error
from tallmc.design.choose import (
    Candidate,
    average,
    average_candidates,
    cheapest,
    epsilon_within,
    trial_moments,
    worst_case,
    worst_case_candidates,
)
from tallmc.design.gibbs import ConditionalError, conditional_error, gibbs_stationary_error
from tallmc.design.normal_posterior import NormalPosterior, contraction, normal_posterior
from tallmc.design.risk import Risk, least_risk, risk
from tallmc.diagnostics.moves import Moves, moves_of

__all__ = [
    "AcceptanceError",
    "Candidate",
    "ConditionalError",
    "Moves",
    "NormalPosterior",
    "Risk",
    "SequentialTest",
    "acceptance_error",
    "average",
    "average_candidates",
    "cheapest",
    "conditional_error",
    "contraction",
    "epsilon_within",
    "gibbs_stationary_error",
    "least_risk",
    "moves_of",
    "normal_posterior",
    "risk",
    "sequential_test",
    "stationary_error",
    "trial_moments",
    "worst_case",
    "worst_case_candidates",
]
