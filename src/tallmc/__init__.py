"""tallmc: Bayesian posteriors over many rows, at a few rows a step."""

from importlib.metadata import PackageNotFoundError as _NotInstalled
from importlib.metadata import version as _version

from tallmc import acceptance, bridges, compose, design, disk, feed, models, optimise, proposals, sklearn, transforms
from tallmc.acceptance import *  # noqa: F403  what a room names as its own is public: a new rule is exported once
from tallmc.acceptance.normality import NormalityWarning
from tallmc.bounds import RegionBounds, bounds_of
from tallmc.bridges import *  # noqa: F403
from tallmc.compose import *  # noqa: F403
from tallmc.control_variates import Taylor
from tallmc.diagnostics import report as _report  # noqa: F401  makes itself known to `Run.report`
from tallmc.diagnostics.audit import Audit, audit
from tallmc.disk import *  # noqa: F403
from tallmc.feed import *  # noqa: F403
from tallmc.fields import FixedSweep, RandomSweep, Sweep
from tallmc.kernel import Info, Kernel
from tallmc.metropolis import MetropolisHastings
from tallmc.models.unmixing import amari_distance
from tallmc.nuts import NUTS
from tallmc.posterior import Bounds, DerivativeBounds, Lipschitz, Model, Posterior, RowBounds, Rows
from tallmc.proposals import *  # noqa: F403
from tallmc.run import ChainByChain, ConvergenceWarning, Driver, Prediction, Run, Together, load, prior_predictive
from tallmc.setup import NormalityReport, check_normality, equi_energy, gibbs, parallel_tempering, sample

try:
    __version__ = _version("tallmc")
except _NotInstalled:  # a source tree that was not installed
    __version__ = "0+unknown"

__all__ = [
    "NUTS",
    "Audit",
    "Bounds",
    "ChainByChain",
    "ConvergenceWarning",
    "DerivativeBounds",
    "Driver",
    "FixedSweep",
    "Info",
    "Kernel",
    "Lipschitz",
    "MetropolisHastings",
    "Model",
    "NormalityReport",
    "NormalityWarning",
    "Posterior",
    "Prediction",
    "RandomSweep",
    "RegionBounds",
    "RowBounds",
    "Rows",
    "Run",
    "Sweep",
    "Taylor",
    "Together",
    "amari_distance",
    "audit",
    "bounds_of",
    "check_normality",
    "design",
    "equi_energy",
    "gibbs",
    "load",
    "models",
    "optimise",
    "parallel_tempering",
    "prior_predictive",
    "sample",
    "sklearn",
    "transforms",
]
__all__ += acceptance.__all__
__all__ += bridges.__all__
__all__ += compose.__all__
__all__ += disk.__all__
__all__ += feed.__all__
__all__ += proposals.__all__


def __dir__() -> list[str]:
    """Public names only: not the rooms that they live in."""
    return [*__all__, "__version__"]
