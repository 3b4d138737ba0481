"""Kernels that remember the log likelihood of where they are, so that swaps between rungs need not read it again."""

import abc
from typing import NamedTuple, TypeVar

from jaxtyping import Array, PyTree, Real

from tallmc.kernel import Kernel

Rest = TypeVar("Rest")
State = TypeVar("State")


class KnownLikelihood(NamedTuple):
    """What a chain at rest knows of its log likelihood, before temperature.

    Args:
        value: Of all rows, less the level of each.
        level: Log likelihood of a row from which it is measured.
    """

    value: Real[Array, "..."]
    level: Real[Array, ""]


class Remembering(Kernel[Rest, State]):
    """A kernel that knows its log likelihood after every transition."""

    @abc.abstractmethod
    def known_likelihood(self, rest: Rest) -> KnownLikelihood:
        """The log likelihood of where it is after a transition."""

    @abc.abstractmethod
    def moved_to_known(self, rest: Rest, position: PyTree, likelihood: Real[Array, ""]) -> Rest:
        """As `moved`, told what the log likelihood is there, from the same level."""
