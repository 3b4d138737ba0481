"""`tm.sample(posterior)`: right where it is sure, and unsure where it cannot be right."""

import importlib
import signal
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

import tallmc as tm
from tests.registry import real

irls_module = importlib.import_module("tallmc.optimise.irls")  # `tm.optimise.irls` is the function


def plain_logistic(position, row):
    z = row["x"] @ position
    return -jax.nn.softplus((1 - 2 * row["y"].astype(z.dtype)) * z)


def normal_prior(position):
    return -0.5 * jnp.sum(position**2)


def rule_of(run):
    return type(run.kernel.rule).__name__


def exact_run(posterior, num_samples=4000):
    """A long run of the same kernel with the test on all rows."""
    found = tm.optimise.mode(posterior, progress=False)
    factor = np.linalg.cholesky(np.linalg.inv(found.hessian))
    kernel = tm.MetropolisHastings(tm.CrankNicolson(found.position, factor, 1.0), tm.Exact())
    return tm.sample(posterior, kernel, init=found.position, num_samples=num_samples, num_warmup=100, num_chains=2)


def compare(run, reference):
    """Means within 0.15 sds (5 standard errors of the reference) and sds within 10 %."""
    draws, truth = (np.asarray(r.samples, float).reshape(-1, r.samples.shape[-1]) for r in (run, reference))
    assert np.all(np.abs(draws.mean(axis=0) - truth.mean(axis=0)) < 0.15 * truth.std(axis=0))
    np.testing.assert_allclose(draws.std(axis=0), truth.std(axis=0), rtol=0.1)


@pytest.fixture(scope="module")
def rows():
    X, y, _ = tm.models.generate_logistic(20_000, 3, seed=2)
    return np.asarray(real(X)), np.asarray(real(y))


@pytest.fixture(scope="module")
def automatic(rows):
    return tm.sample(tm.models.logistic_regression(*rows))


def test_a_model_with_bounds_is_sampled_exactly(rows, automatic, capsys):
    assert rule_of(automatic) == "MHSS"
    assert automatic.kernel.rule.promise.guarantee is tm.Guarantee.EXACT
    assert automatic.stats["rows"].mean() < 5
    assert automatic.setup_rows < 30 * 20_000
    compare(automatic, exact_run(tm.models.logistic_regression(*rows)))


def test_the_choice_is_told_and_the_audit_is_in_the_summary(automatic):
    assert "MHSS" in " ".join(automatic.choices)
    assert automatic.audit.error_rate == 0
    assert len(automatic.audit.accepted) == 8
    assert automatic.audit.rows_read == 8 * 20_000
    assert str(automatic.audit) in str(automatic.summary())


def test_an_own_likelihood_of_many_rows_is_sampled_exactly_and_without_bounds_by_minibatches(capsys):
    """Bounds are worked out from its program, if there is a rule for all that is in it."""
    X, y, _ = tm.models.generate_logistic(1_000_000, 3, seed=2)
    X, y = np.asarray(real(X)), np.asarray(real(y))
    ready = tm.sample(tm.models.logistic_regression(X, y), progress=False)
    exact = tm.sample(tm.Posterior(plain_logistic, {"x": X, "y": y}, normal_prior), progress=False)
    assert rule_of(exact) == "MHSS"
    assert exact.stats["rows"].mean() < 10
    assert "worked out from the likelihood's own program" in " ".join(exact.choices)
    assert exact.audit.error_rate == 0
    assert not exact.doubts
    compare(exact, ready)
    capsys.readouterr()

    def in_a_roundabout_way(at, row):
        z = jnp.sinh(jnp.arcsinh(row["x"] @ at))
        return row["y"] * z - jnp.logaddexp(0.0, z)

    run = tm.sample(tm.Posterior(in_a_roundabout_way, {"x": X, "y": y}, normal_prior))
    assert rule_of(run) == "MHMinibatch"
    assert "no rule for asinh" in " ".join(run.choices)
    assert run.stats["rows"].mean() < 200
    assert 0 < run.audit.interval[1] < 0.05
    assert "position for 3 numbers" in run.choices[0]
    assert capsys.readouterr().out.count("tallmc:") == 1
    compare(run, ready)


