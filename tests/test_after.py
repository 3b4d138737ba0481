"""After the draws: predictions, log likelihoods, leave-one-out and the DataTree, against closed forms."""

import dataclasses
import json

import arviz_stats
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import statsmodels.api as sm

import tallmc as tm
from tallmc.run.leave_out import difference_estimate, expansions

ROWS, COLUMNS, NOISE = 20_000, 4, 0.7
FINEST = jnp.result_type(float)


def linear_rows(num_rows, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(num_rows, COLUMNS)).astype(np.float32)
    X[:, 0] = 1
    y = X @ np.linspace(-0.5, 0.5, COLUMNS) + NOISE * generator.normal(size=num_rows)
    return X, y.astype(np.float32)


X, Y = linear_rows(ROWS)
POSTERIOR = tm.models.linear_regression(X, Y, noise_sd=NOISE)
KERNEL = tm.MetropolisHastings(tm.RandomWalk(0.003), tm.Exact())


@pytest.fixture(scope="module")
def pattern():
    """A run whose draws tests put in place of its own."""
    return tm.sample(POSTERIOR, KERNEL, init=np.zeros(COLUMNS, FINEST), num_samples=20, num_warmup=0, progress=False)


def normal_posterior(X, y, precision=1.0):
    """Mean and covariance of the coefficients."""
    wide = X.astype(float)
    covariance = np.linalg.inv(wide.T @ wide / NOISE**2 + precision * np.eye(X.shape[1]))
    return covariance @ (wide.T @ y.astype(float)) / NOISE**2, covariance


def with_draws(pattern, samples, posterior=POSTERIOR):
    """A run with these draws: those of the posterior itself, so that what is tested is what comes after."""
    stats = {name: np.broadcast_to(values[:, :1], samples.shape[:2]) for name, values in pattern.stats.items()}
    return dataclasses.replace(pattern, samples=samples, stats=stats, posterior=posterior, audit=None)


def drawn(mean, covariance, seed=0, draws=1000):
    generator = np.random.default_rng(seed)
    return (mean + generator.normal(size=(4, draws, len(mean))) @ np.linalg.cholesky(covariance).T).astype(FINEST)


@pytest.fixture(scope="module")
def run(pattern):
    return with_draws(pattern, drawn(*normal_posterior(X, Y)))


def exact_leave_one_out(X, y):
    """Of the conjugate posterior: each row's predictive density when all others were seen."""
    mean, covariance = normal_posterior(X, y)
    wide = X.astype(float)
    leverage = np.einsum("ij,jk,ik->i", wide, covariance, wide) / NOISE**2
    return scipy.stats.norm.logpdf((y - wide @ mean) / (1 - leverage), scale=NOISE / np.sqrt(1 - leverage))


def test_leave_one_out_is_within_its_standard_error_of_the_exact_value(run):
    exact, found = exact_leave_one_out(X, Y), run.loo(num_rows=500)
    assert abs(found.elpd - exact.sum()) < 3.3 * found.subsampling_se  # false alarm: 1 in 1,000
    assert found.subsampling_se < 0.01 * found.se
    # The approximation by itself is as good here; a sum over rows that were seen would be off by 40 such errors.
    assert abs(found.elpd_loo_approx.values.sum() - exact.sum()) < 3.3 * found.subsampling_se
    np.testing.assert_allclose(found.se, np.sqrt(ROWS * exact.var()), rtol=1e-3)
    assert abs(found.p - COLUMNS) < 0.5
    assert found.subsample_size == 500
    assert not found.warning
    # A row that is left out is harder to predict than one that was seen: what forgets that is off by the parameters.
    seen = expansions(run, *_parts_of(run)).predictive.sum() - ROWS * (np.log(NOISE) + np.log(2 * np.pi) / 2)
    assert abs(seen - exact.sum()) > 20 * found.subsampling_se


def _parts_of(run):
    from tallmc.run.leave_out import _flat_draws, rows_at

    return (_flat_draws(run, rows_at(run, np.arange(10)), None)[0],)


