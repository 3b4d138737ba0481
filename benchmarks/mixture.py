"""The Gaussian mixture of Seita et al., section 6.1, as `tallmc reproduce mixture` has it."""

from tallmc.reproduce.mixture_posterior import (
    BIN_WIDTH,
    EDGES,
    PROPOSAL_SD,
    START,
    TEMPERATURE,
    binned_posterior,
    grid_posterior,
    kernel,
    posterior,
    total_variation,
)

__all__ = [
    "BIN_WIDTH",
    "EDGES",
    "PROPOSAL_SD",
    "START",
    "TEMPERATURE",
    "binned_posterior",
    "grid_posterior",
    "kernel",
    "posterior",
    "total_variation",
]
