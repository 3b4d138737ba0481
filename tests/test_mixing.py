"""R-hat and effective sample sizes are those of arviz-stats, which works them out one coordinate after the other."""

import arviz_base
import arviz_stats
import numpy as np
import pytest

from tallmc.run.convergence import convergence_doubts
from tallmc.run.mixing import mixing


def slow_mixing(draws):
    """The slow twin."""
    named = arviz_base.dict_to_dataset({"position": draws})
    with np.errstate(divide="ignore", invalid="ignore"):
        return [
            found["position"].values
            for found in (
                arviz_stats.rhat(named),
                arviz_stats.ess(named, method="bulk"),
                arviz_stats.ess(named, method="tail"),
            )
        ]


def random_walks(shape, dtype):
    """Chains that sometimes stay where they are, as after a rejection; then coordinates of every awkward kind."""
    generator = np.random.default_rng(0)
    draws = generator.normal(size=shape)
    for i in range(1, shape[1]):
        stays = generator.random((shape[0], shape[2])) < 0.5
        draws[:, i] = np.where(stays, draws[:, i - 1], 0.8 * draws[:, i - 1] + 0.6 * draws[:, i])
    chain, time = np.arange(shape[0])[:, None], np.arange(shape[1])
    draws[:, :, 0] = 1.0  # never moved
    draws[:, :, 1] = chain  # each chain somewhere else, and none ever moved
    draws[:, :, 2] = draws[:, :, 2] > 0  # two values
    draws[:, :, 3] = np.where(time % 2, 1, -1)  # two values, as far from their median; correlations of -1 and 1
    draws[:, :, 4] = np.round(draws[:, :, 4])  # many ties
    draws[:, :, 5] = time  # never comes back
    draws[:, :, 6] = np.where(time % 2, 1, -1) * np.abs(draws[:, :, 6])  # more draws than draws
    draws[0, 0, 7] = np.nan
    draws[:, :, 8] += 2 * chain  # not mixed
    return draws.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(4, 1000, 20), (4, 999, 20), (2, 301, 100), (9, 50, 20), (2, 3, 9)])
def test_figures_are_those_of_arviz(shape, dtype):
    draws = random_walks(shape, dtype)
    for fast, slow in zip(mixing(draws), slow_mixing(draws), strict=True):
        np.testing.assert_allclose(fast, slow, rtol=1e-10)


@pytest.mark.parametrize("num_draws", range(4, 14))
def test_the_last_lags_of_short_chains_are_those_of_arviz(num_draws):
    draws = random_walks((3, num_draws, 40), float)
    for fast, slow in zip(mixing(draws), slow_mixing(draws), strict=True):
        np.testing.assert_allclose(fast, slow, rtol=1e-10)


def test_coordinates_are_looked_at_by_themselves(monkeypatch):
    draws = random_walks((4, 100, 12), float)
    together = mixing(draws)
    monkeypatch.setattr("tallmc.run.mixing._NUMBERS_AT_ONCE", 1000)
    for one, all_of_them in zip(mixing(draws), together, strict=True):
        np.testing.assert_array_equal(one, all_of_them)


def test_every_coordinate_of_every_variable_counts():
    draws = np.random.default_rng(0).normal(size=(4, 1000, 2, 3))
    bad = draws.copy()
    bad[0, :, 1, 2] += 5
    assert not convergence_doubts({"a": draws, "b": draws[:, :, 0, 0]})
    assert all("R-hat" in found[0] for found in map(convergence_doubts, ({"a": draws, "b": bad}, {"a": bad})))