def test_errors_of_leave_one_out_are_as_large_as_it_says(pattern):
    """Over 30 sets of draws and of rows: in units of the standard error they vary by 1 (measured: 0.8)."""
    exact, law = exact_leave_one_out(X, Y).sum(), normal_posterior(X, Y)
    errors = []
    for seed in range(30):
        found = with_draws(pattern, drawn(*law, seed, draws=100)).loo(num_rows=100, rng_key=seed)
        errors.append((found.elpd - exact) / found.subsampling_se)
    assert 0.5 < np.std(errors) < 1.5  # of 30 normals: beyond with a chance of 2e-4


@pytest.mark.slow
def test_leave_one_out_of_a_million_rows(pattern):
    rows, y = linear_rows(1_000_000, seed=3)
    posterior = tm.models.linear_regression(rows, y, noise_sd=NOISE)
    found = tm.sample(posterior, progress=False).loo()
    exact = exact_leave_one_out(rows, y).sum()
    assert abs(found.elpd - exact) < 3.3 * found.subsampling_se
    assert found.subsampling_se < 1e-3 * found.se


def test_the_difference_estimator_covers_the_sum():
    """Of made-up values with a poor approximation: 95 % intervals hold in 95 % of 2,000 samples, within 4 errors."""
    generator = np.random.default_rng(0)
    values = generator.normal(size=500) ** 3
    rough = values + generator.normal(size=500) + 0.3
    held = 0
    for _ in range(2000):
        which = generator.choice(500, 60, replace=False)
        found = difference_estimate(values[which], rough[which], rough)
        held += abs(found.total - values.sum()) < 1.96 * found.sampling
    assert abs(held / 2000 - 0.95) < 0.02  # t against normal, and four standard errors of 0.005
    everything = difference_estimate(values, rough, rough)
    np.testing.assert_allclose(everything, (values.sum(), 0, np.sqrt(500 * values.var())), atol=1e-9)


def test_own_likelihoods_are_left_out_one_by_one_as_ready_ones_are(run, pattern):
    """The general way (derivatives along axes of the covariance) finds what the way of linear predictors finds."""

    def log_likelihood(position, row):
        return jax.scipy.stats.norm.logpdf(row["y"], jnp.dot(row["x"], position["b"]), position["sd"])

    data = {"x": X[:3000].astype(FINEST), "y": Y[:3000].astype(FINEST)}
    law = normal_posterior(*data.values())
    ready = with_draws(pattern, drawn(*law), tm.models.linear_regression(*data.values(), noise_sd=NOISE))
    own = tm.Posterior(
        log_likelihood, data, lambda p: -0.5 * jnp.sum(p["b"] ** 2), transforms={"sd": tm.transforms.positive}
    )
    unconstrained = {"b": drawn(*law), "sd": np.full((4, 1000), np.log(NOISE), FINEST)}
    natural = {**unconstrained, "sd": np.full((4, 1000), NOISE, FINEST)}
    other = dataclasses.replace(ready, posterior=own, samples=natural, unconstrained=unconstrained)
    a, b = ready.loo(num_rows=100), other.loo(num_rows=100)
    np.testing.assert_allclose(b.elpd, a.elpd, rtol=1e-5)
    np.testing.assert_allclose(b.subsampling_se, a.subsampling_se, rtol=0.05)


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # arviz-stats 0.8 with pandas 3.1
def test_arviz_compares(run, pattern):
    less = tm.models.linear_regression(X[:, :-1], Y, noise_sd=NOISE)
    other = with_draws(pattern, drawn(*normal_posterior(X[:, :-1], Y)), less)
    table = arviz_stats.compare({"less": other.loo(num_rows=300), "all": run.loo(num_rows=300)})
    assert list(table.index) == ["all", "less"]
    exact = exact_leave_one_out(X, Y) - exact_leave_one_out(X[:, :-1], Y)
    np.testing.assert_allclose(table.loc["less", "elpd_diff"], exact.sum(), rtol=1e-3)
    np.testing.assert_allclose(table.loc["less", "dse"], np.sqrt(ROWS * exact.var()), rtol=0.02)
    trees = {name: one.to_datatree(log_likelihood_rows=200) for name, one in (("all", run), ("less", other))}
    which = trees["all"].log_likelihood["row"].values
    alone = arviz_stats.loo(trees["all"])
    np.testing.assert_allclose(alone.elpd, exact_leave_one_out(X, Y)[which].sum(), rtol=1e-3)
    assert list(arviz_stats.compare(trees).index) == ["all", "less"]


