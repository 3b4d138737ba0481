"""NumPyro models as posteriors: the same density on NumPyro's own scales, draws under its names, or one clear line."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer.util import log_density, potential_energy

import tallmc as tm
from tallmc.bounds import why_not_covered
from tallmc.numerics.flat import flatten
from tallmc.numerics.promotion import promoting

ROWS = 60
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(ROWS, 2)).astype(np.float32)
GROUP = GENERATOR.integers(0, 4, ROWS)
Y = (X @ np.array([1.0, -1.0]) + GENERATOR.normal(size=ROWS)).astype(np.float32)
YES = (Y > 0).astype(np.float32)


def hierarchical(X, y, group, num_groups):
    """Limits, a group plate with parameters, deterministic values with rows and without."""
    b = numpyro.sample("b", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("groups", num_groups):
        z = numpyro.sample("z", dist.Normal(0, 1))
    u = numpyro.deterministic("u", tau * z)
    with numpyro.plate("rows", len(y)):
        logits = numpyro.deterministic("logits", X @ b + u[group] + shares[0])
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def logistic(X, y):
    b = numpyro.sample("b", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=X @ b), obs=y)


def noise(x, y):
    a = numpyro.sample("a", dist.Normal(0, 10))
    sd = numpyro.sample("sd", dist.Uniform(0.1, 5))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(a * x, sd), obs=y)


def fixed_size(x, y):
    a = numpyro.sample("a", dist.Normal(0, 10))
    with numpyro.plate("rows", ROWS) as rows:
        numpyro.sample("y", dist.Normal(a * x[rows], 1.0), obs=y[rows])


def minibatches(x, y):
    a = numpyro.sample("a", dist.Normal(0, 10))
    with numpyro.plate("rows", ROWS, subsample_size=10) as rows:
        numpyro.sample("y", dist.Normal(a * x[rows], 1.0), obs=y[rows])


def two_outcomes(x, y, yes, weight):
    a = numpyro.sample("a", dist.Normal(0, 10))
    numpyro.factor("soft", -(a**2))
    with numpyro.plate("rows", len(x)), handlers.mask(mask=weight > 0), handlers.scale(scale=2.0):
        numpyro.sample("y", dist.Normal(a * x, 1.0), obs=y)
        numpyro.sample("yes", dist.Bernoulli(logits=a * x), obs=yes)


def crossed(y):
    a = numpyro.sample("a", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("columns", 2, dim=-1), numpyro.plate("rows", len(y), dim=-2):
        numpyro.sample("y", dist.StudentT(4, a, 1.0), obs=y)


def whole(x, y):
    """As `minibatches`, of all rows."""
    a = numpyro.sample("a", dist.Normal(0, 10))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(a * x, 1.0), obs=y)


MODELS = {
    "hierarchical": (hierarchical, (X, YES, GROUP), {"num_groups": 4}, None),
    "noise": (noise, (X[:, 0], Y), {}, None),
    "fixed size": (fixed_size, (X[:, 0], Y), {}, None),
    "minibatches": (minibatches, (X[:, 0], Y), {}, whole),
    "two outcomes": (two_outcomes, (X[:, 0], Y, YES, GROUP), {}, None),
    "crossed": (crossed, (X,), {}, None),
}


@pytest.mark.parametrize("name", MODELS)
def test_densities_are_numpyros_on_both_scales(name):
    """Rows and prior add up to NumPyro's density; its Jacobian is that of its own potential energy."""
    model, args, kwargs, twin = MODELS[name]
    posterior = tm.from_numpyro(model, *args, **kwargs)
    zero = posterior.unconstrained.start
    unconstrained = jax.tree.map(lambda leaf: leaf + (0.3 * np.arange(leaf.size).reshape(leaf.shape)).astype("f"), zero)
    natural, args = posterior.constrain(unconstrained), jax.tree.map(jnp.asarray, args)

    @jax.jit
    def of_numpyro(unconstrained, natural):
        potential = potential_energy(twin or model, args, kwargs, unconstrained)
        return -potential, log_density(twin or model, args, kwargs, natural)[0]

    with promoting():
        theirs, on_natural = of_numpyro(unconstrained, natural)
    assert posterior.num_rows == ROWS
    np.testing.assert_allclose(posterior.unconstrained.log_density(unconstrained), theirs, rtol=1e-5)
    np.testing.assert_allclose(posterior.log_density(natural), on_natural, rtol=1e-5)


