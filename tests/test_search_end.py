"""Searches for a mode that found none: why, in words that are true, and who is refused."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.control_variates import Taylor
from tallmc.posterior.operations import kinks_in
from tallmc.setup.modes import find_mode
from tallmc.setup.search_end import End, flat_directions, rises_for_ever, search_end
from tests.range import CASES
from tests.registry import real

# The rows of the range are in single precision, and nothing may be promoted in tests.
single = pytest.mark.skipif(jnp.result_type(float) == jnp.float64, reason="rows of the range are in float32")


def ended(posterior, init, max_iterations=40):
    """The search of `tm.sample`, and why it ended."""
    init = jax.tree.map(lambda leaf: np.asarray(real(leaf)), init)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = find_mode(posterior, init, max_iterations=max_iterations, tolerance=0.1, progress=False)
    finite = np.isfinite(float(posterior.log_density(found.position)))
    return found, search_end(posterior, init, found, found.position if finite else init)


@single
@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("laplace_noise", End.KINK, "abs in log_likelihood"),
        ("quantile_regression", End.KINK, "where in log_likelihood"),
        ("lasso", End.KINK, "abs in log_prior"),
        ("uniform_upper_end", End.EDGE, "boundary of its support, in coordinate 0"),
        ("truncated_prior", End.EDGE, "boundary of its support, in coordinate 1"),
        ("eight_schools_centred", End.SPIKE, "scale near zero"),
        ("funnel", End.SPIKE, "scale near zero"),
        ("poisson_groups", End.SPIKE, "scale near zero"),
    ],
)
def test_each_end_has_its_name(name, kind, said):
    case = CASES[name]()
    found, end = ended(case.posterior(), case.init)
    assert not found.converged
    assert end.kind is kind
    assert said in end.reason
    assert "collinear" not in end.reason
    assert np.isfinite(float(case.posterior().log_density(end.start)))


@single
def test_an_edge_is_where_chains_start():
    """Nearer than where the search began, for its end lies beyond."""
    case = CASES["truncated_prior"]()
    _, end = ended(case.posterior(), case.init)
    assert 0 < end.start[1] < 0.05


@single
def test_a_search_that_ran_out_of_steps_says_so():
    case = CASES["bad_scaling"]()
    found, end = ended(case.posterior(), case.init, max_iterations=2)
    assert not found.converged
    assert end.kind is End.MOVING
    assert "had not arrived after 2 steps" in end.reason


@single
def test_odd_units_do_not_slow_the_search():
    """Columns of sizes 1, 10,000 and 0.0001: eigenvalues of the matrix as it is would be noise."""
    case = CASES["bad_scaling"]()
    assert ended(case.posterior(), case.init)[0].converged


@single
@pytest.mark.parametrize("name", ["uniform_upper_end", "lasso", "laplace_noise", "truncated_prior", "funnel"])
def test_proper_posteriors_are_not_refused(name):
    case = CASES[name]()
    posterior, init = case.posterior(), jax.tree.map(lambda leaf: np.asarray(real(leaf)), case.init)
    _, end = ended(posterior, case.init)
    assert flat_directions(posterior, end.start, Taylor(2).expand(posterior, end.start).precision) == ()
    assert not rises_for_ever(posterior, init, end.start)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = tm.sample(posterior, init=init, num_samples=5, num_warmup=5)
    told = " ".join((*run.choices, *run.doubts))
    assert end.reason in told
    assert "inside its support" not in told
    assert "right, and slow" not in told


def regression(columns, prior):
    rng = np.random.default_rng(0)
    y = (rng.random(len(columns)) < 0.5).astype(float)

    def log_likelihood(position, row):
        z = row["x"] @ position
        return row["y"] * z - jnp.logaddexp(0.0, z)

    data = {"x": np.asarray(real(columns)), "y": np.asarray(real(y))}
    return tm.Posterior(log_likelihood, data, lambda position: -0.5 * jnp.sum((position / prior) ** 2))


@pytest.mark.parametrize(("prior", "flat"), [(np.inf, True), (1e3, False), (1.0, False)])
def test_collinear_columns_are_flat_without_a_prior_only(prior, flat):
    x = np.random.default_rng(1).normal(size=(500, 3))
    posterior = regression(np.concatenate([x, x[:, 1:2]], axis=1), prior)
    at = np.asarray(real(np.zeros(4)))
    found = flat_directions(posterior, at, Taylor(2).expand(posterior, at).precision)
    assert found == (("coordinate 1", "coordinate 3") if flat else ())


@single
def test_a_density_that_rises_towards_a_point_may_be_proper():
    """Eight schools with a flat prior on the spread: their density has no bound, but their mass has."""
    case = CASES["eight_schools_centred"]()

    def log_prior(position):
        scale = jnp.exp(position["log_spread"])
        effects = -0.5 * jnp.sum(((position["effect"] - position["mean"]) / scale) ** 2) - 8 * position["log_spread"]
        return effects + position["log_spread"]

    posterior = tm.Posterior(case.log_likelihood, case.data, log_prior)
    start = {"mean": real(0.0), "log_spread": real(0.0), "effect": real(np.zeros(8))}
    assert not rises_for_ever(posterior, start, start | {"log_spread": real(-1.5)})
    x = np.random.default_rng(1).normal(size=(50, 2))
    separable = tm.Posterior(
        lambda position, row: -jnp.logaddexp(0.0, -row["y"] * (row["x"] @ position)),
        {"x": np.asarray(real(x)), "y": np.asarray(real(np.sign(x[:, 0])))},
    )
    assert rises_for_ever(separable, np.asarray(real([0.0, 0.0])), np.asarray(real([20.0, 0.0])))


def test_smooth_functions_have_no_kinks():
    def smooth(place, row):
        return jnp.logaddexp(place, row) + jax.nn.softplus(place) + jax.nn.logsumexp(jnp.stack([place, row]))

    assert kinks_in(smooth, 1.0, 2.0) == ()
    assert kinks_in(lambda place, row: jnp.where(row > 0, place, -place), 1.0, 2.0) == ()
    assert kinks_in(lambda place, row: jnp.where(place > row, place, row), 1.0, 2.0) == ("where",)
    assert kinks_in(lambda place, row: jax.jit(jnp.abs)(place * row), 1.0, 2.0) == ("abs",)
    assert kinks_in(lambda place, row: jnp.maximum(place, row), 1.0, 2.0) == ("maximum",)
