"""tallmc: Bayesian posteriors over many rows, at a few rows a step."""

from importlib.metadata import PackageNotFoundError as _NotInstalled
from importlib.metadata import version as _version

from tallmc import design, models, optimise
from tallmc.acceptance import (
    MHSS,
    AcceptanceRule,
    AustereMH,
    AustereMHPerStep,
    CorrectionLaw,
    Exact,
    ExactBarker,
    Guarantee,
    MHMinibatch,
    MHSubLhd,
    Mint,
    Promise,
    Question,
    RidgeCorrection,
    SelectiveRule,
    TunaMH,
    Verdict,
    correction_law,
    ridge_correction,
    schedule,
)
from tallmc.acceptance.formulas import BARKER, METROPOLIS
from tallmc.acceptance.normality import NormalityWarning
from tallmc.compose import Cycle, Mixture
from tallmc.control_variates import Taylor
from tallmc.diagnostics.audit import Audit, audit
from tallmc.feed import Drawn, Feed, IndexedFeed, InMemoryFeed, Needs, WeightedFeed, Window
from tallmc.kernel import Info, Kernel
from tallmc.metropolis import MetropolisHastings
from tallmc.posterior import Bounds, DerivativeBounds, Lipschitz, Model, Posterior, RowBounds, Rows
from tallmc.proposals import MALA, CrankNicolson, Move, Proposal, RandomWalk
from tallmc.run import ChainByChain, ConvergenceWarning, Driver, Run, Together, load
from tallmc.setup import NormalityReport, check_normality, sample

try:
    __version__ = _version("tallmc")
except _NotInstalled:  # a source tree that was not installed
    __version__ = "0+unknown"

__all__ = [
    "BARKER",
    "MALA",
    "METROPOLIS",
    "MHSS",
    "AcceptanceRule",
    "Audit",
    "AustereMH",
    "AustereMHPerStep",
    "Bounds",
    "ChainByChain",
    "ConvergenceWarning",
    "CorrectionLaw",
    "CrankNicolson",
    "Cycle",
    "DerivativeBounds",
    "Drawn",
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
    "Mixture",
    "Model",
    "Move",
    "Needs",
    "NormalityReport",
    "NormalityWarning",
    "Posterior",
    "Promise",
    "Proposal",
    "Question",
    "RandomWalk",
    "RidgeCorrection",
    "RowBounds",
    "Rows",
    "Run",
    "SelectiveRule",
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
    "load",
    "models",
    "optimise",
    "ridge_correction",
    "sample",
    "schedule",
]


def __dir__() -> list[str]:
    """Public names only: not the rooms that they live in."""
    return [*__all__, "__version__"]
