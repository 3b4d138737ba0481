"""What one row says of a position, and what is known without rows. All that compiled code sees of a posterior."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree, Real

from tallmc.numerics.arithmetic import rounded
from tallmc.numerics.schedule import Schedule


class KnownChange(NamedTuple):
    """What is known of a move before any row is read.

    Args:
        offset: The part of the log density ratio that needs no rows.
        reach: What the bounds of all rows are multiplied by for this move; None if it was not asked for.
    """

    offset: Real[Array, ""]
    reach: Real[Array, ""] | None


class Model(eqx.Module):
    """A log likelihood for one row, a prior, a temperature, and bounds. Of the rows it knows how many there are."""

    log_likelihood: eqx.AbstractVar[Callable[[PyTree, PyTree], Real[Array, ""]]]
    log_prior: eqx.AbstractVar[Callable[[PyTree], Real[Array, ""]]]
    temperature: eqx.AbstractVar[Real[Array, ""]]
    bounds: eqx.AbstractVar[Any]
    """On what `log_ratios` gives for a row, or None."""
    num_rows: eqx.AbstractVar[int]
    expanded: eqx.AbstractVar[bool]
    """Whether rows say only what a Taylor expansion leaves of them."""

    @property
    def cooling(self) -> Schedule | None:
        """The temperature as a function of time, if it changes; `temperature` is then the one that it ends at."""
        return None

    def at_time(self, time: Int[Array, ""]) -> "Model":
        """The model that a chain is asked about in its transition `time`: at the temperature of then."""
        del time
        return self

    @abc.abstractmethod
    def log_ratios(self, position: PyTree, proposed: PyTree, rows: PyTree) -> Real[Array, " rows"]:
        """Each row's evidence for `proposed` against `position`, tempered."""

    @abc.abstractmethod
    def known_change(self, position: PyTree, proposed: PyTree, *, with_reach: bool = False) -> KnownChange:
        """What needs no rows: the prior's part of the log ratio, the expansion's, and the reach of the bounds."""

    @abc.abstractmethod
    def heated(self, factor: Real[Array, ""]) -> "Model":
        """The same model at so many times its temperature."""

    def log_likelihoods(self, position: PyTree, rows: PyTree) -> Real[Array, " rows"]:
        """Log likelihood of each of a batch of rows, before temperature and expansion."""
        return jax.vmap(self.log_likelihood, in_axes=(None, 0))(position, rows)

    def log_ratios_of_moves(self, positions: PyTree, proposed: PyTree, rows: PyTree) -> Real[Array, "moves rows"]:
        """`log_ratios` of several moves, whose leaves have a leading axis of moves, for the same rows."""
        return jax.vmap(self.log_ratios, in_axes=(0, 0, None))(positions, proposed, rows)

    def log_prior_change(self, position: PyTree, proposed: PyTree) -> Real[Array, ""]:
        """The prior's part of the log density ratio."""
        return jnp.asarray(self.log_prior(proposed) - self.log_prior(position))


class PlainModel(Model):
    """The model as its author wrote it."""

    log_likelihood: Callable[[PyTree, PyTree], Real[Array, ""]]
    log_prior: Callable[[PyTree], Real[Array, ""]]
    temperature: Real[Array, ""]
    bounds: Any
    num_rows: int = eqx.field(static=True)
    expanded: bool = eqx.field(static=True, default=False)
    schedule: Schedule | None = None

    @property
    def cooling(self) -> Schedule | None:
        """The temperature as a function of time, if it changes."""
        return self.schedule

    def at_time(self, time: Int[Array, ""]) -> "PlainModel":
        """The same at the temperature that the schedule has for this time."""
        if self.schedule is None:
            return self
        temperature = self.schedule(time).astype(self.temperature.dtype)
        return dataclasses.replace(self, temperature=temperature, schedule=None)

    def log_ratios(self, position: PyTree, proposed: PyTree, rows: PyTree) -> Real[Array, " rows"]:
        """The difference of both log likelihoods, tempered."""
        change = self.log_likelihoods(proposed, rows) - self.log_likelihoods(position, rows)
        return rounded(change / self.temperature.astype(change.dtype))

    def heated(self, factor: Real[Array, ""]) -> "PlainModel":
        """The same likelihood and prior, with a likelihood that counts for less."""
        return eqx.tree_at(lambda model: model.temperature, self, self.temperature * factor)

    def known_change(self, position: PyTree, proposed: PyTree, *, with_reach: bool = False) -> KnownChange:
        """The prior's log ratio, which is all that a model without an expansion knows before it reads rows."""
        reach = self.bounds.reach(position, proposed) if with_reach else None
        return KnownChange(self.log_prior_change(position, proposed), reach)
