"""Along lines through the centre: what is like a normal and what is not."""

import numpy as np
import pytest
from scipy import stats

from tallmc.setup import lines

FACTOR = np.linalg.cholesky(np.array([[4.0, 1.5, 0.0], [1.5, 1.0, 1e-4], [0.0, 1e-4, 1e-6]]))


def test_every_line_is_a_standard_deviation_long():
    """Along it the normal's log density falls by a half at its end."""
    found = lines.directions(FACTOR)
    precision = np.linalg.inv(FACTOR @ FACTOR.T)
    np.testing.assert_allclose(np.einsum("li,ij,lj->l", found, precision, found), 1, rtol=1e-6)


def test_each_coordinate_is_moved_by_itself_and_with_the_others():
    found, size = lines.directions(FACTOR), 3
    assert np.all((found[:size] != 0) == np.eye(size, dtype=bool))
    covariance = FACTOR @ FACTOR.T
    for index, line in enumerate(found[size : 2 * size]):
        np.testing.assert_allclose(line, covariance[:, index] / np.sqrt(covariance[index, index]), rtol=1e-6)


@pytest.mark.parametrize(
    ("distribution", "normal"),
    [
        (stats.norm(), True),
        (stats.norm(0.5, 1.05), True),
        (stats.t(8), True),
        (stats.t(4), False),
        (stats.cauchy(), False),
        (stats.laplace(scale=1), False),
        (stats.norm(0, 3), False),
        (stats.uniform(-1.7, 3.4), True),
    ],
)
def test_long_tails_are_told_from_normal_ones(distribution, normal):
    """Each with the curvature of a standard normal at its centre, as the expansion gives it."""
    values = distribution.logpdf(lines.PLACES)
    assert lines.like_a_normal(*lines.heaviest(np.stack([stats.norm.logpdf(lines.PLACES), values]))) == normal


def test_a_spike_on_a_wide_foot_is_seen_from_the_spike():
    wide = np.logaddexp(stats.norm.logpdf(lines.PLACES), stats.norm(0, 100).logpdf(lines.PLACES))
    assert not lines.like_a_normal(*lines.heaviest(wide[None]))


def test_places_outside_the_support_hold_no_mass():
    values = np.where(lines.PLACES > -1, stats.norm.logpdf(lines.PLACES), -np.inf)
    assert lines.like_a_normal(*lines.heaviest(values[None]))


def test_what_is_not_finite_is_not_like_a_normal():
    values = np.stack([stats.norm.logpdf(lines.PLACES), np.full(lines.PLACES.shape, np.nan)])
    assert not lines.like_a_normal(*lines.heaviest(values))


def test_what_lies_behind_a_barrier_is_no_mass():
    """Far out float32 may lose all digits of a likelihood; a chain from the centre never gets there."""
    values = stats.norm.logpdf(lines.PLACES)
    values[0], values[-1] = 4000.0, np.inf
    assert lines.like_a_normal(*lines.heaviest(values[None]))
    values = np.where(np.abs(lines.PLACES) < 1, 0.0, -1.0)  # a wide foot behind no barrier
    assert not lines.like_a_normal(*lines.heaviest(values[None]))


def test_where_rows_are_few_less_is_like_a_normal():
    found = lines.heaviest(stats.t(6).logpdf(lines.PLACES * np.sqrt(7 / 6))[None])
    assert lines.like_a_normal(*found)
    assert not lines.like_a_normal(*found, of_few=True)
