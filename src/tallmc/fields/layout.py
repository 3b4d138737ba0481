"""The factors of a random field, laid out site by site: what one update of a variable reads lies together."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree, Real

from tallmc.models.random_field import LogFactor

_ALONG = np.iinfo(np.int32).max


class Shape(NamedTuple):
    """Of a field, as compiled code must know it.

    Args:
        num_values: Values of each variable.
        others: Variables of a factor besides the site.
        degree: Factors of the site that has most.
        factors: Of all sites together: what an update of each reads at most.
    """

    num_values: tuple[int, ...]
    others: int
    degree: int
    factors: int

    @property
    def num_sites(self) -> int:
        """Variables."""
        return len(self.num_values)

    @property
    def most_values(self) -> int:
        """Of the variable that has most."""
        return max(self.num_values)

    @property
    def bits(self) -> int:
        """For the number of a variable."""
        return 8 if self.num_sites <= 2**8 else 15 if self.num_sites <= 2**15 else 30

    @property
    def per_word(self) -> int:
        """Numbers of variables in a word of 31 bits."""
        return 31 // self.bits

    @property
    def contexts(self) -> int:
        """Assignments of the other variables of a factor."""
        return self.most_values**self.others


class SiteTables(eqx.Module):
    """For each site and each of its factors, which variables matter besides, and how the table changes.

    All in flat arrays with the site as the slowest axis, so that an update stays within a few contiguous kilobytes. A
    site with fewer factors than another has factors of zeros at its end.

    Args:
        others: (site, factor): numbers of the other variables, several to a word, in as many words as it takes.
        changes: (site, value but the first, factor, context): log factor at the value less that at the first value.
        degrees: Factors of each site that are there.
    """

    others: tuple[Int[Array, " entries"], ...]
    changes: Real[Array, " contexts"]
    degrees: Int[Array, " sites"]

    def log_ratios(
        self,
        shape: Shape,
        values: Int[Array, " sites"],
        site: Int[Array, ""],
        proposed: Int[Array, ""],
        factors: Int[Array, " rows"],
    ) -> Real[Array, " rows"]:
        """Of some factors of a site: log factor at the proposed value less that at the value it has."""
        entry = site * shape.degree + factors
        context = jnp.zeros_like(factors)
        for number, words in enumerate(self.others):
            word = _at(words, entry)
            for place in range(min(shape.per_word, shape.others - number * shape.per_word)):
                variable = (word >> (place * shape.bits)) & (2**shape.bits - 1)
                context = context * shape.most_values + _at(values, variable)

        def change(value: Array) -> Array:
            line = site * (shape.most_values - 1) + jnp.maximum(value - 1, 0)
            return _at(self.changes, (line * shape.degree + factors) * shape.contexts + context)

        old = values[site]
        if shape.most_values == 2:  # the change of a flip is one entry or its negative
            return jnp.where(proposed > 0, 1, -1).astype(self.changes.dtype) * change(jnp.int32(1))
        return jnp.where(proposed > 0, change(proposed), 0) - jnp.where(old > 0, change(old), 0)


def _at(array: Array, indices: Array) -> Array:
    return array.at[indices].get(mode="promise_in_bounds")


def shape_of(log_factor: LogFactor, rows: PyTree) -> Shape:
    """The shape of a field's layout."""
    site, _, _ = _places(np.asarray(rows["scope"]))
    degrees = np.bincount(site, minlength=len(log_factor.num_values))
    shape = Shape(log_factor.num_values, rows["scope"].shape[1] - 1, int(degrees.max()), int(degrees.sum()))
    size = shape.num_sites * shape.degree * max(shape.contexts * (shape.most_values - 1), shape.others)
    if size > _ALONG:
        raise ValueError(
            f"laid out site by site the tables have {size:,} entries, and at most {_ALONG:,} can be numbered; a site "
            f"of {shape.degree:,} factors makes all others take as much room"
        )
    return shape


def lay_out(shape: Shape, rows: PyTree, seed: int) -> SiteTables:
    """Sorts factors by site, in random order within each."""
    scope, table = np.asarray(rows["scope"]), np.asarray(rows["log_table"])
    site, factor, slot = _places(scope)
    shuffled = np.random.default_rng(seed).permutation(len(site))
    order = shuffled[np.argsort(site[shuffled], kind="stable")]
    site, factor, slot = site[order], factor[order], slot[order]
    degrees = np.bincount(site, minlength=shape.num_sites)
    place = np.arange(len(site)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    others = np.zeros((shape.num_sites, shape.degree, shape.others), scope.dtype)
    dtype = jax.dtypes.canonicalize_dtype(table.dtype)
    changes = np.zeros((shape.num_sites, shape.most_values - 1, shape.degree, shape.contexts), dtype)
    for number in range(scope.shape[1]):
        mine = slot == number
        at, where = (site[mine], place[mine]), factor[mine]
        others[at] = np.delete(scope, number, axis=1)[where]
        own = np.moveaxis(table, 1 + number, 1)[where].reshape(len(where), shape.most_values, shape.contexts)
        changes[at[0], :, at[1]] = own[:, 1:].astype(float) - own[:, :1]
    arrays = _packed(shape, others), changes.ravel(), degrees.astype(np.int32)
    return SiteTables(*jax.tree.map(jax.device_put, arrays))


def _packed(shape: Shape, others: np.ndarray) -> tuple[np.ndarray, ...]:
    """Several numbers of variables in one word: what an update reads takes half as long."""
    words = []
    for first in range(0, shape.others, shape.per_word):
        some = others[..., first : first + shape.per_word].astype(np.int32)
        words.append(np.sum(some << (shape.bits * np.arange(some.shape[-1])), axis=-1, dtype=np.int32).ravel())
    return tuple(words)


def _places(scope: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Site, factor and place in the factor's scope, of every variable of every factor."""
    real = np.ones(scope.shape, bool)
    real[:, 1:] = scope[:, 1:] != scope[:, :1]  # a scope that is too short names its first variable again
    factor, slot = np.nonzero(real)
    return scope[factor, slot].astype(np.int64), factor, slot
