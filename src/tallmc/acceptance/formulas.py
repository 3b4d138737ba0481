"""The two formulas that all rules come near to: Metropolis' and Barker's."""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Real


class Formula(eqx.Module):
    """The chance to accept a proposal, as a function of the log acceptance ratio over all rows."""

    best_acceptance: ClassVar[float]
    """Share of accepted proposals at which a random walk in many dimensions explores fastest."""

    @abc.abstractmethod
    def probability(self, log_ratio: ArrayLike) -> Real[Array, "..."]:
        """The chance to accept, given the log acceptance ratio over all rows, prior and proposal included."""

    @abc.abstractmethod
    def level(self, key: Array, offset: Real[Array, ""]) -> Real[Array, ""]:
        """A random number that the likelihood's log ratio exceeds with that chance, `offset` being the rest."""


class Metropolis(Formula):
    """min(1, exp(log ratio)) (Metropolis et al., 1953; Hastings, 1970).

    Example:
        >>> float(METROPOLIS.probability(2.0))
        1.0
    """

    best_acceptance: ClassVar = 0.234  # Roberts, Gelman & Gilks (1997)

    def probability(self, log_ratio: ArrayLike) -> Real[Array, "..."]:
        """1 for a ratio of at least 1, and the ratio itself below."""
        return jnp.exp(jnp.minimum(log_ratio, 0))

    def level(self, key: Array, offset: Real[Array, ""]) -> Real[Array, ""]:
        """The logarithm of a uniform number, less what needs no rows."""
        return -jax.random.exponential(key, (), offset.dtype) - offset


class Barker(Formula):
    """1 / (1 + exp(-log ratio)) (Barker, 1965).

    Example:
        >>> float(BARKER.probability(0.0))
        0.5
    """

    best_acceptance: ClassVar = 0.159  # Agrawal, Vats, Latuszynski & Roberts (2023)

    def probability(self, log_ratio: ArrayLike) -> Real[Array, "..."]:
        """The ratio over 1 + ratio: half for a proposal that is as good as the current position."""
        return jax.nn.sigmoid(log_ratio)

    def level(self, key: Array, offset: Real[Array, ""]) -> Real[Array, ""]:
        """A logistic number, less what needs no rows."""
        return jax.random.logistic(key, (), offset.dtype) - offset


METROPOLIS = Metropolis()
BARKER = Barker()
