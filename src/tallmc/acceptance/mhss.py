"""Metropolis-Hastings with scalable subsampling."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Real

from tallmc.acceptance.subsampling import SubsamplingRule
from tallmc.feed import Drawn, Needs
from tallmc.posterior import Model


class MHSS(SubsamplingRule):
    """Exact decisions from a handful of rows, next to a Taylor expansion (Prado, Nemeth & Sherlock, 2024).

    The expansion decides a first stage without any rows; a second stage looks at a Poisson number of rows, drawn by how
    much they can differ from it. With order 2 at a mode that number *falls* with the number of rows, as 1/sqrt(N).

    Args:
        order: Of the Taylor expansion, 1 or 2; `tm.sample` makes it if no `control_variate` is given.
        batch_size: Rows drawn at a time; it changes the speed and nothing else.

    Example:
        >>> MHSS().promise.guarantee.value
        'exact'
    """

    order: int = eqx.field(default=2, static=True)
    batch_size: int = eqx.field(default=8, static=True)
    reference: ClassVar = "prado2024metropolis"
    target_acceptance: ClassVar = 0.45

    def __check_init__(self):
        if self.order not in (1, 2):
            raise ValueError(f"order must be 1 or 2, got {self.order!r}; for order 0 use tm.TunaMH()")

    @property
    def needs(self) -> Needs:
        """Rows by weight, next to an expansion."""
        return self.rows_by_weight(self.order)

    def check(self, model: Model, drawn: Drawn) -> None:
        """Wants an expansion of its order."""
        del drawn
        self.check_row_bounds(model)
        order = getattr(model.bounds, "order", 0)
        if order != self.order:
            raise ValueError(
                f"MHSS(order={self.order}) needs control_variate=tm.Taylor(order={self.order}), and the posterior's "
                f"expansion is of order {order}"
            )

    def extra_rate(self, ceiling: Real[Array, ""]) -> Real[Array, ""]:
        """Nothing beyond what the bounds ask for."""
        return jnp.zeros_like(ceiling)

    def share(self, against: Real[Array, " rows"], ceiling: Real[Array, ""]) -> Real[Array, " rows"]:
        """As much as possible: rows against the move are all kept."""
        return ceiling + jnp.minimum(against, 0)
