"""Poisson regression under both links: likelihoods, optima and draws against other people's and brute force."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
import statsmodels.api as sm

import tallmc as tm
from tallmc.models.logistic_regression import LogisticLink
from tests.registry import real

LINKS = {"log": tm.models.LogLink(), "softplus": tm.models.SoftplusLink()}
MEANS = {"log": np.exp, "softplus": lambda z: np.logaddexp(0, z)}
COEFFICIENTS = np.asarray([0.6, -0.4, 0.3])
both_links = pytest.mark.parametrize("name", LINKS)


def make_rows(name, num_rows=20_000, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(num_rows, len(COEFFICIENTS)))
    X[:, 0] = 1
    return X, generator.poisson(MEANS[name](X @ COEFFICIENTS)).astype(float)


def loss(name, X, y, precision, position):
    """Minus the log density, by SciPy; the constant of the likelihood included."""
    likelihood = scipy.stats.poisson.logpmf(y, MEANS[name](X @ position))
    return -likelihood.sum() + precision * np.sum(position**2) / 2


def brute_force(name, X, y, precision):
    start = np.zeros(X.shape[1])
    found = scipy.optimize.minimize(lambda p: loss(name, X, y, precision, p), start, method="BFGS", tol=1e-8)
    return found.x


@both_links
def test_likelihood_is_scipys_but_for_a_constant(name):
    z, y = np.meshgrid(np.linspace(-20, 8, 57), [0.0, 1.0, 5.0, 40.0])
    expected = scipy.stats.poisson.logpmf(y, MEANS[name](z)) + scipy.special.gammaln(y + 1)
    np.testing.assert_allclose(LINKS[name](real(z), real(y)), expected, rtol=1e-5, atol=1e-5)


def test_three_derivatives_of_the_log_link_are_right_and_without_bounds():
    link, function = LINKS["log"], lambda z: LINKS["log"](z, real(3.0))
    for order in (1, 2, 3):
        function = jax.grad(function)
        for z in (-30.0, -1.0, 0.0, 2.0, 30.0):
            expected = (3.0 if order == 1 else 0.0) - np.exp(z)
            np.testing.assert_allclose(function(real(z)), expected, rtol=1e-5)
        assert link.largest_derivative(order, real([3.0])) is None


@both_links
def test_both_links_are_concave_as_they_say(name):
    link = LINKS[name]
    assert link.concave
    z, y = (real(values.ravel()) for values in np.meshgrid(np.linspace(-30, 20, 401), [0.0, 1.0, 50.0]))
    curvature = jax.vmap(jax.grad(jax.grad(link)))(z, y)
    assert np.all(np.asarray(curvature) <= 1e-6)


@both_links
@pytest.mark.parametrize("precision", [0.0, 500.0])
def test_optimum_is_that_of_brute_force(name, precision):
    X, y = make_rows(name)
    found = tm.optimise.poisson(X, y, prior_precision=precision, link=LINKS[name])
    assert found.converged
    np.testing.assert_allclose(found.position, brute_force(name, X, y, precision), atol=1e-4)


def test_the_default_of_the_optimiser_is_the_log_link_of_statsmodels():
    X, y = make_rows("log")
    fit = sm.GLM(y, X, family=sm.families.Poisson()).fit(tol=1e-10)
    np.testing.assert_allclose(tm.optimise.poisson(X, y).position, fit.params, rtol=1e-4, atol=1e-6)


@both_links
def test_optimiser_and_posterior_mean_the_same_model(name):
    X, y = make_rows(name)
    problem = tm.optimise.poisson(X, y, prior_precision=2.0, link=LINKS[name])
    mode = tm.optimise.mode(tm.models.poisson_regression(X, y, prior_precision=2.0, link=LINKS[name]), progress=False)
    np.testing.assert_allclose(mode.position, problem.position, atol=1e-4)
    np.testing.assert_allclose(mode.hessian, problem.hessian, rtol=0.01, atol=0.01 * np.max(problem.hessian))


def test_the_links_are_different_models():
    X, y = make_rows("log")
    apart = [tm.optimise.poisson(X, y, link=link).position for link in LINKS.values()]
    assert np.max(np.abs(apart[0] - apart[1])) > 0.1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_from_the_data_the_softplus_problem_stays_finite_and_finds_home(dtype):
    X, y = make_rows("softplus")
    start = np.asarray([-200.0, 0.0, 0.0])
    found = tm.optimise.poisson(X.astype(dtype), y.astype(dtype), link=LINKS["softplus"], init=start)
    assert found.converged
    np.testing.assert_allclose(found.position, brute_force("softplus", X, y, 0.0), atol=1e-3)


def test_only_the_softplus_link_has_bounds_and_it_is_the_default():
    X, y = make_rows("softplus", 2000)
    default = tm.models.poisson_regression(X, y)
    assert isinstance(default.log_likelihood.link, tm.models.SoftplusLink)
    assert np.isfinite(default.bounds.largest)
    unbounded = tm.models.poisson_regression(X, y, link=tm.models.LogLink())
    assert unbounded.bounds is None
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.01), tm.MHSubLhd())
    with pytest.raises(ValueError, match="needs a bound"):
        tm.sample(unbounded, kernel, init=jnp.asarray(COEFFICIENTS, jnp.result_type(float)), num_samples=10)


def moments_by_quadrature(X, y, precision, centre, factor):
    """Mean and standard deviations of a posterior of two coefficients, from a grid six standard deviations wide."""
    axis = np.linspace(-6, 6, 61)
    white = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    points = centre + white @ factor.T
    heights = np.asarray([-loss("log", X, y, precision, point) for point in points])
    weights = np.exp(heights - heights.max())
    weights /= weights.sum()
    mean = weights @ points
    return mean, np.sqrt(weights @ (points - mean) ** 2)


def test_draws_under_the_log_link_have_the_moments_of_quadrature():
    X, y = make_rows("log", 5000, seed=3)
    X = X[:, :2]
    posterior = tm.models.poisson_regression(X, y, link=tm.models.LogLink())
    run = tm.sample(posterior, num_samples=2000, progress=False)
    assert isinstance(run.kernel.rule, tm.Exact)
    assert run.doubts == ()
    mode = tm.optimise.mode(posterior, progress=False)
    factor = np.linalg.cholesky(np.linalg.inv(mode.hessian))
    mean, sd = moments_by_quadrature(X, y, 1.0, np.asarray(mode.position, float), factor)
    table = run.summary().table
    # Four Monte Carlo errors in four figures: a false alarm in 4,000 seeds.
    assert np.all(np.abs(table["mean"] - mean) < 4 * table["mcse_mean"])
    assert np.all(np.abs(table["sd"] - sd) < 4 * table["mcse_sd"])
    assert np.all(table["mcse_mean"] < 0.05 * sd)


@pytest.mark.parametrize("call", [tm.models.poisson_regression, tm.optimise.poisson])
def test_a_link_of_another_model_is_refused(call):
    X, y = make_rows("log", 100)
    with pytest.raises(ValueError, match=r"link must be tm\.models\.LogLink\(\) or tm\.models\.SoftplusLink\(\)"):
        call(X, y, link=LogisticLink())


def test_a_link_without_brackets_or_by_name_is_refused():
    """In a process of its own, where nothing checks types before the library does."""
    program = """
import numpy as np, tallmc as tm
for call in (tm.models.poisson_regression, tm.optimise.poisson):
    for link in (tm.models.LogLink, "log", None):
        try:
            call(np.ones((3, 1)), [0, 1, 2], link=link)
        except ValueError as error:
            print(error)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = found.stdout.splitlines()
    assert len(lines) == 6
    assert all("link must be tm.models.LogLink() or tm.models.SoftplusLink(), with brackets" in line for line in lines)
