"""Kernels as BlackJAX's users take them, and densities as BlackJAX's own algorithms do."""

import inspect

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.numerics.promotion import promoting

ROWS = np.random.default_rng(0).normal(1.0, 1.0, 1000).astype(np.float32)
DRAWS = 4000


def normal_rows(mean, row):
    return -0.5 * (row - mean) ** 2


POSTERIOR = tm.Posterior(normal_rows, ROWS)
MEAN, SD = ROWS.mean(), 1000**-0.5  # of the posterior, in closed form


def moved(steps, position, num_steps, seed=0):
    """Positions under `jax.lax.scan`."""

    @jax.jit
    def chain(state, keys):
        def one(state, key):
            state, info = steps.step(key, state)
            return state, (state.position, info)

        return jax.lax.scan(one, state, keys)[1]

    return chain(steps.init(position), jax.random.split(jax.random.key(seed), num_steps))


def assert_is_the_posterior(draws, effective):
    """Four standard errors for mean and variance: an honest chain fails once in 8,000 seeds, and this seed is fixed."""
    draws = np.asarray(draws, float)
    assert abs(draws.mean() - MEAN) < 4 * SD / effective**0.5
    assert abs(draws.var() / SD**2 - 1) < 4 * (2 / effective) ** 0.5


def test_steps_under_scan_have_the_posterior():
    """A walk at this step has an autocorrelation time of about 8 steps."""
    steps = tm.as_blackjax(tm.MetropolisHastings(tm.RandomWalk(0.07), tm.Exact()), POSTERIOR)
    draws, info = moved(steps, np.float32(MEAN), DRAWS)
    assert 0.3 < info.accepted.mean() < 0.6
    assert (info.rows == 1000).all()
    assert_is_the_posterior(draws, DRAWS / 10)


def test_a_wrong_step_would_show():
    """The control: every proposal is accepted."""
    steps = tm.as_blackjax(tm.MetropolisHastings(tm.RandomWalk(0.07), tm.AlwaysAccept()), POSTERIOR)
    draws, _ = moved(steps, np.float32(MEAN), DRAWS)
    with pytest.raises(AssertionError):
        assert_is_the_posterior(draws, DRAWS / 10)


def test_an_expansion_is_made_if_the_kernel_needs_one():
    X, y, _ = tm.models.generate_logistic(2000, 2)
    posterior = tm.models.logistic_regression(X, y)
    steps = tm.as_blackjax(tm.MetropolisHastings(tm.RandomWalk(0.05), tm.MHSS()), posterior)
    _, info = moved(steps, np.zeros(2, np.float32), 200)
    assert 0 < info.accepted.mean() < 1
    assert info.rows[50:].mean() < 100


def test_positions_are_natural_and_keys_decide():
    def scale_rows(position, row):
        return -0.5 * (row / position["sd"]) ** 2 - jnp.log(position["sd"])

    posterior = tm.Posterior(scale_rows, ROWS, transforms={"sd": tm.transforms.positive})
    steps = tm.as_blackjax(tm.MetropolisHastings(tm.RandomWalk(0.05), tm.Exact()), posterior)
    first, again, other = (moved(steps, {"sd": np.float32(1.4)}, 100, seed)[0]["sd"] for seed in (0, 0, 1))
    assert (first > 0).all()
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_the_log_density_moves_blackjaxs_nuts():
    algorithm = blackjax.nuts(POSTERIOR.log_density, step_size=0.04, inverse_mass_matrix=jnp.ones(1))
    with promoting():
        draws, _ = moved(blackjax.SamplingAlgorithm(algorithm.init, algorithm.step), jnp.float32(MEAN), 1000)
    assert_is_the_posterior(draws, 200)


BAD = [
    ((3, POSTERIOR), "kernel must be a Kernel"),
    ((POSTERIOR, tm.NUTS()), "the arguments may be swapped"),
    ((tm.NUTS(), normal_rows), "posterior must be a tm.Posterior"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD)
def test_bad_arguments(arguments, said):
    with pytest.raises(ValueError, match=said):
        inspect.unwrap(tm.as_blackjax)(*arguments)  # as a user has it: without beartype


def test_bad_positions():
    steps = tm.as_blackjax(tm.MetropolisHastings(tm.RandomWalk(0.05), tm.Exact()), POSTERIOR)
    with pytest.raises(ValueError, match="holds NaN or infinity"):
        steps.init(np.nan)
    with pytest.raises(ValueError, match="must return one number"):
        steps.init(np.zeros(3, np.float32))
