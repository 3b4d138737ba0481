"""The promises of a feed: windows of a test are disjoint, hold every row once, and differ from test to test."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.feed.run_order import RunCursor, RunOrder
from tallmc.feed.window_order import WindowOrder
from tallmc.numerics.keys import as_key
from tallmc.posterior import RowsInMemory
from tallmc.posterior.resident import Column
from tests.registry import FEEDS

SIZES = [(1, 1), (1, 5), (4, 5), (5, 5), (12, 5), (15, 5), (101, 10), (997, 32), (1000, 1), (20_011, 10)]


@eqx.filter_jit
def _looks(feed, stage, keys):
    def one(key):
        def look(cursor, _):
            window = feed.read(stage, cursor, jnp.uint32(0))
            return feed.advance(cursor), (window.rows, window.count)

        return jax.lax.scan(look, feed.start(key), length=feed.num_windows)[1]

    return jax.vmap(one)(keys)


def rows_seen(feed, stage, num_tests, seed=0):
    """Row numbers in the order in which each of several tests sees them, window by window."""
    rows, counts = _looks(feed, stage, jax.random.split(as_key(seed), num_tests))
    return [
        [np.asarray(window)[:count] for window, count in zip(test, ends.tolist(), strict=True)]
        for test, ends in zip(rows, counts, strict=True)
    ]


def numbered(num_rows):
    """Rows that are their own numbers."""
    return RowsInMemory(np.arange(num_rows, dtype=np.int32))


@eqx.filter_jit
def _first_counts(feed, stage, keys):
    def first(key):
        window = feed.read(stage, feed.start(key), jnp.uint32(0))
        return jnp.zeros(feed.num_rows, jnp.int32).at[window.rows].add(window.valid.astype(jnp.int32))

    return jax.lax.map(first, keys, batch_size=1000).sum(axis=0)


@pytest.mark.parametrize(("num_rows", "batch_size"), SIZES)
@pytest.mark.parametrize("name", FEEDS)
def test_a_test_that_sees_all_rows_sees_each_once(name, num_rows, batch_size):
    feed = FEEDS[name](num_rows, batch_size)
    stage = feed.arrange(numbered(num_rows), 7)
    for windows in rows_seen(feed, stage, 3):
        np.testing.assert_array_equal(np.sort(np.concatenate(windows)), np.arange(num_rows))
        assert sum(len(window) < feed.batch_size for window in windows) <= 1


@pytest.mark.parametrize("name", FEEDS)
def test_all_columns_show_the_same_rows(name):
    feed = FEEDS[name](103, 10)
    rows = RowsInMemory({"a": np.arange(103), "b": np.stack([np.arange(103), -np.arange(103)], axis=1)})
    window = feed.read(feed.arrange(rows, 1), feed.start(as_key(5)), jnp.uint32(0))
    np.testing.assert_array_equal(window.rows["a"], window.rows["b"][:, 0])
    np.testing.assert_array_equal(window.rows["a"], -window.rows["b"][:, 1])


@pytest.mark.parametrize("name", FEEDS)
def test_first_windows_are_uniform_over_rows(name):
    """Chi-square of how often each row is in a first window: 20,000 tests, false-alarm rate 1e-6 (4.75 deviations)."""
    feed = FEEDS[name](211, 10)
    stage = feed.arrange(numbered(211), 3)
    counts = np.asarray(_first_counts(feed, stage, jax.random.split(as_key(11), 20_000)))
    expected = counts.sum() / 211
    # Rows of a window may come together, which widens the sum; without replacement, at most tenfold.
    deviation = (((counts - expected) ** 2 / expected).sum() - 210) / np.sqrt(2 * 210 * 10)
    assert deviation < 4.75


@pytest.mark.parametrize("name", FEEDS)
def test_cuts_windows_and_strides_all_vary(name):
    """Kills a fixed cut, a fixed first window and a fixed stride: 64 tests have that many of each, or nearly."""
    feed = FEEDS[name](2003, 10)
    tests = rows_seen(feed, feed.arrange(numbered(2003), 3), 64, seed=4)
    firsts = {tuple(windows[0].tolist()) for windows in tests}
    assert len(firsts) > 55
    # What follows a row is not always the same: neither the next row nor the next window depends on where it stands.
    stage = feed.arrange(numbered(2003), 3)
    laid_out = stage.take(jnp.arange(2003)) if isinstance(stage, Column) else stage
    place = {row: spot for spot, row in enumerate(np.asarray(laid_out).tolist()[:2003])}
    hops = {(place[int(w[1][0])] - place[int(w[0][0])]) % 2003 for w in tests}
    assert len(hops) > 40


@pytest.mark.parametrize("order", [WindowOrder, RunOrder])
def test_the_cut_of_the_ring_is_any_row(order):
    feed = order(1000, 10)
    cuts = np.asarray(jax.vmap(lambda key: feed.start(key).offset)(jax.random.split(as_key(2), 2000)))
    assert len(np.unique(cuts)) > 800
    assert len(np.unique(cuts % 10)) == 10


def test_windows_start_anywhere_and_hop_by_every_stride():
    feed = WindowOrder(10_000, 10)
    cursors = jax.vmap(feed.start)(jax.random.split(as_key(2), 4000))
    assert len(np.unique(cursors.index)) > 900
    assert len(np.unique(cursors.stride)) > 300
    assert np.all(np.gcd(np.asarray(cursors.stride), 1000) == 1)


def test_runs_start_anywhere_and_hop_by_every_stride():
    """4,000 tests draw from 1,009 of each, and miss about 19 of these."""
    feed = RunOrder(1010, 10)
    assert (feed.run_length, feed.num_runs) == (1, 1009)
    cursors = jax.vmap(feed.start)(jax.random.split(as_key(2), 4000))
    assert len(np.unique(cursors.first)) > 950
    assert len(np.unique(cursors.stride)) > 950
    assert np.all((np.asarray(cursors.stride) > 0) & (np.asarray(cursors.stride) < 1009))


def test_any_two_places_hold_any_two_rows_equally_often():
    """The law behind fresh orders: over all orders, each pair of places holds each pair of different rows alike."""
    order, ring = RunOrder(14, 1), jnp.arange(14)
    assert (order.run_length, order.num_runs) == (1, 13)
    first, stride = (jnp.asarray(grid.ravel(), jnp.uint32) for grid in np.meshgrid(range(13), range(1, 13)))

    def row_at(place):
        cursors = jax.vmap(lambda f, s: RunCursor(jnp.int32(0), f, s, jnp.int32(place)))(first, stride)
        return np.asarray(jax.vmap(lambda cursor: order.read(ring, cursor).rows[0])(cursors))

    pairs = np.zeros((13, 13), int)
    np.add.at(pairs, (row_at(2), row_at(7)), 1)
    np.testing.assert_array_equal(pairs, 1 - np.eye(13, dtype=int))
    assert np.all(row_at(13) == 13)  # the row that is left over


@pytest.mark.parametrize("num_runs", [1021, 65_521, 65_537, 1_048_573])
def test_products_modulo_a_prime_fit_32_bits(num_runs):
    from tallmc.feed.run_order import _times

    generator = np.random.default_rng(0)
    stride, numbers = generator.integers(1, num_runs, 200), generator.integers(0, num_runs, 200)
    ours = jax.vmap(lambda a, b: _times(a, b, num_runs))(
        jnp.asarray(stride, jnp.uint32), jnp.asarray(numbers, jnp.uint32)
    )
    np.testing.assert_array_equal(ours, stride * numbers % num_runs)


@eqx.filter_jit
def _drawn(feed, stage, keys):
    def first(key):
        window = feed.read(stage, feed.start(key), jnp.uint32(0))
        return window.rows, window.scale

    return jax.vmap(first)(keys)


def test_rows_by_weight_come_in_proportion_and_are_scaled_back():
    """Shares of 160,000 draws, and the mean of scaled values, at 5 standard errors: 6e-7 false alarms each."""
    weights = np.random.default_rng(1).exponential(size=23) ** 2
    weights[4] = 0.0
    feed = tm.WeightedFeed(23, 16, weights)
    rows, scales = (
        np.asarray(part).ravel()
        for part in _drawn(feed, feed.arrange(numbered(23), 0), jax.random.split(as_key(3), 10_000))
    )
    expected = weights / weights.sum()
    shares = np.bincount(rows, minlength=23) / len(rows)
    assert np.all(np.abs(shares - expected) <= 5 * np.sqrt(expected * (1 - expected) / len(rows)))
    values = np.where(weights > 0, np.random.default_rng(2).normal(size=23) * weights, 0)
    scaled = values[rows] * scales
    assert abs(scaled.mean() - values.mean()) < 5 * scaled.std() / np.sqrt(len(scaled))
    np.testing.assert_allclose(feed.weights, weights / weights.mean(), rtol=1e-6)


def test_few_windows_get_a_fresh_order_and_many_a_contiguous_one():
    assert isinstance(tm.InMemoryFeed(12_214, 500).order, RunOrder)
    assert isinstance(tm.InMemoryFeed(99_000, 100).order, RunOrder)
    assert isinstance(tm.InMemoryFeed(100_000, 100).order, WindowOrder)
    assert isinstance(tm.InMemoryFeed(12_214, 500, every_row=True).order, WindowOrder)
    assert tm.InMemoryFeed(100_000, 500).order.run_length == 10


def test_the_shuffle_is_recorded_by_its_seed():
    feed = tm.InMemoryFeed(50, 5)
    np.testing.assert_array_equal(feed.arrange(numbered(50), 4), feed.arrange(numbered(50), 4))
    assert np.any(np.asarray(feed.arrange(numbered(50), 4)) != np.asarray(feed.arrange(numbered(50), 5)))


@pytest.mark.parametrize("name", FEEDS)
def test_a_window_above_all_rows_means_all_rows(name):
    assert FEEDS[name](7, 100).batch_size == 7


def test_too_many_rows_for_32_bits_are_refused():
    with pytest.raises(ValueError, match="32-bit"):
        tm.InMemoryFeed(2**30 + 1, 100)
