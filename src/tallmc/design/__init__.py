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
from tallmc.diagnostics.moves import Moves, moves_of

__all__ = [
    "AcceptanceError",
    "Candidate",
    "Moves",
    "SequentialTest",
    "acceptance_error",
    "average",
    "average_candidates",
    "cheapest",
    "epsilon_within",
    "moves_of",
    "sequential_test",
    "stationary_error",
    "trial_moments",
    "worst_case",
    "worst_case_candidates",
]
