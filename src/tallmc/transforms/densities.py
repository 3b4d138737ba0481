"""Likelihoods and priors that are written on the natural scale, as functions of unconstrained numbers."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import PyTree

from tallmc.numerics.promotion import promoting
from tallmc.transforms.positions import constrain, log_jacobian


class UnconstrainedLikelihood(eqx.Module):
    """The log likelihood of a row at unconstrained numbers.

    Args:
        natural: On the natural scale.
        transforms: The way there.
    """

    natural: Callable[[PyTree, PyTree], Any]
    transforms: PyTree

    def __call__(self, position: PyTree, row: PyTree) -> Any:
        """Of one row."""
        return self.natural(constrain(self.transforms, position), row)


class UnconstrainedPrior(eqx.Module):
    """The log prior density of unconstrained numbers: the Jacobian added to that of natural ones.

    Args:
        natural: On the natural scale.
        transforms: The way there.
    """

    natural: Callable[[PyTree], Any]
    transforms: PyTree

    def __call__(self, position: PyTree) -> Any:
        """At one position."""
        prior = self.natural(constrain(self.transforms, position))
        with promoting():
            return prior + log_jacobian(self.transforms, position)
