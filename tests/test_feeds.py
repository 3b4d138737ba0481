"""The promises of a feed: windows of a test are disjoint, hold every row once, and differ from test to test."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.numerics.keys import as_key
from tests.registry import FEEDS

SIZES = [(1, 1), (1, 5), (4, 5), (5, 5), (12, 5), (15, 5), (101, 10), (997, 32), (1000, 1)]


def rows_seen(feed, data, key):
    """Row numbers in the order in which one test sees them, window by window."""

    def look(cursor, _):
        window = feed.read(data, cursor)
        return feed.advance(cursor), (window.rows, window.count)

    rows, counts = jax.jit(lambda key: jax.lax.scan(look, feed.start(key), length=feed.num_windows)[1])(key)
    return [np.asarray(window)[:count] for window, count in zip(rows, counts.tolist(), strict=True)]


@pytest.mark.parametrize(("num_rows", "batch_size"), SIZES)
@pytest.mark.parametrize("name", FEEDS)
def test_a_test_that_sees_all_rows_sees_each_once(name, num_rows, batch_size):
    feed = FEEDS[name](num_rows, batch_size)
    data = feed.arrange(np.arange(num_rows), 7)
    for seed in range(3):
        windows = rows_seen(feed, data, as_key(seed))
        np.testing.assert_array_equal(np.sort(np.concatenate(windows)), np.arange(num_rows))
        assert sum(len(window) < feed.batch_size for window in windows) <= 1


@pytest.mark.parametrize("name", FEEDS)
def test_all_columns_show_the_same_rows(name):
    feed = FEEDS[name](103, 10)
    data = feed.arrange({"a": np.arange(103), "b": np.stack([np.arange(103), -np.arange(103)], axis=1)}, 1)
    window = feed.read(data, feed.start(as_key(5)))
    np.testing.assert_array_equal(window.rows["a"], window.rows["b"][:, 0])
    np.testing.assert_array_equal(window.rows["a"], -window.rows["b"][:, 1])


@pytest.mark.parametrize("name", FEEDS)
def test_first_windows_are_uniform_over_rows(name):
    """Chi-square of how often each row is in a first window: 20,000 tests, false-alarm rate 1e-6 (4.75 deviations)."""
    feed = FEEDS[name](211, 10)
    data = feed.arrange(np.arange(211), 3)
    keys = jax.random.split(as_key(11), 20_000)

    def first(key):
        window = feed.read(data, feed.start(key))
        return jnp.zeros(211, jnp.int32).at[window.rows].add(window.valid.astype(jnp.int32))

    counts = np.asarray(jax.lax.map(first, keys, batch_size=1000).sum(axis=0))
    expected = counts.sum() / 211
    # Rows of a window come together, which widens the sum; without replacement, at most tenfold.
    deviation = (((counts - expected) ** 2 / expected).sum() - 210) / np.sqrt(2 * 210 * 10)
    assert deviation < 4.75


@pytest.mark.parametrize("name", FEEDS)
def test_second_windows_differ_between_tests_with_the_same_first_row(name):
    feed = FEEDS[name](997, 10)
    data = feed.arrange(np.arange(997), 3)
    seconds = {tuple(rows_seen(feed, data, as_key(seed))[1].tolist()) for seed in range(8)}
    assert len(seconds) > 5


def test_the_shuffle_is_recorded_by_its_seed():
    feed = tm.InMemoryFeed(50, 5)
    np.testing.assert_array_equal(feed.arrange(np.arange(50), 4), feed.arrange(np.arange(50), 4))
    assert np.any(np.asarray(feed.arrange(np.arange(50), 4)) != np.asarray(feed.arrange(np.arange(50), 5)))


@pytest.mark.parametrize("name", FEEDS)
def test_a_window_above_all_rows_means_all_rows(name):
    assert FEEDS[name](7, 100).batch_size == 7


def test_too_many_rows_for_32_bits_are_refused():
    with pytest.raises(ValueError, match="32-bit"):
        tm.InMemoryFeed(2**30 + 1, 100)
