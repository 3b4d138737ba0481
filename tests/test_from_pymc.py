"""PyMC models as posteriors: the same density, draws under its names, posteriors of NUTS; or one clear line."""

import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.bounds import why_not_covered
from tallmc.numerics.flat import flatten
from tallmc.numerics.promotion import promoting

x64 = jax.config.jax_enable_x64
pm = pytest.importorskip("pymc", reason="PyMC is not installed: pip install 'tallmc[pymc]'", exc_type=ImportError)
remove_value_transforms = pytest.importorskip("pymc.model.transform.conditioning").remove_value_transforms
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


@pytest.fixture(autouse=True, scope="module")
def _precision_as_it_was():
    """PyMC's JAX back end turns float64 on for good; other tests shall not notice."""
    yield
    jax.config.update("jax_enable_x64", x64)


ROWS = 500
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(ROWS, 2))
GROUP = GENERATOR.integers(0, 4, ROWS)
Y = X @ [1.0, -1.0] + 0.5 * GENERATOR.normal(size=ROWS)
YES = (Y + GENERATOR.logistic(size=ROWS) > 0).astype(int)


def linear():
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        sd = pm.HalfNormal("sd", 2)
        pm.Normal("y", pm.math.dot(X, b), sd, observed=Y)
    return model


def hierarchical():
    with pm.Model(coords={"row": range(ROWS), "group": range(4)}) as model:
        x, group = pm.Data("x", X[:, 0], dims="row"), pm.Data("group", GROUP, dims="row")
        slope = pm.Uniform("slope", -3, 3)
        tau = pm.HalfNormal("tau", 1)
        z = pm.Normal("z", 0, 1, dims="group")
        u = pm.Deterministic("u", tau * z, dims="group")
        logit = pm.Deterministic("logit", slope * x + u[group], dims="row")
        pm.Bernoulli("yes", logit_p=logit, observed=YES, dims="row")
    return model


def limits():
    with pm.Model() as model:
        shares = pm.Dirichlet("shares", np.ones(3))
        chance = pm.Beta("chance", 2, 2)
        above = pm.TruncatedNormal("above", 0, 1, lower=0.5)
        cuts = pm.Normal("cuts", 0, 1, shape=2, transform=pm.distributions.transforms.ordered, initval=[-1.0, 1.0])
        pm.Potential("soft", -(chance**2))
        pm.Normal("y", shares[0] * X[:, 0] + chance + cuts[1], above, observed=Y)
    return model


def weighted():
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 1)
        pm.Normal("y", mean, 1, observed=Y)
        pm.Potential("more", -0.1 * (mean - X[:, 0]) ** 2)
    return model


MODELS = {"linear": linear, "hierarchical": hierarchical, "limits": limits, "weighted": weighted}


@pytest.mark.parametrize("name", MODELS)
def test_the_density_of_rows_and_prior_is_pymcs(name):
    """On the natural scale, against PyMC's own compiled function of the model as it is."""
    model = MODELS[name]()
    posterior = tm.from_pymc(model)
    model.rvs_to_initial_values.update(dict.fromkeys(model.rvs_to_initial_values))  # PyMC copies no model with some
    natural = remove_value_transforms(model)
    theirs = natural.compile_logp()
    moved = jax.tree.map(
        lambda leaf: leaf + 0.3 * np.arange(leaf.size).reshape(leaf.shape), posterior.unconstrained.start
    )
    for unconstrained in (posterior.unconstrained.start, moved):
        position = posterior.constrain(unconstrained)
        expected = theirs({variable.name: np.asarray(position[variable.name]) for variable in natural.value_vars})
        np.testing.assert_allclose(posterior.log_density(position), expected, rtol=1e-5)


def agrees(run, other, names):
    """Means within five Monte Carlo errors, those of at least 400 effective draws on either side: an honest pair of
    runs fails once in 10^6 coordinates, and these seeds are fixed. Standard deviations within a quarter."""
    for name in names:
        ours, theirs = (
            np.asarray(draws, float).reshape(-1, *draws.shape[2:]) for draws in (run.samples[name], other[name])
        )
        error = np.sqrt((ours.var(0) + theirs.var(0)) / 400)
        assert (abs(ours.mean(0) - theirs.mean(0)) < 5 * error).all(), name
        assert (abs(ours.std(0) / theirs.std(0) - 1) < 0.25).all(), name


def nuts_of(model):
    with promoting(), model:
        trace = pm.sample(1000, tune=1000, chains=2, cores=1, random_seed=0, progressbar=False)
    return {name: trace.posterior[name].to_numpy() for name in trace.posterior}


