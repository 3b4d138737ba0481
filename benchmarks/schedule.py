"""Does an epsilon that falls over time pay? Risk of a posterior mean at equal rows read, against fixed epsilons.

The mean of 10,000 normal rows, temperature 25, flat prior. A sequential test is too lenient, so that chains spread too
far; the quantity is the posterior mean of the squared deviation, whose true value is known. 64 chains each give an
estimate from what they drew until a budget of rows was spent; the risk is the mean squared error of those estimates,
relative to the truth.
"""

from collections.abc import Iterator

import numpy as np

import tallmc as tm

NUM_ROWS, TEMPERATURE, BATCH_SIZE, NUM_CHAINS, NUM_DRAWS = 10_000, 25.0, 100, 64, 8_000
BUDGETS = (1e5, 5e5, 2e6, 8e6)  # rows of one chain
COLUMNS = ("epsilon", *(f"risk (bias) after {budget:.0e} rows" for budget in BUDGETS), "share of rows a test")
RULES = {
    "0.1": tm.AustereMH(0.1, BATCH_SIZE),
    "0.05": tm.AustereMH(0.05, BATCH_SIZE),
    "0.02": tm.AustereMH(0.02, BATCH_SIZE),
    "0.005": tm.AustereMH(0.005, BATCH_SIZE),
    "0.001": tm.AustereMH(0.001, BATCH_SIZE),
    "0 (exact)": tm.AustereMH(0.0, BATCH_SIZE),
    "power(0.03, exponent=1, delay=100)": tm.AustereMH(tm.schedule.power(0.03, 1.0, 100.0), BATCH_SIZE),
}


def run() -> Iterator[tuple[str, ...]]:
    """One line a setting."""
    rows = np.random.default_rng(0).normal(size=NUM_ROWS).astype(np.float32)
    rows -= rows.mean(dtype=float).astype(np.float32)
    posterior = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, rows, temperature=TEMPERATURE)
    for name, rule in RULES.items():
        draws = tm.sample(
            posterior,
            tm.MetropolisHastings(tm.RandomWalk(2.4 * np.sqrt(TEMPERATURE / NUM_ROWS)), rule),
            init=0.0,
            num_samples=NUM_DRAWS,
            num_warmup=0,
            num_chains=NUM_CHAINS,
            progress=False,
        )
        spent = np.cumsum(draws.stats["rows"], axis=1, dtype=float)
        running = np.cumsum(NUM_ROWS / TEMPERATURE * np.square(draws.samples, dtype=float), axis=1) / np.arange(
            1, NUM_DRAWS + 1
        )
        cells = []
        for budget in BUDGETS:
            last = np.argmax(spent >= budget, axis=1)
            if not np.all(spent[:, -1] >= budget):
                cells.append("too few draws")
                continue
            errors = running[np.arange(NUM_CHAINS), last] - 1
            cells.append(f"{np.mean(errors**2):.5f} ({np.mean(errors):+.4f})")
        yield name, *cells, f"{draws.stats['rows'].mean() / NUM_ROWS:.3f}"
