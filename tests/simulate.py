"""Runs single acceptance tests on rows whose log ratios are given: the slow, plain twin of a chain."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import tallmc as tm
from tallmc.numerics.keys import as_key


def _log_likelihood(position, row):
    """Log ratios of rows are the rows themselves, from position 0 to position 1. Named, so that it compiles once."""
    return position * row


@eqx.filter_jit
def _decide(rule, feed, posterior, keys, offset):
    def one(key):
        key_rule, key_feed = jax.random.split(key)
        question = tm.Question(jnp.zeros_like(offset), jnp.ones_like(offset), offset, jnp.int32(0))
        evidence = rule.init(key_rule, question, posterior)

        def look(carry):
            evidence, cursor, seen, _ = carry
            window = feed.read(posterior.data, cursor)
            evidence = rule.observe(evidence, jnp.where(window.valid, window.rows, 0), window)
            return evidence, feed.advance(cursor), seen + window.count, rule.verdict(evidence).done

        start = (evidence, feed.start(key_feed), jnp.int32(0), jnp.bool_(False))
        evidence, _, seen, _ = jax.lax.while_loop(lambda carry: ~carry[3], look, start)
        return rule.verdict(evidence).accept, seen

    return jax.lax.map(one, keys, batch_size=256)


def decisions(rule, feed_class, log_ratios, num_tests, seed=0, offset=0.0):
    """What each of `num_tests` independent tests on rows with the given log ratios decided, and the rows it read.

    Rules that draw the same level from a key are asked the same questions.
    """
    feed = feed_class(len(log_ratios), rule.batch_size)
    dtype = jnp.result_type(float)
    rows = jnp.asarray(log_ratios, dtype)
    posterior = tm.Posterior(_log_likelihood, rows)
    posterior = eqx.tree_at(lambda p: p.data, posterior, feed.arrange(rows, seed))
    keys = jax.random.split(as_key(seed), num_tests)
    accepted, seen = _decide(rule, feed, posterior, keys, jnp.asarray(offset, dtype))
    return np.asarray(accepted), np.asarray(seen)


def decide(rule, feed_class, log_ratios, num_tests, seed=0, offset=0.0):
    """Acceptance frequency and mean rows of `num_tests` independent tests on rows with the given log ratios."""
    accepted, seen = decisions(rule, feed_class, log_ratios, num_tests, seed, offset)
    return float(np.mean(accepted)), float(np.mean(seen))


def population(draw, num_rows, variance, log_ratio, seed=0):
    """Rows whose log ratios add up to `log_ratio`; N^2 times their variance is `variance`."""
    values = draw(np.random.default_rng(seed), num_rows)
    values = (values - values.mean()) / values.std()
    return (log_ratio + values * np.sqrt(variance)) / num_rows


def normal(generator, size):
    return generator.normal(size=size)


def exponential(generator, size):
    return generator.exponential(size=size)


def rare(generator, size):
    """One row in a thousand says almost everything."""
    return np.where(generator.random(size) < 1e-3, 1.0, 1e-3 * generator.normal(size=size))
