"""The engine: moves chains, keeps their draws, and says what they cost."""

from tallmc.run.convergence import ConvergenceWarning
from tallmc.run.drivers import ChainByChain, Driver, Together
from tallmc.run.load import load
from tallmc.run.predict import Prediction, prior_predictive
from tallmc.run.result import Run
from tallmc.run.session import Session

__all__ = [
    "ChainByChain",
    "ConvergenceWarning",
    "Driver",
    "Prediction",
    "Run",
    "Session",
    "Together",
    "load",
    "prior_predictive",
]
