"""What is sampled: a model and its rows."""

from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PyTree, Real

from tallmc.frames.design import Design, Rescaling
from tallmc.numerics.flat import as_device_array, as_position, as_real
from tallmc.numerics.schedule import Redesigned, Schedule
from tallmc.posterior.labels import Coords, Dims, Labels
from tallmc.posterior.model import PlainModel
from tallmc.posterior.passes import log_likelihood_sum
from tallmc.posterior.rows import Rows, RowsInMemory
from tallmc.transforms.densities import UnconstrainedLikelihood, UnconstrainedPrior
from tallmc.transforms.positions import (
    check_transforms,
    constrained_draws,
    constrained_position,
    contains,
    mapped_draws,
    unconstrained_position,
)

Temperature: TypeAlias = float | Array | Schedule


def _flat_prior(position: PyTree) -> float:
    """A constant: the posterior is then the likelihood, and proper only if that can be normalised."""
    del position
    return 0.0


class Posterior(eqx.Module):
    """A posterior over many rows: `log_prior(position) + sum_i log_likelihood(position, row_i) / temperature`.

    Args:
        log_likelihood: `log_likelihood(position, row) -> scalar` for *one* row. The library batches it, scales it by
            the number of rows and counts how often it is called.
        data: Pytree of arrays with one common first axis, a row being one index along it; or any `Rows`.
        log_prior: `log_prior(position) -> scalar`; flat if left out. Minus infinity marks a position outside the
            support.
        temperature: Divides the log likelihood. Changing it never recompiles anything. Or a schedule, such as
            `tm.schedule.steps({0: 100.0, 400: 1.0})`: chains are then moved at its temperature for each transition,
            and the posterior is the one at the temperature that it ends at.
        bounds: Bounds on the change of a row's log likelihood, for the rules that need them.
        transforms: Limits of parameters, such as `{"sd": tm.transforms.positive}`: shaped like a position, None or
            nothing where there is no limit; one for a whole part of the position holds for every array in it. Both
            functions, `init` and draws are then on the natural scale, and chains move on one without limits.
        dims: Names for the axes of a position's arrays, such as `{"effect": ["school"]}`; for a position that is one
            array the list alone.
        coords: Names for the places along an axis, such as `{"school": ["A", "B"]}`. Summaries, reports and ArviZ use
            both.
        start: A position where a search for the mode begins if a call is given no `init`.
        derived: `derived(position) -> dict`: what else is wanted of each draw, under names of its own. Positions are
            then dictionaries too, and `run.samples` has these among them.
        labels: What the ready models pass in place of `dims` and `coords`.
        design: What they remember of the frame that their rows came from.

    Attributes:
        model: What chains are asked about. With transforms it is a function of unconstrained numbers, and its prior
            has the Jacobian.
        rows: The data.

    Example:
        >>> import jax.numpy as jnp
        >>> posterior = Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, jnp.arange(5.0))
        >>> posterior.num_rows, float(posterior.log_density(2.0))
        (5, -5.0)
    """

    model: PlainModel
    rows: Rows
    transforms: PyTree = None
    labels: Labels | None = eqx.field(static=True, default=None)
    design: Design | None = eqx.field(static=True, default=None)
    start: PyTree = None
    derived: Callable[[PyTree], dict[str, Any]] | None = None

    def __init__(
        self,
        log_likelihood: Callable[[PyTree, PyTree], Any],
        data: PyTree,
        log_prior: Callable[[PyTree], Any] = _flat_prior,
        temperature: Temperature = 1.0,
        bounds: Any = None,
        transforms: PyTree = None,
        dims: Dims | None = None,
        coords: Coords | None = None,
        start: PyTree = None,
        derived: Callable[[PyTree], dict[str, Any]] | None = None,
        *,
        labels: Labels | None = None,
        design: Design | None = None,
    ):
        _check_functions(log_likelihood, data, log_prior)
        if check_transforms(transforms):
            _check_no_bounds(bounds)
            self.transforms = transforms
            log_likelihood = UnconstrainedLikelihood(log_likelihood, transforms)
            log_prior = UnconstrainedPrior(log_prior, transforms)
        self.labels = Labels.given(dims, coords) if labels is None else labels
        self.design = design
        self.start, self.derived = start, derived
        self.rows = data if isinstance(data, Rows) else RowsInMemory(data)
        schedule = temperature if isinstance(temperature, Schedule) else None
        last = _checked_corners(schedule)[-1] if schedule is not None else temperature
        fixed = _as_temperature(last)  # pyright: ignore[reportArgumentType]
        self.model = PlainModel(log_likelihood, log_prior, fixed, bounds, self.rows.num_rows, schedule=schedule)

    num_rows = property(lambda self: self.rows.num_rows, doc="Rows of data.")
    data = property(lambda self: self.rows.all(), doc="The rows, as a pytree of arrays.")
    log_likelihood = property(lambda self: self._given(self.model.log_likelihood), doc="Of one row, as it was given.")
    log_prior = property(lambda self: self._given(self.model.log_prior), doc="Of a position, as it was given.")
    temperature = property(lambda self: self.model.temperature, doc="What the log likelihood ends up divided by.")
    schedule = property(lambda self: self.model.cooling, doc="Of the temperature, by time; None if it does not change.")
    _heat = property(lambda self: self.temperature if self.schedule is None else self.schedule, doc="As it was given.")
    bounds = property(lambda self: self.model.bounds, doc="On the change of a row's log likelihood, or None.")

    def _given(self, function: Any) -> Any:
        """A likelihood or prior as it was given: on the natural scale, if there are transforms."""
        return function if self.transforms is None else function.natural

    def at_temperature(self, temperature: Temperature) -> "Posterior":
        """The same posterior at another temperature, which may be a traced number, or a schedule."""
        # With the very same rows, for they may be on an accelerator already.
        functions = (self.log_likelihood, self.rows, self.log_prior)
        same: Any = {name: getattr(self, name) for name in ("transforms", "start", "derived", "labels", "design")}
        return Posterior(*functions, temperature, self.bounds, **same)

    def of_rows(self, rows: Rows) -> "Posterior":
        """The same posterior of other rows."""
        functions = (self.log_likelihood, rows, self.log_prior)
        same: Any = {name: getattr(self, name) for name in ("transforms", "start", "derived", "labels", "design")}
        return Posterior(*functions, self._heat, self.bounds, **same)

    @property
    def natural(self) -> "Posterior":
        """The same on the natural scale, without transforms: nothing stops a position beyond its limits."""
        if self.transforms is None:
            return self
        functions = self.log_likelihood, self.rows, self.log_prior
        return Posterior(*functions, self._heat, self.bounds, start=self.start, derived=self.derived)

    @property
    def unconstrained(self) -> "Posterior":
        """The same as a posterior of unconstrained numbers, which chains move: its prior has the Jacobian."""
        if self.transforms is None and self._rescaling is None:
            return self
        start = None if self.start is None else jax.tree.map(np.asarray, self.unconstrain(self.start))
        return Posterior(
            self.model.log_likelihood, self.rows, self.model.log_prior, self._heat, self.bounds, start=start
        )

    @property
    def moves_elsewhere(self) -> bool:
        """Whether chains move on another scale than the one that positions are given and reported on."""
        return self.transforms is not None or self._rescaling is not None

    @property
    def reports_otherwise(self) -> bool:
        """Whether draws are shown otherwise than chains made them: on another scale, or with what follows from them."""
        return self.moves_elsewhere or self.derived is not None

    @property
    def _rescaling(self) -> Rescaling | None:
        return None if self.design is None else self.design.rescaling

    def _inward(self, position: PyTree) -> PyTree:
        """From coefficients of the columns as they came to those of standardised columns, if they were."""
        return position if self._rescaling is None else self._rescaling.inward(position)

    def unconstrain(self, position: PyTree) -> PyTree:
        """A position on the natural scale as unconstrained numbers; the same if there are no transforms.

        Example:
            >>> import jax.numpy as jnp, tallmc as tm
            >>> def log_likelihood(position, row):
            ...     return row * jnp.log(position["rate"]) - position["rate"]
            >>> posterior = tm.Posterior(log_likelihood, jnp.ones(5), transforms={"rate": tm.transforms.positive})
            >>> posterior.unconstrain({"rate": 1.0}), posterior.constrain({"rate": 0.0})
            ({'rate': Array(0., dtype=float32)}, {'rate': Array(1., dtype=float32)})
        """
        if self._rescaling is not None:
            return self._rescaling.inward(_as_real(_as_position(position)))
        if self.transforms is None:
            return position
        return unconstrained_position(self.transforms, jax.tree.map(_as_real, position))

    def constrain(self, position: PyTree) -> PyTree:
        """A position of unconstrained numbers on the natural scale; the same if there are no transforms."""
        if self._rescaling is not None:
            return self._rescaling.outward(_as_real(_as_position(position)))
        if self.transforms is None:
            return position
        return constrained_position(self.transforms, jax.tree.map(_as_real, position))

    def constrain_draws(self, draws: PyTree) -> PyTree:
        """Draws as chains made them, leaves (chain, draw, ...), on the natural scale, and what is derived from them."""
        if self._rescaling is not None:
            return self._rescaling.outward(np.asarray(draws, float)).astype(draws.dtype)
        natural = draws if self.transforms is None else constrained_draws(self.transforms, draws)
        return natural if self.derived is None else {**natural, **mapped_draws(self.derived, natural)}

    def log_likelihoods(self, position: PyTree, rows: PyTree) -> Real[Array, " rows"]:
        """Log likelihood of each of a batch of rows, before temperature; rows as in `data`."""
        return self.natural.model.log_likelihoods(self._inward(position), rows)

    def log_ratios(self, position: PyTree, proposed: PyTree, rows: PyTree) -> Real[Array, " rows"]:
        """Each row's evidence for `proposed` against `position`, tempered."""
        return self.natural.model.log_ratios(self._inward(position), self._inward(proposed), rows)

    def log_density(self, position: PyTree, rows: PyTree = None) -> Real[Array, ""]:
        """Unnormalised log density.

        Outside compiled code rows are read block by block and summed in float64; inside it, all at once.

        With transforms this is the density of natural parameters, which has no Jacobian in it; beyond their limits it
        is minus infinity. That of the numbers that chains move is `posterior.unconstrained.log_density`.

        Args:
            position: Where, on the natural scale.
            rows: If given, as if these were all the data there is.
        """
        position = self._inward(jax.tree.map(_as_position if self.transforms is None else _as_real, position))
        if self.transforms is not None:
            inside, density = contains(self.transforms, position), self.natural.log_density(position, rows)
            return jnp.where(inside, density, -jnp.inf)
        traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((position, rows)))
        if rows is None and not traced:
            total = jnp.asarray(log_likelihood_sum(self.model, self.rows, position), jnp.result_type(float))
        else:
            total = jnp.sum(self.model.log_likelihoods(position, self.rows.all() if rows is None else rows))
        return self.log_prior(position) + total / self.temperature.astype(total.dtype)


