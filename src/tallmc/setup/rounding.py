"""What float32 loses of a posterior: the same rows again in float64, for a moment and at a few positions."""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, Real

from tallmc.numerics.double_precision import as_double, double_precision
from tallmc.numerics.flat import Unflatten, flatten
from tallmc.numerics.programs import program
from tallmc.posterior import Model, Rows, checks
from tallmc.posterior.passes import Span, likelihood_sums

_POSITIONS = 4  # that the program in float64 looks at in one call: the centre and three others
# A change of the log density beyond which a position is too far from the centre to be a step of a chain.
_FAR = 20.0
_MOST_SHORTENINGS = 12  # of steps that lead too far, each to a quarter
_AT_FIRST = 0.1  # of a coordinate and of 1: a step where no width is known
_TINY = 0.01  # standard deviations over which a gradient is taken to be linear: its second derivative is then exact
# Standard errors beyond which a mean over some rows speaks for all of them. One run of 2,000 is wrong by chance.
_SURE = 3.5
_MOST_NAMED = 4  # coordinates


class Rounding(NamedTuple):
    """What float32 does to the log density, and to its derivatives where they were looked at.

    Args:
        value: Standard deviation of what it adds to the log density of all rows between two positions.
        shift: How far the gradient's error moves the mode, in standard deviations.
        bend: Relative error of the curvature in the direction in which it is known least.
        loudest: The coordinates that take most part in it.
        lost: Positions near by at which float32 gives no number and float64 does.
    """

    value: float
    shift: float
    bend: float
    loudest: tuple[int, ...]
    lost: int


def measure_rounding(
    model: Model,
    rows: Rows,
    position: PyTree,
    factor: Real[np.ndarray, "d d"] | None = None,
    at_once: int = 4,
) -> Rounding | None:
    """Compares float32 with float64 on some rows; None if there is nothing to compare.

    Args:
        model: What is sampled. Where it is expanded, rows enter by derivatives, and these are compared; else by
            differences of their log likelihood.
        rows: All rows; about two thousand are read, at a few positions each.
        position: Where to look: the mode, or where the chains start.
        factor: Cholesky factor of the posterior's covariance there, if it is known.
        at_once: Positions that `checks.check_start` was called with, for then nothing in float32 is compiled.
    """
    flat, unravel = flatten(position)
    if flat.dtype == np.float64 or not flat.size:
        return None
    try:
        look = _Look(model, rows, flat, unravel)
        if model.expanded and factor is not None:
            return look.derivatives(np.asarray(factor, float))
        return look.values(factor, at_once)
    except Exception:  # whatever the caller's functions raise in float64, which nobody asked them to take
        return None


