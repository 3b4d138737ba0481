"""Draws rows in proportion to weights, at a cost that does not depend on how many rows there are."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Real, UInt32

from tallmc.numerics.flat import as_device_array
from tallmc.posterior.resident import aligned_zeros

_BLOCK = 2**18  # entries at a time, so that what is worked out of them takes little memory


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
        own_share, other = aligned_zeros(len(weights), np.float32), aligned_zeros(len(weights), np.int32)
        np.divide(weights, np.mean(weights, dtype=float), out=own_share, casting="same_kind")
        other[:] = np.arange(len(other))
        _pair_up(own_share, other)
        return cls(as_device_array(own_share), as_device_array(other))

    def drawn(self, generator: np.random.Generator, count: int) -> Int[np.ndarray, " count"]:
        """So many rows, with replacement, on the host."""
        own_share, other = np.asarray(self.own_share), np.asarray(self.other)
        entry = generator.integers(len(other), size=count)
        return np.where(generator.random(count) < own_share[entry], entry, other[entry])

    def draw(self, high: UInt32[Array, " k"], low: UInt32[Array, " k"]) -> Int[Array, " k"]:
        """Rows, from two random words each.

        The words are a fixed-point number in [0, 1). Times the number of entries, its whole part is an entry and its
        fraction, which is independent of that, says which of the entry's two rows is meant.
        """
        return split_entry(self, high, low)[0]


def split_entry(
    table: AliasTable, high: UInt32[Array, " k"], low: UInt32[Array, " k"]
) -> tuple[Int[Array, " k"], Float[Array, " k"]]:
    """Rows as `AliasTable.draw` gives them, each with a uniform number below 1 that says nothing of it: what is left of
    the fraction."""
    entry, whole = _times(high, low, len(table.other))
    fraction, share = whole.astype(jnp.float32) * jnp.float32(2.0**-32), table.own_share[entry]
    own = fraction < share
    left = jnp.where(own, fraction / share, (fraction - share) / (1 - share))
    return jnp.where(own, entry, table.other[entry]), jnp.clip(left, 0, 1)


def _pair_up(share: np.ndarray, other: np.ndarray) -> None:
    """Fills up every entry that has less than its share from one that has more, in place, in one sweep.

    What light entries lack is laid end to end, and so are the surpluses of the heavy ones. A light entry takes all it
    lacks from the heavy one whose surplus covers its end. So a heavy one may have to give a little more than it has,
    namely what its predecessor has left over, and takes just that from its predecessor.
    """
    heavy = np.flatnonzero(share > 1).astype(np.int32)
    lack = sum(np.sum(1 - block[block < 1], dtype=float) for block in _blocks(share))
    if not len(heavy) or not lack > 0:
        share[:] = 1
        return
    surplus = np.cumsum(share[heavy] - 1, dtype=float)
    # Shares are rounded. Spread over all heavy entries that is nothing; left to the last it would be a whole entry.
    surplus *= lack / surplus[-1]
    given, before = np.zeros(len(heavy)), 0.0
    for start, block in zip(range(0, len(share), _BLOCK), _blocks(share), strict=True):
        light = np.flatnonzero(block < 1)
        if len(light):
            ends = before + np.cumsum(1 - block[light], dtype=float)
            giver = np.minimum(np.searchsorted(surplus, ends), len(heavy) - 1)
            other[start + light], given[giver], before = heavy[giver], ends, ends[-1]
    np.maximum.accumulate(given, out=given)  # a heavy entry that gave to none
    left_over = surplus - given
    share[heavy] = 1
    share[heavy[1:]] -= np.clip(left_over[:-1], 0, 1)
    other[heavy[1:]] = heavy[:-1]


def _blocks(array: np.ndarray) -> list[np.ndarray]:
    return [array[start : start + _BLOCK] for start in range(0, len(array), _BLOCK)]


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
