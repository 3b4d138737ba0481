"""One chain, one round at a time. Both drivers run these functions, so both give the same chains."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from tallmc.feed import Feed
from tallmc.kernel import Kernel
from tallmc.keys import transition_keys
from tallmc.posterior import Posterior
from tallmc.run.records import Draw

_RESTARTED = np.uint32(2**32 - 1)  # no chain makes so many transitions


class Problem(NamedTuple):
    """What does not change during a run. `posterior.data` is arranged by the feed."""

    kernel: Kernel
    posterior: Posterior
    feed: Feed
    num_warmup: Int[Array, ""]


class Chain(NamedTuple):
    """All that a chain needs to go on: a pytree of arrays, the same between any two rounds."""

    key: Array
    finished: Int[Array, ""]  # transitions so far, warm-up included
    cursor: PyTree
    state: PyTree


def _at_full_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """Recent GPUs multiply float32 matrices with three digits unless told otherwise; a log ratio needs all seven."""

    @functools.wraps(function)
    def wrapped(*args: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return function(*args)

    return wrapped


@_at_full_precision
def start_chain(problem: Problem, key: Array, position: PyTree) -> Chain:
    """A chain before its first round. Transition t draws only from `fold_in(key, t)`, however it is scheduled."""
    key_kernel, key_feed = transition_keys(key, jnp.int32(0))
    state = problem.kernel.init(key_kernel, position, problem.posterior)
    return Chain(key, jnp.int32(0), problem.feed.start(key_feed, problem.kernel.every_row(state)), state)


@_at_full_precision
def restart_chain(problem: Problem, chain: Chain) -> Chain:
    """The chain with its test begun anew: what it had gathered belongs to another expansion of the posterior."""
    key_kernel, key_feed = transition_keys(jax.random.fold_in(chain.key, _RESTARTED), chain.finished)
    state = problem.kernel.restart(key_kernel, chain.state, problem.posterior, chain.finished)
    cursor = problem.feed.start(key_feed, problem.kernel.every_row(state))
    return Chain(chain.key, chain.finished, cursor, state)


@_at_full_precision
def observe_window(problem: Problem, chain: Chain) -> tuple[Chain, Bool[Array, ""]]:
    """One round: shows the chain the window at its cursor. Returns whether its test is decided."""
    window = problem.feed.read(problem.posterior.data, chain.cursor)
    state, done = problem.kernel.observe(chain.state, problem.posterior, window)
    return chain._replace(cursor=problem.feed.advance(chain.cursor), state=state), done


@_at_full_precision
def conclude_transition(problem: Problem, chain: Chain) -> tuple[Chain, Draw]:
    """Acts on a decided test: the draw it gives, and the chain at the start of the next test."""
    kernel, posterior, feed, num_warmup = problem
    key_kernel, key_feed = transition_keys(chain.key, chain.finished + 1)
    gain = _gain(chain.finished, num_warmup)
    state, info = kernel.conclude(key_kernel, chain.state, posterior, chain.finished + 1, gain)
    stats = {"accepted": info.accepted, "rows": info.rows, "nonfinite": info.nonfinite, **info.stats}
    cursor = feed.start(key_feed, kernel.every_row(state))
    return Chain(chain.key, chain.finished + 1, cursor, state), Draw(kernel.position(state), stats)


def draw_like(problem: Problem, chain: Chain) -> Draw:
    """Shapes and dtypes of a draw."""
    return jax.eval_shape(lambda c: conclude_transition(problem, c)[1], chain)


def _gain(transition: Int[Array, ""], num_warmup: Int[Array, ""]) -> Array:
    """How strongly warm-up still listens: Robbins-Monro gains, and nothing once it is over."""
    gain = 3.0 * (transition + 1).astype(jnp.result_type(float)) ** -0.6
    return jnp.where(transition < num_warmup, gain, 0.0)
