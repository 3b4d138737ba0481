"""The same chains for the same keys, however they are scheduled; and nothing is compiled twice."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.numerics.keys import as_key
from tallmc.numerics.programs import programs_ledger
from tallmc.run import drive as drive_module
from tallmc.run import drivers
from tallmc.run.chain import Problem, draw_like, start_chain
from tallmc.run.records import Layout
from tests.registry import COMPOSITES, ONE_OF_EACH, RULES, SUBSAMPLING_RULES, real


def log_likelihood(position, row):
    return (
        -0.5 * (row["y"] - position["mean"]) ** 2 * jnp.exp(position["log_precision"]) + 0.5 * position["log_precision"]
    )


def linear_log_likelihood(position, row):
    return -0.5 * (row["y"] - row["x"] @ position) ** 2


@pytest.fixture(scope="module")
def posterior():
    rows = np.asarray(real(np.random.default_rng(0).normal(1.0, 2.0, size=3001)))
    return tm.Posterior(log_likelihood, {"y": rows}, temperature=60.0)


@pytest.fixture(scope="module")
def linear_posterior():
    generator = np.random.default_rng(1)
    data = {"x": np.asarray(real(generator.normal(size=(2000, 6)))), "y": np.asarray(real(generator.normal(size=2000)))}
    return tm.Posterior(linear_log_likelihood, data, temperature=50.0)


INIT = {"mean": 0.5, "log_precision": -1.0}


def draw(posterior, rule, init=INIT, **options):
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.2), rule)
    settings = {"num_samples": 60, "num_warmup": 40, "num_chains": 3, "rng_key": 2} | options
    return tm.sample(posterior, kernel, init=init, **settings)


def assert_same_run(one, other):
    """Same draws and decisions, bit for bit; error estimates may show how a likelihood's own products were rounded."""
    exact = {"accepted", "rows", "nonfinite", "used_all_rows"}
    jax.tree.map(np.testing.assert_array_equal, one.samples, other.samples)
    for name, values in one.stats.items():
        if name in exact:
            np.testing.assert_array_equal(values, other.stats[name])
        else:
            np.testing.assert_allclose(values, other.stats[name], rtol=1e-3, atol=1e-3)
    jax.tree.map(np.testing.assert_array_equal, one.step_size, other.step_size)


def smooth_log_likelihood(position, row):
    return row["y"] * position - jax.nn.softplus(position)


@pytest.fixture(scope="module")
def bounded_posterior():
    """Logistic with one coefficient, and bounds: the mode is at -1.1, the standard deviation 0.16."""
    bounds = tm.DerivativeBounds(first=np.ones(1000), second=np.full(1000, 0.25), third=np.full(1000, 0.0963))
    rows = {"y": np.asarray(real(np.arange(1000) % 4 == 0))}
    return tm.Posterior(smooth_log_likelihood, rows, temperature=5.0, bounds=bounds)


def expanded(posterior, kernel, **options):
    """A run with an expansion that is made far away: half-way through warm-up it moves to the chains."""
    settings = {"num_samples": 60, "num_warmup": 40, "num_chains": 3, "rng_key": 2} | options
    return tm.sample(posterior, kernel, init=-1.1, control_variate=tm.Taylor(2, at=0.5), **settings)


def crank_nicolson(rule):
    return tm.MetropolisHastings(tm.CrankNicolson(np.array(-1.1), np.array([[0.16]])), rule)


SLOW = ("tuna_mh", "cycle", "mixture", "nested")  # each compiles four loops; mhss and cycle_by_weight stand for them
EXPANDED = {
    **{name: lambda name=name: crank_nicolson(SUBSAMPLING_RULES[name]()) for name in ("tuna_mh", "mhss")},
    **{name: lambda name=name: COMPOSITES[name](tm.RandomWalk(0.2)) for name in COMPOSITES},
}


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_both_drivers_give_the_same_chains_bit_for_bit(posterior, name):
    rule = RULES[name]()
    assert_same_run(
        draw(posterior, rule, driver=tm.ChainByChain()), draw(posterior, rule, driver=tm.Together(rounds=32))
    )


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in EXPANDED]
)
def test_both_drivers_agree_on_rows_by_weight_and_on_parts(bounded_posterior, name):
    """With an expansion that moves during warm-up."""
    kernel = EXPANDED[name]()
    one = expanded(bounded_posterior, kernel, driver=tm.ChainByChain())
    assert "it was moved" in one.choices[0]
    assert_same_run(one, expanded(bounded_posterior, kernel, driver=tm.Together(rounds=32)))