def test_predictions_are_those_of_the_posterior(run):
    mean, covariance = normal_posterior(X, Y)
    new = X[:50]
    found = run.predict(new)
    spread = np.sqrt(np.einsum("ij,jk,ik->i", new, covariance, new))
    np.testing.assert_allclose(found.mean, new @ mean, atol=0.08 * spread.max())  # 5 errors of 4,000 draws
    np.testing.assert_allclose(found.sd, spread, rtol=0.08)
    low, high = found.interval(0.9)
    np.testing.assert_allclose((high - low) / spread, 2 * 1.6449, rtol=0.1)
    table = found.summary()
    assert list(table.columns) == ["mean", "sd", "5%", "95%"]
    np.testing.assert_array_equal(run.predict().draws[:, :50], run.predict(new).draws[: len(run.predict().draws)])
    outcomes = run.posterior_predictive(new, 1)
    np.testing.assert_allclose(outcomes.sd, np.sqrt(NOISE**2 + spread**2), rtol=0.08)
    np.testing.assert_array_equal(outcomes.draws, run.posterior_predictive(new, jax.random.key(1)).draws)
    assert not np.array_equal(outcomes.draws, run.posterior_predictive(new, 2).draws)


def test_blocks_change_no_draw(run, monkeypatch):
    whole = run.posterior_predictive(X[:50], 1, num_draws=40).draws
    monkeypatch.setattr("tallmc.run.draws.over_blocks.__kwdefaults__", {"at_once": 7})
    monkeypatch.setattr("tallmc.run.draws.over_rows.__kwdefaults__", {"at_once": 7})
    np.testing.assert_allclose(run.posterior_predictive(X[:50], 1, num_draws=40).draws, whole, rtol=1e-6)


def test_functions_of_one_row(run):
    by_hand = run.predict(X[:5], lambda position, row: jnp.dot(row["x"], position) > 0)
    np.testing.assert_array_equal(by_hand.draws, run.predict(X[:5]).draws > 0)
    both = run.predict(X[:5], lambda position, row: row["x"] * position)
    np.testing.assert_allclose(both.draws.sum(-1), run.predict(X[:5]).draws, atol=1e-5)


LINKS = {
    "logistic": (tm.models.logistic_regression, {}, lambda z: scipy.stats.bernoulli(1 / (1 + np.exp(-z)))),
    "probit": (tm.models.probit_regression, {}, lambda z: scipy.stats.bernoulli(scipy.stats.norm.cdf(z))),
    "softplus": (tm.models.poisson_regression, {}, lambda z: scipy.stats.poisson(np.log1p(np.exp(z)))),
    "log": (tm.models.poisson_regression, {"link": tm.models.LogLink()}, lambda z: scipy.stats.poisson(np.exp(z))),
    "normal": (tm.models.linear_regression, {"noise_sd": 0.5}, lambda z: scipy.stats.norm(z, 0.5)),
    "student": (
        tm.models.robust_regression,
        {"scale": 0.5, "degrees_of_freedom": 5.0},
        lambda z: scipy.stats.t(5, z, 0.5),
    ),
}


@pytest.mark.parametrize("name", LINKS)
def test_every_link_knows_its_distribution(name, pattern):
    """Means, draws and normalised log likelihoods, against SciPy's distributions."""
    build, options, law = LINKS[name]
    rows = np.asarray([[1.0, -0.5], [1.0, 0.3], [1.0, 1.2]], FINEST)
    y = np.asarray([0.0, 1.0, 1.0], FINEST)
    posterior = build(rows, y, **options)
    beta = np.broadcast_to(np.asarray([0.2, 0.8], FINEST), (4, 2000, 2))
    one = with_draws(pattern, beta, posterior)
    z = rows @ beta[0, 0]
    exact = law(z.astype(float))
    np.testing.assert_allclose(one.predict(rows, num_draws=4).mean, exact.mean(), rtol=1e-5)
    log = exact.logpmf if name in ("logistic", "probit", "softplus", "log") else exact.logpdf
    found = one.log_likelihood({"x": rows, "y": y}, num_draws=4)
    np.testing.assert_allclose(found[0, 0], log(y), rtol=2e-5)
    outcomes = one.posterior_predictive(rows, 3).draws
    error = exact.std() / np.sqrt(len(outcomes))
    assert np.all(np.abs(outcomes.mean(axis=0) - exact.mean()) < 4.5 * error)  # 18 looks: 1 in 8,000
    np.testing.assert_allclose(outcomes.std(axis=0), exact.std(), rtol=0.12)


