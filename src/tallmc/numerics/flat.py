"""Positions as flat vectors, on the host without compiling anything and in compiled code."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree


class Unflatten(eqx.Module):
    """From a flat vector back to a position; NumPy's in, NumPy's out.

    Two of them are equal if the positions they make look alike, so compiled code can be reused.

    Args:
        structure: Of a position.
        shapes: Of its leaves.
        dtypes: Of its leaves.
    """

    structure: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    dtypes: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, flat: Array | np.ndarray) -> PyTree:
        """Cuts the vector up, in the order in which `jax.flatten_util.ravel_pytree` lays positions out."""
        leaves, start = [], 0
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            stop = start + math.prod(shape)
            leaves.append(flat[start:stop].reshape(shape).astype(dtype))
            start = stop
        return jax.tree.unflatten(self.structure, leaves)


def as_position(leaf: Any) -> np.ndarray:
    """One leaf of a position as an array: arrays keep their kind, and a plain number such as 0 is a real one.

    Example:
        >>> as_position(0).dtype.kind, as_position(np.arange(3)).dtype.kind, as_position(np.ones(3, bool)).dtype.kind
        ('f', 'i', 'b')
    """
    array = as_host_array(leaf)
    keeps = isinstance(leaf, np.ndarray | np.generic | jax.Array) or array.dtype == np.bool_
    return array if keeps else as_real(array)


def as_real(array: Any) -> Any:
    """Whole numbers as real ones; real numbers and truth values stay what they are.

    Example:
        >>> as_real(np.arange(3)).dtype.kind, as_real(np.ones(3, bool)).dtype.kind
        ('f', 'b')
    """
    return array.astype(jnp.result_type(float)) if jnp.issubdtype(array.dtype, jnp.integer) else array


def as_numbers(array: np.ndarray) -> np.ndarray:
    """For arithmetic: truth values as 0 and 1; numbers stay what they are.

    Example:
        >>> float(as_numbers(np.asarray([True, False])).mean())
        0.5
    """
    return array.astype(float) if array.dtype == np.bool_ else array


def is_real(leaf: Any) -> bool:
    """Whether an array holds real numbers, not whole numbers or truth values."""
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


def require_reals(who: str, position: PyTree) -> None:
    """Raises `ValueError` if a position has truth values or whole numbers.

    Args:
        who: What works with real numbers only.
        position: Of arrays.
    """
    for path, leaf in jax.tree.leaves_with_path(position):
        if not is_real(leaf):
            kind = "truth values" if leaf.dtype == np.bool_ else "whole numbers"
            raise ValueError(
                f"{who} works with real numbers, but position{jax.tree_util.keystr(path)} holds {kind}; pass floats, "
                "or let tm.ReversibleJump (for a selection of columns) or a tm.Proposal of your own move it"
            )


def flatten(position: PyTree) -> tuple[np.ndarray, Unflatten]:
    """A position as one NumPy vector, in the coarsest precision that holds all its leaves, and the way back.

    Whoever asks for a vector works with real numbers: whole numbers become such, and truth values are refused.

    Args:
        position: Of arrays or numbers.

    Example:
        >>> flat, unflatten = flatten({"a": np.float32(1.0), "b": np.zeros(2, np.float32)})
        >>> flat.tolist(), unflatten(flat)["b"].shape
        ([1.0, 0.0, 0.0], (2,))
    """
    leaves, structure = jax.tree.flatten(position)
    arrays = [as_real(as_position(leaf)) for leaf in leaves]
    require_reals("what is asked for", jax.tree.unflatten(structure, arrays))
    dtype = jnp.result_type(*{array.dtype for array in arrays}) if arrays else jnp.result_type(float)
    flat = np.concatenate([array.ravel().astype(dtype) for array in arrays]) if arrays else np.zeros(0, dtype)
    return flat, Unflatten(structure, tuple(a.shape for a in arrays), tuple(a.dtype.name for a in arrays))


def flattened(position: PyTree, dtype: Any) -> tuple[Array, Unflatten]:
    """As `flatten`, for compiled code and in one precision.

    Args:
        position: Of arrays.
        dtype: Of the vector; `Unflatten` goes back to that of each leaf.
    """
    leaves, structure = jax.tree.flatten(position)
    flat = jnp.concatenate([leaf.ravel().astype(dtype) for leaf in leaves])
    return flat, Unflatten(structure, tuple(a.shape for a in leaves), tuple(a.dtype.name for a in leaves))


def num_coordinates(position: PyTree) -> int:
    """How many numbers a position has."""
    return sum(math.prod(np.shape(leaf)) for leaf in jax.tree.leaves(position))


def coordinate_names(position: PyTree) -> list[str]:
    """What the numbers of a position are called, in the order of `flatten`.

    Example:
        >>> coordinate_names({"b": np.zeros(2), "log_sd": 0.0}), coordinate_names(np.zeros(2))
        (["['b'][0]", "['b'][1]", "['log_sd']"], ['coordinate 0', 'coordinate 1'])
    """
    if len(jax.tree.leaves(position)) == 1 and np.ndim(position) < 2:
        return [f"coordinate {index}" for index in range(np.size(position))]
    return [
        jax.tree_util.keystr(path) + "".join(f"[{index}]" for index in at)
        for path, leaf in jax.tree.leaves_with_path(position)
        for at in np.ndindex(np.shape(leaf))
    ]


def as_host_array(leaf: Any) -> np.ndarray:
    """As a NumPy array in the precision that JAX would give it."""
    array = np.asarray(leaf)
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


def as_device_array(value: Any, dtype: Any = None) -> Array:
    """As an array of JAX's, without compiling anything; what is traced stays traced.

    Args:
        value: An array, or what NumPy can make one of.
        dtype: Of the result; that of the value if left out.
    """
    if isinstance(value, jax.Array):
        return jnp.asarray(value, dtype)
    return jax.device_put(as_host_array(np.asarray(value, dtype)), may_alias=True)