def _as_position(leaf: Any) -> Array:
    """Arrays keep their kind, such as truth values; a plain number is a real one."""
    return leaf if isinstance(leaf, jax.Array) else jnp.asarray(as_position(leaf))


def _as_real(leaf: Any) -> Array:
    """The same where there are transforms, which are of real numbers: whole numbers are meant as such."""
    return as_real(_as_position(leaf))


def _as_temperature(temperature: float | Array) -> Array:
    if not isinstance(temperature, Tracer) and not (np.isfinite(temperature) and np.greater(temperature, 0)):
        raise ValueError(f"temperature must be a positive number, got {temperature}")
    return as_device_array(temperature, jnp.result_type(float))


def _checked_corners(schedule: Schedule) -> tuple[float, ...]:
    if isinstance(schedule, Redesigned):
        raise ValueError("tm.schedule.redesigned is for the epsilon of tm.AustereMH; cool with tm.schedule.steps(...)")
    corners = schedule.corners()
    if not all(np.isfinite(corner) and corner > 0 for corner in corners):
        raise ValueError(f"every temperature of a schedule must be a positive number, got {corners}")
    return corners


def _check_functions(log_likelihood: Any, data: PyTree, log_prior: Any) -> None:
    if not callable(log_likelihood):
        swapped = "the arguments may be swapped, " if callable(data) else ""
        raise ValueError(
            f"log_likelihood must be a function of a position and a row, not {type(log_likelihood).__name__}; "
            f"{swapped}pass tm.Posterior(log_likelihood, data)"
        )
    if not callable(log_prior):
        raise ValueError(
            f"log_prior must be a function of the position, not {type(log_prior).__name__}; leave it out if it is flat"
        )


def _check_no_bounds(bounds: Any) -> None:
    if bounds is not None:
        raise ValueError(
            "bounds are about positions as chains move them, which transforms change; leave out bounds, or transforms "
            "(and write the likelihood for parameters without limits)"
        )
