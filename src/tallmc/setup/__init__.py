"""What happens before and around a run: `tm.sample` and all that it works out first."""

from tallmc.setup.equi_energy import equi_energy
from tallmc.setup.gibbs import gibbs
from tallmc.setup.normality import NormalityReport, check_normality
from tallmc.setup.sample import sample
from tallmc.setup.tempering import parallel_tempering

__all__ = ["NormalityReport", "check_normality", "equi_energy", "gibbs", "parallel_tempering", "sample"]
