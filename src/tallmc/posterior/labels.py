"""Names of a position's parts: of its variables, of their axes, and of the places along each axis."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jaxtyping import PyTree

BARE = "position"  # what a position that is one array is called, unless it has a name

Dims: TypeAlias = Mapping[str, Sequence[str]] | Sequence[str]
Coords: TypeAlias = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Labels:
    """What ArviZ calls dims and coords.

    Args:
        dims: For each variable the names of its axes.
        coords: For each axis that has them the names of its places.
        variable: What a position that is one array is called.
    """

    dims: dict[str, tuple[str, ...]]
    coords: dict[str, tuple[Any, ...]]
    variable: str = BARE

    @classmethod
    def given(cls, dims: Dims | None, coords: Coords | None) -> "Labels | None":
        """As a caller writes them; None if there are none.

        Example:
            >>> Labels.given({"effect": ["school"]}, {"school": ["A", "B"]}).dims
            {'effect': ('school',)}
        """
        if dims is None and coords is None:
            return None
        if dims is None:
            raise ValueError(f"coords name {list(coords or {})}, but no axis has these names; pass dims as well")
        by_variable = dims if isinstance(dims, Mapping) else {BARE: dims}
        named = {variable: _axes(variable, axes) for variable, axes in by_variable.items()}
        places = {axis: _places(axis, values) for axis, values in (coords or {}).items()}
        used = {axis for axes in named.values() for axis in axes}
        if strange := sorted(set(places) - used):
            raise ValueError(f"coords name the axis '{strange[0]}', which dims do not have; mend one of the two")
        return cls(named, places)

    def check(self, position: PyTree) -> None:
        """Raises `ValueError` unless every name fits a position."""
        shapes = {name: np.shape(leaf) for name, leaf in named(position, self).items()}
        for variable, axes in self.dims.items():
            if variable not in shapes:
                raise ValueError(f"dims name '{variable}', but a position has {', '.join(shapes)}; mend the name")
            shape = shapes[variable]
            if len(shape) != len(axes):
                raise ValueError(
                    f"dims of '{variable}' are {list(axes)}, but it has {len(shape)} axes; name each axis once"
                )
            for axis, length in zip(axes, shape, strict=True):
                if axis in self.coords and len(self.coords[axis]) != length:
                    raise ValueError(
                        f"coords of '{axis}' are {len(self.coords[axis])}, but '{variable}' has {length} places along "
                        "it; name each place once"
                    )


def named(position: PyTree, labels: Labels | None = None) -> dict[str, Any]:
    """One variable a leaf, named by its path."""
    paths = jax.tree.leaves_with_path(position)
    if len(paths) == 1 and not paths[0][0]:
        return {BARE if labels is None else labels.variable: paths[0][1]}
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in paths}


def arviz_options(labels: Labels | None) -> dict[str, Any]:
    """What `arviz_base.from_dict` is to know besides the draws."""
    if labels is None:
        return {}
    coords = {axis: list(places) for axis, places in labels.coords.items()}
    return {"dims": {variable: list(axes) for variable, axes in labels.dims.items()}, "coords": coords}


def _axes(variable: str, axes: Any) -> tuple[str, ...]:
    if isinstance(axes, str) or not all(isinstance(axis, str) for axis in axes):
        raise ValueError(f"dims of '{variable}' must be a list of names, such as ['school'], not {axes!r}")
    if len(set(axes)) < len(axes) or {"chain", "draw"} & set(axes):
        raise ValueError(f"dims of '{variable}' are {list(axes)}; each name may be there once, and not chain or draw")
    return tuple(axes)


def _places(axis: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str) or np.ndim(values) != 1:
        raise ValueError(f"coords of '{axis}' must be a list of names, one a place, not {values!r}")
    plain = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
    if len(set(plain)) < len(plain):
        twice = next(value for value in plain if plain.count(value) > 1)
        raise ValueError(f"coords of '{axis}' have {twice!r} twice; give each place a name of its own")
    return plain