def test_both_drivers_agree_on_means_of_rows_by_weight(bounded_posterior):
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.2), tm.MHMinibatch(50))
    runs = [
        expanded(bounded_posterior, kernel, feed=tm.WeightedFeed, driver=driver)
        for driver in (tm.ChainByChain(), tm.Together(rounds=32))
    ]
    assert_same_run(*runs)


DRIVERS = {"alone": tm.ChainByChain(), "in_pieces": tm.ChainByChain(rounds=3), "together": tm.Together(rounds=32)}


@pytest.fixture(scope="module")
def in_one_go(posterior):
    return draw(posterior, tm.MHMinibatch(50), num_samples=60)


@pytest.mark.parametrize(("first", "second"), [("alone", "alone"), ("together", "together"), ("together", "in_pieces")])
def test_an_extended_run_is_one_long_run(posterior, in_one_go, first, second):
    """Bit for bit, whoever draws which half."""
    half = draw(posterior, tm.MHMinibatch(50), num_samples=25, driver=DRIVERS[first])
    np.testing.assert_array_equal(half.chains.finished, 40 + 25)
    whole = half.extend(35, driver=DRIVERS[second])
    assert_same_run(in_one_go, whole)
    np.testing.assert_array_equal(whole.step_size, half.step_size)
    np.testing.assert_array_equal(whole.chains.finished, 40 + 60)
    assert (half.num_draws, whole.num_draws, whole.setup_rows) == (25, 60, half.setup_rows)


def test_an_extended_run_keeps_an_expansion_that_was_moved(bounded_posterior):
    kernel = EXPANDED["cycle_by_weight"]()
    half = expanded(bounded_posterior, kernel, num_samples=25)
    assert_same_run(expanded(bounded_posterior, kernel), half.extend(35))


def test_a_loop_in_pieces_gives_the_same_chains(posterior, in_one_go):
    assert_same_run(in_one_go, draw(posterior, tm.MHMinibatch(50), driver=DRIVERS["in_pieces"]))


_compiled: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **others: _compiled.append(event) if event.endswith("backend_compile_duration") else None
)


@pytest.mark.parametrize("automatic", [False, True])
def test_one_more_draw_compiles_nothing(automatic):
    """1,000 draws or 1,001: whatever depends on their number is left to NumPy."""
    X, y, _ = tm.models.generate_logistic(2000, 2)
    posterior = tm.models.logistic_regression(X, y)
    kernel = None if automatic else tm.MetropolisHastings(tm.RandomWalk(0.1), tm.MHMinibatch(100))

    def compilations(num_samples):
        before = len(_compiled) + programs_ledger().loaded
        tm.sample(posterior, kernel, num_samples=num_samples, num_warmup=100, num_chains=2)
        return len(_compiled) + programs_ledger().loaded - before

    assert compilations(1000) > 0
    assert compilations(1000) == 0
    assert compilations(1001) == 0


@pytest.mark.parametrize("driver", [tm.ChainByChain(), tm.Together(rounds=32)])
def test_a_chain_alone_is_the_chain_it_is_among_64(posterior, driver):
    """The same problem, key and start, once among 64 and once alone."""
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.2), tm.MHMinibatch(50))
    feed = tm.InMemoryFeed(posterior.num_rows, 50)
    problem = Problem(kernel, posterior.model, feed, feed.arrange(posterior.rows, 0), jnp.int32(10))

    def run(which):
        keys = jax.random.split(as_key(9), 64)[which]
        chains = jax.vmap(lambda key: start_chain(problem, key, jax.tree.map(real, INIT)))(keys)
        layout = Layout(draw_like(problem, jax.tree.map(lambda leaf: leaf[0], chains)))
        work = driver.advance(problem, driver.load(problem, chains, layout.shapes((len(keys), 64))), 50, 50)
        return layout.unpack(driver.fetch(work, 0, 40))

    everyone, alone = run(slice(None)), run(slice(17, 18))
    jax.tree.map(lambda many, one: np.testing.assert_array_equal(many[17], one[0]), everyone.position, alone.position)
    np.testing.assert_array_equal(everyone.stats["rows"][17], alone.stats["rows"][0])


def test_a_matrix_product_agrees_to_rounding(linear_posterior):
    """Batching may reorder a dot product, so decisions at the edge may differ; few do."""
    rule = tm.MHMinibatch(50)
    one = draw(linear_posterior, rule, init=real(np.zeros(6)), driver=tm.ChainByChain())
    other = draw(linear_posterior, rule, init=real(np.zeros(6)), driver=tm.Together(rounds=32))
    np.testing.assert_allclose(one.samples[:, :5], other.samples[:, :5], rtol=1e-4, atol=1e-5)


