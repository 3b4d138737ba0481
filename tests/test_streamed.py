"""Rows in a stream: the laws of a feed, and posteriors that do not notice where their rows came from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.feed.stream import Stream
from tallmc.feed.streamed import restaged
from tallmc.posterior import RowsInMemory


def windows_from(feed, stage, first, count):
    """What a test that begins with window number `first` of the stream is shown."""
    cursor, shown = feed.start(jax.random.key(0)), []
    for number in range(first, first + count):
        here = restaged(feed, stage, number // feed.windows)
        window = feed.read(here, cursor, jnp.uint32(number))
        shown.append(np.asarray(window.rows)[: int(window.count)])
        cursor = feed.advance(cursor)
    return shown


@pytest.mark.parametrize("every_row", [False, True])
@pytest.mark.parametrize(("num_rows", "batch_size", "windows"), [(101, 10, 4), (100, 10, 16), (7, 10, 1), (97, 1, 64)])
def test_a_test_sees_every_row_once_wherever_it_begins(num_rows, batch_size, windows, every_row):
    feed = tm.StreamedFeed(num_rows, batch_size, windows, every_row=every_row)
    stage = feed.arrange(RowsInMemory(np.arange(num_rows, dtype=np.int32)), 3)
    for first in (0, feed.num_windows - 1, 2 * feed.num_windows + 5):
        shown = windows_from(feed, stage, first, feed.num_windows * (1 if every_row else 2))
        assert len(shown[0]) > 0
        np.testing.assert_array_equal(np.sort(np.concatenate(shown)), np.arange(num_rows))


def test_epochs_have_orders_of_their_own_and_runs_cuts_of_their_own():
    rows = RowsInMemory(np.arange(20_000, dtype=np.int32))
    stream, other = Stream(rows, 1, 10, 16), Stream(rows, 2, 10, 16)
    first, second, again = (stream.numbers(start, 2000)[0] for start in (0, 2000, 0))
    np.testing.assert_array_equal(first, again)
    for epoch in (first, second):
        np.testing.assert_array_equal(np.sort(epoch), np.arange(2000))
    assert np.mean(np.diff(first) == np.diff(second)) < 0.8 if stream.chunk > 1 else np.mean(first == second) < 0.01
    assert stream.cut != other.cut
    fixed = Stream(rows, 1, 10, 16, fixed=True)
    np.testing.assert_array_equal(fixed.numbers(0, 2000)[0], fixed.numbers(2000, 2000)[0])
    assert np.all(fixed.numbers(2000, 2000)[1] == 2000)


def test_windows_are_as_different_as_independent_ones():
    """The variance of window means over epochs, against that of draws without replacement: 5 standard errors."""
    values = np.random.default_rng(0).normal(size=20_000)
    stream = Stream(RowsInMemory(values), 5, 20, 8)
    which, _ = stream.numbers(0, 5000)
    laid_out = values[stream.shuffled]
    means = np.asarray(
        [np.take(laid_out, np.arange(20) + stream.cut + 20 * w, mode="wrap").mean() for w in which[:1000]]
    )
    expected = values.var() / 20
    assert abs(means.var() / expected - 1) < 5 * np.sqrt(2 / 1000)
    later = which[1000:2000]
    assert abs(np.corrcoef(which[:1000], later)[0, 1]) < 5 / np.sqrt(1000)


def normal_mean(num_rows, seed=0):
    """A posterior in closed form, at a temperature at which few rows decide."""
    data = np.random.default_rng(seed).normal(0.3, 1.0, num_rows).astype(np.float32)
    heat = num_rows / 20
    posterior = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, data, temperature=heat)
    return posterior, data.mean(dtype=float), 20**-0.5


RULE = tm.MHMinibatch(batch_size=100)
WALK = tm.MetropolisHastings(tm.RandomWalk(0.4), RULE)


@pytest.mark.parametrize(
    ("driver", "num_samples"), [(tm.ChainByChain(), 4000), pytest.param(tm.Together(), 2000, marks=pytest.mark.slow)]
)
def test_the_posterior_is_that_of_the_feed_in_memory(driver, num_samples):
    """Mean and square distance from it, of 4 chains, against the closed form: 4.5 errors from batches of 100 draws."""
    posterior, mean, deviation = normal_mean(200_000)
    options = {"init": 0.3, "num_warmup": 100, "driver": driver, "progress": False}
    run = tm.sample(posterior, WALK, num_samples=num_samples, feed=tm.StreamedFeed, **options)
    for values, expected in ((run.samples, mean), ((run.samples - mean) ** 2, deviation**2)):
        batches = values.reshape(-1, 100).mean(axis=1)
        assert abs(batches.mean() - expected) < 4.5 * batches.std(ddof=1) / np.sqrt(len(batches))


def test_a_longer_run_is_the_same_run():
    posterior, _, _ = normal_mean(100_000)
    options = {"init": 0.3, "num_warmup": 50, "feed": tm.StreamedFeed, "num_chains": 3, "progress": False}
    longer = tm.sample(posterior, WALK, num_samples=900, **options)
    shorter = tm.sample(posterior, WALK, num_samples=300, **options)
    np.testing.assert_array_equal(shorter.extend(600, progress=False).samples, longer.samples)


def test_few_windows_and_several_feeds_are_refused():
    posterior, _, _ = normal_mean(10_000)
    with pytest.raises(ValueError, match="10,000 rows are 100 windows of 100, too few for a stream"):
        tm.sample(posterior, WALK, init=0.3, feed=tm.StreamedFeed)
    posterior, _, _ = normal_mean(200_000)
    with pytest.raises(ValueError, match="a stream feeds one rule"):
        tm.sample(posterior, tm.Cycle([WALK, WALK]), init=0.3, feed=tm.StreamedFeed)
    with pytest.raises(ValueError, match="power of two"):
        tm.StreamedFeed(100, 10, 3)
