"""Kernels made of kernels."""

from tallmc.compose.cycle import Cycle
from tallmc.compose.equi_energy import EnergyRings
from tallmc.compose.ladder import Ladder
from tallmc.compose.mixture import Mixture

__all__ = ["Cycle", "EnergyRings", "Ladder", "Mixture"]
