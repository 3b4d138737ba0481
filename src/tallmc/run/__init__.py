"""Running chains. All side effects (clocks, progress, signals) live here."""

from tallmc.run.drivers import ChainByChain, Driver, Together
from tallmc.run.result import Run
from tallmc.run.sample import sample

__all__ = ["ChainByChain", "Driver", "Run", "Together", "sample"]
