"""Draws on disk as an ArviZ DataTree that reads what is asked for, and no more."""

from typing import Any

import numpy as np
import xarray
from xarray.backends import BackendArray
from xarray.core import indexing

from tallmc.run.stored import Stored
from tallmc.run.variables import Column


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


def lazy_tree(stored: Stored) -> xarray.DataTree:
    """A tree with one group for each of the store, and numbers of chains and draws as coordinates."""
    coordinates = {"chain": np.arange(stored.num_chains), "draw": np.arange(stored.num_draws)}
    groups: dict[str, dict[str, xarray.Variable]] = {}
    for column in stored.setup.columns:
        axes = ["chain", "draw", *(f"{column.name}_dim_{axis}" for axis in range(len(column.shape)))]
        lazy = indexing.LazilyIndexedArray(_Draws(stored, column))
        groups.setdefault(column.group, {})[column.name] = xarray.Variable(axes, lazy)
    sets = {group: xarray.Dataset(variables, coordinates) for group, variables in groups.items()}
    return xarray.DataTree.from_dict(sets)
