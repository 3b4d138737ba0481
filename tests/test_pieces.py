"""Passes over rows that a device has no room for give what passes over rows that lie there give."""

import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.feed import StreamedFeed
from tallmc.numerics import memory
from tallmc.posterior import passes, pieces
from tallmc.posterior.rows import Rows
from tallmc.setup.start import feed_kinds


@pytest.fixture
def no_room(monkeypatch):
    """As on an accelerator that is too small, with pieces of 3,000 rows."""
    monkeypatch.setattr(Rows, "outgrow_device", True)
    monkeypatch.setattr(pieces, "_PIECE", 3000 * 4 * 4)


def test_passes_in_pieces_are_passes(no_room, monkeypatch):
    X, y, _ = tm.models.generate_logistic(num_rows=10_000, num_columns=3)
    posterior = tm.models.logistic_regression(X, y)
    at, order = np.asarray([0.1, -0.2, 0.3], np.float32), np.arange(6, dtype=np.uint32)
    spans = [None, passes.Span(500, 7000), passes.Span(0, 5000, order)]
    unravel = lambda flat: flat  # noqa: E731
    in_pieces = [
        passes.likelihood_sums(posterior.model, unravel, at, posterior.rows, curvature=True, span=span)
        for span in spans
    ]
    moves = np.stack([at, at + 1]), np.stack([at + 0.1, at])
    ratios = np.concatenate(list(passes.log_ratio_blocks(posterior.model, posterior.rows, *moves)), axis=1)
    monkeypatch.setattr(Rows, "outgrow_device", False)
    for span, found in zip(spans, in_pieces, strict=True):
        expected = passes.likelihood_sums(posterior.model, unravel, at, posterior.rows, curvature=True, span=span)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-2)
    again = np.concatenate(list(passes.log_ratio_blocks(posterior.model, posterior.rows, *moves)), axis=1)
    np.testing.assert_allclose(ratios, again, atol=1e-6)


def test_numbers_beside_the_rows_come_with_them(no_room):
    rows = tm.Posterior(lambda mean, row: row * mean, np.arange(10_000, dtype=np.float32)).rows
    beside, seen = jnp.arange(10_000, dtype=jnp.float32), []
    for (column, numbers), count in pieces.of(rows, 100, 9000, beside=beside):
        np.testing.assert_array_equal(column.units, numbers.units)
        seen.append(np.asarray(numbers.units)[:count])
    np.testing.assert_array_equal(np.concatenate(seen), np.arange(100, 9000))


def test_rows_that_outgrow_memory_come_in_a_stream(tmp_path, monkeypatch):
    path = tm.ingest(np.zeros(200_000, np.float32), tmp_path / "rows", progress=False)
    rows = tm.open_dataset(path)
    walk = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.MHMinibatch(batch_size=100))
    assert feed_kinds(walk, None, rows) == [tm.InMemoryFeed]
    monkeypatch.setattr("tallmc.disk.dataset.limit_of_process", lambda: 1e6)
    assert feed_kinds(walk, None, rows) == [StreamedFeed]
    assert feed_kinds(tm.Cycle([walk, walk]), None, rows) == [tm.InMemoryFeed] * 2
    assert feed_kinds(walk, tm.IndexedFeed, rows) == [tm.IndexedFeed]


def test_limits_of_groups_are_found(tmp_path, monkeypatch):
    assert memory.limit_of_process() < float("inf")
    group = tmp_path / "memory" / "some"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text("123456")
    assert memory._limit_in(group) == 123456
    (group / "memory.limit_in_bytes").write_text("max")
    assert memory._limit_in(group) == float("inf")


@pytest.mark.slow
def test_the_whole_call_needs_no_room(no_room, monkeypatch):
    """Nothing but pieces and a stream: means within 6 standard errors of a run on rows that lie there."""
    X, y, _ = tm.models.generate_logistic(num_rows=200_000, num_columns=3)

    def on_device(self):
        raise AssertionError("all rows were put on the device")

    monkeypatch.setattr(Rows, "on_device", on_device)
    monkeypatch.setattr(pieces, "_PIECE", 2**20)
    run = tm.sample(tm.models.logistic_regression(X, y), num_samples=2000, progress=False)
    assert isinstance(run.feed, StreamedFeed)
    assert "no step was audited, for the device has no room for the rows" in run.choices
    monkeypatch.undo()
    expected = tm.sample(tm.models.logistic_regression(X, y), num_samples=2000, progress=False)
    deviations = expected.samples.std(axis=(0, 1))
    apart = run.samples.mean(axis=(0, 1)) - expected.samples.mean(axis=(0, 1))
    assert np.all(np.abs(apart) < 6 * deviations * np.sqrt(2 / 1000))
    np.testing.assert_allclose(run.samples.std(axis=(0, 1)), deviations, rtol=0.15)
