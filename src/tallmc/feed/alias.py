"""Draws rows in proportion to weights, at a cost that does not depend on how many rows there are."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Real, UInt32


class AliasTable(eqx.Module):
    """Walker's alias table (1977; set up as in Vose, 1991).

    Every entry stands for an equal share of all the chance there is, and is divided between at most two rows: itself
    and one other.

    Args:
        weights: Not negative, not all zero; rows of weight zero are never drawn.

    Example:
        >>> import numpy as np
        >>> AliasTable.of(np.array([1.0, 3.0])).own_share.tolist()
        [0.5, 1.0]
    """

    own_share: Float[Array, " n"]
    other: Int[Array, " n"]

    @classmethod
    def of(cls, weights: Real[np.ndarray, " n"]) -> "AliasTable":
        """Sets up a table that draws row i in proportion to `weights[i]`; in NumPy, before anything is compiled."""
        if not (np.all(np.isfinite(weights)) and np.all(weights >= 0) and np.sum(weights) > 0):
            raise ValueError("weights must be finite, not negative, and not all zero")
        share = weights / np.mean(weights)
        other = np.arange(len(share), dtype=np.int32)
        _pair_up(share, other)
        return cls(jnp.asarray(np.minimum(share, 1), jnp.float32), jnp.asarray(other))

    def draw(self, high: UInt32[Array, " k"], low: UInt32[Array, " k"]) -> Int[Array, " k"]:
        """Rows, from two random words each.

        The words are a fixed-point number in [0, 1). Times the number of entries, its whole part is an entry and its
        fraction, which is independent of that, says which of the entry's two rows is meant.
        """
        entry, fraction = _times(high, low, len(self.other))
        own = fraction.astype(jnp.float32) * jnp.float32(2.0**-32) < self.own_share[entry]
        return jnp.where(own, entry, self.other[entry])


def _pair_up(share: np.ndarray, other: np.ndarray) -> None:
    """Fills up every entry that has less than its share from one that has more, in place and all at once.

    Rows that lack something are laid end to end, and so are the surpluses of the others; a lacking row takes from the
    surplus that covers its end. What a surplus gives away beyond itself makes it lacking in the next round.
    """
    pending = np.arange(len(share))
    while True:
        lacking, rich = pending[share[pending] < 1], pending[share[pending] > 1]
        if not len(lacking) or not len(rich):
            break
        needs, surplus = np.cumsum(1 - share[lacking]), np.cumsum(share[rich] - 1)
        giver = np.minimum(np.searchsorted(surplus, needs, side="left"), len(rich) - 1)
        other[lacking] = rich[giver]
        np.subtract.at(share, rich[giver], 1 - share[lacking])
        pending = rich
    share[pending] = np.maximum(share[pending], 1)


def _times(high: Array, low: Array, size: int) -> tuple[Array, Array]:
    """Whole part, and fraction in units of 2^-32, of `size` times the fixed-point number `0.high low`."""
    carried, _ = _product(low, size)
    whole, fraction = _product(high, size)
    total = fraction + carried
    whole = whole + (total < fraction).astype(jnp.uint32)
    return whole.astype(jnp.int32), total


def _product(word: Array, size: int) -> tuple[Array, Array]:
    """High and low word of a product, from products of half words."""
    mask, shift = jnp.uint32(0xFFFF), jnp.uint32(16)
    upper, lower = jnp.uint32(size >> 16), jnp.uint32(size & 0xFFFF)
    a, b = word >> shift, word & mask
    low = b * lower
    middle = a * lower + (low >> shift)
    cross = b * upper + (middle & mask)
    return a * upper + (middle >> shift) + (cross >> shift), (cross << shift) | (low & mask)
