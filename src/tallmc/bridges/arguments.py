"""The arguments of a model taken apart: columns of rows, and what is the same for all rows."""

import inspect
from collections.abc import Callable, Hashable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

Columns = dict[str, Array]


class Rest(eqx.Module):
    """What is the same for all rows, and where the columns go.

    Args:
        arrays: Of the rest.
        places: Of these among all leaves.
        fixed: What is no array, by place.
        columns: Names of the columns, by place.
        structure: Of positional and keyword arguments.
    """

    arrays: tuple[Array | np.ndarray, ...]
    places: tuple[int, ...] = eqx.field(static=True)
    fixed: tuple[tuple[int, Hashable], ...] = eqx.field(static=True)
    columns: tuple[tuple[int, str], ...] = eqx.field(static=True)
    structure: Any = eqx.field(static=True)

    def with_rows(self, columns: PyTree) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All arguments, those of rows being these."""
        # JAX's arrays, for a model may index them by what is traced.
        leaves = dict(self.fixed) | dict(zip(self.places, map(jnp.asarray, self.arrays), strict=True))
        leaves |= {place: jnp.asarray(columns[name]) for place, name in self.columns}
        return jax.tree.unflatten(self.structure, [leaves[place] for place in range(len(leaves))])


class Arguments:
    """Positional and keyword arguments of a model, each array in them with a name.

    Args:
        model: What they are for.
        args: By position.
        kwargs: By name.
    """

    def __init__(self, model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]):
        paths, self.structure = jax.tree.flatten_with_path((args, kwargs))
        parameters = _parameters(model)
        self.lists = [name for name, value in _by_name(args, kwargs, parameters) if isinstance(value, list | tuple)]
        self.names = [_name(path, parameters) for path, _ in paths]
        self.leaves = [_checked(name, leaf) for name, (_, leaf) in zip(self.names, paths, strict=True)]

    def columns_of(self, num_rows: int) -> list[int]:
        """Places of the arrays whose first axis is so long."""
        return [place for place, leaf in enumerate(self.leaves) if _is_array(leaf) and leaf.shape[0] == num_rows]

    @property
    def lengths(self) -> str:
        """How long the first axis of each array is, in words."""
        arrays = [
            f"{name} has {leaf.shape[0]}" for name, leaf in zip(self.names, self.leaves, strict=True) if _is_array(leaf)
        ]
        return ", ".join(arrays) if arrays else "there is no array among them"

    @property
    def hint(self) -> str:
        """What lists might be."""
        return "".join(f"; {name} is a list, and data must be arrays: numpy.asarray({name})" for name in self.lists)

    def apart(self, num_rows: int) -> tuple[dict[str, np.ndarray | Array], Rest]:
        """Columns of so many rows, and the rest."""
        places = self.columns_of(num_rows)
        columns = {self.names[place]: self.leaves[place] for place in places}
        others = [(place, leaf) for place, leaf in enumerate(self.leaves) if place not in set(places)]
        arrays = [(place, leaf) for place, leaf in others if _is_array(leaf)]
        fixed = tuple((place, leaf) for place, leaf in others if not _is_array(leaf))
        named = tuple((place, self.names[place]) for place in places)
        whole, there = tuple(leaf for _, leaf in arrays), tuple(place for place, _ in arrays)
        return columns, Rest(whole, there, fixed, named, self.structure)

    def traced(self, function: Callable[..., Any]) -> Any:
        """Runs a function of the arguments where arrays are known by their shapes only; nothing is computed."""
        places = [place for place, leaf in enumerate(self.leaves) if _is_array(leaf)]
        found = []

        def run(*arrays: Array) -> None:
            leaves = list(self.leaves)
            for place, array in zip(places, arrays, strict=True):
                leaves[place] = array
            args, kwargs = jax.tree.unflatten(self.structure, leaves)
            found.append(function(*args, **kwargs))

        shapes = [
            jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
            for leaf in (self.leaves[place] for place in places)
        ]
        jax.eval_shape(run, *shapes)
        return found[0]


def _by_name(args: tuple[Any, ...], kwargs: dict[str, Any], parameters: list[str]) -> list[tuple[str, Any]]:
    named = [*parameters[: len(args)], *(f"number {place}" for place in range(len(parameters), len(args)))]
    return [*zip(named, args, strict=True), *kwargs.items()]


def _is_array(leaf: object) -> bool:
    return isinstance(leaf, np.ndarray | jax.Array) and leaf.ndim > 0


def _checked(name: str, leaf: Any) -> Any:
    """Arrays, and plain values that a compiled program can be told apart by."""
    if isinstance(leaf, np.ndarray | np.generic | jax.Array):
        if not (jnp.issubdtype(leaf.dtype, jnp.number) or jnp.issubdtype(leaf.dtype, jnp.bool)):
            raise ValueError(
                f"argument {name} holds {leaf.dtype}, not numbers; encode it first, such as labels by "
                "numpy.unique(labels, return_inverse=True)[1]"
            )
        return leaf if leaf.ndim else leaf.item()
    if _looks_like_a_table(leaf):
        raise ValueError(f"argument {name} is a {type(leaf).__name__}; pass an array, such as {name}.to_numpy()")
    if not isinstance(leaf, Hashable):
        raise ValueError(
            f"argument {name} is a {type(leaf).__name__}, which is neither an array nor a plain value; "
            "pass arrays, numbers, strings or None"
        )
    return leaf


def _looks_like_a_table(leaf: Any) -> bool:
    return callable(getattr(leaf, "to_numpy", None))


def _parameters(model: Callable[..., Any]) -> list[str]:
    """Names of the positional parameters, as far as they are known."""
    try:
        found = inspect.signature(model).parameters.values()
    except (TypeError, ValueError):
        return []
    return [one.name for one in found if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]


def _name(path: tuple[Any, ...], parameters: list[str]) -> str:
    first, which, *others = path
    if first.idx == 0:
        name = parameters[which.idx] if which.idx < len(parameters) else f"number {which.idx}"
    else:
        name = which.key
    return name + jax.tree_util.keystr(tuple(others))
