"""Langevin dynamics that nothing corrects, and the same corrected by every kind of test.

The regression with a Laplace prior of Korattikara et al. (2014), section 6.4 (Welling and Teh's steps of length 5e-6):
where the prior has its kink the gradient jumps from +50 to +9,950, and a step that lands beyond it is thrown far out.
`python -m benchmarks pitfall` draws 10^5 times with each test, on three data sets.
"""

import warnings
from collections.abc import Iterator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import tallmc as tm

COLUMNS = (
    "test",
    "total variation to the posterior, three data sets",
    "rows of a test",
    "share of all rows",
    "accepted",
    "audit of the last run",
)
NUM_ROWS, NUM_DRAWS, BATCH = 10_000, 100_000, 500
PRECISION, PENALTY, STEP = 3.0, 4950.0, 5e-6
NUM_BINS = 20  # with which 10^5 draws of the exact test are 0.012 from the posterior, as published
DATA_SEEDS = (0, 1, 2)
PUBLISHED = {
    "AlwaysAccept()": "0.29 to 0.44",
    "Exact()": "0.012",
    "AustereMH(0.1, 500)": "0.010 to 0.037; 14.0 to 14.7 % of the rows",
    "AustereMH(0.5, 500)": "0.012 to 0.015; 5 % of the rows",
}
RULES = {
    "AlwaysAccept()": tm.AlwaysAccept(),
    "Exact()": tm.Exact(),
    "AustereMH(0.1, 500)": tm.AustereMH(0.1, BATCH),
    "AustereMH(0.5, 500)": tm.AustereMH(0.5, BATCH),
    "MHMinibatch(100)": tm.MHMinibatch(100),
    "ExactBarker()": tm.ExactBarker(),
}


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
    return -0.5 * PRECISION * (row["y"] - slope * row["x"]) ** 2


def log_prior(slope):
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


def measure(found: tm.Posterior, rule: tm.AcceptanceRule, num_draws: int = NUM_DRAWS, key: int = 0) -> Figures:
    """Draws from the mode on, without warm-up: the step is the paper's."""
    edges, mass = truth(found)
    kernel = tm.MetropolisHastings(tm.SGLD(STEP, BATCH), rule)
    start = float(edges[1] + np.argmax(mass) * (edges[2] - edges[1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = tm.sample(
            found, kernel, init=start, num_samples=num_draws, num_warmup=0, num_chains=1, rng_key=key, progress=False
        )
    draws = np.asarray(run.samples, float).ravel()
    shares = np.histogram(draws, edges)[0] / draws.size
    rows = float((run.stats["rows"] - run.stats["proposal_rows"]).mean())
    return Figures(0.5 * float(np.abs(shares - mass).sum()), rows, float(run.stats["accepted"].mean()), run)


def run() -> Iterator[tuple[str, ...]]:
    """One line a test."""
    for name, rule in RULES.items():
        found = [measure(posterior(seed), rule) for seed in DATA_SEEDS]
        published = f" (wanted: {PUBLISHED[name]})" if name in PUBLISHED else ""
        rows = np.mean([one.rows for one in found])
        yield (
            f"`{name}`",
            ", ".join(f"{one.distance:.3f}" for one in found) + published,
            f"{rows:,.0f}",
            f"{100 * rows / NUM_ROWS:.3g} %",
            f"{np.mean([one.accepted for one in found]):.3f}",
            str(tm.audit(found[-1].run)),
        )
