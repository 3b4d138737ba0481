"""The precision guard: float32 is refused where rounding would decide."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.control_variates import Taylor, covariance_factor
from tallmc.setup.precision import far_columns, rounding_doubts, rounding_noise
from tallmc.setup.rounding import measure_rounding
from tests.range import CASES

single = pytest.mark.skipif(jnp.result_type(float) == jnp.float64, reason="float64 is fine enough")


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


def of_case(name):
    case = CASES[name]()
    return case.posterior(), jax.tree.map(np.asarray, case.init)


def expanded(posterior, position):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rounding may hide the last steps to the mode
        found = tm.optimise.mode(posterior, position, progress=False)
    controlled = Taylor(2).expand(posterior, found.position)
    return controlled.model, found.position, covariance_factor(controlled.precision)


@single
def test_differences_of_log_gammas_are_found():
    """A negative binomial of nearly no dispersion: the error is that of float64, not a guess."""
    posterior, init = of_case("negative_binomial_nearly_poisson")
    (said,) = rounding_doubts(posterior.model, posterior.rows, init)
    assert "2,000 rows" in said
    assert "gammaln(y + r) - gammaln(r) is y log r" in said
    assert "jax_enable_x64" in said
    assert measure_rounding(posterior.model, posterior.rows, init).value > 1


@single
def test_the_same_density_without_the_cancellation_is_fine():
    """As the doubt advises."""

    def log_likelihood(position, row):
        log_mean, log_size = row["x"] @ position["b"], position["log_size"]
        k = jnp.arange(60, dtype=log_mean.dtype)
        rising = jnp.sum(jnp.where(k < row["y"], jnp.log1p(k * jnp.exp(-log_size)), 0.0))
        ratio = jnp.log1p(jnp.exp(log_mean - log_size))
        return rising + row["y"] * (log_mean - ratio) - jnp.exp(log_size) * ratio

    case = CASES["negative_binomial_nearly_poisson"]()
    assert case.data["y"].max() < 60
    posterior, init = tm.Posterior(log_likelihood, case.data, case.log_prior), jax.tree.map(np.asarray, case.init)
    assert rounding_doubts(posterior.model, posterior.rows, init) == ()


@single
def test_an_uncentred_column_is_named():
    """Its plain differences are right; the sums of an expansion are not."""
    posterior, init = of_case("year_uncentred")
    model, mode, factor = expanded(posterior, init)
    (said,) = rounding_doubts(model, posterior.rows, mode, factor)
    assert "along ['b'][0], ['b'][1]" in said
    assert "centre column 1 of row['x'] (near 2006" in said
    assert rounding_doubts(posterior.model, posterior.rows, mode, factor) == ()
    x = posterior.data["x"] - np.array([0, 2005], np.float32)
    centred = tm.Posterior(posterior.log_likelihood, {"x": x, "y": posterior.data["y"]})
    model, mode, factor = expanded(centred, init)
    assert rounding_doubts(model, centred.rows, mode, factor) == ()


@single
@pytest.mark.parametrize(
    "name", ["linear_unknown_noise", "bad_scaling", "logistic_collinear", "mean_and_precision_many", "gaussian_process"]
)
def test_nothing_is_said_of_what_is_right(name):
    """Plain and expanded. Nothing is random here; the nearest of sixty posteriors is a ninth of what is tolerated."""
    posterior, init = of_case(name)
    assert rounding_doubts(posterior.model, posterior.rows, init) == ()
    model, mode, factor = expanded(posterior, init)
    assert factor is not None
    assert rounding_doubts(posterior.model, posterior.rows, mode, factor) == ()
    assert rounding_doubts(model, posterior.rows, mode, factor) == ()


@single
def test_an_overflow_near_by_is_found():
    """cosh overflows in float32 beyond 89, in float64 beyond 710."""
    posterior = tm.Posterior(lambda place, row: -jnp.log(jnp.cosh(row - place)), np.full(3, 89.41, np.float32))
    (said,) = rounding_doubts(posterior.model, posterior.rows, np.float32(0))
    assert "no finite log likelihood at places near by" in said


@single
@pytest.mark.parametrize(
    "likelihood",
    [
        lambda place, row: -0.5 * (row.astype(jnp.float32) - place.astype(jnp.float32)) ** 2,
        lambda place, row: -0.5 * (row - place) ** 2 * np.ones((), np.float32),  # strict: no float64 times float32
        lambda place, row: -0.5 * (row - place) ** 2 if row.dtype == jnp.float32 else 1 / 0,
    ],
)
def test_a_likelihood_that_takes_no_float64_is_left_alone(likelihood):
    posterior = tm.Posterior(likelihood, np.zeros(9, np.float32))
    assert rounding_doubts(posterior.model, posterior.rows, np.float32(1)) == ()
    assert jnp.zeros(1).dtype == jnp.float32


@single
def test_float64_does_not_stay_on():
    posterior, init = of_case("linear_ten_rows")
    assert rounding_doubts(posterior.model, posterior.rows, init) == ()
    assert jnp.asarray(np.zeros(3)).dtype == jnp.float32
    assert not jax.config.jax_enable_x64


def test_in_float64_there_is_nothing_to_compare():
    posterior = tm.Posterior(lambda place, row: -0.5 * (row - place) ** 2, np.zeros(9))
    if jax.config.jax_enable_x64:
        assert measure_rounding(posterior.model, posterior.rows, np.float64(0)) is None


def test_far_columns_are_those_whose_spread_is_small():
    found = far_columns({"a": np.array([1e4, 1e4 + 1]), "b": np.array([-1.0, 1.0]), "c": np.ones(2)})
    assert [name.split()[0] for name in found] == ["row['a']"]


@single
def test_a_run_says_so():
    case = CASES["negative_binomial_nearly_poisson"]()

    def near_eight(at):
        return -0.5 * jnp.sum(at["b"] ** 2) - 0.5 * ((at["log_size"] - 8) / 0.1) ** 2

    posterior = tm.Posterior(case.log_likelihood, case.data, near_eight)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = tm.sample(posterior, init=case.init, num_samples=20, num_warmup=20)
    assert any("gammaln" in doubt for doubt in run.doubts)
    assert any("float32 is too coarse for this likelihood" in str(one.message) for one in caught)


@single
def test_what_rounding_leaves_nothing_of_is_refused_at_once():
    """A run would only draw noise, for as long as NUTS makes its longest trajectories."""
    rows = np.linspace(-1, 1, 2000, dtype=np.float32)

    def far_from_zero(constant):
        return tm.Posterior(lambda at, row: constant - 0.5 * (row - at) ** 2, rows)

    doubted, hopeless = far_from_zero(1e6), far_from_zero(1e7)
    assert "float32 is too coarse" in rounding_doubts(doubted.model, doubted.rows, np.float32(0))[0]
    with pytest.raises(ValueError, match="float32 is too coarse"):
        rounding_doubts(hopeless.model, hopeless.rows, np.float32(0))
