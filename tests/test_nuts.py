"""NUTS on all rows: the posterior it draws from, what it learns, and that it is a kernel like others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.window_adaptation import Schedule
from tests.registry import real

ROWS = np.random.default_rng(0).normal(0.3, 1.0, size=500)
DRIVERS = {"alone": tm.ChainByChain, "together": lambda: tm.Together(rounds=32)}


def log_likelihood(position, row):
    precision = position["log_precision"]
    return -0.5 * (row - position["mean"]) ** 2 * jnp.exp(precision) + 0.5 * precision


def normal_likelihood(position, row):
    """Of a mean of many coordinates of unlike widths: 1 to 100 standard deviations of a row's noise."""
    return -0.5 * jnp.sum(((row - position) / WIDTHS.astype(position.dtype)) ** 2)


def normal_prior(position):
    return -0.5 * jnp.sum(position**2)


WIDTHS = np.geomspace(1.0, 100.0, 5)
MANY = np.random.default_rng(1).normal(2.0, WIDTHS, size=(400, 5))


@pytest.fixture(scope="module")
def posterior():
    return tm.Posterior(log_likelihood, np.asarray(real(ROWS)))


@pytest.fixture(scope="module")
def run(posterior):
    return tm.sample(posterior, tm.NUTS(), init={"mean": 0.0, "log_precision": 0.5}, num_samples=300, num_warmup=200)


def same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one.samples, other.samples)
    assert one.stats.keys() == other.stats.keys()
    for name in one.stats:
        np.testing.assert_array_equal(one.stats[name], other.stats[name])


@pytest.mark.parametrize("temperature", [1.0, 7.0])
def test_a_posterior_in_closed_form(temperature):
    """Means and standard deviations of 5 coordinates within 4.5 Monte Carlo errors (1e-4 false alarms; fixed seed)."""
    posterior = tm.Posterior(normal_likelihood, np.asarray(real(MANY)), normal_prior, temperature=temperature)
    found = tm.sample(posterior, tm.NUTS(), init=jnp.zeros(5), num_samples=2000, num_warmup=300, rng_key=1)
    precision = 1 + 400 / WIDTHS**2 / temperature
    mean = MANY.sum(0) / WIDTHS**2 / temperature / precision
    table = found.summary().table
    assert np.all(np.abs(table["mean"] - mean) < 4.5 * table["mcse_mean"])
    assert np.all(np.abs(table["sd"] - precision**-0.5) < 4.5 * table["mcse_sd"])
    assert np.all(table["ess_bulk"] > 2000)


@pytest.mark.parametrize("driver", DRIVERS)
def test_an_extended_run_is_one_long_run(posterior, run, driver):
    options = {"init": {"mean": 0.0, "log_precision": 0.5}, "num_warmup": 200, "driver": DRIVERS[driver]()}
    short = tm.sample(posterior, tm.NUTS(), num_samples=100, **options)
    same(short.extend(200, driver=DRIVERS[driver]()), run)


def test_a_saved_run_goes_on(posterior, run, tmp_path):
    short = tm.sample(posterior, tm.NUTS(), init={"mean": 0.0, "log_precision": 0.5}, num_samples=100, num_warmup=200)
    short.save(tmp_path / "run")
    same(tm.load(tmp_path / "run").extend(200), run)


def test_what_is_told_of_a_transition(posterior, run):
    stats = run.stats
    assert np.all(stats["rows"] == 500)
    assert np.all(stats["used_all_rows"])
    assert np.all(stats["gradients"] >= 2 ** (stats["tree_depth"] - 1))
    assert np.all(stats["gradients"] < 2.0 ** stats["tree_depth"])
    moved = np.any([np.diff(leaf, axis=1) != 0 for leaf in jax.tree.leaves(run.samples)], axis=0)
    np.testing.assert_array_equal(moved, stats["accepted"][:, 1:])
    costs = run.summary().costs
    assert costs["gradients_mean"] == stats["gradients"].mean()
    evaluations = 500 * stats["gradients"].sum() + run.setup_rows
    assert costs["evaluations_per_ess"] == pytest.approx(evaluations / run.summary().table["ess_bulk"].min())
    assert "a step, each of all rows" in str(run.summary())


