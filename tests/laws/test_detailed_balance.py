"""Law: on a target that can be enumerated, chains spend their time as the posterior says and flow both ways equally.

Five states on a ring; each row has its own log likelihood for each state. 256 independent chains give an honest
standard error for every frequency. Thresholds are 5 standard errors: 6e-7 false alarms for each of 10 figures a rule.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tests.controls import Overconfident
from tests.registry import ONE_OF_EACH, RULES, allowed_error, real

NUM_STATES, NUM_ROWS, NUM_CHAINS = 5, 700, 256


class RingWalk(tm.Proposal):
    """One state up or down, upwards more often: the log ratio must make up for it."""

    up: ClassVar = 0.7

    def propose(self, key, position, posterior):
        rises = jax.random.uniform(key) < self.up
        step = jnp.where(rises, 1.0, -1.0).astype(position.dtype)
        log_ratio = jnp.where(rises, 1.0, -1.0) * np.log((1 - self.up) / self.up)
        return tm.Move(jnp.mod(position + step, NUM_STATES), log_ratio.astype(position.dtype))


def log_likelihood(position, row):
    return row[position.astype(jnp.int32)]


def log_prior(position):
    return 0.1 * position


@pytest.fixture(scope="module")
def posterior():
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(NUM_ROWS, NUM_STATES)) * 0.01 + generator.normal(size=NUM_STATES) * 0.5 / NUM_ROWS
    return tm.Posterior(log_likelihood, np.asarray(real(rows)), log_prior, temperature=2.0)


def run(posterior, rule):
    kernel = tm.MetropolisHastings(RingWalk(), rule)
    return tm.sample(posterior, kernel, init=0.0, num_samples=400, num_warmup=100, num_chains=NUM_CHAINS)


def excess_imbalance(posterior, rule):
    """Largest distance, beyond guarantee and chance, of a state's share from the posterior and of a flow from its
    return flow."""
    states = np.asarray(run(posterior, rule).samples).astype(int)
    beta = rule.promise.inverse_temperature(NUM_ROWS) / 2.0
    weights = beta * np.sum(np.asarray(posterior.data, float), axis=0) + 0.1 * np.arange(NUM_STATES)
    target = np.exp(weights - weights.max())
    target /= target.sum()
    shares = np.stack([np.mean(states == s, axis=1) for s in range(NUM_STATES)], axis=1)
    up = [np.mean((states[:, :-1] == s) & (states[:, 1:] == (s + 1) % NUM_STATES), axis=1) for s in range(NUM_STATES)]
    down = [np.mean((states[:, 1:] == s) & (states[:, :-1] == (s + 1) % NUM_STATES), axis=1) for s in range(NUM_STATES)]
    figures = np.concatenate([shares - target, np.stack(up, axis=1) - np.stack(down, axis=1)], axis=1)
    standard_errors = figures.std(axis=0, ddof=1) / np.sqrt(NUM_CHAINS)
    return np.max(np.abs(figures.mean(axis=0)) - 5 * standard_errors) - allowed_error(rule, NUM_ROWS)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_detailed_balance_on_an_enumerable_target(posterior, name):
    assert excess_imbalance(posterior, RULES[name]()) <= 0


def test_a_rule_without_detailed_balance_is_caught(posterior):
    """Negative control: accepting a little too often favours the proposal's direction."""
    assert excess_imbalance(posterior, Overconfident(batch_size=256)) > 0
