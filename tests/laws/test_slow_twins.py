"""Law: a sequential rule reads as many rows, and decides, as a plain transcription of its paper does.

The twin sees the rows of each test in the order in which the feed shows them, in float64, and looks up every quantile.
A test that stops at the very edge may differ by rounding; none does with these seeds.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import tallmc as tm
from tallmc.numerics.keys import as_key
from tests.registry import real
from tests.simulate import decisions, exponential, normal, population

NUM_ROWS, NUM_TESTS = 3001, 200


@eqx.filter_jit
def _shown(feed, stage, keys, offset):
    """What each test of `tests.simulate.decisions` is shown, and the level that its rule draws."""

    def one(key):
        key_kernel, key_feed = jax.random.split(key)
        level = tm.METROPOLIS.level(jax.random.split(key_kernel)[1], offset)

        def look(cursor, _):
            window = feed.read(stage, cursor, jnp.uint32(0))
            return feed.advance(cursor), (window.rows, window.count)

        return level, jax.lax.scan(look, feed.start(key_feed), length=feed.num_windows)[1]

    return jax.vmap(one)(keys)


def both(rule, twin, log_ratios, offset=0.0, feed_class=tm.InMemoryFeed):
    """Rows that tests asked for and decisions: of the rule, and of its twin."""
    decided, rows = decisions(rule, feed_class, log_ratios, NUM_TESTS, offset=offset, asked=True)
    feed = feed_class(len(log_ratios), rule.batch_size)
    data = tm.Posterior(lambda position, row: row, real(log_ratios)).rows
    keys = jax.random.split(as_key(0), NUM_TESTS)
    levels, (shown, counts) = _shown(feed, feed.arrange(data, 0), keys, real(offset))
    slow = [
        twin([np.asarray(w, float)[:c] for w, c in zip(windows, ends.tolist(), strict=True)], level)
        for windows, ends, level in zip(*(np.asarray(part) for part in (shown, counts, levels)), strict=True)
    ]
    return (rows, decided), tuple(np.asarray(column) for column in zip(*slow, strict=True))


def assert_same(fast, slow):
    np.testing.assert_array_equal(fast[0], slow[0])
    np.testing.assert_array_equal(fast[1], slow[1])
    assert len(np.unique(fast[0])) > 3  # tests that all end alike would say little


@pytest.mark.parametrize(("epsilon", "boundary"), [(0.05, 0.5), (0.1, 1.0), (0.01, 0.75)])
def test_austere_mh_is_korattikaras_algorithm(epsilon, boundary):
    """A t-test with finite-population correction after every window; at share pi of the rows its confidence is
    G pi^(1/2 - boundary)."""

    def twin(windows, level):
        for look in range(1, len(windows) + 1):
            seen = np.concatenate(windows[:look])
            count, gap = len(seen), seen.mean() - level / NUM_ROWS
            if count == NUM_ROWS:
                return count, seen.sum() > level
            error = seen.std(ddof=1) / np.sqrt(count) * np.sqrt(1 - (count - 1) / (NUM_ROWS - 1))
            asked = -stats.norm.ppf(epsilon) * (count / NUM_ROWS) ** (0.5 - boundary)
            if stats.t.sf(abs(gap) / error, count - 1) < stats.norm.sf(asked):
                return count, gap > 0
        raise AssertionError

    log_ratios = population(normal, NUM_ROWS, 4.0 * NUM_ROWS, -0.7)
    assert_same(*both(tm.AustereMH(epsilon, 100, boundary), twin, log_ratios, offset=0.2))


@pytest.mark.parametrize("inequality", ["bernstein", "serfling"])
def test_mh_sub_lhd_is_bardenets_algorithm(inequality):
    """Looks at a geometric number of rows; look t may be wrong with probability delta (p - 1) / (p t^p)."""
    delta, p, gamma, batch_size = 0.05, 2.0, 1.5, 20
    log_ratios = population(exponential, NUM_ROWS, 0.02**2 * NUM_ROWS, -1.0)
    largest = np.max(np.abs(log_ratios))

    def allowed(seen, look):
        n = len(seen)
        log_term = np.log((3 if inequality == "bernstein" else 5) * p * look**p / ((p - 1) * delta))
        if inequality == "bernstein":
            return seen.std() * np.sqrt(2 * log_term / n) + 3 * 2 * largest * log_term / n
        rho = 1 - (n - 1) / NUM_ROWS if n <= NUM_ROWS / 2 else (1 - n / NUM_ROWS) * (1 + 1 / n)
        slope = 7 / 3 + 3 / np.sqrt(2)
        return seen.std() * np.sqrt(2 * rho * log_term / n) + slope * 2 * largest * log_term / n

    def twin(windows, level):
        look, due = 0, batch_size
        for number in range(1, len(windows) + 1):
            seen = np.concatenate(windows[:number])
            gap = seen.mean() - level / NUM_ROWS
            if len(seen) == NUM_ROWS:
                return NUM_ROWS, seen.sum() > level
            if len(seen) >= due:
                look, due = look + 1, np.ceil(gamma * len(seen))
                if abs(gap) > allowed(seen, look):
                    return len(seen), gap > 0
        raise AssertionError

    rule = tm.MHSubLhd(
        delta, p, gamma, batch_size, bound=lambda position, proposed: real(largest), inequality=inequality
    )
    assert_same(*both(rule, twin, log_ratios, offset=0.3))


@pytest.mark.parametrize("batch_size", [(50, 100, 250), 100])
def test_per_step_takes_the_cheapest_candidate_within_the_error(batch_size):
    """All candidates on the same rows; of those whose error is allowed at this step's `mu_std`, the one that should
    read least decides. Its design is worked out here for the step alone, not looked up in a table."""
    max_error, epsilons = 0.05, (0.01, 0.05, 0.2)
    sizes = batch_size if isinstance(batch_size, tuple) else [100 * 2**k for k in range(5)]
    table = np.sinh(np.linspace(0.0, np.arcsinh(1000.0), 128))  # the rule rounds mu_std down to one of these

    def stops(windows, size, epsilon, level):
        for look in range(size // len(windows[0]), len(windows) + 1, size // len(windows[0])):
            seen = np.concatenate(windows[:look])
            count, gap = len(seen), seen.mean() - level / NUM_ROWS
            if count < size or count == NUM_ROWS:
                continue
            error = seen.std(ddof=1) / np.sqrt(count) * np.sqrt(1 - (count - 1) / (NUM_ROWS - 1))
            if stats.t.sf(abs(gap) / error, count - 1) < epsilon:
                return count, gap > 0
        return None

    def twin(windows, level):
        seen = np.concatenate(windows)
        mu_std = abs(seen.mean() - level / NUM_ROWS) * np.sqrt(NUM_ROWS - 1) / seen.std()
        mu_std = table[np.searchsorted(table, mu_std, side="right") - 1]
        designs = [
            (tm.design.sequential_test(mu_std, size / NUM_ROWS, epsilon), size, epsilon)
            for size in sizes
            for epsilon in epsilons
        ]
        allowed = [(d.data_fraction, size, epsilon) for d, size, epsilon in designs if d.error <= max_error]
        if allowed:
            _, size, epsilon = min(allowed, key=lambda one: one[0])
            if (stopped := stops(windows, size, epsilon, level)) is not None:
                return stopped
        return NUM_ROWS, seen.sum() > level

    log_ratios = population(normal, NUM_ROWS, 4.0 * NUM_ROWS, -0.7)
    rule = tm.AustereMHPerStep(max_error, batch_size, epsilons)
    assert_same(*both(rule, twin, log_ratios, offset=0.2))