def test_the_schedule_is_that_of_blackjax():
    from blackjax.adaptation.window_adaptation import build_schedule

    for num_steps in (0, 1, 19, 20, 21, 57, 149, 150, 151, 175, 300, 999, 1000, 5000):
        ours = Schedule.of(num_steps)
        steps = np.arange(num_steps)
        inside = (steps >= ours.slow[0]) & (steps < ours.slow[1])
        with jax.numpy_dtype_promotion("standard"):
            theirs = np.asarray(build_schedule(num_steps)).reshape(-1, 2)
        np.testing.assert_array_equal(np.stack([inside, np.isin(steps, ours.ends)], 1), theirs)


def funnel_prior(position):
    return (
        -0.5 * position["v"] ** 2 / 9 - 0.5 * jnp.sum(position["x"] ** 2) * jnp.exp(-position["v"]) - 2 * position["v"]
    )


def nothing(position, row):
    return 0.0 * row * position["v"]


def test_divergences_are_seen():
    """In Neal's funnel, of all places."""
    posterior = tm.Posterior(nothing, np.zeros(2, np.asarray(real(0)).dtype), funnel_prior)
    init = {"v": jnp.zeros(()), "x": jnp.ones(4)}
    with pytest.warns(UserWarning, match="trajectories diverged"):
        found = tm.sample(posterior, tm.NUTS(), init=init, num_samples=1000, num_warmup=300)
    assert found.stats["divergent"].sum() > 0
    assert "diverged" in str(found.summary())


def test_short_trees_are_told():
    posterior = tm.Posterior(normal_likelihood, np.asarray(real(MANY)), normal_prior)
    found = tm.sample(posterior, tm.NUTS(max_tree_depth=1), init=jnp.zeros(5), num_samples=50, num_warmup=50)
    assert np.all(found.stats["gradients"] == 1)
    assert "max_tree_depth=1" in str(found.summary())


def test_there_is_nothing_to_audit(run):
    with pytest.raises(ValueError, match="nothing to audit: NUTS reads all rows"):
        tm.audit(run)


def test_it_takes_turns_with_others(posterior):
    walk = tm.MetropolisHastings(tm.RandomWalk(0.05), tm.Exact(100))
    init = {"mean": 0.0, "log_precision": 0.5}
    found = tm.sample(posterior, tm.Cycle([tm.NUTS(), walk]), init=init, num_samples=1000, num_warmup=400)
    of_nuts, of_walk = found.part_stats(0), found.part_stats(1)
    assert 0.7 < of_nuts["acceptance"].mean() < 0.97
    assert np.all(of_nuts["gradients"] > 0)
    assert np.all(of_walk["gradients"] == 0)
    alone = found.samples["mean"][:, 1::2]
    assert abs(alone.mean() - ROWS.mean()) < 5 * ROWS.std() / np.sqrt(500) / np.sqrt(1000)


@pytest.mark.parametrize(
    ("kernel", "options", "message"),
    [
        (tm.NUTS(), {"feed": tm.InMemoryFeed}, "this rule reads all rows at once: InMemoryFeed"),
        (tm.MetropolisHastings(tm.RandomWalk(0.1), tm.Exact()), {"feed": tm.AllRowsFeed}, "AllRowsFeed cannot feed it"),
    ],
)
def test_feeds_that_do_not_fit_are_named(posterior, kernel, options, message):
    with pytest.raises(ValueError, match=message):
        tm.sample(posterior, kernel, init={"mean": 0.0, "log_precision": 0.5}, num_samples=10, **options)


def test_what_has_no_gradient_is_refused():
    posterior = tm.Posterior(lambda z, row: -(jnp.abs(z) ** 2), np.zeros(10, np.float32))
    with pytest.raises(ValueError, match=r"init holds complex.*which has none"):
        tm.sample(posterior, tm.NUTS(), init=np.zeros((), np.complex64), num_samples=10)
