"""Where to expand: skewness by a pass over rows, draws of prior + expansion, and the mean that they lead to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.control_variates import covariance_factor
from tallmc.numerics.flat import flatten
from tallmc.posterior.skewness import likelihood_skew, prior_skew
from tallmc.setup.centre import follow_expansion, mean_of
from tallmc.setup.surrogate import explore
from tests.registry import real

GENERATOR = np.random.default_rng(0)
NUM_GROUPS = 4
ROWS = {
    "x": GENERATOR.normal(size=(301, 3)),
    "y": (GENERATOR.random(301) < 0.3).astype(float),
    "group": GENERATOR.integers(0, NUM_GROUPS, 301).astype(np.int32),
}
POSITION = {"a": GENERATOR.normal(size=NUM_GROUPS), "b": GENERATOR.normal(size=3)}


def grouped(position, row):
    z = position["a"][row["group"]] + row["x"] @ position["b"]
    return row["y"] * z - jnp.logaddexp(0.0, z)


def whole(position, row):
    """Knows the position through more than a few linear functions."""
    z = row["x"] @ jnp.exp(position["b"] * row["x"]) + jnp.prod(jnp.cos(position["a"]))
    return -0.5 * (row["y"] - z) ** 2


def prior(position):
    return -jnp.sum(jnp.cosh(position["a"])) - 0.5 * jnp.sum(position["b"] ** 2) * jnp.exp(position["b"][0])


def as_real(tree):
    return jax.tree.map(lambda leaf: np.asarray(real(leaf)) if np.issubdtype(leaf.dtype, np.floating) else leaf, tree)


def brute_force(function, flat, covariance):
    """Gradient of the trace of covariance times Hessian."""
    return jax.grad(lambda at: jnp.sum(real(covariance) * jax.hessian(function)(at)))(real(flat))


@pytest.mark.parametrize("likelihood", [grouped, whole])
def test_skewness_is_that_of_brute_force(likelihood):
    posterior = tm.Posterior(likelihood, as_real(ROWS), prior)
    flat, unravel = flatten(as_real(POSITION))
    root = GENERATOR.normal(size=(7, 7)) / 5
    covariance = root @ root.T
    found = likelihood_skew(posterior.model, unravel, flat, covariance, posterior.rows)
    expected = brute_force(lambda at: jnp.sum(posterior.log_likelihoods(unravel(at), as_real(ROWS))), flat, covariance)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max())
    found = prior_skew(posterior.model, unravel, flat, covariance)
    expected = brute_force(lambda at: prior(unravel(at)), flat, covariance)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max())


def test_skewness_of_a_ready_model_is_that_of_brute_force():
    posterior = tm.models.poisson_regression(real(ROWS["x"]), real(np.round(3 * ROWS["y"])), link=tm.models.LogLink())
    flat, unravel = flatten(np.asarray(real(POSITION["b"] / 3)))
    covariance = np.array([[0.5, 0.1, 0.0], [0.1, 0.3, 0.0], [0.0, 0.0, 0.2]])
    found = likelihood_skew(posterior.model, unravel, flat, covariance, posterior.rows)
    expected = brute_force(lambda at: jnp.sum(posterior.log_likelihoods(at, posterior.data)), flat, covariance)
    np.testing.assert_allclose(found, expected, rtol=2e-3)


def test_the_mean_of_a_skewed_posterior_is_found_from_its_mode():
    """Sixty rows with few events. By quadrature the mode is off by a fifth of a standard deviation."""
    generator = np.random.default_rng(3)
    X = np.stack([np.ones(60), generator.normal(size=60)], axis=1)
    y = (generator.random(60) < 0.1).astype(float)
    posterior = tm.models.logistic_regression(real(X), real(y), prior_precision=0.1)
    mode = tm.optimise.mode(posterior, progress=False)
    factor = covariance_factor(mode.hessian)
    axes = [np.linspace(-7, 2, 400), np.linspace(-4, 5, 400)]
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=-1)
    z = points @ X.T
    values = np.sum(y * z - np.logaddexp(0, z), axis=1) - 0.05 * np.sum(points**2, axis=1)
    weights = np.exp(values - values.max())
    truth = weights @ points / weights.sum()
    width = np.sqrt(np.sum(factor**2, axis=1))
    flat, unravel = flatten(np.asarray(mode.position))
    found = mean_of(posterior, unravel, flat, factor)
    assert np.max(np.abs(flat - truth) / width) > 0.15
    assert np.max(np.abs(found - truth) / width) < 0.05


def expanded(posterior, position):
    return tm.Taylor(2).expand(posterior, position).model


def test_draws_of_a_normal_prior_and_an_expansion_are_those_of_the_normal():
    posterior = tm.models.logistic_regression(real(ROWS["x"]), real(ROWS["y"]))
    at = np.asarray(real([0.3, -0.2, 0.1]))
    model = expanded(posterior, at)
    found = explore(model, flatten(at)[1], at + 1)
    flat = np.asarray(at, float)
    hessian = np.asarray(jax.hessian(lambda p: posterior.log_density(p, posterior.data))(real(at)), float)
    slope = np.asarray(jax.grad(lambda p: posterior.log_density(p, posterior.data))(real(at)), float)
    covariance = np.linalg.inv(-hessian)
    spread = np.sqrt(np.diag(covariance))
    assert found.mixed
    # 2,400 draws, of which more than a thousand are effective: 4.5 standard errors (7e-6 false alarms; fixed seed).
    assert np.all(np.abs(found.mean - (flat + covariance @ slope)) < 4.5 * spread / np.sqrt(1000))
    np.testing.assert_allclose(found.spread, spread, rtol=4.5 / np.sqrt(2 * 1000))
    again = explore(model, flatten(at)[1], at + 1)
    np.testing.assert_array_equal(found.draws, again.draws)


def test_there_is_nothing_to_draw_where_prior_and_expansion_have_no_end():
    posterior = tm.Posterior(lambda place, row: 0.5 * row * place**2, np.asarray(real(np.ones(100))))
    at = np.asarray(real(0.3))
    found = explore(expanded(posterior, at), flatten(at)[1], flatten(at)[0])
    assert found is None or not found.mixed
    assert follow_expansion(posterior, flatten(at)[1], flatten(at)[0])[0] is None


def centred_prior(position):
    spread = jnp.exp(position["log_spread"])
    effects = -0.5 * jnp.sum(((position["effect"] - position["mean"]) / spread) ** 2)
    return effects - 50 * position["log_spread"] - 0.5 * (position["mean"] ** 2 + spread**2)


def centred(position, row):
    z = position["effect"][row["group"]]
    return row["y"] * z - jnp.exp(z)


def test_expansions_lead_to_the_mean_of_a_hierarchy():
    """Fifty groups of Poisson counts, begun at zeros; its joint density has its mode where the spread is nothing."""
    generator = np.random.default_rng(5)
    group = np.repeat(np.arange(50, dtype=np.int32), 20)
    effect = 0.3 + 0.5 * generator.normal(size=50)
    y = generator.poisson(np.exp(effect[group])).astype(float)
    posterior = tm.Posterior(centred, {"y": np.asarray(real(y)), "group": group}, centred_prior)
    start = {"mean": 0.0, "log_spread": 0.0, "effect": np.zeros(50)}
    flat, unravel = flatten(jax.tree.map(lambda leaf: np.asarray(real(leaf)), start))
    found, rows_read = follow_expansion(posterior, unravel, flat)
    assert found is not None
    assert rows_read == found.rows_read <= 8 * posterior.num_rows
    run = tm.sample(posterior, tm.NUTS(), init=unravel(found.surrogate.mean.astype(flat.dtype)), num_samples=1500)
    reference = np.concatenate([np.asarray(leaf, float).reshape(6000, -1) for leaf in jax.tree.leaves(run.samples)], 1)
    away = (found.surrogate.mean - reference.mean(axis=0)) / reference.std(axis=0)
    assert np.max(np.abs(away)) < 0.5  # draws of the surrogate are not the posterior's
    assert np.sqrt(np.mean(away**2)) < 0.2


def test_a_likelihood_without_derivatives_is_given_up():
    def odd(place, row):
        return -jnp.sqrt(jnp.abs(row - place))

    posterior = tm.Posterior(odd, np.asarray(real(np.zeros(50))))
    found, rows_read = follow_expansion(posterior, flatten(np.asarray(real(0.0)))[1], np.asarray(real([0.0])))
    assert found is None
    assert rows_read >= 50
