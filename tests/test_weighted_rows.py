"""Rows drawn by what they can say: rules that take means for normal are then right where features are rare."""

import numpy as np
import pytest

import tallmc as tm
from tallmc.control_variates import covariance_factor
from tests.registry import real


@pytest.fixture(scope="module")
def rare():
    """Of 20,000 rows 14 say all there is to know of the third coefficient."""
    columns = np.random.default_rng(1).random((20_000, 3)) < [1.0, 0.3, 0.0005]
    y = np.random.default_rng(2).random(20_000) < 1 / (1 + np.exp(-(columns @ [-0.5, 1.0, 2.0])))
    return tm.models.logistic_regression(np.asarray(real(columns)), np.asarray(real(y)))


def third_mean(posterior, rule, feed=None):
    """Of 80,000 draws."""
    found = tm.optimise.mode(posterior, progress=False)
    kernel = tm.MetropolisHastings(tm.CrankNicolson(found.position, covariance_factor(found.hessian), 1.0), rule)
    expansion = tm.Taylor(2, at=found.position)
    run = tm.sample(
        posterior, kernel, init=found.position, control_variate=expansion, feed=feed, num_samples=20_000, num_warmup=0
    )
    return np.asarray(run.samples, float)[..., 2].mean(), run


@pytest.mark.filterwarnings("ignore::tallmc.NormalityWarning")
def test_a_t_test_on_weighted_rows_does_not_overlook_the_few_that_count(rare):
    """Errors of the two means are 0.005 standard deviations together, so 0.025 is chance once in a million times; on
    uniform rows the t-test is off by 0.05."""
    exact, run = third_mean(rare, tm.MHSS())
    sd = np.asarray(run.samples, float)[..., 2].std()
    weighted, run = third_mean(rare, tm.AustereMH(0.001, 500), tm.WeightedFeed)
    uniform, _ = third_mean(rare, tm.AustereMH(0.001, 500))
    assert abs(weighted - exact) < 0.025 * sd < abs(uniform - exact)
    assert run.stats["rows"].mean() < 1000


def test_a_t_test_on_weighted_rows_ends_even_if_the_case_is_even(rare):
    """Draws with replacement never run out."""
    kernel = tm.MetropolisHastings(tm.RandomWalk(np.array([0.01, 0.02, 0.3])), tm.AustereMH(0.0, 5000))
    run = tm.sample(rare, kernel, control_variate=tm.Taylor(), feed=tm.WeightedFeed, num_samples=20, num_warmup=0)
    assert np.all(run.stats["rows"] == 20_000)
    assert not np.any(run.stats["used_all_rows"])


def test_a_t_test_on_weighted_rows_needs_an_expansion():
    """After as many draws as rows the log ratio is known no better than its own size: widths were a third too large."""
    X, y, _ = tm.models.generate_logistic(4000, 3)
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.05), tm.AustereMH(0.0))
    with pytest.raises(ValueError, match=r"needs an expansion.*tm\.Taylor"):
        tm.sample(tm.models.logistic_regression(X, y), kernel, init=np.zeros(3), feed=tm.WeightedFeed, num_samples=10)
