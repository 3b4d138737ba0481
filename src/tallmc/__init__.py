"""tallmc: Bayesian posteriors over many rows, at a few rows a step."""

from importlib.metadata import PackageNotFoundError, version

from tallmc import design, models, optimise, schedule
from tallmc.acceptance import (
    MHSS,
    AustereMH,
    AustereMHPerStep,
    CorrectionLaw,
    Exact,
    ExactBarker,
    MHMinibatch,
    MHSubLhd,
    Mint,
    RidgeCorrection,
    TunaMH,
    correction_law,
    ridge_correction,
)
from tallmc.bounds import Bounds, DerivativeBounds, Lipschitz, RowBounds
from tallmc.control_variates import Taylor
from tallmc.diagnostics.audit import Audit, audit
from tallmc.diagnostics.normality import NormalityReport, check_normality
from tallmc.feed import Feed, IndexedFeed, InMemoryFeed, WeightedFeed, Window
from tallmc.kernel import AcceptanceRule, Guarantee, Info, Kernel, Move, Proposal, Question, Verdict
from tallmc.metropolis import MetropolisHastings
from tallmc.normality import NormalityWarning
from tallmc.posterior import Posterior
from tallmc.proposals import MALA, CrankNicolson, RandomWalk
from tallmc.run import ChainByChain, Driver, Run, Together, sample

try:
    __version__ = version("tallmc")
except PackageNotFoundError:  # a source tree that was not installed
    __version__ = "0+unknown"

__all__ = [
    "MALA",
    "MHSS",
    "AcceptanceRule",
    "Audit",
    "AustereMH",
    "AustereMHPerStep",
    "Bounds",
    "ChainByChain",
    "CorrectionLaw",
    "CrankNicolson",
    "DerivativeBounds",
    "Driver",
    "Exact",
    "ExactBarker",
    "Feed",
    "Guarantee",
    "InMemoryFeed",
    "IndexedFeed",
    "Info",
    "Kernel",
    "Lipschitz",
    "MHMinibatch",
    "MHSubLhd",
    "MetropolisHastings",
    "Mint",
    "Move",
    "NormalityReport",
    "NormalityWarning",
    "Posterior",
    "Proposal",
    "Question",
    "RandomWalk",
    "RidgeCorrection",
    "RowBounds",
    "Run",
    "Taylor",
    "Together",
    "TunaMH",
    "Verdict",
    "WeightedFeed",
    "Window",
    "audit",
    "check_normality",
    "correction_law",
    "design",
    "models",
    "optimise",
    "ridge_correction",
    "sample",
    "schedule",
]
