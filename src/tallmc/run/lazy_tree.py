"""Draws on disk as an ArviZ DataTree that reads what is asked for, and no more."""

from typing import Any

import numpy as np
import xarray
from xarray.backends import BackendArray
from xarray.core import indexing

from tallmc.posterior.labels import BARE, Labels
from tallmc.run.stored import Stored
from tallmc.run.variables import STATS, Column


class _Draws(BackendArray):
    """One variable, as xarray looks into files of any format.

    Args:
        stored: Where it is.
        column: Which it is.
    """

    def __init__(self, stored: Stored, column: Column):
        self.stored, self.column = stored, column
        self.shape = (stored.num_chains, stored.num_draws, *column.shape)
        self.dtype = np.dtype(column.dtype)

    def __getitem__(self, key: Any) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple[Any, ...]) -> Any:
        chains, draws, *others = key
        if isinstance(draws, slice):
            start, stop, step = draws.indices(self.shape[1])
            if step < 0:
                return self._read((chains, slice(None), *others))[:, draws]
            found = self.stored.read(self.column, start, max(stop, start), step)
            return found[(chains, slice(None), *others)]
        one = int(draws) % self.shape[1]
        return self.stored.read(self.column, one, one + 1)[(chains, 0, *others)]


def lazy_tree(stored: Stored, labels: Labels | None = None) -> xarray.DataTree:
    """A tree with one group for each of the store, and numbers of chains and draws as coordinates.

    Args:
        stored: Draws on disk.
        labels: Names of the axes of variables, and of places along them.
    """
    coordinates: dict[str, Any] = {"chain": np.arange(stored.num_chains), "draw": np.arange(stored.num_draws)}
    dims = {} if labels is None else labels.dims
    groups: dict[str, dict[str, xarray.Variable]] = {}
    for column in stored.setup.columns:
        name = labels.variable if labels is not None and column.name == BARE else column.name
        of_draws = column.group != STATS and name in dims
        own = dims[name] if of_draws else [f"{name}_dim_{axis}" for axis in range(len(column.shape))]
        lazy = indexing.LazilyIndexedArray(_Draws(stored, column))
        groups.setdefault(column.group, {})[name] = xarray.Variable(["chain", "draw", *own], lazy)
    places = {} if labels is None else {axis: list(names) for axis, names in labels.coords.items()}
    sets = {
        group: xarray.Dataset(variables, coordinates | ({} if group == STATS else _used(places, variables)))
        for group, variables in groups.items()
    }
    return xarray.DataTree.from_dict(sets)


def _used(places: dict[str, Any], variables: dict[str, xarray.Variable]) -> dict[str, Any]:
    """Names of places along axes that some variable has."""
    axes = {axis for variable in variables.values() for axis in variable.dims}
    return {axis: names for axis, names in places.items() if axis in axes}