def test_the_prior_is_read_once_and_rows_once_each():
    posterior = tm.from_numpyro(noise, X[:, 0], Y)
    position = {"a": jnp.float32(0.3), "sd": jnp.float32(2.0)}
    expected = dist.Normal(0.3 * X[7, 0], 2.0).log_prob(Y[7])
    row = {"x": X[7, 0], "y": Y[7]}
    np.testing.assert_allclose(posterior.log_likelihood(position, row), expected, rtol=1e-6)
    np.testing.assert_allclose(posterior.log_prior(position), dist.Normal(0, 10).log_prob(0.3) - np.log(4.9), rtol=1e-6)


@pytest.fixture(scope="module")
def run():
    posterior = tm.from_numpyro(hierarchical, X, YES, GROUP, num_groups=4)
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.Exact())
    return tm.sample(posterior, kernel, init=posterior.start, num_samples=50, num_warmup=20, progress=False)


def test_draws_have_the_names_of_sites_on_the_natural_scale(run):
    shapes = {name: draws.shape[2:] for name, draws in run.samples.items()}
    assert shapes == {"b": (2,), "tau": (), "shares": (3,), "z": (4,), "u": (4,)}
    assert (run.samples["tau"] > 0).all()
    np.testing.assert_allclose(run.samples["shares"].sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(run.samples["u"], run.samples["tau"][..., None] * run.samples["z"], rtol=1e-6)


def test_a_run_goes_on_and_comes_back(run, tmp_path):
    longer = run.extend(30, progress=False)
    assert longer.samples["u"].shape == (4, 80, 4)
    run.save(tmp_path / "run.zarr")
    posterior = tm.from_numpyro(hierarchical, X, YES, GROUP, num_groups=4)
    for again in (tm.load(tmp_path / "run.zarr"), tm.load(tmp_path / "run.zarr", posterior)):
        for name, draws in again.extend(30, progress=False).samples.items():
            np.testing.assert_array_equal(draws, longer.samples[name])


def test_a_numpyro_model_has_bounds_worked_out():
    """Logits as NumPyro writes their log density have kinks, of which nothing could be bounded."""
    posterior = tm.from_numpyro(logistic, X, YES)
    chains = posterior.unconstrained
    flat, unravel = flatten(chains.start)
    assert why_not_covered(chains.log_likelihood, unravel, flat.size, chains.rows.like) is None


def lagged(x, y):
    a = numpyro.sample("a", dist.Normal(0, 10))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(a * jnp.roll(y, 1), 1.0), obs=y)


def standardised(x, y):
    a = numpyro.sample("a", dist.Normal(0, 10))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(a * (x - x.mean()), 1.0), obs=y)


def factor_outside(x, y):
    a = numpyro.sample("a", dist.Normal(0, 10))
    numpyro.factor("all", -jnp.sum((y - a * x) ** 2))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(a, 1.0), obs=y)


def prior_by_size(x, y):
    a = numpyro.sample("a", dist.Normal(0, 1 / len(x)))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(a * x, 1.0), obs=y)


def latent_row(x, y):
    with numpyro.plate("rows", len(x)):
        effect = numpyro.sample("effect", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(effect, 1.0), obs=y)


def no_plate(x, y):
    a = numpyro.sample("a", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(a * x, 1.0), obs=y)


def no_parameters(x, y):
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)


def two_plates(x, y):
    a = numpyro.sample("a", dist.Normal(0, 1))
    with numpyro.plate("first", len(x)):
        numpyro.sample("x", dist.Normal(a, 1.0), obs=x)
    with numpyro.plate("second", len(y)):
        numpyro.sample("y", dist.Normal(a, 1.0), obs=y)