@pytest.mark.slow
@pytest.mark.parametrize(("model", "names"), [(linear, ["b", "sd"]), (hierarchical, ["slope", "tau", "u"])])
def test_posteriors_are_those_of_pymcs_nuts(model, names):
    run = tm.sample(tm.from_pymc(model()), num_samples=2000, progress=False)
    agrees(run, nuts_of(model()), names)


def test_draws_have_the_models_names():
    posterior = tm.from_pymc(hierarchical())
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.05), tm.Exact())
    run = tm.sample(posterior, kernel, init=posterior.start, num_samples=20, num_warmup=0, progress=False)
    shapes = {name: draws.shape[2:] for name, draws in run.samples.items()}
    assert shapes == {"slope": (), "tau": (), "z": (4,), "u": (4,)}
    np.testing.assert_allclose(run.samples["u"], run.samples["tau"][..., None] * run.samples["z"], rtol=1e-6)


def test_bambi_models_are_pymc_models():
    """Bambi keeps the PyMC model in its back end; stands in for it where it is not installed."""
    backend = types.SimpleNamespace(model=None)
    built = types.SimpleNamespace(backend=backend, build=lambda: setattr(backend, "model", linear()))
    assert tm.from_bambi(built).num_rows == ROWS
    with pytest.raises(ValueError, match=r"model must be a bambi\.Model, not Model"):
        tm.from_bambi(linear())


def nothing_observed():
    with pm.Model() as model:
        pm.Normal("a")
    return model


def nothing_free():
    with pm.Model() as model:
        pm.Normal("y", 0, 1, observed=Y)
    return model


def discrete():
    with pm.Model() as model:
        k = pm.Bernoulli("k", 0.5)
        pm.Normal("y", k, 1, observed=Y)
    return model


def two_lengths():
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Normal("y", a, 1, observed=Y)
        pm.Normal("z", a, 1, observed=Y[:7])
    return model


def one_number():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a"), 1, observed=3.0)
    return model


def lagged():
    with pm.Model() as model:
        a = pm.Normal("a")
        y = pm.Data("y_data", Y)
        pm.Normal("y", a * (y - y.mean()), 1, observed=Y)
    return model


def latent_rows():
    with pm.Model() as model:
        effect = pm.Normal("effect", 0, 1, shape=ROWS)
        pm.Normal("y", effect, 1, observed=Y)
    return model


def moving_limits():
    with pm.Model() as model:
        top = pm.HalfNormal("top", 1)
        pm.Normal("y", pm.Uniform("a", 0, top), 1, observed=Y)
    return model


def circular():
    with pm.Model() as model:
        pm.Normal("y", pm.VonMises("angle", 0, 1), 1, observed=Y)
    return model


def prior_of_rows():
    with pm.Model() as model:
        a = pm.Normal("a", pm.Data("x", X[:, 0]).mean(), 1)
        pm.Normal("y", a, 1, observed=Y)
    return model


BAD = [
    (lambda: 3, "model must be a pymc.Model, such as with pymc.Model() as model makes, not int"),
    (lambda: pm.Model, "not Model"),
    (nothing_observed, "the model observes nothing; pass observed="),
    (nothing_free, "the model has no parameters"),
    (discrete, "k is a discrete parameter"),
    (two_lengths, "observed variables have different lengths (y has 500, z has 7)"),
    (one_number, "y observes a single number"),
    (lagged, "rows of y are not independent given the parameters"),
    (latent_rows, "effect is a parameter of each row"),
    (moving_limits, "the limits of a depend on other parameters"),
    (circular, "there is no way yet to move angle, which PyMC transforms by CircularTransform"),
    (prior_of_rows, "the prior of a depends on the rows"),
]


@pytest.mark.parametrize(("model", "said"), BAD, ids=lambda value: getattr(value, "__name__", None))
def test_bad_models_end_in_one_line(model, said):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  what it says is compared as it stands
        tm.from_pymc(model())
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_pymc_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymc", None)
    with pytest.raises(ImportError, match=r"pip install 'tallmc\[pymc\]'"):
        tm.from_pymc(None)


def test_bounds_can_be_worked_out():
    """PyTensor cuts a softplus into pieces, of which nothing could be bounded."""
    chains = tm.from_pymc(hierarchical()).unconstrained
    flat, unravel = flatten(jax.tree.map(jnp.asarray, chains.start))
    assert why_not_covered(chains.log_likelihood, unravel, flat.size, chains.rows.like) is None
