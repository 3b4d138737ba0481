"""The mode of any posterior, and the sampler that starts there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm


class TestMode:
    """Any posterior."""

    def test_is_the_regression_with_its_prior_at_its_temperature(self):
        X, y, _ = tm.models.generate_logistic(60_000, 5)
        posterior = tm.models.logistic_regression(X, y, prior_precision=100.0, temperature=10.0)
        found = tm.optimise.mode(posterior)
        wanted = tm.optimise.logistic(X, y, prior_precision=1000.0)
        assert found.converged
        assert found.distance < 1e-3
        np.testing.assert_allclose(np.asarray(found.position), wanted.position, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.hessian * 10, wanted.hessian, rtol=1e-3, atol=1)
        assert found.rows_per_iteration[0] < 60_000

    def test_position_keeps_its_structure(self):
        rows = jnp.asarray(np.random.default_rng(0).normal(3, 2, 20_001))

        def log_likelihood(position, row):
            return -0.5 * ((row - position["mean"]) / jnp.exp(position["log_sd"])) ** 2 - position["log_sd"]

        start = {"mean": jnp.asarray(0.0), "log_sd": jnp.asarray(0.0)}
        found = tm.optimise.mode(tm.Posterior(log_likelihood, rows), start)
        assert found.converged
        np.testing.assert_allclose(float(found.position["mean"]), np.mean(rows), rtol=1e-3)
        np.testing.assert_allclose(float(found.position["log_sd"]), np.log(np.std(rows)), rtol=1e-3)

    def test_where_the_density_is_not_concave(self):
        posterior = tm.models.gaussian_mixture(tm.models.generate_mixture(20_000))
        found = tm.optimise.mode(posterior, jnp.asarray([3.0, -2.0]), max_iterations=500)
        assert found.converged
        assert np.all(np.linalg.eigvalsh(found.hessian) > 0)
        density = jax.jit(lambda position: posterior.log_density(position, posterior.data))
        near = [density(found.position + shift) for shift in 0.05 * np.random.default_rng(0).normal(size=(50, 2))]
        assert max(near) <= density(found.position)

    def test_a_saddle_is_not_a_mode(self):
        rows = jnp.asarray(np.random.default_rng(0).normal(size=5_000))
        posterior = tm.Posterior(lambda p, row: -((p[0] ** 2 - 1) ** 2) - p[1] ** 2 + 0 * row, rows)
        with pytest.warns(RuntimeWarning, match="saddle"):
            found = tm.optimise.mode(posterior, jnp.zeros(2))
        assert not found.converged
        assert tm.optimise.mode(posterior, jnp.asarray([0.1, 0.5])).converged


def test_the_sampler_starts_at_the_mode_and_counts_its_rows(capsys):
    X, y, _ = tm.models.generate_logistic(20_000, 3)
    posterior = tm.models.logistic_regression(X, y)
    found = tm.optimise.mode(posterior)
    kernel = tm.MetropolisHastings(tm.RandomWalk(1e-6), tm.Exact())
    run = tm.sample(posterior, kernel, num_samples=1, num_warmup=0, num_chains=2)
    np.testing.assert_allclose(run.samples[:, 0], np.stack([found.position] * 2), atol=1e-4)
    assert run.setup_rows >= found.rows_read > 20_000
    assert "starting at the mode" in capsys.readouterr().out
