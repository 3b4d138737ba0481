"""Leave-one-out on many rows: every row by an approximation, a few by importance sampling, and what the few correct."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, Real

from tallmc.numerics.flat import flatten, is_real
from tallmc.posterior.linear_predictor import LinearPredictor
from tallmc.posterior.passes import prior_derivatives
from tallmc.run.draws import Rows, link_of, over_rows, thinned
from tallmc.run.predict import words_of

if TYPE_CHECKING:
    import arviz_stats.utils

# Pareto shapes above this mean that one draw stands for a row's whole tail (Vehtari et al., 2024); with S draws the
# limit is 1 - 1 / log10(S) if that is less.
_LARGEST_SHAPE = 0.7
_ROWS_AT_A_TIME = 16_384


class Parts(NamedTuple):
    """Of each row's log likelihood `l` under a normal with the draws' mean and covariance C, to second order.

    Args:
        centre: `l` at the mean.
        spread: `g' C g`, with `g` the gradient: the variance of `l`.
        bend: `tr(H C)`, with `H` the Hessian.
    """

    centre: np.ndarray
    spread: np.ndarray
    bend: np.ndarray

    @property
    def predictive(self) -> np.ndarray:
        """Approximates the log of the mean likelihood: all rows were seen."""
        return self.centre + (self.bend + self.spread) / 2

    @property
    def leave_one_out(self) -> np.ndarray:
        """Approximates minus the log of the mean reciprocal likelihood: all rows but this one were seen."""
        return self.centre + (self.bend - self.spread) / 2


class Estimate(NamedTuple):
    """By the difference estimator, for a simple random sample without replacement.

    Args:
        total: The sum over all rows.
        sampling: Standard error from not having looked at all rows.
        deviation: Square root of the number of rows times their variance: the error from having seen these rows and
            not others like them.
    """

    total: float
    sampling: float
    deviation: float


def difference_estimate(
    exact: Float[np.ndarray, " m"], of_same: Float[np.ndarray, " m"], of_all: Float[np.ndarray, " rows"]
) -> Estimate:
    """A sum over all rows, from approximations of all and exact values of some (Magnusson et al., 2020).

    Args:
        exact: For the sampled rows.
        of_same: Approximations of these.
        of_all: Approximations of all rows.

    Example:
        >>> all_rows = np.arange(10.0)
        >>> difference_estimate(all_rows[:4] + 0.5, all_rows[:4], all_rows)[:2]
        (50.0, 0.0)
    """
    size, count = len(of_all), len(exact)
    error = exact - of_same
    total = float(np.sum(of_all) + size * np.mean(error))
    variance = float(np.var(error, ddof=1)) / count if count > 1 else np.inf
    sampling = size * np.sqrt(max(1 - count / size, 0) * variance) if count < size else 0.0
    squares = float(np.sum(of_all**2) + size * np.mean(exact**2 - of_same**2))
    spread = squares - (total**2 - sampling**2) / size
    return Estimate(total, float(sampling), float(np.sqrt(max(spread, 0.0))))


def loo(run: Any, num_rows: int, rng_key: int | Array, num_draws: int | None) -> "arviz_stats.utils.ELPDData":
    """See `Run.loo`."""
    import xarray
    from arviz_stats.utils import ELPDData

    _check(run, num_rows)
    size = run.posterior.num_rows
    which = sampled_rows(size, num_rows, rng_key)
    some = rows_at(run, which)
    flat, (chains, draws) = _flat_draws(run, some, num_draws)
    constant = _left_out(run)
    parts = expansions(run, flat)
    values = over_rows(_Chained(flat.likelihood, flat.unravel), flat.positions, some).astype(float)
    exact, predictive, shapes = psis(values, chains, draws, run)
    approximate = parts.leave_one_out
    found = difference_estimate(exact + constant(which), approximate[which] + constant(which), approximate + constant())
    effective = difference_estimate(predictive - exact, parts.spread[which], parts.spread)
    noise = monte_carlo_error(values, flat, size / len(which), run, (chains, draws))
    limit = min(_LARGEST_SHAPE, 1 - 1 / np.log10(len(values)))
    row = xarray.DataArray(np.arange(size), dims="row")
    pointwise = approximate + constant()
    surrogate = xarray.DataArray(pointwise.copy(), dims="row", coords={"row": row})
    pointwise[which] = exact + constant(which)
    pareto = np.full(size, np.nan)
    pareto[which] = shapes
    return ELPDData(
        kind="loo",
        elpd=found.total,
        se=found.deviation,
        p=effective.total,
        n_samples=len(values),
        n_data_points=size,
        scale="log",
        warning=bool(np.any(shapes > limit)),
        good_k=float(limit),
        elpd_i=xarray.DataArray(pointwise, dims="row", coords={"row": row}, name="elpd_i"),
        pareto_k=xarray.DataArray(pareto, dims="row", coords={"row": row}, name="pareto_k"),
        subsampling_se=float(np.hypot(found.sampling, noise)),
        subsample_size=len(which),
        loo_subsample_observations=which,
        elpd_loo_approx=surrogate,
    )


def sampled_rows(size: int, num_rows: int, rng_key: int | Array) -> np.ndarray:
    """Numbers of rows, drawn without replacement, in their order; the same for every model of as many rows."""
    chosen = np.random.default_rng(words_of(rng_key)).choice(size, min(num_rows, size), replace=False, shuffle=False)
    return np.sort(chosen)


def rows_at(run: Any, which: np.ndarray) -> Rows:
    """Some of the rows that were sampled from."""

    def blocks(size: int) -> Any:
        for start in range(0, len(which), size):
            yield run.posterior.rows.take(which[start : start + size])

    return Rows(blocks, len(which), True)


class _Draws(NamedTuple):
    """As chains made them, flat."""

    positions: np.ndarray
    mean: np.ndarray
    factor: np.ndarray
    unravel: Callable
    likelihood: Callable


def _flat_draws(run: Any, rows: Rows, num_draws: int | None) -> tuple[_Draws, tuple[int, int]]:
    # On the scale without limits, where draws are nearer to normal; the result is that of any scale.
    plain = run.posterior.unconstrained
    positions, shape = thinned(run.unconstrained_samples, rows.count, num_draws)
    first = jax.tree.map(lambda leaf: leaf[0], positions)
    _, unravel = flatten(first)
    leaves = [np.reshape(leaf, (len(leaf), -1)) for leaf in jax.tree.leaves(positions)]
    flat = np.concatenate(leaves, axis=1)
    wide = flat.astype(float)
    mean, covariance = wide.mean(axis=0), np.atleast_2d(np.cov(wide.T))
    values, directions = np.linalg.eigh(covariance)
    factor = directions * np.sqrt(np.maximum(values, 0))
    kind = flat.dtype
    return _Draws(flat, mean.astype(kind), factor.astype(kind), unravel, plain.model.log_likelihood), shape


class _Chained(eqx.Module):
    """The log likelihood of a row at a flat position."""

    likelihood: Callable
    unravel: Callable

    def __call__(self, flat: Array, row: PyTree, number: Array) -> Real[Array, ""]:
        del number
        return self.likelihood(self.unravel(flat), row)


class _Expansion(eqx.Module):
    """A row's log likelihood at the mean of the draws, its variance, and the trace of its bend."""

    likelihood: Callable
    unravel: Callable

    def __call__(self, place: tuple[Array, Array], row: PyTree, number: Array) -> Real[Array, " 3"]:
        del number
        mean, factor = place
        likelihood = self.likelihood
        if isinstance(likelihood, LinearPredictor):  # a function of one number, and one variance
            x, y = row["x"].astype(mean.dtype), row["y"].astype(mean.dtype)
            value, slope, bend = _two_derivatives(lambda z: likelihood.link(z, y), x @ mean, jnp.ones((), x.dtype))
            variance = jnp.sum((x @ factor) ** 2)
            return jnp.stack([value, slope**2 * variance, bend * variance])
        of = lambda flat: likelihood(self.unravel(flat), row)  # noqa: E731
        value, slopes, bends = jax.vmap(lambda along: _two_derivatives(of, mean, along))(factor.T)
        return jnp.stack([value[0], jnp.sum(slopes**2), jnp.sum(bends)])