class _Look:
    """Some rows of a posterior, at and around a position."""

    def __init__(self, model: Model, rows: Rows, flat: np.ndarray, unravel: Unflatten):
        self._model, self._rows, self._flat, self._unravel = model, rows, flat, unravel
        self._scale = model.num_rows / float(model.temperature)
        doubles = tuple("float64" if np.issubdtype(kind, np.floating) else kind for kind in unravel.dtypes)
        self._unravel_double = dataclasses.replace(unravel, dtypes=doubles)

    def values(self, factor: np.ndarray | None, at_once: int) -> Rounding:
        """The errors of differences of row by row log likelihoods, added up over all rows."""
        _, some = checks.rows_to_try(self._rows)
        points, exact = self._near(factor, some)
        coarse = self._single(points, some, at_once)
        usable = np.all(np.isfinite(exact), axis=1)
        lost = int(np.sum(usable & ~np.all(np.isfinite(coarse), axis=1)))
        usable &= np.all(np.isfinite(coarse), axis=1)
        if lost or not usable[0] or usable.sum() < 2:
            return Rounding(0.0, 0.0, 0.0, (), lost)
        errors = (coarse - exact)[usable]
        errors = errors[1:] - errors[0]
        count, num_rows = errors.shape[1], self._model.num_rows
        by_chance = np.std(errors, axis=1) / math.sqrt(count) * math.sqrt(max(0.0, 1 - count / num_rows))
        mean = np.mean(errors, axis=1)
        squares = np.where(np.abs(mean) > _SURE * by_chance, mean**2, 0.0) + np.var(errors, axis=1) / num_rows
        return Rounding(self._scale * math.sqrt(float(np.mean(squares))), 0.0, 0.0, (), 0)

    def _near(self, factor: np.ndarray | None, some: PyTree) -> tuple[np.ndarray, np.ndarray]:
        """The centre and positions as far from it as chains step, and what each row says there in float64."""
        centre = self._flat.astype(float)
        white = np.random.default_rng(0).normal(size=(_POSITIONS - 1, len(centre)))
        steps = _AT_FIRST * (1 + np.abs(centre)) * white if factor is None else white @ factor.T
        shortened = 0
        while True:
            points = np.concatenate([centre[None], centre + steps]).astype(self._flat.dtype)
            exact = self._double(points, some, slopes=False)[0]
            far = ~(self._scale * np.abs(np.mean(exact[1:] - exact[0], axis=1)) < _FAR)
            if not far.any() or shortened == _MOST_SHORTENINGS:
                return points, exact
            steps[far] /= 4
            shortened += 1

    def derivatives(self, factor: np.ndarray) -> Rounding:
        """The errors of the sums that a Taylor expansion consists of, on some rows that follow one another."""
        count = min(self._rows.num_rows, len(jax.tree.leaves(checks.rows_to_try(self._rows)[1])[0]))
        first = (self._rows.num_rows - count) // 2
        some = self._rows.take(np.arange(first, first + count))
        span = Span(first, first + count)
        _, slope, hessian = likelihood_sums(
            self._model, self._unravel, self._flat, self._rows, curvature=True, span=span
        )
        assert hessian is not None
        weakest, loudest = _weakest(factor)
        centre = self._flat.astype(float)
        points = np.stack([centre, centre + _TINY * weakest, centre - _TINY * weakest, centre])
        _, slopes = self._double(points, some, slopes=True)
        each = self._scale / count
        shift = each * (factor.T @ (slope - slopes[0]))
        bend = each * (factor.T @ (hessian @ weakest - (slopes[1] - slopes[2]) / (2 * _TINY)))
        return Rounding(0.0, float(np.linalg.norm(shift)), float(np.linalg.norm(bend)), loudest, 0)

    def _single(self, points: np.ndarray, some: PyTree, at_once: int) -> np.ndarray:
        """Each row's log likelihood as chains see it, by the program of `checks.check_start`."""
        found = []
        for start in range(0, len(points), at_once):
            chosen = [points[min(start + k, len(points) - 1)] for k in range(at_once)]
            stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *map(self._unravel, chosen))
            found.append(checks.log_likelihoods_of(self._model, stacked, some))
        return np.concatenate(found)[: len(points)].astype(float)

    def _double(self, points: np.ndarray, some: PyTree, *, slopes: bool) -> tuple[np.ndarray, np.ndarray]:
        with double_precision():
            likelihood = as_double(self._model.log_likelihood)
            found = _in_double(likelihood, self._unravel_double, points.astype(float), as_double(some), slopes)
            values, gradients = map(np.asarray, found)
        if values.dtype != np.float64:
            raise TypeError("the likelihood insists on a coarser type")
        return values, gradients


@program
def _in_double(
    likelihood: Callable, unravel: Callable, points: Array, rows: PyTree, slopes: bool
) -> tuple[Array, Array]:
    """Of each position: what each row says, and the gradient of their sum if it is asked for."""

    def at(point: Array) -> tuple[Array, Array]:
        def total(flat: Array) -> tuple[Array, Array]:
            values = jax.vmap(likelihood, in_axes=(None, 0))(unravel(flat), rows)
            return jnp.sum(values), values

        if not slopes:
            return total(point)[1], point
        (_, values), slope = jax.value_and_grad(total, has_aux=True)(point)
        return values, slope

    with jax.default_matmul_precision("highest"):
        return jax.lax.map(at, points)


def _weakest(factor: Float[np.ndarray, "d d"]) -> tuple[Float[np.ndarray, " d"], tuple[int, ...]]:
    """One standard deviation along what the coordinates' correlations leave least known, whatever their units; and
    which coordinates that are."""
    widths = np.sqrt(np.sum(factor**2, axis=1))
    values, vectors = np.linalg.eigh(factor @ factor.T / np.outer(widths, widths))
    share = np.abs(vectors[:, -1])
    order = np.argsort(-share)[:_MOST_NAMED]
    loudest = tuple(sorted(int(index) for index in order if share[index] > 0.1 * share.max()))
    return widths * vectors[:, -1] * math.sqrt(max(values[-1], 0.0)), loudest
