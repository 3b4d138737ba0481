"""The Metropolis test on all rows."""

from typing import ClassVar

import equinox as eqx

from tallmc.acceptance.formulas import METROPOLIS
from tallmc.acceptance.full_sum import FullDataRule


class Exact(FullDataRule):
    """Accepts with probability min(1, exp(log ratio)), from all rows (Metropolis et al., 1953; Hastings, 1970).

    Args:
        batch_size: Rows read at a time; it changes the speed and nothing else.

    Example:
        >>> Exact().promise.guarantee.value
        'exact'
    """

    batch_size: int = eqx.field(default=4096, static=True)
    formula: ClassVar = METROPOLIS
    reference: ClassVar = "hastings1970monte"
