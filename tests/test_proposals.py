"""A proposal's log ratio is that of its densities; its steps leave alone what they should."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import tallmc as tm
from tallmc.control_variates import covariance_factor
from tallmc.numerics.keys import as_key
from tallmc.proposals.tuning import Outcome
from tests.registry import real

FACTOR = np.array([[0.5, 0.0, 0.0], [0.3, 0.4, 0.0], [-0.2, 0.1, 0.7]])
MEAN = np.array([1.0, -2.0, 0.5])


def flat_likelihood(position, row):
    return 0.0 * row * jnp.sum(position)


FLAT = tm.Posterior(flat_likelihood, np.zeros(4, np.float32)).model


@pytest.mark.parametrize("beta", [0.6, -0.9])
def test_crank_nicolson_ratio_is_that_of_its_densities(beta):
    position = np.array([1.4, -2.5, 0.1])
    proposal = tm.CrankNicolson(MEAN, FACTOR, beta)
    kept, covariance = np.sign(beta) * np.sqrt(1 - beta**2), beta**2 * FACTOR @ FACTOR.T
    for seed in range(5):
        move = proposal.propose(as_key(seed), real(position), FLAT)
        new = np.asarray(move.position, float)
        there, back = (
            multivariate_normal.logpdf(to, MEAN + kept * (at - MEAN), covariance)
            for at, to in ((np.asarray(real(position), float), new), (new, np.asarray(real(position), float)))
        )
        np.testing.assert_allclose(move.log_ratio, back - there, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("beta", [0.8, -0.8])
def test_crank_nicolson_leaves_its_normal_alone(beta):
    """100,000 steps from it: mean and covariance within 5 standard errors."""
    count = 100_000
    start = MEAN + np.random.default_rng(0).normal(size=(count, 3)) @ FACTOR.T
    proposal = tm.CrankNicolson(MEAN, FACTOR, beta)
    moves = jax.vmap(lambda key, at: proposal.propose(key, at, FLAT))(jax.random.split(as_key(1), count), real(start))
    whitened = (np.asarray(moves.position, float) - MEAN) @ np.linalg.inv(FACTOR).T
    assert np.all(np.abs(whitened.mean(axis=0)) < 5 / np.sqrt(count))
    np.testing.assert_allclose(np.cov(whitened.T), np.eye(3), atol=5 * np.sqrt(2 / count))


@pytest.mark.parametrize("preconditioned", [True, False])
def test_mala_ratio_is_that_of_its_densities(preconditioned):
    X, y, _ = tm.models.generate_logistic(500, 3)
    controlled = tm.Taylor(2).expand(tm.models.logistic_regression(X, y), jnp.zeros(3))
    factor = covariance_factor(controlled.precision) if preconditioned else np.eye(3)
    step = 0.7 if preconditioned else 0.05
    proposal = tm.MALA(step, factor if preconditioned else None)
    at = real([0.1, -0.2, 0.05])
    drift = jax.grad(lambda p: jnp.sum(controlled.model.known_change(jnp.zeros_like(p), p).offset))

    def log_density(to, position):
        uphill = factor @ factor.T @ np.asarray(drift(real(position)), float)
        return multivariate_normal.logpdf(to, position + step**2 / 2 * uphill, step**2 * factor @ factor.T)

    np.testing.assert_allclose(controlled.model.drift(at), drift(at), rtol=1e-3, atol=1e-3)
    for seed in range(3):
        move = proposal.propose(as_key(seed), at, controlled.model)
        old, new = np.asarray(at, float), np.asarray(move.position, float)
        np.testing.assert_allclose(move.log_ratio, log_density(old, new) - log_density(new, old), rtol=1e-3, atol=2e-3)


def narrow_posterior(num_rows=50_000):
    X, y, _ = tm.models.generate_logistic(num_rows, 3)
    posterior = tm.models.logistic_regression(X, y)
    found = tm.optimise.mode(posterior, progress=False)
    return posterior, found.position, covariance_factor(found.hessian)


def test_warm_up_finds_a_long_step_where_the_posterior_is_normal():
    posterior, mode, factor = narrow_posterior()
    kernel = tm.MetropolisHastings(tm.CrankNicolson(mode, factor, 0.1), tm.MHSS())
    run = tm.sample(posterior, kernel, init=mode, num_samples=500, num_warmup=400, num_chains=2)
    assert np.all(np.abs(0.1 * run.step_size) > 0.8)
    assert run.stats["accepted"].mean() > 0.9


def settled_beta(acceptance, rows=50):
    """What warm-up settles on, if the proposals of each beta are accepted this often."""
    tuning = tm.CrankNicolson(MEAN, FACTOR, 1.0).tuning(0.5)
    at, known = real(MEAN), real(0.0)
    tuned, update = tuning.init(at), eqx.filter_jit(tuning.update)
    for time in range(100 * len(tuning.factors)):
        accepted = (time // len(tuning.factors) * 0.618) % 1 < acceptance(float(tuning.factor(tuned)))
        tuned = update(tuned, Outcome(at, at, jnp.asarray(accepted), jnp.int32(rows), known), real(0.1))
    tuned = update(tuned, Outcome(at, at, jnp.asarray(False), jnp.int32(rows), known), real(0.0))
    return pytest.approx(float(tuning.factor(tuned)))


@pytest.mark.parametrize(("accepting", "settled"), [([0.1, 0.05], 0.1), ([], 0.05), ([1.0], 1.0)])
def test_a_beta_whose_proposals_are_never_accepted_is_not_kept(accepting, settled):
    """Even if those of the other betas move the chain only a little: no step is worse than any step."""
    assert settled_beta(lambda beta: float(np.any(np.isclose(beta, accepting)))) == settled


@pytest.mark.parametrize(
    ("accepted_at_one", "settled"),
    [
        (0.99, [-0.96]),
        (0.93, [-0.96]),  # 10^4 generated rows
        (0.71, [1.0, 0.85]),  # covertype
        (0.53, [1.0, 0.85]),  # a9a
    ],
)
def test_steps_to_the_other_side_are_kept_only_where_nearly_all_are_accepted(accepted_at_one, settled):
    """Where they are not, chains get stuck far out, which a mean acceptance does not show."""
    assert any(settled_beta(lambda beta: 1 - (1 - accepted_at_one) * beta**2) == value for value in settled)


def test_mala_mixes_and_reads_no_rows_to_propose():
    posterior, mode, factor = narrow_posterior()
    kernel = tm.MetropolisHastings(tm.MALA(1.0, factor), tm.MHSS())
    run = tm.sample(posterior, kernel, init=mode, num_samples=1000, num_warmup=500, num_chains=2)
    assert run.stats["rows"].mean() < 5
    whitened = (np.asarray(run.samples, float) - np.asarray(mode, float)).reshape(-1, 3) @ np.linalg.inv(factor).T
    np.testing.assert_allclose(whitened.std(axis=0), 1, atol=0.2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tm.CrankNicolson(MEAN, FACTOR.T), "lower Cholesky factor"),
        (lambda: tm.CrankNicolson(MEAN[:2], FACTOR), "2 coordinates"),
        (lambda: tm.CrankNicolson(MEAN, FACTOR, 1.5), "beta"),
        (lambda: tm.CrankNicolson(MEAN * np.nan, FACTOR), "finite"),
        (lambda: tm.MALA(0.0), "step_size"),
        (lambda: tm.MALA(1.0, MEAN), "square"),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_mala_wants_an_expansion():
    X, y, _ = tm.models.generate_logistic(100, 3)
    kernel = tm.MetropolisHastings(tm.MALA(1.0), tm.Exact())
    with pytest.raises(ValueError, match=r"tm.Taylor\(order=2\)"):
        tm.sample(tm.models.logistic_regression(X, y), kernel, init=np.zeros(3))
