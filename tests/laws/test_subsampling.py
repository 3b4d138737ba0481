"""Law: exact subsampling rules are reversible, whatever the rows, and accept no more often than the test on all rows.

Chances to accept a move and its way back must stand in the ratio exp(log ratio). Both are frequencies of 60,000
independent tests; the logarithm of their ratio is compared at 5 standard errors: 6e-7 false alarms each. Fixed seeds.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.acceptance.subsampling import SubsamplingRule
from tallmc.numerics.keys import as_key
from tests.registry import SUBSAMPLING_RULES, real
from tests.simulate import answers, log_likelihood

NUM_TESTS = 60_000


class GivenBounds(tm.RowBounds):
    """Constants as given; a move from 0 to 1 reaches 1."""

    values: jax.Array
    largest: jax.Array
    mean: jax.Array

    def __init__(self, values):
        self.values = real(values)
        self.largest, self.mean = jnp.max(self.values), jnp.mean(self.values)

    def constants(self, rows):
        return np.asarray(self.values, float)

    def reach(self, position, proposed):
        return jnp.abs(proposed - position)


def both_ways(rule, rows, constants, offset, num_tests=NUM_TESTS):
    """Acceptance frequency there and back, and mean rows."""
    posterior = tm.Posterior(log_likelihood, real(rows), bounds=GivenBounds(constants))
    keys, other_keys = (jax.random.split(as_key(seed), num_tests) for seed in (1, 2))
    there, seen = answers(rule, tm.WeightedFeed, posterior, keys, 0.0, 1.0, offset)
    back, _ = answers(rule, tm.WeightedFeed, posterior, other_keys, 1.0, 0.0, -offset)
    return float(np.mean(there)), float(np.mean(back)), float(np.mean(seen))


def imbalance(there, back, log_ratio, num_tests=NUM_TESTS):
    """Distance of the log ratio of both frequencies from the truth, in standard errors."""
    error = np.sqrt((1 - there) / there / num_tests + (1 - back) / back / num_tests)
    return (np.log(there / back) - log_ratio) / error


def skewed_rows(num_rows, log_ratio, size, seed=0):
    """Rows of very different loudness; their bounds are between 1 and 3 times what they say."""
    generator = np.random.default_rng(seed)
    loudness = generator.exponential(size=num_rows) ** 3
    rows = loudness * generator.normal(size=num_rows)
    rows *= size / np.abs(rows).sum()
    rows += loudness / loudness.sum() * (log_ratio - rows.sum())
    return rows, np.abs(rows) * generator.uniform(1, 3, num_rows)


@pytest.mark.parametrize("name", SUBSAMPLING_RULES)
@pytest.mark.parametrize(("log_ratio", "offset", "size"), [(0.4, 0.0, 2.0), (-0.5, 0.8, 4.0), (0.0, -0.3, 1.0)])
def test_there_and_back_balance(name, log_ratio, offset, size):
    rule = SUBSAMPLING_RULES[name]()
    rows, constants = skewed_rows(500, log_ratio, size)
    there, back, seen = both_ways(rule, rows, constants, offset)
    assert abs(imbalance(there, back, log_ratio + offset)) < 5
    exact = min(1.0, np.exp(log_ratio + offset))
    assert there < exact + 5 * np.sqrt(0.25 / NUM_TESTS)
    # A failed first stage reads nothing.
    rate = np.sum(constants) + getattr(rule, "chi", 0.0) * np.sum(constants) ** 2
    assert abs(seen - min(1, np.exp(offset)) * rate) < 5 * np.sqrt((rate + rate**2) / NUM_TESTS)


@pytest.mark.parametrize("name", SUBSAMPLING_RULES)
def test_all_rows_are_read_where_more_would_be_drawn(name):
    """Then the test is Metropolis' own."""
    rows, _ = skewed_rows(50, -0.6, 2.0)
    there, back, seen = both_ways(SUBSAMPLING_RULES[name](), rows, np.full(50, 1.5), 0.1, num_tests=20_000)
    assert seen == 50
    assert abs(there - np.exp(-0.5)) < 5 * np.sqrt(0.25 / 20_000)
    assert back == 1


class WithoutThinning(SubsamplingRule):
    """Negative control: forgets that rows for a move must be thinned."""

    batch_size: int = eqx.field(default=8, static=True)
    reference = "none"
    target_acceptance = 0.45

    @property
    def needs(self):
        return self.rows_by_weight(None)

    def extra_rate(self, ceiling):
        return jnp.zeros_like(ceiling)

    def share(self, against, ceiling):
        return ceiling - jnp.maximum(against, 0)


def test_a_rule_that_does_not_balance_is_caught():
    rows, constants = skewed_rows(500, 0.4, 2.0)
    there, back, _ = both_ways(WithoutThinning(), rows, constants, 0.0)
    assert abs(imbalance(there, back, 0.4)) > 5


def test_bounds_that_do_not_hold_are_named_before_the_run():
    rows, constants = skewed_rows(2000, 0.0, 4.0)
    posterior = tm.Posterior(log_likelihood, np.asarray(real(rows)), bounds=GivenBounds(constants / 4))
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.5), tm.TunaMH())
    with pytest.raises(ValueError, match=r"row \d+ breaks posterior.bounds"):
        tm.sample(posterior, kernel, init=0.0, num_samples=100, num_warmup=0, num_chains=2)


def test_bounds_that_a_few_rows_break_are_counted():
    """One loud row in 30,000 has a bound that is too small; the look before the run misses it."""
    rows, constants = skewed_rows(30_000, 0.0, 4.0)
    rows[-1], constants[-1] = 2.0, 1.0
    posterior = tm.Posterior(log_likelihood, np.asarray(real(rows)), bounds=GivenBounds(constants))
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.5), tm.TunaMH())
    with pytest.warns(UserWarning, match="changed by more than posterior.bounds allows"):
        run = tm.sample(posterior, kernel, init=0.0, num_samples=100, num_warmup=0, num_chains=2)
    assert run.stats["violations"].sum() > 0
    assert "not exact" in str(run.summary())
