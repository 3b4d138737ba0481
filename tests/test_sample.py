"""`tm.sample` from a user's side: shapes, statistics, warm-up, interruption, posteriors in closed form."""

import io
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import tallmc as tm
from tallmc.console import progress as progress_module
from tests.registry import PROPOSALS, real


def log_likelihood(position, row):
    return -0.5 * (row - position) ** 2


def normal_posterior(num_rows=4000, temperature=400.0, seed=0):
    rows = np.asarray(real(np.random.default_rng(seed).normal(0.3, 1.0, size=num_rows)))
    return tm.Posterior(log_likelihood, rows, lambda position: -0.5 * position**2, temperature)


def sample(posterior, rule, scale=0.7, **options):
    settings = {"init": 0.0, "num_samples": 100, "num_warmup": 100, "num_chains": 2} | options
    return tm.sample(posterior, tm.MetropolisHastings(tm.RandomWalk(scale), rule), **settings)


@pytest.mark.parametrize("rule", [tm.Exact(), tm.ExactBarker(), tm.MHMinibatch(50), tm.MHMinibatch(100, sigma=1.4)])
def test_conjugate_normal_posterior(rule):
    """Mean and sd of 64 independent chains within 5 standard errors (6e-7 false alarms each) of the closed form."""
    posterior = normal_posterior()
    run = sample(posterior, rule, num_samples=600, num_warmup=200, num_chains=64, rng_key=5)
    precision = 4000 / 400 + 1
    mean = np.sum(np.asarray(posterior.data, float)) / 400 / precision
    draws = np.asarray(run.samples, float)
    for figures, truth in ((draws.mean(axis=1), mean), (((draws - mean) ** 2).mean(axis=1), 1 / precision)):
        standard_error = figures.std(ddof=1) / np.sqrt(64)
        assert abs(figures.mean() - truth) < 5 * standard_error


def few_positives(position, row):
    """Logistic, one coefficient."""
    return jnp.where(row, position, 0.0) - jax.nn.softplus(position)


@pytest.mark.parametrize("rule", [tm.MHSS(), tm.TunaMH(batch_size=8)])
def test_exact_subsampling_on_a_skewed_posterior(rule):
    """4 positives of 100: the mean lies 0.3 standard deviations from that of a normal at the mode. Mean and variance of
    64 chains within 5 standard errors (6e-7 false alarms each) of what a grid gives."""
    rows = np.arange(100) < 4
    bounds = tm.DerivativeBounds(first=np.ones(100), second=np.full(100, 0.25), third=np.full(100, 0.0963))
    posterior = tm.Posterior(few_positives, rows, lambda position: -0.5 * position**2 / 25, bounds=bounds)
    mode = np.log(4 / 96)
    kernel = tm.MetropolisHastings(tm.RandomWalk(1.0), rule)
    run = tm.sample(
        posterior, kernel, init=mode, control_variate=tm.Taylor(2, at=mode), num_samples=800, num_chains=64, rng_key=5
    )
    grid = np.linspace(-9, 1, 4001)
    weights = np.exp(4 * grid - 100 * np.logaddexp(0, grid) - grid**2 / 50 + 16.8)
    mean = np.average(grid, weights=weights)
    variance = np.average((grid - mean) ** 2, weights=weights)
    draws = np.asarray(run.samples, float)
    for figures, truth in ((draws.mean(axis=1), mean), (((draws - mean) ** 2).mean(axis=1), variance)):
        assert abs(figures.mean() - truth) < 5 * figures.std(ddof=1) / 8
    assert run.stats["rows"].mean() < 50


@pytest.mark.parametrize("name", PROPOSALS)
def test_any_scale_leaves_the_posterior_alone(name):
    def two(position, row):
        return -0.5 * jnp.sum((row - position) ** 2)

    rows = np.asarray(real(np.random.default_rng(0).normal(size=(2000, 2))))
    posterior = tm.Posterior(two, rows, temperature=200.0)
    kernel = tm.MetropolisHastings(PROPOSALS[name](), tm.ExactBarker())
    run = tm.sample(posterior, kernel, init=real([0.0, 0.0]), num_samples=500, num_warmup=100, num_chains=64)
    figures = np.asarray(run.samples, float).mean(axis=1)
    standard_errors = figures.std(axis=0, ddof=1) / 8
    assert np.all(np.abs(figures.mean(axis=0) - rows.mean(axis=0)) < 5 * standard_errors)


