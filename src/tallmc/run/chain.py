"""One chain, one round at a time. Both drivers run these functions, so both give the same chains."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, UInt32

from tallmc.feed import Feed
from tallmc.feed.contract import begins_with_rows
from tallmc.kernel import Info, Kernel
from tallmc.numerics.gains import tuning_gain
from tallmc.numerics.keys import transition_keys
from tallmc.numerics.programs import program
from tallmc.posterior import Model
from tallmc.posterior.spread import everywhere, mesh_of
from tallmc.run.records import Draw

_RESTARTED = np.uint32(2**32 - 1)  # no chain makes so many transitions


class Problem(NamedTuple):
    """What does not change while chains move.

    Args:
        kernel: Moves them.
        model: What they are asked about.
        feed: Which rows they see next.
        stage: What the feed reads from: rows that are on the device now.
        num_warmup: Transitions of each chain before its first draw.
    """

    kernel: Kernel
    model: Model
    feed: Feed
    stage: PyTree
    num_warmup: Int[Array, ""] | np.int32


def placed(problem: Problem) -> Problem:
    """With a copy of all but the rows on every device, if several devices share the rows."""
    mesh = mesh_of(problem.stage)
    kernel, model, feed = everywhere((problem.kernel, problem.model, problem.feed), mesh)
    return problem._replace(kernel=kernel, model=model, feed=feed)


class Chain(NamedTuple):
    """All that a chain needs to go on: a pytree of arrays, the same between any two rounds.

    Args:
        key: Transition t draws only from `fold_in(key, t)`, however it is scheduled.
        finished: Transitions so far, warm-up included.
        round: Rounds so far; wraps around.
        cursor: Which rows its test sees next.
        state: The kernel's, in a test.
    """

    key: Array
    finished: Int[Array, ""]
    round: UInt32[Array, ""]
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
    """A chain before its first round."""
    start, zero = problem.kernel.init(position), jnp.int32(0)
    return _begin(problem, Chain(key, zero, jnp.uint32(0), None, None), start, *transition_keys(key, zero))


@_at_full_precision
def restart_chain(problem: Problem, chain: Chain) -> Chain:
    """The chain with its test begun anew: what it had gathered belongs to another expansion of the posterior."""
    keys = transition_keys(jax.random.fold_in(chain.key, _RESTARTED), chain.finished)
    return _begin(problem, chain, problem.kernel.abandon(chain.state), *keys)


def opening_windows(kernel: Kernel, feed: Feed, stage: PyTree, key_feed: Array, round_: Any) -> tuple[Any, ...]:
    """What `begin` is given besides, for the test whose rows are drawn by `key_feed`; nothing is read yet."""
    return (feed.read(stage, feed.start(key_feed), round_),) if begins_with_rows(kernel.needs) else ()


def _begin(problem: Problem, chain: Chain, rest: PyTree, key_kernel: Array, key_feed: Array) -> Chain:
    rows = opening_windows(problem.kernel, problem.feed, problem.stage, key_feed, chain.round)
    model = problem.model.at_time(chain.finished)
    state = problem.kernel.begin(key_kernel, rest, model, chain.finished, *rows)
    cursor = problem.feed.start(key_feed, problem.kernel.wants_every_row(state))
    return chain._replace(cursor=cursor, state=state)


@_at_full_precision
def observe_window(problem: Problem, chain: Chain) -> tuple[Chain, Bool[Array, ""]]:
    """One round: shows the chain the window at its cursor. Returns whether its test is decided."""
    window = problem.feed.read(problem.stage, chain.cursor, chain.round)
    state, done = problem.kernel.observe(chain.state, problem.model.at_time(chain.finished), window)
    cursor = problem.feed.advance(chain.cursor)
    return chain._replace(round=chain.round + jnp.uint32(1), cursor=cursor, state=state), done


_Look = tuple[Chain, Array, Array]  # a chain, whether its test is decided, and the rounds that are left


def observe_until_decided(
    problem: Problem, chain: Chain, rounds: Int[Array, ""]
) -> tuple[Chain, Bool[Array, ""], Int[Array, ""]]:
    """Shows the chain windows until its test is decided, or so many rounds are over: the loop behind every test.

    Returns:
        The chain, whether its test is decided, and the rounds that are left.
    """

    def undecided(carry: _Look) -> Bool[Array, ""]:
        return ~carry[1] & (carry[2] > 0)

    def look(carry: _Look) -> _Look:
        return (*observe_window(problem, carry[0]), carry[2] - 1)

    return jax.lax.while_loop(undecided, look, (chain, jnp.bool_(False), rounds))


@_at_full_precision
def conclude_transition(problem: Problem, chain: Chain) -> tuple[Chain, Draw]:
    """Acts on a decided test: the draw it gives, and the chain at the start of the next test."""
    kernel, finished = problem.kernel, chain.finished + 1
    rest, info = kernel.settle(chain.state, tuning_gain(chain.finished, problem.num_warmup))
    stats = {"accepted": info.accepted, "rows": info.rows, "nonfinite": info.nonfinite, **info.stats}
    if problem.model.cooling is not None:
        stats["temperature"] = problem.model.at_time(chain.finished).temperature
    chain = _begin(problem, chain._replace(finished=finished), rest, *transition_keys(chain.key, finished))
    return chain, Draw(kernel.position(rest), stats)


@_at_full_precision
def single_transition(problem: Problem, rest: PyTree, key: Array, time: Int[Array, ""]) -> tuple[PyTree, Info]:
    """One whole transition of a chain at rest, before which it made `time`; nothing is tuned.

    For whoever keeps chains by themselves, and a key for each transition; drivers do not wait for one to end.
    """
    waiting = Chain(key, time, jnp.uint32(0), None, None)
    chain = _begin(problem, waiting, rest, *transition_keys(key, time))
    chain, _, _ = observe_until_decided(problem, chain, jnp.int32(jnp.iinfo(jnp.int32).max))
    return problem.kernel.settle(chain.state, jnp.zeros((), jnp.result_type(float)))


def draw_like(problem: Problem, chain: Chain) -> Draw:
    """Shapes and dtypes of a draw."""
    return _concluded.like(problem, chain)[1]


_concluded = program(conclude_transition)


def positions(problem: Problem, chains: Chain) -> PyTree:
    """Where stacked chains are: each at the last position that it accepted, whatever it is testing now."""
    kernel = problem.kernel
    return jax.vmap(lambda state: kernel.position(kernel.abandon(state)))(chains.state)
