"""Where to go next: one file a proposal. Proposals know nothing of acceptance rules."""

from tallmc.proposals.contract import Move, Proposal
from tallmc.proposals.crank_nicolson import CrankNicolson
from tallmc.proposals.hmc import HMC
from tallmc.proposals.mala import MALA
from tallmc.proposals.random_walk import RandomWalk
from tallmc.proposals.reversible_jump import ReversibleJump
from tallmc.proposals.sgld import SGLD
from tallmc.proposals.stiefel_walk import StiefelWalk

__all__ = [
    "HMC",
    "MALA",
    "SGLD",
    "CrankNicolson",
    "Move",
    "Proposal",
    "RandomWalk",
    "ReversibleJump",
    "StiefelWalk",
]
