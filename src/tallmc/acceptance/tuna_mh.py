"""TunaMH: exact decisions with a tunable number of rows."""

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Real

from tallmc.acceptance.subsampling import SubsamplingRule
from tallmc.feed import Needs


class TunaMH(SubsamplingRule):
    """Exact decisions from a Poisson number of rows (Zhang, Cooper & De Sa, 2020).

    Without a Taylor expansion the number of rows is small only for small steps or high temperatures.

    Args:
        chi: What to pay for convergence: chi times the square of what all rows can say is added to the expected number
            of rows, and the chance to accept rises towards that of the test on all rows.
        batch_size: Rows drawn at a time; it changes the speed and nothing else.

    Example:
        >>> TunaMH().promise.guarantee.value
        'exact'
    """

    chi: float = eqx.field(default=1e-5, static=True)
    batch_size: int = eqx.field(default=64, static=True)
    reference: ClassVar = "zhang2020asymptotically"
    target_acceptance: ClassVar = 0.6

    def __check_init__(self):
        if not (self.chi >= 0 and self.chi < float("inf")):
            raise ValueError(f"chi must be a finite number of at least 0, got {self.chi!r}")

    @property
    def needs(self) -> Needs:
        """Rows by weight, with an expansion or without."""
        return self.rows_by_weight(expansion_order=None)

    def extra_rate(self, ceiling: Real[Array, ""]) -> Real[Array, ""]:
        """chi times the square of what all rows can say."""
        return self.chi * ceiling * ceiling

    def share(self, against: Real[Array, " rows"], ceiling: Real[Array, ""]) -> Real[Array, " rows"]:
        """Half of what is between the row and its bound."""
        return (ceiling + against) / 2
