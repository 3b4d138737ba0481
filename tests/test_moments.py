"""Running moments against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tallmc.acceptance.full_sum import FullSum
from tallmc.feed import Window
from tallmc.numerics.arithmetic import ordered_sum
from tallmc.numerics.moments import Moments
from tests.registry import real


def of(values):
    count = jnp.int32(len(values))
    return Moments.of(real(values), jnp.ones(len(values), bool), count)


@pytest.mark.parametrize("shift", [0.0, 50.0])
@pytest.mark.parametrize("sizes", [(1,), (2, 1), (64, 36, 100), (7,) * 30])
def test_merged_windows_are_the_moments_of_all(sizes, shift):
    generator = np.random.default_rng(0)
    parts = [np.asarray(real(generator.exponential(size=size) + shift), float) for size in sizes]
    merged = Moments.empty(jnp.result_type(float))
    for part in parts:
        merged = merged.merge(of(part))
    values = np.concatenate(parts)
    rounding = float(jnp.finfo(jnp.result_type(float)).eps)
    tolerance = 100 * rounding * (1 + shift)
    np.testing.assert_allclose(merged.mean, values.mean(), rtol=4 * rounding)
    np.testing.assert_allclose(merged.squares, ((values - values.mean()) ** 2).sum(), rtol=tolerance, atol=tolerance)
    cubes = ((values - values.mean()) ** 3).sum()
    np.testing.assert_allclose(merged.cubes, cubes, rtol=tolerance, atol=50 * tolerance)


def test_padding_does_not_count():
    values = real([3.0, 5.0, 1e9, 1e9])
    moments = Moments.of(values, jnp.array([True, True, False, False]), jnp.int32(2))
    assert (float(moments.mean), float(moments.variance)) == (4.0, 2.0)


def test_nothing_merges_to_nothing():
    empty = Moments.empty(jnp.result_type(float))
    assert float(empty.merge(empty).mean) == 0
    assert float(of([2.0]).merge(empty).mean) == 2


def test_equal_values_have_no_skewness():
    assert float(of([1.5, 1.5, 1.5]).skewness) == 0


@pytest.mark.parametrize("spread", [1e-30, 1e-22, 1e-19, 1e-7])
def test_values_that_hardly_differ_have_a_variance_and_a_skewness(spread):
    """Rounding makes no variance negative, and no skewness infinite: both would end as NaN."""
    for values in (np.arange(40) % 4 == 0, np.random.default_rng(3).normal(size=33)):
        for centre in (0.0, 1.0, -0.3):
            moments = of(centre + spread * values)
            assert float(moments.variance) >= 0
            assert np.isfinite(float(moments.skewness))


@pytest.mark.parametrize("size", [1, 7, 8, 100, 4096])
def test_ordered_sum_is_a_sum(size):
    values = np.random.default_rng(1).normal(size=size)
    tolerance = 4 * float(jnp.finfo(jnp.result_type(float)).eps) * np.abs(values).sum()
    np.testing.assert_allclose(ordered_sum(real(values)), np.asarray(real(values), float).sum(), atol=tolerance)


def test_a_sum_over_thousands_of_windows_is_right_to_the_last_digit():
    """In float32: a plain running sum of these 20,000 windows is off by a hundred units in the last place."""
    values = np.random.default_rng(2).uniform(0, 1, (20_000, 4)).astype(np.float32)

    def add(total, window):
        return total.add(window, Window(window, jnp.int32(4), 4)), None

    total, _ = jax.jit(lambda windows: jax.lax.scan(add, FullSum.start(jnp.float32(0), 80_000), windows))(values)
    exact = values.astype(float).sum()
    assert abs(float(total.total) - exact) < 2 * np.spacing(np.float32(exact))
    assert bool(total.complete)
