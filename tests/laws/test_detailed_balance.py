"""Law: on a target that can be enumerated, chains spend their time as the posterior says and flow both ways equally.

Rules with a known error of their own (a t-test) spend it as the chain with that error does, worked out exactly.

Five states on a ring; each row has its own log likelihood for each state. 256 independent chains give an honest
standard error for every frequency. Thresholds are 5 standard errors: 6e-7 false alarms for each of 10 figures a rule.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.kernel_parts import rule_needs
from tests.controls import Overconfident
from tests.registry import (
    COMPOSITES,
    ONE_OF_EACH,
    RULES,
    SUBSAMPLING_RULES,
    allowed_error,
    chance_to_accept,
    real,
)

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


def table_posterior(noise):
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(NUM_ROWS, NUM_STATES)) * noise
    rows += generator.normal(size=NUM_STATES) * 0.5 / NUM_ROWS - rows.mean(axis=0)
    return tm.Posterior(log_likelihood, np.asarray(real(rows)), log_prior, temperature=2.0)


@pytest.fixture(scope="module")
def posterior():
    return table_posterior(noise=0.01)


def smooth_log_likelihood(position, row):
    return row["loudness"] * jnp.cos(position + row["phase"])


@pytest.fixture(scope="module")
def smooth_posterior():
    """Rows of very different loudness, with bounds; a function of a real number, so that it can be expanded."""
    generator = np.random.default_rng(4)
    rows = {"loudness": 0.01 * generator.exponential(size=NUM_ROWS), "phase": generator.normal(-2.0, 1.0, NUM_ROWS)}
    bounds = tm.DerivativeBounds(*(rows["loudness"],) * 3)
    rows = {name: np.asarray(real(column)) for name, column in rows.items()}
    return tm.Posterior(smooth_log_likelihood, rows, log_prior, temperature=2.0, bounds=bounds)


def run(posterior, kernel, **options):
    settings = {"num_samples": 400, "num_warmup": 100, "num_chains": NUM_CHAINS} | options
    return tm.sample(posterior, kernel, init=0.0, **settings)


def predicted_figures(rule, log_likelihoods, time):
    """Shares of all states, and net flows from each to the next, of a chain that accepts as the rule should.

    Whatever the formula, without an error of its own these are the posterior's shares, and no net flow.
    """
    beta, pull = rule.promise.inverse_temperature(NUM_ROWS) / 2.0, np.log(RingWalk.up / (1 - RingWalk.up))
    moves = np.zeros((NUM_STATES, NUM_STATES))
    for here in range(NUM_STATES):
        for there, chance, log_ratio in (((here + 1) % 5, RingWalk.up, -pull), ((here - 1) % 5, 1 - RingWalk.up, pull)):
            rows = beta * (log_likelihoods[:, there] - log_likelihoods[:, here])
            known = log_ratio + 0.1 * (there - here)
            spread = rows.std() * np.sqrt(NUM_ROWS)
            moves[here, there] = chance * chance_to_accept(rule, rows.sum() + known, spread, NUM_ROWS, time)
    moves += np.diag(1 - moves.sum(axis=1))
    shares = np.linalg.matrix_power(moves, 10_000)[0]
    flows = shares[:, None] * moves
    return np.concatenate([shares, [flows[s, (s + 1) % 5] - flows[(s + 1) % 5, s] for s in range(NUM_STATES)]])


def excess_imbalance(posterior, rule):
    """Largest distance, beyond guarantee and chance, of a state's share and of a net flow from what they should be."""
    return excess_of(run(posterior, tm.MetropolisHastings(RingWalk(), rule)), rule)


def excess_of(run, rule):
    """The same for a run, by what the chain that this rule moves should do."""
    posterior, figures = run.posterior, figures_of(np.asarray(run.samples).astype(int))
    states = real(np.arange(NUM_STATES))
    table = np.stack([np.asarray(posterior.model.log_likelihoods(s, posterior.data), float) for s in states], axis=1)
    both_ends = [
        predicted_figures(rule, table, time) for time in (100, 500)
    ]  # they differ only if the rule's error does
    mean, standard_errors = figures.mean(axis=0), figures.std(axis=0, ddof=1) / np.sqrt(NUM_CHAINS)
    beyond = np.maximum(np.min(both_ends, axis=0) - mean, mean - np.max(both_ends, axis=0))
    return np.max(beyond - 5 * standard_errors) - allowed_error(rule, NUM_ROWS)


def figures_of(states):
    """Shares and net flows of each chain."""
    shares = [np.mean(states == s, axis=1) for s in range(NUM_STATES)]
    before, after = states[:, :-1], states[:, 1:]
    flows = [
        np.mean((before == s) & (after == (s + 1) % 5), axis=1)
        - np.mean((after == s) & (before == (s + 1) % 5), axis=1)
        for s in range(NUM_STATES)
    ]
    return np.stack(shares + flows, axis=1)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_detailed_balance_on_an_enumerable_target(posterior, name):
    assert excess_imbalance(posterior, RULES[name]()) <= 0


@pytest.mark.parametrize("name", SUBSAMPLING_RULES)
def test_exact_subsampling_keeps_the_balance(smooth_posterior, name):
    rule = SUBSAMPLING_RULES[name]()
    expansion = tm.Taylor(2, at=2.0) if rule.needs.expansion_order else None
    done = run(smooth_posterior, tm.MetropolisHastings(RingWalk(), rule), control_variate=expansion)
    assert excess_of(done, tm.Exact()) <= 0
    assert 0 < done.stats["rows"].mean() < NUM_ROWS / 10


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "nested" else ()) for name in COMPOSITES]
)
def test_kernels_made_of_kernels_keep_the_balance(smooth_posterior, name):
    kernel = COMPOSITES[name](RingWalk())
    expansion = tm.Taylor(2, at=2.0) if any(rule_needs(part).expansion_order for part in kernel.parts()) else None
    nearly = any(isinstance(part.rule, tm.MHMinibatch) for part in kernel.parts())
    done = run(smooth_posterior, kernel, control_variate=expansion)
    assert excess_of(done, tm.MHMinibatch() if nearly else tm.Exact()) <= 0


@pytest.mark.parametrize("name", ["austere_mh", "austere_mh_stricter_early"])
def test_a_t_test_does_to_the_posterior_what_its_design_says(name):
    """Rows so loud that its errors show: shares and flows are those of the chain that errs as predicted."""
    assert excess_imbalance(table_posterior(noise=0.1), RULES[name]()) <= 0


def test_a_rule_without_detailed_balance_is_caught(posterior):
    """Negative control: accepting a little too often favours the proposal's direction."""
    assert excess_imbalance(posterior, Overconfident(batch_size=256)) > 0
