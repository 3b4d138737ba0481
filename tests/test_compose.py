"""Kernels made of kernels: whose turn it is, what each part tells, tunes and refuses. Laws of theirs are with the laws."""

import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tests.registry import COMPOSITES, real


def log_likelihood(position, row):
    return -0.5 * (row - position) ** 2


@pytest.fixture(scope="module")
def posterior():
    rows = np.asarray(real(np.random.default_rng(0).normal(0.3, 1.0, size=4000)))
    return tm.Posterior(log_likelihood, rows, lambda position: -0.5 * position**2, temperature=400.0)


def bounded(factor=1.0):
    """Logistic with one coefficient; `factor` makes its bounds wrong."""
    rows = np.asarray(real(np.arange(1000) % 4 == 0))
    bounds = tm.DerivativeBounds(*(np.full(1000, bound * factor) for bound in (1.0, 0.25, 0.0963)))
    return tm.Posterior(lambda b, y: y * b - jnp.logaddexp(0.0, b), rows, temperature=5.0, bounds=bounds)


def part(rule, scale=0.5):
    return tm.MetropolisHastings(tm.RandomWalk(scale), rule)


def sample(posterior, kernel, **options):
    settings = {"init": 0.0, "num_samples": 100, "num_warmup": 100, "num_chains": 2} | options
    return tm.sample(posterior, kernel, **settings)


def test_a_cycle_goes_round_and_every_part_tells_its_own(posterior):
    run = sample(posterior, tm.Cycle([part(tm.Exact()), part(tm.MHMinibatch(50)), part(tm.Exact(1000))]))
    np.testing.assert_array_equal(run.stats["part"], np.tile((100 + np.arange(100)) % 3, (2, 1)))
    exact, minibatch = run.part_stats(0), run.part_stats(1)
    assert np.all(exact["rows"] == 4000)
    assert exact["used_all_rows"].all()
    assert np.all(np.isnan(exact["error"]))  # it has none to tell
    assert np.all(minibatch["rows"] < 4000)
    assert np.all(np.isfinite(minibatch["error"]))
    assert sum(len(run.part_stats(number)["rows"]) for number in range(3)) == 200


def test_parts_of_parts_are_numbered_through():
    run = sample(bounded(), COMPOSITES["nested"](tm.RandomWalk(0.2)), init=-1.1, num_chains=1, num_samples=200)
    assert [type(kernel.rule).__name__ for kernel in run.kernel.parts()] == ["MHSS", "AustereMH", "ExactBarker"]
    parts = run.stats["part"][0]
    np.testing.assert_array_equal(parts[1::2], 2)
    assert set(parts[::2].tolist()) == {0, 1}
    assert np.all(run.part_stats(2)["rows"] == 1000)
    assert run.part_stats(0)["rows"].mean() < 50


def test_a_mixture_keeps_its_weights(posterior):
    """16,000 transitions: 5 standard errors (6e-7 false alarms) of a share of 1/8 are 0.013."""
    kernel = tm.Mixture([part(tm.Mint(100, 0.2)), part(tm.Mint(100, 0.2)), part(tm.Mint(100, 0.2))], weights=[1, 5, 2])
    run = sample(posterior, kernel, num_samples=4000, num_chains=4, num_warmup=0)
    shares = np.bincount(run.stats["part"].ravel(), minlength=3) / 16_000
    np.testing.assert_allclose(shares, [1 / 8, 5 / 8, 2 / 8], atol=5 * np.sqrt(0.25 / 16_000))


def test_each_part_tunes_itself(posterior):
    """From steps a hundred times too short, and too long, both come to the acceptance that their own rule likes."""
    kernel = tm.Cycle([part(tm.Exact(), 0.01), part(tm.ExactBarker(), 50.0)])
    run = sample(posterior, kernel, num_samples=1500, num_warmup=2000, num_chains=4)
    short, long = run.step_size
    assert np.all(short > 20)
    assert np.all(long < 0.2)
    for number, target in ((0, 0.234), (1, 0.159)):
        assert abs(run.part_stats(number)["accepted"].mean() - target) < 0.05


@pytest.mark.parametrize("compose", [tm.Cycle, tm.Mixture])
def test_conjugate_normal_posterior(posterior, compose):
    """Mean and variance of 64 chains within 5 standard errors (6e-7 false alarms each) of the closed form."""
    kernel = compose([part(tm.ExactBarker()), part(tm.MHMinibatch(50))])
    run = sample(posterior, kernel, num_samples=600, num_warmup=200, num_chains=64, rng_key=5)
    precision = 4000 / 400 + 1
    mean = np.sum(np.asarray(posterior.data, float)) / 400 / precision
    draws = np.asarray(run.samples, float)
    for figures, truth in ((draws.mean(axis=1), mean), (((draws - mean) ** 2).mean(axis=1), 1 / precision)):
        assert abs(figures.mean() - truth) < 5 * figures.std(ddof=1) / 8


def test_a_part_that_is_refused_is_named(posterior):
    with pytest.raises(ValueError, match=r"part 1 \(MHSubLhd\): MHSubLhd needs a bound"):
        sample(posterior, tm.Cycle([part(tm.Exact()), part(tm.MHSubLhd())]))
    with pytest.raises(ValueError, match=r"part 1 \(Exact\) counts on seeing each row once"):
        sample(posterior, tm.Cycle([part(tm.MHMinibatch()), part(tm.Exact())]), feed=tm.WeightedFeed)
    with pytest.raises(ValueError, match=r"part 0 \(MHSS\) needs a Taylor expansion of order 1, and part 2 \(MHSS\)"):
        sample(posterior, tm.Cycle([part(tm.MHSS(order=1)), tm.Mixture([part(tm.Exact()), part(tm.MHSS())])]))


def test_a_bound_that_does_not_hold_is_found_inside_a_composite_too():
    kernel = tm.Mixture([part(tm.Exact(), 0.2), tm.Cycle([part(tm.Exact(), 0.2), part(tm.MHSS(), 0.2)])])
    sample(bounded(), kernel, init=-1.1, num_samples=10, num_warmup=0)
    with pytest.raises(ValueError, match=r"part 2 \(MHSS\): row \d+ breaks posterior.bounds"):
        sample(bounded(0.01), kernel, init=-1.1, num_samples=10, num_warmup=0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: tm.Cycle([]), "Cycle needs a list of kernels"),
        (lambda: tm.Mixture([part(tm.Exact())], weights=[0.0]), "weights must be positive"),
        (lambda: tm.Mixture([part(tm.Exact())], weights=[1.0, 1.0]), "pass one number a kernel"),
    ],
)
def test_what_cannot_be_composed_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
