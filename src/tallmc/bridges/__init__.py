"""From other libraries to a posterior, and from a kernel to other libraries: one bridge a file."""

from tallmc.bridges.blackjax_steps import as_blackjax
from tallmc.bridges.numpyro_models import from_numpyro
from tallmc.bridges.pymc_models import from_bambi, from_pymc

__all__ = ["as_blackjax", "from_bambi", "from_numpyro", "from_pymc"]
