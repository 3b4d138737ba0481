"""The order of one site's factors for a rule that reads them all, so that any order will do."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from tallmc.feed import Window


class AsTheyLie(eqx.Module):
    """Factors in the order of their numbers; the counterpart of `RunOrder` for rules that read every row.

    Args:
        num_rows: Factors of a site.
        batch_size: Factors in a window.
    """

    num_rows: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)

    def start(self, key: Array) -> Int[Array, ""]:
        """At the first."""
        del key
        return jnp.int32(0)

    def advance(self, cursor: Int[Array, ""]) -> Int[Array, ""]:
        """The next window."""
        return cursor + self.batch_size

    def numbers(self, cursor: Int[Array, ""]) -> Window:
        """The numbers of the factors in a window."""
        numbers = cursor + jnp.arange(self.batch_size, dtype=jnp.int32)
        count = jnp.minimum(self.num_rows - cursor, self.batch_size)
        return Window(jnp.minimum(numbers, self.num_rows - 1), count, self.batch_size)