def test_with_fewer_rows_tests_on_all_of_them_give_more_draws_for_the_whole_call(rows):
    """Of such a call nearly all is compiling, and half of what a minibatch test accepts is lost."""
    posterior = tm.Posterior(plain_logistic, {"x": rows[0], "y": rows[1]}, normal_prior)
    run = tm.sample(posterior)
    assert rule_of(run) == "Exact"
    assert run.audit is None  # all rows decided
    told = " ".join(run.choices)
    assert "position for 3 numbers" in told
    assert "CrankNicolson and MHMinibatch" in told
    compare(run, exact_run(tm.models.logistic_regression(*rows)))


def test_badly_scaled_columns_are_no_trouble(rows):
    scale = np.asarray(real([1.0, 1e4, 1e-3]))
    posterior = tm.models.logistic_regression(rows[0] * scale, rows[1], prior_precision=scale**2)
    run = tm.sample(posterior)
    assert rule_of(run) == "MHSS"
    draws = np.asarray(run.samples, float).reshape(-1, 3) * np.asarray(scale, float)
    reference = np.asarray(exact_run(tm.models.logistic_regression(*rows)).samples, float).reshape(-1, 3)
    assert np.all(np.abs(draws.mean(axis=0) - reference.mean(axis=0)) < 0.15 * reference.std(axis=0))