def test_positions_can_be_any_pytree():
    def pair(position, row):
        return -0.5 * (row - position["a"]) ** 2 - 0.5 * jnp.sum(position["b"][0] ** 2) / 100

    rows = np.asarray(real(np.random.default_rng(0).normal(size=500)))
    init = {"a": 0.0, "b": [np.zeros((2, 3)), 1.0]}
    run = sample(tm.Posterior(pair, rows, lambda p: -0.5 * p["b"][1] ** 2, 50.0), tm.MHMinibatch(50), init=init)
    assert jax.tree.map(np.shape, run.samples) == {"a": (2, 100), "b": [(2, 100, 2, 3), (2, 100)]}
    assert set(run.to_datatree()["posterior"].data_vars) == {"a", "b.0", "b.1"}


def test_statistics_say_what_a_draw_cost():
    run = sample(normal_posterior(), tm.MHMinibatch(50))
    assert run.stats["accepted"].shape == run.stats["rows"].shape == (2, 100)
    assert run.stats["accepted"].dtype == bool
    assert np.all(run.stats["rows"] >= 50)
    assert np.all(run.stats["error"] >= 0)
    assert not run.stats["used_all_rows"].any()
    assert run.setup_rows > 0
    moved = np.any(np.diff(np.asarray(run.samples), axis=1) != 0, axis=0)
    np.testing.assert_array_equal(moved, run.stats["accepted"][:, 1:].any(axis=0))


def test_exact_rules_use_all_rows():
    run = sample(normal_posterior(num_rows=4001), tm.Exact(batch_size=1000))
    assert np.all(run.stats["rows"] == 4001)
    assert run.stats["used_all_rows"].all()


def test_datatree_and_summary():
    run = sample(normal_posterior(), tm.MHMinibatch(50))
    tree = run.to_datatree()
    assert set(tree.children) == {"posterior", "sample_stats", "observed_data"}
    text = str(run.summary())
    for word in (
        "mean",
        "5%",
        "95%",
        "ess_bulk",
        "ess_tail",
        "r_hat",
        "mcse_mean",
        "accepted",
        "rows per step",
        "all rows",
    ):
        assert word in text
    assert "likelihood evaluations per effective sample" in text
    assert "<table" in run.summary()._repr_html_()


@pytest.mark.parametrize(
    ("rule", "target"), [(tm.Exact(), 0.234), (tm.ExactBarker(), 0.159), (tm.MHMinibatch(50), 0.159)]
)
def test_warmup_finds_the_best_acceptance_rate_and_then_leaves_it(rule, target):
    """Fixed seed; 8 chains of 500 draws give the acceptance a standard error of about 0.01."""

    def wide(position, row):
        return -0.5 * jnp.sum((row - position) ** 2)

    rows = np.asarray(real(np.random.default_rng(0).normal(size=(1000, 10))))
    posterior = tm.Posterior(wide, rows, temperature=100.0)
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.01), rule)
    run = tm.sample(posterior, kernel, init=real(np.zeros(10)), num_samples=500, num_warmup=1000, num_chains=8)
    assert abs(run.stats["accepted"].mean() - target) < 0.05
    assert np.all(run.step_size > 5)


def test_no_warmup_tunes_nothing():
    run = sample(normal_posterior(), tm.MHMinibatch(50), num_warmup=0)
    np.testing.assert_array_equal(run.step_size, 1)


def test_each_chain_can_start_somewhere_else():
    run = sample(
        normal_posterior(), tm.MHMinibatch(50), init=np.array([-1.0, 1.0]), num_samples=1, num_warmup=0, scale=1e-3
    )
    np.testing.assert_allclose(run.samples[:, 0], [-1.0, 1.0], atol=0.02)


