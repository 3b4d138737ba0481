"""Float64 for a moment, whatever the user has set: to see what float32 loses."""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree


def double_precision() -> contextlib.AbstractContextManager[Any]:
    """A context, of this thread alone, in which JAX computes in float64.

    Example:
        >>> with double_precision():
        ...     np.asarray(jnp.zeros(2)).dtype
        dtype('float64')
    """
    switch = getattr(jax, "enable_x64", None)  # where JAX has it since 0.8
    if switch is None:
        from jax.experimental import enable_x64 as switch  # pyright: ignore[reportAttributeAccessIssue]
    return switch(True)


def as_double(tree: PyTree) -> PyTree:
    """The arrays of a pytree as NumPy's, real numbers in float64; whole numbers and what is no array stay.

    Args:
        tree: Of arrays and anything else.
    """

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray | np.generic | jax.Array):
            return leaf
        return np.asarray(leaf, np.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else np.asarray(leaf)

    return jax.tree.map(one, tree)