def _two_derivatives(function: Callable, at: Array, along: Array) -> tuple[Array, Array, Array]:
    def first(place: Array) -> tuple[Array, Array]:
        return jax.jvp(function, (place,), (along,))

    (value, slope), (_, bend) = jax.jvp(first, (at,), (along,))
    return value, slope, bend


def expansions(run: Any, draws: _Draws) -> Parts:
    """Of all rows, in one pass."""
    everything = Rows(run.posterior.rows.blocks, run.posterior.num_rows, True)
    place = (draws.mean[None], draws.factor[None])
    found = over_rows(_Expansion(draws.likelihood, draws.unravel), place, everything, at_once=_ROWS_AT_A_TIME)[
        0
    ].astype(float)
    return Parts(*found.T)


def psis(
    values: Float[np.ndarray, "draws rows"], chains: int, draws: int, run: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log predictive densities without and with each row, by Pareto smoothed importance sampling, and its shapes."""
    from arviz_stats.base.array import array_stats
    from scipy.special import logsumexp

    # The mean over coordinates, as arviz-stats has it; thinned draws depend less on each other.
    efficiency = min(float(np.mean(run.summary().table["ess_bulk"])) / (chains * draws), 1.0)
    smooth: Any = array_stats.psislw  # whose efficiency is a number like any other
    weights, shapes = smooth(values.T, r_eff=efficiency, axis=-1)
    left_out = logsumexp(weights + values.T, axis=-1)
    kept = logsumexp(values.T, axis=-1) - np.log(len(values))
    return np.asarray(left_out), np.asarray(kept), np.asarray(shapes)


def monte_carlo_error(
    values: Float[np.ndarray, "draws rows"], flat: _Draws, times: float, run: Any, shape: tuple[int, int]
) -> float:
    """Standard error of the sum over all rows from there being so many draws and no more.

    A draw changes the sum by its share of the rows' importance weights. The sampled rows tell that for all, but for
    what is linear in the position: over all rows slopes add up to minus the prior's, and over the sample to something
    much larger, which the difference estimator has already taken out.

    Args:
        values: Log likelihoods of the sampled rows at each draw.
        flat: The draws.
        times: As many rows as there are for each that was sampled.
        run: With the prior.
        shape: Chains, and draws of each.
    """
    from arviz_stats.base.array import array_stats

    weights = np.exp(values.min(axis=0) - values)
    influence = -(weights / weights.mean(axis=0) - 1).sum(axis=1)
    away = flat.positions.astype(float) - flat.mean.astype(float)
    linear = np.column_stack([np.ones(len(away)), away])
    influence -= linear @ np.linalg.lstsq(linear, influence, rcond=None)[0]
    slope = prior_derivatives(run.posterior.unconstrained.model, flat.unravel, flat.mean)[1]
    influence = times * influence - away @ slope
    if not influence.std() > 0:
        return 0.0
    effective: Any = array_stats.ess(influence.reshape(shape), method="mean")
    return float(influence.std() / np.sqrt(max(float(effective), 1.0)))


def _left_out(run: Any) -> Callable[..., Any]:
    """What the ready regressions' log likelihoods leave out, of all rows or of some."""
    link = link_of(run.posterior)
    if link is None:
        return lambda which=None: 0.0
    y = np.asarray(run.posterior.rows.all()["y"])
    return lambda which=None: link.left_out(y if which is None else y[which])


def _check(run: Any, num_rows: int) -> None:
    if isinstance(num_rows, bool) or not isinstance(num_rows, int | np.integer) or num_rows < 2:
        raise ValueError(f"num_rows must be a whole number of at least 2, got {num_rows!r}")
    if float(run.posterior.temperature) != 1:
        raise ValueError(
            f"leave-one-out is about a posterior at temperature 1; this one has {float(run.posterior.temperature):g}"
        )
    if not all(is_real(leaf) for leaf in jax.tree.leaves(run.samples)):
        raise ValueError("leave-one-out needs positions of real numbers; this run's have truth values or whole numbers")
    if run.num_chains * run.num_draws < 100:
        raise ValueError("leave-one-out needs at least 100 draws; draw more, with run.extend(num_samples)")
