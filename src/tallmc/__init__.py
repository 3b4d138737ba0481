"""tallmc: Bayesian posteriors over many rows, at a few hundred rows a step."""

from importlib.metadata import PackageNotFoundError, version

from tallmc import models, optimise
from tallmc.acceptance import (
    CorrectionLaw,
    Exact,
    ExactBarker,
    MHMinibatch,
    RidgeCorrection,
    correction_law,
    ridge_correction,
)
from tallmc.feed import Feed, IndexedFeed, InMemoryFeed, Window
from tallmc.kernel import AcceptanceRule, Guarantee, Info, Kernel, Move, Proposal, Verdict
from tallmc.metropolis import MetropolisHastings
from tallmc.posterior import Posterior
from tallmc.proposals import RandomWalk
from tallmc.run import ChainByChain, Driver, Run, Together, sample

try:
    __version__ = version("tallmc")
except PackageNotFoundError:  # a source tree that was not installed
    __version__ = "0+unknown"

__all__ = [
    "AcceptanceRule",
    "ChainByChain",
    "CorrectionLaw",
    "Driver",
    "Exact",
    "ExactBarker",
    "Feed",
    "Guarantee",
    "InMemoryFeed",
    "IndexedFeed",
    "Info",
    "Kernel",
    "MHMinibatch",
    "MetropolisHastings",
    "Move",
    "Posterior",
    "Proposal",
    "RandomWalk",
    "RidgeCorrection",
    "Run",
    "Together",
    "Verdict",
    "Window",
    "correction_law",
    "models",
    "optimise",
    "ridge_correction",
    "sample",
]
