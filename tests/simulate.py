"""Runs single acceptance tests on rows whose log ratios are given, through the engine's own loop."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import tallmc as tm
from tallmc.numerics.keys import as_key
from tallmc.run.chain import Chain, Problem, observe_until_decided


def log_likelihood(position, row):
    """Log ratios of rows are the rows themselves, from position 0 to position 1. Named, so that it compiles once."""
    return position * row


class Jump(tm.Proposal):
    """Proposes one position, with a log ratio of its own."""

    to: jax.Array
    log_ratio: jax.Array

    def propose(self, key, position, model):
        del key, position, model
        return tm.Move(self.to, self.log_ratio)


@eqx.filter_jit
def _decide(problem, keys, start):
    kernel = problem.kernel

    def one(key):
        key_kernel, key_feed = jax.random.split(key)
        state = kernel.begin(key_kernel, kernel.init(start), problem.model, jnp.int32(0))
        cursor = problem.feed.start(key_feed, kernel.wants_every_row(state))
        chain = Chain(key, jnp.int32(0), jnp.uint32(0), cursor, state)
        chain, _, _ = observe_until_decided(problem, chain, jnp.int32(2**30))
        said = kernel.rule.stats(chain.state.evidence)
        return kernel.decide(chain.state), chain.state.rows, said.get("test_rows", chain.state.rows)

    return jax.lax.map(one, keys, batch_size=256)


def answers(rule, feed_class, posterior, keys, start=0.0, end=1.0, offset=0.0, shuffle=0, asked=False):
    """What each of the tests, one a key, decided about a move, and the rows that it read or asked for."""
    dtype = jnp.result_type(float)
    start, end, offset = (jnp.asarray(value, dtype) for value in (start, end, offset))
    feed = feed_class.of(posterior.rows, rule.needs, posterior.model)
    kernel = tm.MetropolisHastings(Jump(end, offset), rule).fed_by(feed)
    stage = feed.arrange(posterior.rows, shuffle)
    accepted, seen, wanted = _decide(Problem(kernel, posterior.model, feed, stage, jnp.int32(0)), keys, start)
    return np.asarray(accepted), np.asarray(wanted if asked else seen)


def decisions(rule, feed_class, log_ratios, num_tests, seed=0, offset=0.0, shuffle=None, asked=False):
    """What each of `num_tests` independent tests on rows with the given log ratios decided, and the rows it read.

    Rules that draw the same level from a key are asked the same questions.
    """
    posterior = tm.Posterior(log_likelihood, jnp.asarray(log_ratios, jnp.result_type(float)))
    keys = jax.random.split(as_key(seed), num_tests)
    shuffle = seed if shuffle is None else shuffle
    return answers(rule, feed_class, posterior, keys, offset=offset, shuffle=shuffle, asked=asked)


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
