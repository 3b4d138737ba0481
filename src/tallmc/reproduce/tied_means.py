"""MINT on a mixture with tied means: a tempered posterior from batches, with SGLD and SGHMC beside it."""

import dataclasses
import functools
import warnings
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

import tallmc as tm
from tallmc.models.gaussian_mixture import generate_mixture
from tallmc.reproduce import mixture_posterior
from tallmc.reproduce.kind import Bench, Figure, Kind, Measured
from tallmc.reproduce.svg import Mark, Series, plot

_VARIANCE = 2.0  # of either component
_MODES = np.array([[0.0, 1.0], [1.0, -1.0]])
_RADIUS = 0.1  # around a mode; the paper's 0.01 needs its twenty million draws
_MOST_POINTS = 600
_GRID = np.linspace(-6.0, 6.0, 241), np.linspace(-7.0, 7.0, 281)


@dataclasses.dataclass(frozen=True)
class TiedMeans(Kind):
    """Section 4.1 and Figure 1 of Li and Wong (2017).

    Args:
        rows: Of the data.
        batch: Rows of a test.
        exponent: lambda of the paper, half of log(batch) / log(rows).
        scale: Standard deviation of the random walk; 0.6 accepts about 0.30 of the steps, as the paper has it.
        draws: Of a chain.
        chains: Independent runs.
        gradient_draws: Steps of SGLD and SGHMC.
        seed: Of the chains.
    """

    rows: int
    batch: int
    exponent: float
    scale: float
    draws: int
    chains: int
    gradient_draws: int
    seed: int

    @property
    def parts(self) -> tuple[str, ...]:
        """Quadrature, MINT, and what it is compared with."""
        return "quadrature", "MINT", "SGLD", "SGHMC"

    @functools.cached_property
    def _posterior(self) -> tm.Posterior:
        """Flat prior, as the mode ratio of 1.00 needs."""
        rows = generate_mixture(self.rows)
        likelihood = tm.models.gaussian_mixture(rows[:10], component_variance=_VARIANCE).log_likelihood
        return tm.Posterior(likelihood, jnp.asarray(rows))

    def measure(self, part: str, bench: Bench) -> Measured:
        """One part."""
        if part == "quadrature":
            return self._quadrature()
        if part == "MINT":
            return self._mint(bench)
        return self._without_a_test(part)

    def _quadrature(self) -> Measured:
        """The tempered posterior on a grid, from rows in a thousand bins."""
        binned = mixture_posterior.binned_posterior(self.rows)
        x, weight = (np.asarray(binned.data[name], float) for name in ("x", "weight"))
        inverse = self.rows ** (self.exponent - 1)
        log_density = np.empty((len(_GRID[0]), len(_GRID[1])))
        for line, first in enumerate(_GRID[0]):
            near = -((x - first) ** 2) / (2 * _VARIANCE)
            far = -((x[None, :] - first - _GRID[1][:, None]) ** 2) / (2 * _VARIANCE)
            log_density[line] = inverse * (np.logaddexp(near, far) @ weight)
        mass = np.exp(log_density - log_density.max())
        mass /= mass.sum()
        second = mass.sum(axis=0)
        mean = second @ _GRID[1]
        variance = second @ (_GRID[1] - mean) ** 2
        below = second[_GRID[1] < 0].sum() + second[_GRID[1] == 0].sum() / 2
        figures = {"variance of pi_T": Figure(float(variance)), "temperature": Figure(float(1 / inverse))}
        figures["mode ratio, quadrature"] = Figure(float((1 - below) / below))
        spacing = _GRID[1][1] - _GRID[1][0]
        return Measured(figures, {"theta 2": _GRID[1], "density": second / spacing})

    def _mint(self, bench: Bench) -> Measured:
        kernel = tm.MetropolisHastings(tm.RandomWalk(self.scale), tm.Mint(self.batch, self.exponent))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = tm.sample(
                self._posterior,
                kernel,
                init=mixture_posterior.START,
                num_samples=self.draws,
                num_warmup=0,
                num_chains=self.chains,
                rng_key=self.seed,
                progress=False,
            )
        bench.keep("MINT", run)
        draws = np.asarray(run.samples, float)
        near = np.stack([np.linalg.norm(draws - mode, axis=-1) < _RADIUS for mode in _MODES])
        ratio = near[0].sum(axis=1) / np.maximum(near[1].sum(axis=1), 1)
        pooled = near[0].sum() / max(near[1].sum(), 1)
        variances = draws[..., 1].var(axis=1)
        figures = {
            "mode ratio, MINT": Figure(float(pooled), _error(ratio)),
            "variance, MINT": Figure(float(draws[..., 1].var()), _error(variances)),
            "accepted, MINT": Figure(float(run.stats["accepted"].mean())),
            "rows, MINT": Figure(float(run.stats["rows"].mean())),
        }
        counts, edges = np.histogram(draws[..., 1], np.linspace(-6, 6, 81), density=True)
        points = draws[0, :: max(1, draws.shape[1] // _MOST_POINTS)]
        middles = (edges[1:] + edges[:-1]) / 2
        return Measured(figures, {"theta 2": middles, "density": counts, "points": points})

    def _without_a_test(self, name: str) -> Measured:
        """From either mode: the share of draws nearer to the other one. Steps are a hundredth of the posterior's."""
        from tallmc.reproduce import gradient_samplers

        sampler = {"SGLD": gradient_samplers.sgld, "SGHMC": gradient_samplers.sghmc}[name]
        step = 1.0 / self.rows
        other, finite = [], True
        for mode, elsewhere in (_MODES, _MODES[::-1]):
            draws = sampler(self._posterior, mode, step, self.batch, self.gradient_draws, self.seed, 10)
            away = np.linalg.norm(draws - mode, axis=-1) > np.linalg.norm(draws - elsewhere, axis=-1)
            other.append(float(away.mean()))
            finite &= bool(np.isfinite(draws).all())
        figures: dict[str, Any] = {f"draws at the other mode, {name}": Figure(max(other) if finite else float("nan"))}
        return Measured(figures)

    def pictures(self, found: Mapping[str, Measured]) -> dict[str, str]:
        """Figure 1, left: what MINT draws, and the tempered posterior."""
        exact, mint = found["quadrature"].curves, found["MINT"].curves
        title, scatter = "MINT against the tempered posterior", "Figure 1: draws of MINT"
        series = [
            Series("tempered posterior, by quadrature", exact["theta 2"], exact["density"], Mark.DASHED, 1),
            Series("MINT", mint["theta 2"], mint["density"], Mark.LINE, 0),
        ]
        first, second = np.asarray(mint["points"]).T.tolist()
        return {
            title: plot(title, series, "theta 2", "density"),
            scatter: plot(scatter, [Series("", first, second, Mark.POINTS)], "theta 1", "theta 2"),
        }


def _error(values: np.ndarray) -> float | None:
    """Standard error of a mean over chains."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