def test_a_proposal_outside_the_support_is_rejected():
    posterior = tm.Posterior(
        lambda p, row: -0.5 * (row - p) ** 2 + jnp.log(p),
        np.asarray(real(np.ones(1000))),
        lambda p: jnp.where(p > 0, 0.0, -jnp.inf),
        temperature=1000.0,
    )
    run = sample(posterior, tm.MHMinibatch(50), init=0.5, scale=2.0)
    assert np.all(run.samples > 0)
    assert not run.stats["nonfinite"].any()


@pytest.mark.parametrize("rule", [tm.Exact(), tm.MHMinibatch(50)])
def test_a_log_ratio_that_turns_nonfinite_rejects_and_is_counted(rule):
    posterior = tm.Posterior(
        lambda p, row: -0.5 * (row - p) ** 2 + jnp.where(p < 0, jnp.nan, 0.0) * row,
        np.asarray(real(np.ones(1000))),
        temperature=1000.0,
    )
    run = sample(posterior, rule, init=0.5, scale=2.0)
    assert np.all(run.samples >= 0)
    assert run.stats["nonfinite"].sum() > 10
    assert not np.any(run.stats["nonfinite"] & run.stats["accepted"])
    assert "not finite" in str(run.summary())


def test_a_likelihood_need_not_look_at_every_column():
    """The compiler used to end the process over an array that the loop never reads. The draws are those without it."""
    plain = normal_posterior()
    rows = {"y": plain.data, "unused": np.zeros_like(plain.data)}
    posterior = tm.Posterior(lambda b, row: log_likelihood(b, row["y"]), rows, plain.log_prior, plain.temperature)
    runs = [sample(target, tm.MHMinibatch(50), rng_key=3) for target in (plain, posterior)]
    np.testing.assert_array_equal(runs[0].samples, runs[1].samples)


def test_one_row_is_enough():
    run = sample(tm.Posterior(log_likelihood, np.asarray(real([1.0]))), tm.MHMinibatch(50), init=0.0)
    assert np.all(run.stats["rows"] == 1)


def test_same_key_same_draws_and_other_key_other_draws():
    posterior = normal_posterior()
    one, same, other = (sample(posterior, tm.MHMinibatch(50), rng_key=key) for key in (1, jax.random.key(1), 2))
    np.testing.assert_array_equal(one.samples, same.samples)
    assert np.any(one.samples != other.samples)


class Impatient(tm.ChainByChain):
    """Presses Ctrl-C in the middle of a block once there are draws."""

    def advance(self, problem, work, until, most):
        if until > 500:
            signal.raise_signal(signal.SIGINT)
        return super().advance(problem, work, until, most)


def test_interrupt_returns_what_was_drawn():
    """The block under way is finished, the draws so far come back, and the summary says so."""
    whole = sample(normal_posterior(), tm.MHMinibatch(50), num_samples=3000, num_warmup=10)
    before = signal.getsignal(signal.SIGINT)
    run = sample(normal_posterior(), tm.MHMinibatch(50), num_samples=3000, num_warmup=10, driver=Impatient())
    assert run.interrupted
    assert 0 < run.num_draws < 3000
    np.testing.assert_array_equal(run.samples, whole.samples[:, : run.num_draws])
    assert "stopped early" in str(run.summary())
    assert signal.getsignal(signal.SIGINT) is before


class VeryImpatient(tm.ChainByChain):
    """Presses Ctrl-C at once."""

    def advance(self, problem, work, until, most):
        signal.raise_signal(signal.SIGINT)
        return super().advance(problem, work, until, most)


def test_interrupt_before_the_first_draw_has_nothing_to_return():
    with pytest.raises(KeyboardInterrupt, match="during warm-up"):
        sample(normal_posterior(), tm.MHMinibatch(50), num_warmup=100, driver=VeryImpatient())


def test_progress_bar_shows_draws_acceptance_and_rows():
    console = Console(force_terminal=True, width=160, record=True, file=io.StringIO())
    with progress_module.progress_bar(100, 50, show=True, console=console) as update:
        update(20, {})
        update(80, {"rows": np.array([120, 180]), "accepted": np.array([True, False])})
    text = console.export_text()
    assert "80 of 100" in text
    assert "accepted 0.50" in text
    assert "rows/step 150" in text


