"""Expansions of a variable selection: in the coefficients of all columns, those that are out being zero."""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Int, PyTree, Real

from tallmc.control_variates.expansion import ExpandedModel
from tallmc.control_variates.taylor import Taylor
from tallmc.numerics.schedule import Schedule
from tallmc.posterior import KnownChange, Model, PlainModel, Posterior
from tallmc.posterior.linear_predictor import LinearPredictor, is_selection, selected


class ExpandedSelection(Model):
    """A selection whose log likelihood is expanded as a function of the coefficients of all columns.

    Which columns are in matters to the likelihood only by the coefficients that are zero. So one expansion, where all
    columns are in, serves all models that come near it.

    Args:
        plain: The model as it was.
        of_coefficients: The expansion, of a regression with all columns and a flat prior.
    """

    plain: PlainModel
    of_coefficients: ExpandedModel
    expanded: bool = eqx.field(static=True)

    def __init__(self, plain: PlainModel, of_coefficients: ExpandedModel):
        self.plain, self.of_coefficients, self.expanded = plain, of_coefficients, True

    log_likelihood = property(lambda self: self.plain.log_likelihood, doc="Of one row, whole.")  # pyright: ignore
    log_prior = property(lambda self: self.plain.log_prior, doc="Of a position.")  # pyright: ignore
    temperature = property(lambda self: self.plain.temperature, doc="What the log likelihood is divided by.")  # pyright: ignore
    bounds = property(lambda self: None, doc="None: rules that need bounds want them of coefficients.")  # pyright: ignore
    num_rows = property(lambda self: self.plain.num_rows, doc="Rows of data.")  # pyright: ignore

    @property
    def cooling(self) -> Schedule | None:
        """The temperature as a function of time, if it changes."""
        return self.plain.cooling

    def at_time(self, time: Int[Array, ""]) -> "ExpandedSelection":
        """The same at the temperature of this time; the regression in it has the same schedule."""
        if self.cooling is None:
            return self
        return ExpandedSelection(self.plain.at_time(time), self.of_coefficients.at_time(time))

    def heated(self, factor: Real[Array, ""]) -> "ExpandedSelection":
        """The same split at another temperature."""
        return ExpandedSelection(self.plain.heated(factor), self.of_coefficients.heated(factor))

    def known_change(self, position: PyTree, proposed: PyTree, *, with_reach: bool = False) -> KnownChange:
        """Prior and polynomial."""
        assert not with_reach
        offset = self.of_coefficients.known_change(selected(position), selected(proposed)).offset
        return KnownChange(self.log_prior_change(position, proposed) + offset, None)

    def log_ratios(self, position: PyTree, proposed: PyTree, rows: PyTree) -> Real[Array, " rows"]:
        """What each row adds to the polynomial's log ratio, tempered."""
        return self.of_coefficients.log_ratios(selected(position), selected(proposed), rows)

    def log_ratios_of_moves(self, positions: PyTree, proposed: PyTree, rows: PyTree) -> Real[Array, "moves rows"]:
        """The same for several moves."""
        old, new = (jax.vmap(selected)(end) for end in (positions, proposed))
        return self.of_coefficients.log_ratios_of_moves(old, new, rows)


def expand_selection(taylor: Taylor, posterior: Posterior, at: PyTree) -> tuple[ExpandedSelection, int]:
    """Expands a selection, and says how many rows that took.

    Args:
        taylor: The order.
        posterior: Of a selection.
        at: Where: coefficients of all columns, or a selection.
    """
    place = np.asarray(selected(at) if is_selection(at) else at)
    heat = posterior.temperature if posterior.schedule is None else posterior.schedule
    whole = Posterior(LinearPredictor(posterior.log_likelihood.link), posterior.rows, temperature=heat)
    controlled = taylor.expand(whole, place)
    return ExpandedSelection(posterior.model, controlled.model), controlled.rows_read
