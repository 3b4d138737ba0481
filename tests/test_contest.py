"""What ways of moving are foreseen to give and to cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import tallmc as tm
from tallmc.setup import contest
from tests.registry import real


def way(effective, seconds, once, name="way"):
    return contest.Way(tm.NUTS(), None, None, None, np.zeros((1, 1)), effective, seconds, once, (name,))


@pytest.mark.parametrize("misfit", [0.0, 0.3, 1.0, 2.5])
@pytest.mark.parametrize("correlation", [0.0, 0.7, -0.5])
def test_the_chance_to_accept_is_that_of_a_normal_misfit(misfit, correlation):
    spread = misfit * np.sqrt(2 * (1 - correlation))
    expected = 2 * stats.norm.cdf(-spread / 2)
    assert contest.metropolis_acceptance(misfit, correlation) == pytest.approx(expected, abs=2e-3)
    ratios = stats.norm(-(spread**2) / 2, max(spread, 1e-9)).rvs(200_000, random_state=0)
    assert contest.barker_acceptance(misfit, correlation) == pytest.approx(np.mean(1 / (1 + np.exp(-ratios))), abs=5e-3)


def test_nothing_is_accepted_where_the_misfit_is_infinite():
    assert contest.metropolis_acceptance(np.inf) == contest.barker_acceptance(np.inf) == 0


def test_effective_draws_are_those_of_an_autoregression():
    assert contest.effective_draws(1.0, 0.0) == 1
    assert contest.effective_draws(1.0, 0.5) == pytest.approx(1 / 3)
    assert contest.effective_draws(0.5, 0.0) == pytest.approx(1 / 3)
    assert contest.effective_draws(1.0, -0.28) == pytest.approx((1 - 0.28**2) / (1 + 0.28**2))  # squares are worst
    assert contest.effective_draws(0.0, 0.0) == 0


def test_a_short_call_wants_little_compiled_and_a_long_one_cheap_steps():
    ready, cheap = way(1.0, 1e-3, 1.0, "ready"), way(1.0, 1e-5, 4.0, "cheap")
    assert contest.best([ready, cheap], 2_000, 1_000).why == ("ready",)
    assert contest.best([ready, cheap], 2_000_000, 1_000_000).why == ("cheap",)
    assert ready.rate(2_000, 1_000) == pytest.approx(1_000 / (1 + 2_000 * 1e-3 / 2))


def row_seconds(log_likelihood, position, row):
    posterior = tm.Posterior(log_likelihood, jax.tree.map(lambda leaf: real(np.stack([leaf] * 2)), row))
    return contest.seconds_of_a_row(posterior.model, posterior.rows.like, jax.tree.map(real, position))


def test_a_row_takes_longer_the_more_is_done_with_it():
    few, many = (row_seconds(lambda p, row: row @ p, np.ones(n), np.ones(n)) for n in (20, 2000))
    assert many == pytest.approx(100 * few, rel=0.05)
    dear = row_seconds(lambda p, row: jnp.sum(jax.lax.lgamma(row * p)), np.ones(20), np.ones(20))
    assert dear > 5 * row_seconds(lambda p, row: jnp.sum(row * p), np.ones(20), np.ones(20))

    def in_turns(position, row):
        return jax.lax.fori_loop(0, 50, lambda _, total: total + jnp.sum(jnp.exp(row * position)), jnp.zeros(()))

    assert row_seconds(in_turns, np.ones(20), np.ones(20)) > 20 * row_seconds(
        lambda p, row: jnp.sum(jnp.exp(row * p)), np.ones(20), np.ones(20)
    )


def test_more_rows_cost_more_and_few_rows_less():
    assert contest.pass_seconds(1e-8, 10**6) == pytest.approx(10 * contest.pass_seconds(1e-8, 10**5), rel=0.02)
    assert contest.few_rows_seconds(1e-8, 100.0) < contest.pass_seconds(1e-8, 10**5) / 10
    assert contest.nuts_seconds(1e-8, 10**5) > 5 * contest.pass_seconds(1e-8, 10**5)