def test_nothing_is_printed_when_output_is_not_a_terminal(capsys):
    sample(normal_posterior(), tm.MHMinibatch(50), num_samples=5)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("rule", [tm.Exact(100), tm.MHMinibatch(), tm.AustereMH(0.05, 100), tm.Mint(100, 0.2)])
def test_positions_may_be_coarser_than_the_data(rule):
    rows = np.random.default_rng(0).normal(size=1000)
    posterior = tm.Posterior(lambda mean, row: -0.5 * (row.astype(float) - mean.astype(float)) ** 2, rows)
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.1), rule)
    run = tm.sample(posterior, kernel, init=np.float32(0.0), num_samples=5, num_warmup=0, num_chains=1)
    assert run.samples.dtype == np.float32


def test_a_run_gives_its_posterior_back_to_be_sampled_again():
    X, y, _ = tm.models.generate_logistic(3000, 2)
    first = tm.sample(tm.models.logistic_regression(X, y), num_samples=200, num_warmup=200, progress=False)
    again = tm.sample(first.posterior, num_samples=200, num_warmup=200, progress=False)
    np.testing.assert_array_equal(first.samples, again.samples)
    assert type(again.kernel.rule).__name__ == "MHSS"


def test_progress_false_is_silent(capsys):
    X, y, _ = tm.models.generate_logistic(3000, 2)
    posterior = tm.models.logistic_regression(X, y)
    tm.sample(posterior, num_samples=20, num_warmup=20, progress=False)
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.MHMinibatch())
    tm.sample(posterior, kernel, num_samples=20, num_warmup=20, progress=False)
    assert capsys.readouterr() == ("", "")
    tm.sample(posterior, kernel, num_samples=20, num_warmup=20)
    assert "starting at the mode" in capsys.readouterr().out


def test_log_density_is_that_of_all_rows_and_can_be_compiled():
    posterior = normal_posterior()
    rows = np.asarray(posterior.data, float)
    expected = -0.5 * 0.2**2 - 0.5 * np.sum((rows - 0.2) ** 2) / 400
    np.testing.assert_allclose(posterior.log_density(0.2), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda p: posterior.log_density(p))(real(0.2)), expected, rtol=1e-5)
    hotter = jax.jit(lambda t: posterior.at_temperature(t).log_density(real(0.2)))(800.0)
    np.testing.assert_allclose(hotter, -0.5 * 0.2**2 + (expected + 0.5 * 0.2**2) / 2, rtol=1e-5)
    with pytest.raises(ValueError, match="temperature must be a positive"):
        posterior.at_temperature(-1.0)


def test_chains_that_have_not_mixed_are_doubted():
    """Four chains that hardly move from where they were put: R-hat says so, and so does a warning."""
    posterior = normal_posterior(temperature=4.0)
    kernel = tm.MetropolisHastings(tm.RandomWalk(1e-4), tm.Exact())
    with pytest.warns(tm.ConvergenceWarning, match="R-hat is up to"):
        run = tm.sample(
            posterior, kernel, init=real([0.2, 0.25, 0.3, 0.35]), num_samples=200, num_warmup=0, progress=False
        )
    assert any("R-hat" in doubt for doubt in run.doubts)
    assert any("effective draws (bulk)" in doubt for doubt in run.doubts)
    assert any("effective draws (tail)" in doubt for doubt in run.doubts)
    assert "R-hat is up to" in str(run.summary())


def test_chains_that_have_mixed_are_not_doubted():
    run = sample(normal_posterior(), tm.Exact(), num_samples=2000, num_warmup=200)
    assert run.doubts == ()


def test_one_chain_is_compared_with_itself():
    posterior = normal_posterior(temperature=4.0)
    kernel = tm.MetropolisHastings(tm.RandomWalk(1e-3), tm.Exact())
    run = tm.sample(posterior, kernel, init=0.0, num_samples=300, num_warmup=0, num_chains=1, progress=False)
    assert any("R-hat" in doubt for doubt in run.doubts)
