"""Kernels made of kernels, and proposals that need rows: what a user sees of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tests.registry import real


def log_likelihood(position, row):
    return -0.5 * (row - position) ** 2


def log_prior(position):
    return -0.5 * position**2


@pytest.fixture(scope="module")
def posterior():
    rows = np.random.default_rng(0).normal(0.3, 1.0, size=4000)
    return tm.Posterior(log_likelihood, np.asarray(real(rows)), log_prior, temperature=400.0)


@pytest.fixture(scope="module")
def regression():
    X, y, _ = tm.models.generate_logistic(3000, 3)
    return tm.models.logistic_regression(X, y)


def walk(rule, scale=0.4):
    return tm.MetropolisHastings(tm.RandomWalk(scale), rule)


@pytest.fixture(scope="module")
def mixed(posterior):
    kernel = tm.Mixture([walk(tm.Exact(500)), walk(tm.MHMinibatch(50), 0.1)], weights=[1, 3])
    return tm.sample(posterior, kernel, init=0.0, num_samples=2000, num_warmup=500, rng_key=3)


def test_a_posterior_in_closed_form(posterior, mixed):
    """Mean and standard deviation within 4 Monte Carlo errors (6e-5 false alarms each; fixed seed)."""
    precision = 1 + 4000 / 400
    mean = float(np.sum(np.asarray(posterior.data, float))) / 400 / precision
    line = mixed.summary().table.iloc[0]
    assert abs(line["mean"] - mean) < 4 * line["mcse_mean"]
    assert abs(line["sd"] - precision**-0.5) < 4 * line["mcse_sd"]


def test_statistics_of_each_part(mixed):
    """Parts are drawn by their weights: 8,000 transitions, 5 standard errors."""
    part = mixed.stats["part"]
    assert abs(np.mean(part == 1) - 0.75) < 5 * np.sqrt(0.75 * 0.25 / part.size)
    exact, few = mixed.part_stats(0), mixed.part_stats(1)
    assert np.all(exact["rows"] == 4000)
    assert few["rows"].mean() < 1000
    assert np.all(exact["used_all_rows"])
    assert np.all(np.isnan(exact["error"]))
    assert np.all(np.isfinite(few["error"]))
    assert exact["rows"].size + few["rows"].size == part.size
    text = str(mixed.summary())
    assert "part 0 (Exact)" in text
    assert "part 1 (MHMinibatch)" in text


def test_every_part_moves_the_one_chain(mixed):
    """From where the part before left it: whoever rejects stays there."""
    moved = np.diff(np.asarray(mixed.samples), axis=1) != 0
    np.testing.assert_array_equal(moved, mixed.stats["accepted"][:, 1:])


def test_each_part_tunes_itself(mixed):
    """Towards its own rate of acceptance, from steps that were too long and too short."""
    first, second = mixed.step_size
    assert first.shape == second.shape == (4,)
    assert abs(mixed.part_stats(0)["accepted"].mean() - tm.Exact().promise.best_acceptance) < 0.1
    assert abs(mixed.part_stats(1)["accepted"].mean() - tm.MHMinibatch().promise.best_acceptance) < 0.1


def test_a_cycle_takes_turns(posterior):
    kernel = tm.Cycle([walk(tm.Exact(500)), tm.Cycle([walk(tm.MHMinibatch(50)), walk(tm.AustereMH(0.05, 100))])])
    run = tm.sample(posterior, kernel, init=0.0, num_samples=12, num_warmup=5, num_chains=2)
    # Outer members alternate, and so do those of the inner cycle when it is its turn.
    np.testing.assert_array_equal(run.stats["part"], [[1, 0, 2, 0] * 3] * 2)


def test_every_part_is_audited(mixed):
    found = tm.audit(mixed, num_steps=40)
    assert len(found.parts) == 2
    assert found.parts[0].error_rate == 0
    assert "reverse" in found.parts[0].measured
    assert "root mean square" in found.parts[1].measured
    assert found.interval == max(found.parts, key=lambda one: (one.interval[0], one.error_rate)).interval


def test_a_wrong_bound_does_not_pass_unseen_in_a_part(regression):
    wrong = tm.DerivativeBounds(first=np.full(3000, 1e-4), second=np.full(3000, 1e-4), third=np.full(3000, 1e-6))
    posterior = tm.Posterior(regression.log_likelihood, regression.data, regression.log_prior, bounds=wrong)
    alone = walk(tm.MHSS(), 0.1)
    for kernel, named in ((alone, r"^row \d+"), (tm.Cycle([walk(tm.Exact(), 0.1), alone]), r"part 1 \(MHSS\): row")):
        with pytest.raises(ValueError, match=named):
            tm.sample(posterior, kernel, init=np.zeros(3, np.float32), num_samples=10)


@pytest.mark.parametrize(
    ("parts", "options", "message"),
    [
        ([tm.Exact(), tm.TunaMH()], {}, r"part 1 \(TunaMH\)"),
        ([tm.Exact(), tm.Mint(100, 0.9)], {}, r"part 1 \(Mint\): exponent"),
        ([tm.MHMinibatch(), tm.Exact()], {"feed": tm.WeightedFeed}, r"part 1 \(Exact\) counts on seeing each row once"),
        ([tm.MHSS(1), tm.MHSS(2)], {}, r"part 0 \(MHSS\) needs a Taylor expansion of order 1, and part 1"),
    ],
)
def test_a_part_that_is_refused_names_itself(posterior, parts, options, message):
    with pytest.raises(ValueError, match=message):
        tm.sample(posterior, tm.Cycle([walk(rule) for rule in parts]), init=0.0, num_samples=10, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tm.Cycle([]), "needs a list of kernels"),
        (lambda: tm.Cycle([tm.Exact()]), "Kernel"),  # the type check of the tests comes first
        (lambda: tm.Mixture([walk(tm.Exact())], weights=[1.0, 2.0]), "pass one number a kernel"),
        (lambda: tm.Mixture([walk(tm.Exact())] * 2, weights=[1.0, 0.0]), "must be positive"),
    ],
)
def test_bad_composites_are_named(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


class MinibatchStep(tm.Proposal):
    """A Langevin step along the gradient of a few rows; its own density does not depend on where the rows came from."""

    step: float = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)

    @property
    def needs(self):
        return tm.Needs(self.batch_size)

    def propose(self, key, position, model, window):
        def slope(at):
            def total(p):
                total = jnp.sum(window.map(lambda rows: model.log_likelihoods(p, rows)))
                return model.log_prior(p) + total * model.num_rows / window.count.astype(p.dtype) / model.temperature

            return jax.grad(total)(at)

        noise = jax.random.normal(key, (), position.dtype)
        ahead = self.step**2 / 2 * slope(position)
        new = position + ahead + self.step * noise
        back = self.step**2 / 2 * slope(new)
        log_ratio = ((new - position - ahead) ** 2 - (position - new - back) ** 2) / (2 * self.step**2)
        return tm.Move(new, log_ratio)


@pytest.mark.parametrize("driver", [tm.ChainByChain(), tm.Together(rounds=32)])
def test_a_proposal_that_needs_rows_gets_a_window_that_is_counted(posterior, driver):
    """By the same door as the rule, but of its own size; 4 Monte Carlo errors."""
    kernel = tm.MetropolisHastings(MinibatchStep(0.4, 64), tm.Exact(1000))
    run = tm.sample(posterior, kernel, init=0.0, num_samples=1500, num_warmup=0, driver=driver)
    assert np.all(run.stats["rows"] == 4000 + 64)
    precision = 1 + 4000 / 400
    line = run.summary().table.iloc[0]
    assert abs(line["sd"] - precision**-0.5) < 4 * line["mcse_sd"]
    mean = float(np.sum(np.asarray(posterior.data, float))) / 400 / precision
    assert abs(line["mean"] - mean) < 4 * line["mcse_mean"]


def test_a_proposal_that_needs_rows_may_be_a_part(posterior):
    kernel = tm.Cycle([tm.MetropolisHastings(MinibatchStep(0.4, 64), tm.MHMinibatch(100)), walk(tm.Exact(1000))])
    run = tm.sample(posterior, kernel, init=0.0, num_samples=50, num_warmup=10, num_chains=2)
    assert np.all(run.part_stats(0)["rows"] >= 64 + 82)
    assert np.all(run.part_stats(1)["rows"] == 4000)