def test_two_modes_are_found_and_said():
    posterior = tm.models.gaussian_mixture(np.asarray(real(tm.models.generate_mixture(20_000))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few draws
        run = tm.sample(posterior, init=np.array([0.1, 0.9]), num_samples=200, num_warmup=200)
    assert isinstance(run.kernel, tm.Ladder)
    second = np.asarray(run.samples)[..., 1]
    assert second.min() < -0.5
    assert second.max() > 0.5
    assert "reached the coldest" in str(run.summary())
    with pytest.warns(UserWarning, match="at least 2 modes"):
        run = tm.sample(posterior, init=np.array([0.1, 0.9]), num_samples=10, num_warmup=0, num_chains=1)


@pytest.mark.filterwarnings("ignore:.*trajectories diverged")  # it bends sharply, and chains cross all the same
def test_two_modes_that_chains_cross_between_are_no_doubt():
    """Rows know the sum of one number and the square of another: two modes at the ends of a bent ridge."""
    rows = np.asarray(real(1 + 2 * np.random.default_rng(4).normal(size=100)))
    posterior = tm.Posterior(
        lambda at, row: -0.125 * (row - at[0] - at[1] ** 2) ** 2, rows, lambda at: -0.5 * jnp.sum(at**2)
    )
    run = tm.sample(posterior, init=np.asarray(real([0.0, 0.5])), num_samples=3000)
    assert "found 2 modes" in " ".join(run.choices)
    assert run.doubts == ()

    def log_density(points):
        return -0.125 * np.sum((np.asarray(rows, float) - (points[:, :1] + points[:, 1:] ** 2)) ** 2, axis=1) - 0.5 * (
            np.sum(points**2, axis=1)
        )

    within_monte_carlo_error(run, *moments_on_a_grid(log_density, np.linspace(-4, 4, 400), np.linspace(-4, 4, 400)))


def test_heavy_tails_are_noticed_and_sampled():
    """Four rows with Cauchy noise: a normal at the mode would lose the tails. Quantiles by quadrature."""
    rows = np.asarray(real([-3.0, 0.0, 1.0, 4.0]))
    posterior = tm.Posterior(lambda place, row: -jnp.log1p((row - place) ** 2), rows)
    run = tm.sample(posterior, init=0.0, num_samples=20_000, num_warmup=500)
    assert isinstance(run.kernel, tm.NUTS)
    assert run.doubts == ()

    def density(place):
        return np.prod(1 / (1 + (np.array([-3.0, 0.0, 1.0, 4.0]) - place) ** 2))

    whole = integrate.quad(density, -200, 200, points=[-3, 0, 1, 4], limit=400)[0]
    beyond = 1 - integrate.quad(density, -4, 5, points=[-3, 0, 1, 4])[0] / whole
    found = np.mean((run.samples < -4) | (run.samples > 5))
    assert abs(found - beyond) < 0.3 * beyond


def test_a_poor_expansion_falls_back_to_all_rows_and_says_so():
    """The log likelihood has a kink at the mode: no expansion helps."""
    rows = np.asarray(real(np.random.default_rng(0).normal(size=2001)))
    posterior = tm.Posterior(lambda place, row: -jnp.abs(row - place) * 3, rows, lambda place: -0.5 * 1e-3 * place**2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = tm.sample(posterior, init=0.3, num_samples=2000, num_warmup=300)
    median = np.median(rows)
    assert abs(np.mean(run.samples) - median) < 0.05
    assert isinstance(run.kernel, tm.NUTS)
    assert "all 2,001 rows" in " ".join(run.choices)


def test_a_boundary_is_named():
    rows = np.asarray(real(np.random.default_rng(0).exponential(size=3000) * 0.01))
    posterior = tm.Posterior(
        lambda place, row: -0.5 * (row + place) ** 2, rows, lambda place: jnp.where(place < 0, -jnp.inf, 0.0)
    )
    run = tm.sample(posterior, init=0.5, num_samples=2000, num_warmup=300)
    assert "boundary" in run.choices[0]
    assert isinstance(run.kernel.proposal, tm.RandomWalk)
    assert np.all(np.asarray(run.samples) >= 0)
    places = np.linspace(0, 0.2, 20_001)
    mass = np.exp(-0.5 * 3000 * places**2 - places * float(rows.sum()))
    mean = mass @ places / mass.sum()
    table = run.summary().table
    assert np.all(np.abs(table["mean"] - mean) < 4.5 * table["mcse_mean"])  # 7e-6 false alarms; fixed seed


@pytest.mark.parametrize("case", ["collinear", "separable"])
def test_improper_posteriors_are_refused(rows, case):
    X, y = rows
    if case == "collinear":
        X = np.concatenate([X, X[:, 1:2]], axis=1)
    else:
        y = (X[:, 1] > 0).astype(X.dtype)
    with pytest.raises(ValueError, match="flat in a direction" if case == "collinear" else "separable"):
        tm.sample(tm.models.logistic_regression(X, y, prior_precision=0.0))


def test_float32_that_is_too_coarse_is_refused():
    if jnp.result_type(float) == jnp.float64:
        pytest.skip("float64 is fine enough")
    rows = np.random.default_rng(0).normal(1e6, 1e-2, size=3000).astype(np.float32)
    posterior = tm.Posterior(lambda place, row: -0.5 * ((row - place) * 100) ** 2, rows)
    with pytest.raises(ValueError, match="float32 is too coarse"):
        tm.sample(posterior, init=1e6)


def test_an_expansion_in_the_wrong_place_is_moved(rows, capsys):
    posterior = tm.models.logistic_regression(*rows)
    found = tm.optimise.mode(posterior, progress=False)
    factor = np.linalg.cholesky(np.linalg.inv(found.hessian))
    kernel = tm.MetropolisHastings(tm.RandomWalk(factor), tm.MHMinibatch())
    wrong = tm.Taylor(2, at=np.asarray(found.position) + 0.5)
    run = tm.sample(posterior, kernel, init=found.position, control_variate=wrong, num_warmup=400, num_samples=400)
    assert "was moved to their middle" in capsys.readouterr().out
    assert "was moved" in " ".join(run.choices)
    assert run.stats["rows"].mean() < 500
    still = tm.sample(posterior, kernel, init=found.position, control_variate=wrong, num_warmup=0, num_samples=100)
    assert still.stats["rows"].mean() > 5 * run.stats["rows"].mean()
    assert run.setup_rows >= still.setup_rows + 2 * 20_000


def test_an_index_beyond_the_position_is_an_error(rows):
    """JAX would take the last number instead, and every diagnostic would look fine."""
    X, y = rows

    def one_more(position, row):
        return plain_logistic(position[: X.shape[1]], row) - 0.5 * position[X.shape[1]] ** 2

    posterior = tm.Posterior(one_more, {"x": X, "y": y})
    with pytest.raises(ValueError, match=r"beyond the end of an array.*pass an init"):
        tm.sample(posterior, progress=False)
    assert tm.optimise.mode(posterior, np.zeros(X.shape[1] + 1), progress=False).converged


def test_rows_that_can_be_separated_need_a_prior(rows):
    """For any likelihood, not only for the library's own."""
    X, _ = rows
    posterior = tm.Posterior(plain_logistic, {"x": X, "y": (X[:, 1] > 0).astype(np.float32)})
    with pytest.raises(ValueError, match=r"does not fall towards infinity.*log_prior"):
        tm.sample(posterior, progress=False)


def test_ctrl_c_during_the_search_for_the_mode_ends_it(rows, monkeypatch):
    X, y = rows
    update = irls_module.exact_update

    def pressed(search):
        signal.raise_signal(signal.SIGINT)
        update(search)

    monkeypatch.setattr(irls_module, "exact_update", pressed)
    with pytest.raises(KeyboardInterrupt, match="looking for the mode"):
        tm.sample(tm.models.logistic_regression(X, y), progress=False)


def test_far_proposals_on_rows_drawn_by_weight_end():
    """They would need millions of draws to know a log ratio of minus thousands exactly; its sign is plain."""
    rng = np.random.default_rng(1)
    X = np.stack([np.ones(2000), rng.integers(0, 2, 2000)], axis=1)
    posterior = tm.models.logistic_regression(X, np.zeros(2000), prior_precision=0.1)
    kernel = tm.MetropolisHastings(tm.RandomWalk(2.0), tm.MHMinibatch())
    run = tm.sample(
        posterior, kernel, control_variate=tm.Taylor(), feed=tm.WeightedFeed, num_samples=50, num_warmup=0, num_chains=2
    )
    assert run.stats["rows"].max() < 50_000  # half a million and more without the end to what is plain


@pytest.mark.parametrize("d", [2, 10])
def test_modes_a_few_standard_deviations_apart_are_two(d):
    """Eight are enough to keep chains apart, in any number of dimensions."""
    rows = np.asarray(real(np.random.default_rng(0).normal(size=500)))
    there = jnp.zeros(d).at[0].set(4.0)

    def two_normals(position, row):
        del row
        distances = [jnp.sum((position - sign * there) ** 2) for sign in (-1, 1)]
        return jax.nn.logsumexp(-0.5 * jnp.stack(distances)) / 500

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = tm.sample(tm.Posterior(two_normals, rows), init=0.9 * np.asarray(there), num_samples=20, num_warmup=20)
    assert "found 2 modes" in " ".join(run.choices)


def moments_on_a_grid(log_density, *axes):
    """Means and standard deviations by sums over a grid."""
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=-1)
    values = log_density(points)
    weights = np.exp(values - values.max())
    weights /= weights.sum()
    mean = weights @ points
    return mean, np.sqrt(weights @ (points - mean) ** 2)


def within_monte_carlo_error(run, mean, sd):
    """Within 4.5 standard errors (7e-6 false alarms each; fixed seed). Widths of long tails have larger ones: twice."""
    table = run.summary().table
    assert np.all(np.abs(table["mean"] - mean) < 4.5 * table["mcse_mean"])
    assert np.all(np.abs(table["sd"] - sd) < 9 * table["mcse_sd"])


def test_a_skewed_posterior_of_few_rows_is_not_taken_for_a_normal():
    """Draws of a normal would miss its long tail, and no diagnostic would show it."""
    X = np.stack([np.ones(5), np.arange(-2.0, 3.0)], axis=1)
    y = (X[:, 1] > 0).astype(float)
    run = tm.sample(tm.models.logistic_regression(X, y, prior_precision=0.01), num_samples=4000)
    assert isinstance(run.kernel, tm.NUTS)
    assert "wider than a normal" in " ".join(run.choices)

    def log_density(points):
        z = points @ X.T
        return np.sum(y * z - np.logaddexp(0, z), axis=1) - 0.005 * np.sum(points**2, axis=1)

    within_monte_carlo_error(run, *moments_on_a_grid(log_density, np.linspace(-40, 25, 500), np.linspace(-5, 60, 500)))


def sparse_posterior(num_rows, num_columns):
    """Orthogonal columns and Laplace priors about as narrow as the likelihood: each coordinate by itself."""
    generator = np.random.default_rng(0)
    X = np.linalg.qr(generator.normal(size=(num_rows, num_columns)))[0] * np.sqrt(num_rows)
    y = X[:, 0] * 0.02 + 2 * generator.normal(size=num_rows)
    X, y = np.asarray(real(X)), np.asarray(real(y))
    pull = np.sqrt(num_rows) / 2

    def log_likelihood(position, row):
        return -0.125 * (row["y"] - row["x"] @ position) ** 2

    posterior = tm.Posterior(log_likelihood, {"x": X, "y": y}, lambda position: -pull * jnp.sum(jnp.abs(position)))
    return posterior, np.asarray(X, float).T @ np.asarray(y, float) / num_rows, 2 / np.sqrt(num_rows), pull


def test_a_prior_that_is_no_normal_costs_no_rows():
    """The likelihood is its expansion, and trajectories know the prior: tests of their ends need few rows."""
    posterior, best, width, pull = sparse_posterior(200_000, 12)
    run = tm.sample(posterior, init=np.asarray(real(np.zeros(12))), num_samples=2000)
    assert isinstance(run.kernel.proposal, tm.HMC)
    places = np.linspace(-8, 8, 20_001) * width
    mass = np.exp(-0.5 * ((places - best[:, None]) / width) ** 2 - pull * np.abs(places))
    mass /= mass.sum(axis=1, keepdims=True)
    mean = mass @ places
    within_monte_carlo_error(run, mean, np.sqrt(mass @ places**2 - mean**2))
    assert run.summary().table["ess_bulk"].min() > 1000


def groups_prior(position):
    """Of a centred hierarchy."""
    spread = jnp.exp(position["log_spread"])
    effects = -0.5 * jnp.sum(((position["effect"] - position["mean"]) / spread) ** 2)
    return effects - position["effect"].size * position["log_spread"] - 0.5 * (position["mean"] ** 2 + spread**2)


def groups_likelihood(position, row):
    return -0.5 * (row["y"] - position["effect"][row["group"]]) ** 2


@pytest.fixture(scope="module")
def hierarchy():
    generator = np.random.default_rng(4)
    group = np.repeat(np.arange(20, dtype=np.int32), 15)
    effect = 0.5 + 0.6 * generator.normal(size=20)
    y = effect[group] + generator.normal(size=300)
    init = {"mean": 0.0, "log_spread": 0.0, "effect": np.asarray(real(np.zeros(20)))}
    return tm.Posterior(groups_likelihood, {"y": np.asarray(real(y)), "group": group}, groups_prior), init


def test_a_hierarchy_is_right(hierarchy):
    """With the effects integrated out, mean and log spread have a density in closed form."""
    posterior, init = hierarchy
    run = tm.sample(posterior, init=init, num_samples=3000)
    y = np.asarray(posterior.data["y"], float).reshape(20, 15).mean(axis=1)

    def log_density(points):
        mean, log_spread = points[:, :1], points[:, 1:]
        variance = np.exp(2 * log_spread) + 1 / 15
        effects = -0.5 * np.sum((y - mean) ** 2 / variance + np.log(variance), axis=1)
        return effects - 0.5 * (mean[:, 0] ** 2 + np.exp(2 * log_spread[:, 0]))

    mean, sd = moments_on_a_grid(log_density, np.linspace(-1, 2, 400), np.linspace(-4, 1, 400))
    table = run.summary().table.loc[["mean", "log_spread"]]
    assert np.all(np.abs(table["mean"] - mean) < 4.5 * table["mcse_mean"])
    assert np.all(np.abs(table["sd"] - sd) < 9 * table["mcse_sd"])


def test_the_same_posterior_gets_the_same_method_whatever_the_key(hierarchy, rows):
    few = tm.models.logistic_regression(rows[0][:60], rows[1][:60])
    for posterior, init in (hierarchy, (few, None)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runs = [
                tm.sample(posterior, init=init, rng_key=key, num_samples=20, num_warmup=20, progress=False)
                for key in range(5)
            ]
        assert len({run.choices for run in runs}) == 1
        draws = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(run.samples)]) for run in runs]
        assert len({draw.tobytes() for draw in draws}) == 5
