"""Turns what a caller passes as data into float columns, or says what is wrong with it."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, PyTree, Real

from tallmc.numerics.flat import as_device_array
from tallmc.posterior.drawn_prior import DrawnPrior

_PART = 2**20  # numbers

Numbers: TypeAlias = ArrayLike | Sequence[Any]
"""What NumPy can make an array of: arrays, numbers, and lists of them."""


def float_column(name: str, values: Any, num_axes: int) -> Array | np.ndarray:
    """The values as a float array of `num_axes` axes, in their own precision or the finest that JAX now allows.

    Example:
        >>> float_column("y", [0, 1], 1).dtype.kind
        'f'
    """
    array = values if isinstance(values, jax.Array) else np.asarray(values)
    check_numbers(name, array, num_axes)
    finest = jnp.result_type(float)
    if jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize <= finest.itemsize:
        return array
    return array.astype(finest)


def check_numbers(name: str, array: Array | np.ndarray, num_axes: int) -> None:
    """Raises `ValueError` unless the array holds numbers along as many axes."""
    if array.ndim == 0 and array.dtype == object and _is_sparse(array.item()):
        raise ValueError(f"{name} is sparse; pass {name}.toarray()")
    if array.shape[:1] == (0,):
        raise ValueError(f"{name} has no rows; pass at least one")
    kinds = "a vector with one number a row" if num_axes == 1 else "a matrix with one line a row"
    if array.ndim != num_axes:
        raise ValueError(f"{name} must be {kinds}, but its shape is {array.shape}; reshape it first")
    if array.dtype.kind not in "buif" and not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"{name} must hold numbers, not {array.dtype}; convert it to floats first")


def _is_sparse(value: Any) -> bool:
    import scipy.sparse

    return scipy.sparse.issparse(value)


def check_binary(y: Array | np.ndarray, name: str = "y") -> None:
    """Raises `ValueError` unless there is nothing but 0 and 1."""
    if not all(bool(((part == 0) | (part == 1)).all()) for part in parts_of(y)):
        refuse_nan(f"{name} must hold only 0 and 1", y)
        raise ValueError(f"{name} must hold only 0 and 1; recode it first, such as y = (labels == positive_label)")


def parts_of(y: Array | np.ndarray) -> list[Array | np.ndarray]:
    """A host's array in parts, so that to look at all of it takes little memory; another as it is."""
    return [y[start : start + _PART] for start in range(0, len(y), _PART)] if isinstance(y, np.ndarray) else [y]


def refuse_nan(wanted: str, y: Array | np.ndarray) -> None:
    """Raises `ValueError` that names the first row that is NaN, if there is one."""
    missing = np.isnan(np.asarray(y))
    if missing.any():
        raise ValueError(f"{wanted}, but row {np.argmax(missing)} is NaN; drop or fill such rows first")


def positive_number(name: str, value: Numbers) -> Real[Array, ""]:
    """The value as an array without axes, or `ValueError`.

    Example:
        >>> float(positive_number("noise_sd", 2))
        2.0
    """
    number = as_device_array(value, jnp.result_type(float))
    if number.shape != () or not (0 < float(number) < np.inf):
        raise ValueError(f"{name} must be one positive, finite number for all rows, got {value}")
    return number


class NormalPrior(DrawnPrior):
    """A centred normal prior, up to a constant.

    Args:
        precision: Inverse of the variance: one number for all coordinates, or one for each; zero is flat.

    Example:
        >>> import jax.numpy as jnp
        >>> float(NormalPrior(jnp.asarray(4.0))(jnp.ones(2)))
        -4.0
    """

    precision: Real[Array, "..."]

    def __check_init__(self):
        if not (np.all(np.isfinite(self.precision)) and np.all(np.asarray(self.precision) >= 0)):
            raise ValueError(f"a prior's precision must be a finite number of at least 0, got {self.precision}")

    def __call__(self, position: Real[Array, " d"]) -> Real[Array, ""]:
        """The prior's log density at a position, without the constant that normalises it."""
        return -0.5 * jnp.sum(self.precision.astype(position.dtype) * position**2)

    def draw(self, key: Array, like: PyTree) -> Real[Array, " d"]:
        """A position drawn from the prior; raises `ValueError` where that is flat."""
        if not np.all(np.asarray(self.precision) > 0):
            raise ValueError(
                "the prior is flat along some coordinate, so nothing can be drawn from it; pass a positive "
                "prior_precision, or draw_position=function(key)"
            )
        return jax.random.normal(key, like.shape, like.dtype) / jnp.sqrt(self.precision).astype(like.dtype)