def square(x, y):
    a = numpyro.sample("a", dist.Normal(0, 1))
    with numpyro.plate("left", len(x), dim=-2), numpyro.plate("right", len(x), dim=-1):
        numpyro.sample("y", dist.Normal(a, 1.0), obs=jnp.outer(y, y))


def discrete(x, y):
    k = numpyro.sample("k", dist.Bernoulli(0.5))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(k * x, 1.0), obs=y)


def parameter(x, y):
    a = numpyro.param("a", 1.0)
    b = numpyro.sample("b", dist.Normal(0, 1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(a * x + b, 1.0), obs=y)


def looks_at_values(x, y):
    effects = numpyro.sample("effects", dist.Normal(0, 1).expand([len(np.unique(x))]).to_event(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(effects[0] * x, 1.0), obs=y)


def moving_limits(x, y):
    top = numpyro.sample("top", dist.HalfNormal(1.0))
    a = numpyro.sample("a", dist.Uniform(0, top))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(a * x, 1.0), obs=y)


def in_a_scan(x, y):
    a = numpyro.sample("a", dist.Normal(0, 1))

    def step(carry, both):
        numpyro.sample("y", dist.Normal(a * both[0] + carry, 1.0), obs=both[1])
        return both[1], None

    with numpyro.plate("rows", len(x)):
        scan(step, 0.0, (x, y))


def closure(x):
    a = numpyro.sample("a", dist.Normal(0, 1))
    with numpyro.plate("rows", ROWS):
        numpyro.sample("y", dist.Normal(a, 1.0), obs=Y)


def half_a_closure(x):
    a = numpyro.sample("a", dist.Normal(0, 1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(a * x, 1.0), obs=Y)


def sometimes(x, y, how):
    return noise(x, y)


x = X[:, 0]
BAD = [
    (3, (x, Y), "model must be a function"),
    (noise, (x, None), "the model observes nothing: pass its data"),
    (latent_row, (x, Y), "site effect is a parameter of each row of plate rows"),
    (no_plate, (x, Y), "no plate found around y: write it as with numpyro.plate"),
    (no_parameters, (x, Y), "the model has no parameters"),
    (two_plates, (x, Y), "observed sites stand in different plates (x in first, y in second)"),
    (square, (x, Y), "plates left, right are all 60 long"),
    (noise, (x, Y[:-1]), "shapes disagree at site: 'y': (60,) vs (59,)"),
    (noise, (x,), "missing 1 required positional argument"),
    (noise, (list(map(float, x)), list(map(float, Y))), "x is a list, and data must be arrays: numpy.asarray(x)"),
    (closure, (x[:9],), "of the arguments x has 9 rows along the first axis"),
    (half_a_closure, (x,), "site y has 60 values where there are 1 rows: is its data not among the arguments?"),
    (noise, (pd.Series(x), Y), "argument x is a Series; pass an array, such as x.to_numpy()"),
    (noise, (np.array(["a"] * ROWS), Y), "argument x holds <U1, not numbers; encode it first"),
    (sometimes, (x, Y, {1}), "argument how is a set, which is neither an array nor a plain value"),
    (lagged, (x, Y), "rows of site y are not independent given the parameters"),
    (standardised, (x, Y), "rows of site y are not independent given the parameters"),
    (factor_outside, (x, Y), "site all stands outside of plate rows, but depends on its rows"),
    (prior_by_size, (x, Y), "site a stands outside of plate rows, but depends on its rows or their number"),
    (discrete, (x, Y), "site k is a discrete parameter"),
    (parameter, (x, Y), "numpyro.param('a') is no random variable"),
    (looks_at_values, (x, Y), "the model uses values of its data before there are any"),
    (moving_limits, (x, Y), "the limits of site a depend on other parameters"),
    (in_a_scan, (x, Y), "the model has a scan inside a plate"),
]


@pytest.mark.parametrize(("model", "args", "said"), BAD, ids=lambda value: getattr(value, "__name__", None))
def test_bad_models_end_in_one_line(model, args, said):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  what it says is compared as it stands
        tm.from_numpyro(model, *args)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
