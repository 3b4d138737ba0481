"""Mint samples at the temperature it states."""

import jax.numpy as jnp
import numpy as np

import tallmc as tm
from tests.registry import real


def test_mint_widens_the_posterior_to_its_temperature():
    """Normal rows, so that the tempered posterior is known; 16 chains, 5 standard errors, 6e-7 false alarms."""
    num_rows, batch_size = 10_000, 1000
    rows = np.asarray(real(np.random.default_rng(0).normal(size=num_rows)))
    posterior = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, rows)
    rule = tm.Mint(batch_size, exponent=0.2)
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.8), rule)
    run = tm.sample(posterior, kernel, init=0.0, num_samples=4000, num_warmup=500, num_chains=16)
    temperature = num_rows**0.8
    variances = run.samples.var(axis=1)
    standard_error = variances.std(ddof=1) / 4
    # The noise of a batch, of variance (steps * 10^0.8)^2 / 1000, makes the target hotter by a few per cent at most.
    hotter = float(np.mean(variances)) / (temperature / num_rows)
    assert 1 - 5 * standard_error / variances.mean() < hotter < 1.06 + 5 * standard_error / variances.mean()
    assert f"Mint samples at temperature {temperature:,.0f}" in run.summary().notes[-1]


def test_a_batch_shared_by_both_positions_is_one_window():
    rows = jnp.asarray(real(np.random.default_rng(0).normal(size=3001)))
    posterior = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, rows)
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.5), tm.Mint(100, 0.2))
    run = tm.sample(posterior, kernel, init=0.0, num_samples=500, num_warmup=0, num_chains=2)
    # 3,001 rows leave a window of a single row; then the batch is that window and the next.
    assert set(np.unique(run.stats["rows"])) <= {100, 101}
