"""The order in which a sweep comes to the variables of a random field."""

import abc
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from tallmc.numerics.flat import as_device_array
from tallmc.numerics.permutation import NUM_KEYS, permuted


class Sweep(eqx.Module):
    """Says which variable comes when. A sweep updates each once."""

    @abc.abstractmethod
    def start(self, key: Array) -> PyTree:
        """What a sweep keeps of its random numbers."""

    @abc.abstractmethod
    def site(self, drawn: PyTree, place: Int[Array, ""], num_sites: int) -> Int[Array, ""]:
        """The variable at a place of the sweep."""

    def check(self, num_sites: int) -> None:
        """Raises `ValueError` if this order is not one of so many variables."""
        del num_sites


class RandomSweep(Sweep):
    """Comes to the variables in an order that is drawn afresh for every sweep.

    Example:
        >>> import jax
        >>> sweep = RandomSweep()
        >>> drawn = sweep.start(jax.random.key(0))
        >>> sorted(int(sweep.site(drawn, jax.numpy.int32(place), 4)) for place in range(4))
        [0, 1, 2, 3]
    """

    def start(self, key: Array) -> PyTree:
        """The words of a permutation that takes no memory."""
        return jax.random.bits(key, (NUM_KEYS,), jnp.uint32)

    def site(self, drawn: PyTree, place: Int[Array, ""], num_sites: int) -> Int[Array, ""]:
        """The variable at a place of that permutation."""
        return permuted(place.astype(jnp.uint32)[None], num_sites, drawn)[0]


class FixedSweep(Sweep):
    """Comes to the variables in the same order in every sweep.

    Args:
        order: Every variable once; as they are numbered if left out.

    Example:
        >>> FixedSweep([2, 0, 1]).order.tolist()
        [2, 0, 1]
    """

    order: Int[Array, " sites"] | None

    def __init__(self, order: Sequence[int] | np.ndarray | None = None):
        if order is None:
            self.order = None
            return
        given = np.asarray(order)
        if given.ndim != 1 or not np.array_equal(np.sort(given), np.arange(len(given))):
            raise ValueError(f"order must name every variable once, from 0 on, got {given.tolist()}")
        self.order = as_device_array(given, np.int32)

    def start(self, key: Array) -> PyTree:
        """Nothing is drawn."""
        del key

    def site(self, drawn: PyTree, place: Int[Array, ""], num_sites: int) -> Int[Array, ""]:
        """The next variable in order."""
        del drawn, num_sites
        return place if self.order is None else self.order[place]

    def check(self, num_sites: int) -> None:
        """The order must have every variable of the field."""
        if self.order is not None and len(self.order) != num_sites:
            raise ValueError(
                f"FixedSweep orders {len(self.order)} variables, and the field has {num_sites}; name each once"
            )
