"""Priors that positions can be drawn from, for predictions before any row was seen."""

import abc

import equinox as eqx
from jaxtyping import Array, PyTree, Real


class DrawnPrior(eqx.Module):
    """A log prior that is also a way to draw positions."""

    @abc.abstractmethod
    def __call__(self, position: PyTree) -> Real[Array, ""]:
        """The log density at a position."""

    @abc.abstractmethod
    def draw(self, key: Array, like: PyTree) -> PyTree:
        """A position, shaped like another."""
