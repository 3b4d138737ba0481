"""Langevin dynamics that nothing corrects, and the same corrected by every kind of test.

The regression with a Laplace prior of Korattikara et al. (2014), section 6.4 (Welling and Teh's steps of length 5e-6):
where the prior has its kink the gradient jumps from +50 to +9,950, and a step that lands beyond it is thrown far out.
"""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import tallmc as tm
from tallmc.reproduce.kind import Bench, Figure, Kind, Measured
from tallmc.reproduce.svg import Mark, Series, plot

NUM_ROWS, NUM_DRAWS, BATCH = 10_000, 100_000, 500
PRECISION, PENALTY, STEP = 3.0, 4950.0, 5e-6
NUM_BINS = 20  # with which 10^5 draws of the exact test are 0.012 from the posterior, as published
RULES = {
    "AlwaysAccept()": tm.AlwaysAccept(),
    "Exact()": tm.Exact(),
    "AustereMH(0.1, 500)": tm.AustereMH(0.1, BATCH),
    "AustereMH(0.5, 500)": tm.AustereMH(0.5, BATCH),
    "MHMinibatch(100)": tm.MHMinibatch(100),
    "ExactBarker()": tm.ExactBarker(),
}
_BLACKJAX = "SGLD of BlackJAX"
_SHOWN = {"AlwaysAccept()": "SGLD, no test", "AustereMH(0.5, 500)": "with a test, epsilon 0.5"}


class Figures(NamedTuple):
    """What one run showed.

    Args:
        distance: Total variation between its draws and the posterior, on bins.
        rows: Mean rows of a test.
        accepted: Share of steps.
        run: All of it.
    """

    distance: float
    rows: float
    accepted: float
    run: tm.Run


def log_likelihood(slope, row):
    """Of a row with x and y."""
    return -0.5 * PRECISION * (row["y"] - slope * row["x"]) ** 2


def log_prior(slope):
    """Laplace's, with its kink at zero."""
    return -PENALTY * jnp.abs(slope)


def posterior(seed: int) -> tm.Posterior:
    """The paper does not say how x is distributed; uniform on (0, 1) gives the gradients of its figure."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(size=NUM_ROWS)
    y = 0.5 * x + generator.normal(scale=(1 / 3) ** 0.5, size=NUM_ROWS)
    return tm.Posterior(log_likelihood, {"x": x.astype(np.float32), "y": y.astype(np.float32)}, log_prior)


def truth(found: tm.Posterior) -> tuple[np.ndarray, np.ndarray]:
    """Edges of bins that hold all but 2e-4 of the posterior, the outermost without end, and the mass in each."""
    x, y = (np.asarray(found.data[name], float) for name in ("x", "y"))
    grid = np.linspace(-0.2, 0.2, 400_001)
    log_density = PRECISION * (grid * np.sum(x * y) - grid**2 * np.sum(x * x) / 2) - PENALTY * np.abs(grid)
    mass = np.exp(log_density - log_density.max())
    cumulative = np.cumsum(mass) / mass.sum()
    low, high = np.interp([1e-4, 1 - 1e-4], cumulative, grid)
    inner = np.linspace(low, high, NUM_BINS - 1)
    edges = np.concatenate([[-np.inf], inner, [np.inf]])
    return edges, np.diff(np.concatenate([[0.0], np.interp(inner, grid, cumulative), [1.0]]))


def distance(draws: np.ndarray, edges: np.ndarray, mass: np.ndarray) -> float:
    """Total variation between draws and posterior, on bins."""
    draws = np.asarray(draws, float).ravel()
    return 0.5 * float(np.abs(np.histogram(draws, edges)[0] / draws.size - mass).sum())


def _start(edges: np.ndarray, mass: np.ndarray) -> float:
    return float(edges[1] + np.argmax(mass) * (edges[2] - edges[1]))


def measure(found: tm.Posterior, rule: tm.AcceptanceRule, num_draws: int = NUM_DRAWS, key: int = 0) -> Figures:
    """Draws from the mode on, without warm-up: the step is the paper's."""
    edges, mass = truth(found)
    kernel = tm.MetropolisHastings(tm.SGLD(STEP, BATCH), rule)
    options = {"num_samples": num_draws, "num_warmup": 0, "num_chains": 1, "rng_key": key, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = tm.sample(found, kernel, init=_start(edges, mass), **options)
    rows = float((run.stats["rows"] - run.stats["proposal_rows"]).mean())
    return Figures(distance(run.samples, edges, mass), rows, float(run.stats["accepted"].mean()), run)


@dataclasses.dataclass(frozen=True)
class Pitfall(Kind):
    """Figure 5 of Korattikara et al. (2014), and the shares of rows that go with it.

    Args:
        draws: Of each chain.
        data_seeds: Data sets, one a chain.
        rules: Which tests.
        seed: Of the chains.
    """

    draws: int
    data_seeds: list[int]
    rules: list[str]
    seed: int

    @property
    def parts(self) -> tuple[str, ...]:
        """Each test, and SGLD as a library has it."""
        return (*self.rules, _BLACKJAX)

    def measure(self, part: str, bench: Bench) -> Measured:
        """One test on all data sets."""
        distances, shares, draws = [], [], np.zeros(0)
        for seed in self.data_seeds:
            if part == _BLACKJAX:
                draws = self._by_blackjax(seed)
                distances.append(distance(draws, *truth(posterior(seed))))
                continue
            found = measure(posterior(seed), RULES[part], self.draws, self.seed)
            bench.keep(f"{part}-data-{seed}", found.run)
            distances.append(found.distance)
            shares.append(found.rows / NUM_ROWS)
            draws = np.asarray(found.run.samples, float).ravel()
        figures = {f"distance, {part}": Figure(float(np.mean(distances)))}
        figures |= {f"distance, {part}, data {s}": Figure(d) for s, d in zip(self.data_seeds, distances, strict=True)}
        if shares:
            figures[f"share of rows, {part}"] = Figure(100 * float(np.mean(shares)))
        return Measured(figures, self._histogram(draws))

    def _by_blackjax(self, seed: int) -> np.ndarray:
        from tallmc.reproduce.gradient_samplers import sgld

        found = posterior(seed)
        return sgld(found, _start(*truth(found)), STEP, BATCH, self.draws, self.seed)

    def _histogram(self, draws: np.ndarray) -> dict[str, list[float]]:
        """Of the last data set, on the range of the paper's picture."""
        counts, edges = np.histogram(draws, np.linspace(-0.005, 0.06, 66))
        middles = (edges[1:] + edges[:-1]) / 2
        return {"slope": middles.tolist(), "density": (counts / draws.size / (edges[1] - edges[0])).tolist()}

    def pictures(self, found: Mapping[str, Measured]) -> dict[str, str]:
        """Figure 5 of the paper, with the exact test in the place of the density."""
        series = [
            Series(label, found[part].curves["slope"], found[part].curves["density"], Mark.LINE, colour)
            for colour, (part, label) in enumerate(_SHOWN.items())
            if part in found
        ]
        if "Exact()" in found:
            curves = found["Exact()"].curves
            series.append(Series("exact test", curves["slope"], curves["density"], Mark.DASHED, 2))
        title = "Figure 5: SGLD with and without a test"
        return {title: plot(title, series, "slope", "density of the draws")}
