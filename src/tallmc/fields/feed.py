"""The feed of a random field: all factors, laid out site by site; the kernel takes windows of a site's by itself."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt32

from tallmc.feed import Drawn, Feed
from tallmc.fields.layout import Shape, SiteTables, lay_out
from tallmc.posterior import Rows


class FieldFeed(Feed):
    """Shows the tables of all sites in every round.

    Which factors a test reads depends on its site, and which site that is on the chain; a feed knows neither. So the
    windows of a test, of row numbers among the factors of one site, are drawn by `SiteUpdates`, and this feed lays the
    factors out so that such a number can be looked up. `read` gives `SiteTables` instead of a window.

    Args:
        shape: Of the field.
        num_rows: Factors in all.
        batch_size: Factors in a window.
    """

    drawn: ClassVar = Drawn.EACH_ONCE
    looked_up: ClassVar = True
    shape: Shape = eqx.field(static=True)
    num_rows: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)

    def arrange(self, rows: Rows, seed: int, widest: int = 0) -> SiteTables:
        """Sorts the factors by site, in random order within each."""
        del widest
        return lay_out(self.shape, rows.all(), seed)

    def start(self, key: Array, every_row: object = None) -> Int[Array, ""]:
        """Nothing to choose: tests draw their own orders."""
        del key, every_row
        return jnp.int32(0)

    def advance(self, cursor: Int[Array, ""]) -> Int[Array, ""]:
        """The same tables again."""
        return cursor

    def read(self, stage: SiteTables, cursor: Int[Array, ""], round_: UInt32[Array, ""]) -> SiteTables:  # pyright: ignore[reportIncompatibleMethodOverride]
        """All tables. Nothing is read until a kernel looks up factors."""
        del cursor, round_
        return stage