def test_plain_and_one_piece_loops_agree(posterior, monkeypatch):
    fast = draw(posterior, tm.MHMinibatch(50))
    monkeypatch.setattr(drivers, "_LARGEST_NATIVE_WINDOW", 0)
    assert_same_run(fast, draw(posterior, tm.MHMinibatch(50)))


def test_a_likelihood_that_cannot_be_compiled_as_one_piece_still_runs():
    def sorting(position, row):
        return -0.5 * jnp.sum((jnp.sort(row) - position) ** 2)

    rows = np.asarray(real(np.random.default_rng(0).normal(size=(500, 4))))
    run = draw(tm.Posterior(sorting, rows, temperature=50.0), tm.MHMinibatch(50), init=0.0)
    assert run.samples.shape == (3, 60)


def test_exactly_the_first_transitions_are_kept(posterior):
    rule = tm.MHMinibatch(50)
    for driver in (tm.ChainByChain(), tm.Together(rounds=7)):
        short = draw(posterior, rule, driver=driver, num_samples=20)
        long = draw(posterior, rule, driver=driver, num_samples=60)
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[:, :20]), short.samples, long.samples)


@pytest.mark.parametrize("driver", [tm.ChainByChain(), tm.Together(rounds=32)])
def test_new_values_do_not_recompile(driver):
    """At most two traces of a likelihood in a compiled loop: one to find out shapes, one to compile."""
    traces = []

    def counted(position, row):
        traces.append(1)
        return -0.5 * (row - position) ** 2

    def once(temperature, scale, seed):
        rows = np.asarray(real(np.random.default_rng(seed).normal(size=1000)))
        posterior = tm.Posterior(counted, rows, temperature=temperature)
        kernel = tm.MetropolisHastings(tm.RandomWalk(scale), tm.MHMinibatch(50))
        before = len(traces)
        tm.sample(posterior, kernel, init=0.1 * seed, num_samples=5, num_warmup=2, num_chains=2, driver=driver)
        return len(traces) - before

    first = once(10.0, 0.1, 0)
    assert once(10.0, 0.1, 0) < first
    checks_only = once(10.0, 0.1, 0)
    assert once(20.0, 0.1, 0) == checks_only
    assert once(10.0, 0.2, 0) == checks_only
    assert once(10.0, 0.1, 1) == checks_only


def test_full_precision_is_asked_for():
    """A float32 matrix product must not be rounded to three digits on hardware that would."""
    seen = []

    def log_likelihood(position, row):
        seen.append(jax.config.jax_default_matmul_precision)
        return -0.5 * (row @ position) ** 2

    rows = np.asarray(real(np.ones((100, 2))))
    posterior = tm.Posterior(log_likelihood, rows, temperature=10.0)
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.MHMinibatch())
    tm.sample(posterior, kernel, init=real([0.0, 0.0]), num_samples=2, num_warmup=0, num_chains=1, progress=False)
    assert "highest" in seen


def test_state_between_blocks_is_a_pytree_of_arrays(posterior):
    """What a checkpoint will need."""
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.2), tm.MHMinibatch(50))
    feed = tm.InMemoryFeed(posterior.num_rows, 50)
    problem = Problem(kernel, posterior.model, feed, feed.arrange(posterior.rows, 0), jnp.int32(0))
    chain = start_chain(problem, as_key(0), jax.tree.map(real, INIT))
    assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(chain))


class Clock:
    """A clock that tells the time it is told."""

    def __init__(self):
        self.now, self.finished = 0.0, 0

    def read(self):
        return self.now


def test_many_chains_are_not_moved_in_tiny_blocks(monkeypatch):
    """A call costs a millisecond for each chain; blocks that took no longer than that would never end."""
    clock = Clock()
    monkeypatch.setattr(drive_module.time, "perf_counter", clock.read)
    num_chains, blocks = 512, 0
    pace = drive_module._Pace(tm.ChainByChain().seconds_per_block(num_chains))
    while clock.finished < 20_000:
        transitions = min(pace.block, 20_000 - clock.finished)
        with pace:
            clock.now += num_chains * (1e-3 + 1e-5 * transitions)
        pace.block = pace.learned(transitions)
        clock.finished, blocks = clock.finished + transitions, blocks + 1
    ideal = num_chains * 1e-5 * 20_000
    assert clock.now < 1.2 * ideal
    assert blocks > 2
