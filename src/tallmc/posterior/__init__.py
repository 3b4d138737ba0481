"""What is sampled: a model and its rows, full passes over them, and bounds on what a row can say."""

from tallmc.posterior.bounds import Bounds, DerivativeBounds, Lipschitz, Near, Place, RowBounds, SmoothBounds
from tallmc.posterior.labels import Labels
from tallmc.posterior.model import KnownChange, Model, PlainModel
from tallmc.posterior.posterior import Posterior, Temperature
from tallmc.posterior.rows import Rows, RowsInMemory

__all__ = [
    "Bounds",
    "DerivativeBounds",
    "KnownChange",
    "Labels",
    "Lipschitz",
    "Model",
    "Near",
    "Place",
    "PlainModel",
    "Posterior",
    "RowBounds",
    "Rows",
    "RowsInMemory",
    "SmoothBounds",
    "Temperature",
]
