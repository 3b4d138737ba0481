"""Likelihoods that know the position only through the inner product of a row's columns with it."""

import abc
from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Real


class Link(eqx.Module):
    """The log likelihood of a row as a function of its linear predictor."""

    concave: ClassVar[bool] = False
    """Whether it is a concave function whatever the outcome, so that a posterior has one mode at most."""

    binary: ClassVar[bool] = False
    """Whether outcomes are 0 and 1, with chances of a half each at `z = 0`; such rows can be separable."""

    @abc.abstractmethod
    def __call__(self, z: Real[Array, "*rows"], y: Real[Array, "*rows"]) -> Real[Array, "*rows"]:
        """Log likelihood of outcome `y` at linear predictor `z`, element by element."""

    def largest_derivative(self, order: int, y: Real[Array, "*rows"]) -> Real[Array, "*rows"] | float | None:
        """At least the largest absolute `order`-th derivative at any `z` (order 1, 2 or 3); None if there is none."""
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
