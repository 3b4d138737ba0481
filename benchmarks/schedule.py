"""Does an epsilon that falls over time pay? Risk of a posterior mean at equal rows read, against fixed epsilons.

The mean of 10,000 normal rows, temperature 1, flat prior. A sequential test is too lenient, so that chains spread too
far; the quantity is the posterior mean of the squared deviation, whose true value is known. 64 chains each give an
estimate from what they drew until a budget of rows was spent; the risk is the mean squared error of those estimates,
relative to the truth.
"""

from collections.abc import Iterator

import numpy as np

import tallmc as tm

NUM_ROWS, BATCH_SIZE, NUM_CHAINS, NUM_DRAWS = 10_000, 500, 64, 30_000
BUDGETS = (1e6, 1e7, 5e7)  # rows
COLUMNS = ("epsilon", *(f"risk (bias) after {budget:.0e} rows" for budget in BUDGETS), "share of rows a test")
RULES = {
    "0.3": tm.AustereMH(0.3, BATCH_SIZE),
    "0.2": tm.AustereMH(0.2, BATCH_SIZE),
    "0.1": tm.AustereMH(0.1, BATCH_SIZE),
    "0.03": tm.AustereMH(0.03, BATCH_SIZE),
    "0 (exact)": tm.AustereMH(0.0, BATCH_SIZE),
    "0.3 falling: power(0.3, exponent=0.7, delay=100)": tm.AustereMH(
        tm.schedule.power(0.3, exponent=0.7, delay=100.0), BATCH_SIZE
    ),
}


def run() -> Iterator[tuple[str, ...]]:
    """One line a setting."""
    rows = np.random.default_rng(0).normal(size=NUM_ROWS).astype(np.float32)
    rows -= rows.mean(dtype=float).astype(np.float32)
    posterior = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, rows)
    for name, rule in RULES.items():
        draws = tm.sample(
            posterior,
            tm.MetropolisHastings(tm.RandomWalk(2.4 / np.sqrt(NUM_ROWS)), rule),
            init=0.0,
            num_samples=NUM_DRAWS,
            num_warmup=0,
            num_chains=NUM_CHAINS,
            progress=False,
        )
        spent = np.cumsum(draws.stats["rows"], axis=1, dtype=float)
        running = np.cumsum(NUM_ROWS * np.square(draws.samples, dtype=float), axis=1) / np.arange(1, NUM_DRAWS + 1)
        cells = []
        for budget in BUDGETS:
            last = np.argmax(spent >= budget, axis=1)
            if not np.all(spent[:, -1] >= budget):
                cells.append("too few draws")
                continue
            errors = running[np.arange(NUM_CHAINS), last] - 1
            cells.append(f"{np.mean(errors**2):.5f} ({np.mean(errors):+.4f})")
        yield name, *cells, f"{draws.stats['rows'].mean() / NUM_ROWS:.3f}"