def test_prior_predictive(run):
    outcomes = tm.prior_predictive(POSTERIOR, X[:5], num_draws=4000)
    np.testing.assert_allclose(outcomes.sd, np.sqrt((X[:5] ** 2).sum(axis=1) + NOISE**2), rtol=0.08)
    with pytest.raises(ValueError, match="the prior is flat"):
        tm.prior_predictive(tm.models.linear_regression(X, Y, prior_precision=0.0), X[:5])
    own = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, Y[:100])
    with pytest.raises(ValueError, match="does not say how to draw an outcome"):
        tm.prior_predictive(own)
    with pytest.raises(ValueError, match="density only; pass draw_position"):
        tm.prior_predictive(own, function=lambda key, mean, row: mean)
    found = tm.prior_predictive(
        own,
        draw_position=jax.random.normal,
        function=lambda key, mean, row: mean + jax.random.normal(key),
        num_draws=2000,
    )
    np.testing.assert_allclose(found.sd, np.sqrt(2), rtol=0.1)


def test_standardised_columns_and_formulas_predict_alike(pattern):
    frame = pd.DataFrame({"a": X[:500, 1] * 100 + 2000, "k": np.where(X[:500, 2] > 0, "up", "down"), "y": Y[:500]})
    models = [tm.models.linear_regression("y ~ a + k", frame, standardise=which) for which in (False, True)]
    plain, scaled = models
    fit = sm.OLS(frame.y, np.asarray(plain.data["x"], float)).fit()
    draws = drawn(fit.params.to_numpy(), fit.cov_params().to_numpy())
    runs = [with_draws(pattern, draws, plain), with_draws(pattern, draws, scaled)]
    runs[1] = dataclasses.replace(
        runs[1], unconstrained=np.asarray(scaled.design.rescaling.inward(draws.astype(float)), FINEST)
    )
    new = frame[["k", "a"]][:7]
    for one in runs:
        np.testing.assert_allclose(one.predict(new).mean, fit.fittedvalues[:7], atol=0.03)
        np.testing.assert_allclose(one.predict(num_draws=400).mean[:7], fit.fittedvalues[:7], atol=0.03)
    a, b = (one.log_likelihood(frame, num_draws=8) for one in runs)
    np.testing.assert_allclose(a, b, atol=1e-3)
    np.testing.assert_allclose(runs[1].log_likelihood(num_draws=8), b, atol=5e-3)
    np.testing.assert_allclose(runs[0].loo(num_rows=50).elpd, runs[1].loo(num_rows=50).elpd, rtol=1e-3)


def test_a_tree_tells_where_it_came_from(pattern):
    tree = pattern.to_datatree()
    about = tree.attrs
    assert about["inference_library"] == "tallmc"
    assert about["rng_key"] == 0
    assert about["num_rows"] == ROWS
    assert json.loads(about["doubts"]) == list(pattern.doubts)
    assert json.loads(about["timing"]).keys() == pattern.timing.keys()
    assert "Exact" in about["kernel"]
    np.testing.assert_array_equal(tree.observed_data["y"], Y)
    np.testing.assert_array_equal(tree.constant_data["x"], X)
    at = pattern.samples[2, 5]
    np.testing.assert_allclose(tree.sample_stats["lp"][2, 5], float(POSTERIOR.log_density(at)), rtol=1e-6)


def test_large_data_is_referred_to(pattern, monkeypatch):
    monkeypatch.setattr("tallmc.run.tree._MOST_NUMBERS", 10)
    monkeypatch.setattr("tallmc.run.tree._MOST_EVALUATIONS", 10)
    tree = pattern.to_datatree()
    assert "observed_data" not in tree
    assert len(tree.attrs["data_fingerprint"]) == 32
    assert "lp" not in tree.sample_stats


def test_a_tree_can_be_written(run, tmp_path):
    import xarray

    run.to_datatree(log_likelihood_rows=10).to_zarr(tmp_path / "tree.zarr", consolidated=False)
    again = xarray.open_datatree(tmp_path / "tree.zarr", engine="zarr", consolidated=False)
    assert again.attrs["inference_library"] == "tallmc"
