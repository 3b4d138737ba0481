"""Rows of a test on the Gaussian mixture, and how near its draws are to the posterior."""

import dataclasses
import functools
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import gammaln

import tallmc as tm
from tallmc.reproduce import mixture_posterior as model
from tallmc.reproduce.kind import Bench, Figure, Kind, Measured
from tallmc.reproduce.printed import PrintedMHMinibatch
from tallmc.reproduce.svg import Mark, Series, plot

_MOST_POINTS = 500  # of a scatter plot, a method
_SHOWN = {"MHMINIBATCH as printed": 0, "AUSTEREMH(C)": 1, "MHSUBLHD": 2}


@dataclasses.dataclass(frozen=True)
class Mixture(Kind):
    """Table 1, Figures 1 and 2, and appendix B.2.2 of Seita et al. (2018).

    Args:
        rows: Of the data; temperature and with it the posterior's shape go with them.
        draws: Of a trial.
        trials: Chains, each from the same start.
        long_draws: Of the runs whose accuracy is compared, for at 3,000 draws chance hides it.
        seed: Of the chains.
    """

    rows: int
    draws: int
    trials: int
    long_draws: int
    seed: int

    @property
    def parts(self) -> tuple[str, ...]:
        """A part for each method, and each long run."""
        return (*self._methods, *self._long)

    @functools.cached_property
    def _methods(self) -> dict[str, tuple[tm.AcceptanceRule, float]]:
        step = model.PROPOSAL_SD
        return {
            "MHMINIBATCH as printed": (PrintedMHMinibatch(50), step),
            "MHMINIBATCH, covariance 0.15": (PrintedMHMinibatch(50), 0.15**0.5),
            "MHMINIBATCH as printed, sigma 1.4": (PrintedMHMinibatch(50, sigma=1.4), step),
            "MHMinibatch of this library": (tm.MHMinibatch(50), step),
            "AUSTEREMH(C)": (tm.AustereMH(0.005, 50), step),
            "MHSUBLHD": (tm.MHSubLhd(delta=0.01, p=2.0, gamma=1.5, batch_size=50), step),
        }

    @functools.cached_property
    def _long(self) -> dict[str, tm.AcceptanceRule]:
        return {
            "long run, exact Barker": tm.ExactBarker(),
            "long run, MHMINIBATCH as printed": PrintedMHMinibatch(50),
            "long run, MHMinibatch of this library": tm.MHMinibatch(50),
        }

    @functools.cached_property
    def _truth(self) -> np.ndarray:
        return model.grid_posterior(model.binned_posterior(self.rows))

    def measure(self, part: str, bench: Bench) -> Measured:
        """Several short chains of one method, or the long ones."""
        if part in self._long:
            return self._long_run(part)
        rule, step = self._methods[part]
        run = self._run(rule, step, model.posterior(self.rows), self.draws, self.trials)
        bench.keep(part.replace(" ", "-"), run)
        asked = run.stats.get("test_rows", run.stats["rows"])
        figures = {f"rows, {part}": _mean(asked.mean(axis=1))}
        measures = [self._distances(chain) for chain in np.asarray(run.samples)]
        for name in measures[0]:
            figures[f"{name}, {part}"] = _mean([one[name] for one in measures])
        points = np.asarray(run.samples[0], float)
        return Measured(figures, {"points": points[:: -(-len(points) // _MOST_POINTS)], **_histogram(asked)})

    def _run(self, rule: tm.AcceptanceRule, step: float, target: tm.Posterior, draws: int, chains: int) -> tm.Run:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # 3,000 draws are few, and the paper's number
            return tm.sample(
                target,
                model.kernel(rule, step),
                init=model.START,
                num_samples=draws,
                num_warmup=0,
                num_chains=chains,
                rng_key=self.seed,
                progress=False,
            )

    def _distances(self, chain: np.ndarray) -> dict[str, float]:
        """Total variation to the posterior, and the two measures of appendix B.2.2, all on bins of 0.1 by 0.1."""
        counts, _, _ = np.histogram2d(chain[:, 0], chain[:, 1], model.EDGES)
        expected = len(chain) * self._truth
        likely = expected > 0
        terms = counts[likely] * np.log(expected[likely]) - expected[likely] - gammaln(counts[likely] + 1)
        kept = expected >= 1  # a chi-square of bins that hold next to nothing is all chance
        return {
            "total variation": model.total_variation(chain, self._truth),
            "equation 40": float(terms.sum()),
            "chi-square": float((((counts - expected) ** 2)[kept] / expected[kept]).sum()),
        }

    def _long_run(self, part: str) -> Measured:
        """Total variation of many draws; the exact test reads rows in bins, or it would take days."""
        rule, chains = self._long[part], 4
        exact = isinstance(rule, tm.ExactBarker)
        target = model.binned_posterior(self.rows) if exact else model.posterior(self.rows)
        run = self._run(rule, model.PROPOSAL_SD, target, self.long_draws // chains, chains)
        figures = {f"total variation, {part}": Figure(model.total_variation(run.samples, self._truth))}
        if exact:
            below = self._truth[:, model.EDGES[1][:-1] < -1e-9].sum()
            figures["mass at theta_2 < 0"] = Figure(float(below))
        return Measured(figures)

    def pictures(self, found: Mapping[str, Measured]) -> dict[str, str]:
        """Figures 1 and 2 of the paper."""
        points, rows = [], []
        for name, colour in _SHOWN.items():
            curves = found[name].curves
            first, second = np.asarray(curves["points"]).T.tolist()
            points.append(Series(name, first, second, Mark.POINTS, colour))
            rows.append(Series(name, curves["rows"], curves["share"], Mark.LINE, colour))
        scatter, histogram = "Figure 1: draws of the three methods", "Figure 2: rows of a test"
        return {
            scatter: plot(scatter, points, "theta 1", "theta 2"),
            histogram: plot(histogram, rows, "rows", "share of tests", log_x=True, log_y=True),
        }


def _mean(values: Any) -> Figure:
    """Of several trials, with its standard error."""
    values = np.asarray(values, float)
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return Figure(float(values.mean()), error)


def _histogram(rows: np.ndarray) -> dict[str, list[float]]:
    """Share of tests in bins that are even on a logarithmic axis."""
    edges = np.geomspace(10, 1e6 * 1.0001, 41)
    counts = np.histogram(rows, edges)[0] / rows.size
    kept = counts > 0
    return {"rows": np.sqrt(edges[1:] * edges[:-1])[kept].tolist(), "share": counts[kept].tolist()}
