"""Lemma 1 of Seita et al. (2018): tests that must know the sign of a log ratio read all rows again and again, however
many there are; Barker's test with noise of its own does not.

Their model: N rows from N(0.5, 1) with a flat prior on the mean, and steps as long as the posterior is wide. With a
chance of at least c = 0.0085, whatever N, position, proposal and uniform number are such that all rows together are
undecided. Thresholds leave 5 standard errors: 6e-7 false alarms each. Seeds are fixed.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import tallmc as tm
from tests.registry import real

LEAST = 0.0085


def log_likelihood(mean, row):
    return -0.5 * (row - mean) ** 2


def share_on_all_rows(rule, num_rows, num_samples=200, num_chains=64, temperature=1.0):
    """Share of a chain's tests in equilibrium that read every row, its standard error, and mean share of the rows."""
    rows = np.asarray(real(np.random.default_rng(0).normal(0.5, 1.0, num_rows)))
    run = tm.sample(
        tm.Posterior(log_likelihood, rows, temperature=temperature),
        tm.MetropolisHastings(tm.RandomWalk(float(np.sqrt(temperature / num_rows))), rule(rows)),
        init=float(rows.mean()),
        num_samples=num_samples,
        num_warmup=0,  # nothing is tuned: steps stay as long as the posterior is wide
        num_chains=num_chains,
        rng_key=1,
    )
    by_chain = run.stats["used_all_rows"].mean(axis=1)
    return by_chain.mean(), by_chain.std(ddof=1) / np.sqrt(num_chains), run.stats["rows"].mean() / num_rows


def austere(rows):
    return tm.AustereMH(0.01, len(rows) // 200)  # looks at the same shares of the rows, whatever their number


def sub_lhd(rows):
    furthest = float(np.max(np.abs(rows - 0.5))) + 1.0
    return tm.MHSubLhd(batch_size=50, bound=lambda old, new: furthest * jnp.abs(new - old))


@pytest.mark.parametrize("rule", [austere, sub_lhd])
def test_a_constant_share_of_the_tests_reads_every_row(rule):
    shares = []
    for num_rows in (10_000, 30_000, 90_000):
        share, error, _ = share_on_all_rows(rule, num_rows, num_samples=200 if num_rows < 50_000 else 50)
        print(f"{num_rows:,} rows: {share:.3f} ± {error:.3f} of the tests read all")
        assert share - 5 * error > LEAST
        shares.append(share)
    assert min(shares) > 0.6 * max(shares)  # it does not fall as rows become more


def test_barker_s_test_with_noise_of_its_own_does_not():
    """Where rows are many and hot, so that the noise of a batch is small: no test reads all of them."""
    share, _, read = share_on_all_rows(lambda rows: tm.MHMinibatch(100), 20_000, temperature=1000.0)
    assert share == 0
    assert read < 0.02


def test_the_constant_of_the_lemma():
    """The three events of its proof, and that together they leave all rows undecided: `mu_std` is 1 at most there."""
    lower, upper = norm.cdf(0.5), norm.cdf(1.0)
    p0, p1 = 2 * (upper - lower), upper - lower
    p2 = np.exp(-1.125) - np.exp(-2.0)
    assert p0 * p1 * p2 == pytest.approx(LEAST, abs=5e-5)
    generator = np.random.default_rng(0)
    step, away = generator.uniform(0.5, 1.0, size=(2, 100_000))  # in posterior standard deviations, of one sign
    known = -step * (away + step / 2)  # log u0: the expected log ratio
    level = known + generator.uniform(-0.5, 0.375, size=100_000)
    assert np.all(level < 0)
    mu_std = np.abs(known - level) / step  # rows have a spread of |step|
    assert np.all(mu_std <= 1)
    undecided = 1 - 2 * tm.design.sequential_test(0.0, 0.005, 0.01).error
    assert undecided > 0.5  # of tests in the very middle; a test may stop there by error alone
