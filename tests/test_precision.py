"""The precision guard: float32 is refused where rounding would decide."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.setup.precision import rounding_noise


def far(position, row):
    """A likelihood with a large constant that every difference has to cancel."""
    return 1e6 - 0.5 * (row - position) ** 2


def test_noise_follows_the_formula():
    posterior = tm.Posterior(far, np.zeros(10_000, np.float32), temperature=5.0)
    expected = 10_000 * np.sqrt(2) * 2.0**-24 * 3.0 / np.sqrt(400) / 5.0
    np.testing.assert_allclose(rounding_noise(posterior.model, 400, 3.0, jnp.float32), expected, rtol=1e-6)


def test_the_estimate_is_the_right_size():
    """Against the rounding really seen, at 20,000 rows: within a factor of three."""
    rows = np.random.default_rng(0).normal(size=20_000)
    constant = 50.0
    old, new = (
        np.float32(constant) - np.float32(0.5) * (rows.astype(np.float32) - np.float32(t)) ** 2 for t in (0.1, 0.2)
    )
    error = (new - old).astype(float) - (-0.5 * (rows - 0.2) ** 2 + 0.5 * (rows - 0.1) ** 2)
    posterior = tm.Posterior(far, rows)
    predicted = rounding_noise(posterior.model, 1, constant, jnp.float32) / 20_000
    assert predicted / 3 < error.std() < predicted * 3


def test_coarse_runs_are_refused_with_the_fix():
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.01), tm.MHMinibatch())
    posterior = tm.Posterior(far, np.zeros(10_000, np.float32))
    if jax.config.jax_enable_x64:
        posterior = tm.Posterior(far, np.zeros(10_000))
        run = tm.sample(posterior, kernel, init=0.0, num_samples=2, num_warmup=0, num_chains=1)
        assert run.samples.dtype == np.float64
    else:
        with pytest.raises(ValueError, match="jax_enable_x64"):
            tm.sample(posterior, kernel, init=0.0, num_samples=2, num_warmup=0, num_chains=1)
