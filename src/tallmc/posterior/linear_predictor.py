"""Likelihoods that know the position only through the inner product of a row's columns with it."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct
from jax.core import Tracer
from jaxtyping import Array, Real

Outcomes = Real[Array, "*rows"] | Real[np.ndarray, "*rows"]


def alike(y: Outcomes, value: Any) -> Outcomes:
    """One number for every row: NumPy's, and nothing is compiled, unless something is traced."""
    return (jnp if isinstance(y, Tracer) or isinstance(value, Tracer) else np).full_like(y, value)


def number(leaf: Real[Array, ""]) -> Any:
    """As a float, so that arithmetic with it compiles nothing; what is traced stays as it is."""
    return leaf if isinstance(leaf, Tracer) else float(leaf)


class Link(eqx.Module):
    """The log likelihood of a row as a function of its linear predictor."""

    concave: ClassVar[bool] = False
    """Whether it is a concave function whatever the outcome, so that a posterior has one mode at most."""

    binary: ClassVar[bool] = False
    """Whether outcomes are 0 and 1, with chances of a half each at `z = 0`; such rows can be separable."""

    proven: ClassVar[bool] = False
    """Whether `largest_derivative` is known to hold, so that nobody has to try it."""

    @abc.abstractmethod
    def __call__(self, z: Real[Array, "*rows"], y: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
        """Log likelihood of outcome `y` at linear predictor `z`, element by element."""

    def mean(self, z: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
        """The expected outcome at linear predictor `z`."""
        del z
        raise ValueError(f"{type(self).__name__} does not say what outcome to expect; pass function(position, row)")

    def draw(self, key: Array, z: Real[Array, ""]) -> Real[Array, ""]:
        """An outcome drawn at linear predictor `z`."""
        del key, z
        raise ValueError(
            f"{type(self).__name__} does not say how to draw an outcome; pass function(key, position, row)"
        )

    def left_out(self, y: Outcomes) -> Outcomes | float:
        """What `__call__` leaves out of the log likelihood, which does not depend on `z`; asked on the host."""
        del y
        return 0.0

    def largest_derivative(self, order: int, y: Outcomes) -> Outcomes | float | None:
        """At least the largest absolute `order`-th derivative at any `z` (order 1, 2 or 3); None if there is none.

        It is asked on the host, with NumPy arrays.
        """
        del order, y
        return None


class LinearPredictor(eqx.Module):
    """The log likelihood of a row with columns `x` and outcome `y`, at one coefficient for each column.

    Control variates and bounds of such a likelihood are those of a function of one number.

    Args:
        link: Log likelihood as a function of the inner product and the outcome.
    """

    link: Link

    def __call__(self, position: Real[Array, " d"], row: dict[str, Array]) -> Real[Array, ""]:
        """In the precision of the position, so float32 rows do for float64 chains."""
        return self.link(row["x"].astype(position.dtype) @ position, row["y"].astype(position.dtype))


class SelectedPredictor(eqx.Module):
    """As `LinearPredictor`, of those columns alone that a position has selected.

    A position is `{"beta": coefficients, "gamma": truth values}`; a column whose truth value is false says nothing,
    whatever its coefficient. A coefficient of zero costs no more than another in a plain product with all columns,
    and a plain product is what a machine does best: see docs/variable-selection.md for what gathering columns costs.

    Args:
        link: Log likelihood as a function of the inner product and the outcome.
    """

    link: Link

    def __call__(self, position: dict[str, Array], row: dict[str, Array]) -> Real[Array, ""]:
        """In the precision of the coefficients."""
        beta = selected(position)
        return self.link(row["x"].astype(beta.dtype) @ beta, row["y"].astype(beta.dtype))


def selected(position: dict[str, Array]) -> Real[Array, " d"]:
    """The coefficients of a selection, zero where a column is out."""
    beta = position["beta"]
    return jnp.where(position["gamma"], beta, jnp.zeros_like(beta))


def is_selection(position: Any) -> bool:
    """Whether a position is coefficients and truth values, one a column."""
    if not isinstance(position, dict) or set(position) != {"beta", "gamma"}:
        return False
    beta, gamma = position["beta"], position["gamma"]
    if not all(isinstance(part, np.ndarray | Array | ShapeDtypeStruct) for part in (beta, gamma)):
        return False
    return gamma.dtype == np.bool_ and beta.ndim == 1 and beta.shape == gamma.shape


def check_selection(who: str, position: Any) -> None:
    """Raises `ValueError` unless a position is a selection of at least one column, and zero elsewhere.

    Args:
        who: What needs that.
        position: Of one chain.
    """
    if not is_selection(position):
        raise ValueError(
            f'{who} moves positions {{"beta": coefficients, "gamma": truth values}}, one of each a column; pass '
            'such an init, for one column of ten: init={"beta": 0.1 * jnp.eye(10)[0], "gamma": jnp.arange(10) == 0}'
        )
    beta, gamma = np.asarray(position["beta"]), np.asarray(position["gamma"])
    if not gamma.any():
        raise ValueError(f"{who} keeps at least one column in the model; make one of gamma true in init")
    if np.any(beta[~gamma] != 0):
        raise ValueError("beta must be zero where gamma is false; pass beta=jnp.where(gamma, beta, 0) in init")
