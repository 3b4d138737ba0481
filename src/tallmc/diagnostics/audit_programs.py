"""The compiled programs of an audit, and how to compile them before there is a run to audit."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from tallmc.acceptance.formulas import Formula
from tallmc.feed import Feed, IndexedFeed, InMemoryFeed, WeightedFeed
from tallmc.feed.contract import begins_with_rows
from tallmc.kernel import Kernel, Part
from tallmc.kernel_parts import rule_needs
from tallmc.metropolis import Asked, MetropolisHastings
from tallmc.numerics.keys import transition_keys
from tallmc.numerics.programs import COMPILED_SOON, program
from tallmc.posterior import Model, RowBounds, Rows
from tallmc.posterior.passes import add_up, has_numbers, prepare_parts
from tallmc.run.chain import Chain, Problem, observe_until_decided, opening_windows, start_chain

_REPLAYS = 100  # fresh tests of a step at most: a frequency is then known to 0.05, and 64 of them to less than 0.01
STEPS = 64
# Of a run of exact tests whose bounds were proven. Nothing is left to find but faults of the arithmetic, and these show
# in most steps: a fault in one step of three is found 19 times in 20.
_STEPS_OF_PROVEN = 8
AT_ONCE = 8  # steps that one pass over all rows looks at; after each such pass the audit may end

Key = tuple[Array, Array | np.ndarray]  # a key, and a number to fold in


def steps_worth_auditing(kernel: Kernel, model: Model) -> int:
    """How many steps of an automatic run are looked at: fewer where there is less to find, none if all rows decided."""
    if all(rule_needs(part).every_row for part in kernel.parts()):
        return 0
    proven = isinstance(model.bounds, RowBounds) and model.bounds.proven
    exact = all(rule_needs(part).row_bounds for part in kernel.parts())
    return _STEPS_OF_PROVEN if proven and exact else STEPS


def audit_programs(
    problem: Problem, rows: Rows, keys: Array, positions: PyTree, num_draws: int
) -> tuple[Callable[[], None], ...]:
    """What to call to compile what the audit of a run needs, before there is a run; for kernels without members.

    Args:
        problem: What the run will be about.
        rows: All rows.
        keys: Of the chains.
        positions: Where the chains start.
        num_draws: Of each chain.
    """
    kernel, model = problem.kernel, problem.model
    count = min(steps_worth_auditing(kernel, model), keys.shape[0] * (num_draws - 1))
    if count < 1 or not isinstance(kernel, MetropolisHastings) or begins_with_rows(kernel.needs):
        return ()

    def of(tree: PyTree, length: int) -> PyTree:
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((length, *leaf.shape[1:]), leaf.dtype), tree)

    states = _start.like(problem, keys, positions)
    given = of(keys, count), of(positions, count), of(states, count), jax.ShapeDtypeStruct((count,), np.int32)
    some = min(count, AT_ONCE)
    asked = of(ask_again.like(kernel, model, 0, *given, None), some)

    def on_all_rows() -> None:
        by_bounds = rule_needs(kernel).row_bounds
        scales = problem.feed.scales if by_bounds and isinstance(problem.feed, WeightedFeed) else None
        reach = asked.question.reach if by_bounds else jax.ShapeDtypeStruct((some,), np.float32)
        pass_ = partial(totals_on_all_rows.prepare, model, asked.question.position, asked.question.proposed, reach)
        prepare_parts(pass_, rows, beside=scales)
        by_formula.prepare(kernel.rule.promise.formula, jax.ShapeDtypeStruct((some,), jnp.result_type(float)), asked)

    def again() -> None:
        if not (rule_needs(kernel).row_bounds or kernel.rule.promise.draws_level):
            key = jax.ShapeDtypeStruct((), keys.dtype), jax.ShapeDtypeStruct((), np.uint32)
            decide_afresh.prepare(
                replayed(problem, kernel, rows), asked, key, some, num_replays(kernel, model.num_rows)
            )

    return partial(ask_again.prepare, kernel, model, 0, *given, None), again, on_all_rows


@program
def _start(problem: Problem, keys: Array, positions: PyTree) -> PyTree:
    """States of chains before their first round; asked for their shapes only."""
    return jax.vmap(lambda key, position: start_chain(problem, key, position))(keys, positions).state


@program
def ask_again(
    kernel: Kernel,
    model: Model,
    number: int,
    keys: Array,
    positions: PyTree,
    states: PyTree,
    times: Array,
    source: tuple[Feed, PyTree] | None,
) -> Asked:
    """The questions of steps, from the positions, keys and states that the chains had.

    `source` is the run's feed and its stage, if proposals were made from rows: the keys then lead to the same windows.
    """

    def one(key: Array, position: PyTree, state: PyTree, time: Array) -> Asked:
        key_kernel, key_feed = transition_keys(key, time)
        rest = kernel.moved(kernel.abandon(state), position)
        part, key_part, rest_part = kernel.turn_of(number, key_kernel, rest)
        assert isinstance(part, MetropolisHastings)
        if source is None or not begins_with_rows(part.needs):
            return part.ask(key_part, rest_part, model.at_time(time), time)
        (windows,) = opening_windows(kernel, *source, key_feed, jnp.uint32(0))
        own = _windows_of_part(kernel, number, windows)
        return part.ask(key_part, rest_part, model.at_time(time), time, own)

    steps = keys, positions, states, times
    with jax.default_matmul_precision("highest"):
        if source is None:
            return jax.vmap(one)(*steps)
        return jax.lax.map(lambda step: one(*step), steps, batch_size=AT_ONCE)


def _windows_of_part(kernel: Part, part: int, windows: Any) -> Any:
    """Of the windows that a kernel began with, those of one of its parts."""
    for i, member in enumerate(kernel.members()):
        count = len(member.parts())
        if part < count:
            return _windows_of_part(member, part, windows.of(i))
        part -= count
    return windows


@program
def by_formula(formula: Formula, log_ratio: Array, asked: Asked) -> tuple[Array, Array]:
    """The chance to accept, and the level that the rule drew."""
    levels = jax.vmap(formula.level)(asked.key_rule, asked.question.offset)
    return formula.probability(log_ratio.astype(levels.dtype)), levels


@program
def totals_on_all_rows(model: Model, position: PyTree, proposed: PyTree, reach: Array, *where: Any) -> Any:
    """Of each step, all rows' log ratio, and how many rows say more than they can."""

    def of_block(rows: PyTree, valid: Array) -> tuple[Array, Array]:
        rows, scales = rows if has_numbers(where[0]) else (rows, None)
        ratios = jnp.where(valid[None], model.log_ratios_of_moves(position, proposed, rows), 0)
        broken = jnp.zeros_like(ratios)
        if scales is not None:
            # A row may say as much as its weight, one over its scale; rows that are never drawn say nothing.
            allowed = 1.001 * (model.bounds.mean.astype(reach.dtype) * reach)[:, None]
            said = jnp.abs(ratios) * model.temperature.astype(ratios.dtype)
            loud = jnp.where(scales[None] == 0, said > jnp.finfo(said.dtype).tiny, said * scales[None] > allowed)
            broken = loud.astype(ratios.dtype)
        return jnp.sum(ratios, axis=1), jnp.sum(broken, axis=1)

    return add_up(of_block, *where)


def num_replays(kernel: MetropolisHastings, num_rows: int) -> int:
    """Fresh tests of each step: about as many as read all rows once. The same for every run, so that none compiles."""
    return int(np.clip(num_rows / rule_needs(kernel).batch_size, 2, _REPLAYS))


def replayed(problem: Problem, kernel: MetropolisHastings, rows: Rows) -> Problem:
    """The same with rows in a fresh order for each test, which wants no shuffled copy of them."""
    feed = problem.feed
    if not isinstance(feed, WeightedFeed):
        # Rows that lie in random order are read by neighbours: on disk each of the others would be a read of its own.
        kind = InMemoryFeed if rows.in_random_order else IndexedFeed
        feed = kind(rows.num_rows, rule_needs(kernel).batch_size)
    return Problem(kernel, problem.model, feed, feed.arrange(rows, 0), np.int32(0))


@program(compiler_options=COMPILED_SOON)
def decide_afresh(problem: Problem, asked: Asked, key: Key, count: int, replays: int) -> tuple[Array, Array]:
    """What the rule decides of each step in fresh tests, and the rows that each test read."""
    kernel = problem.kernel
    assert isinstance(kernel, MetropolisHastings)

    def one(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        index, key = pair
        key_rule, key_feed = jax.random.split(key)
        again = dataclasses.replace(jax.tree.map(lambda leaf: leaf[index], asked), key_rule=key_rule)
        state = kernel.test(kernel.init(again.question.position), again, problem.model.at_time(again.question.time))
        chain = Chain(key, again.question.time, jnp.uint32(0), problem.feed.start(key_feed), state)
        chain, _, _ = observe_until_decided(problem, chain, jnp.int32(2**31 - 1))
        return kernel.decide(chain.state), chain.state.rows

    which = jnp.repeat(jnp.arange(count), replays, total_repeat_length=count * replays)
    # On a CPU one after the other, so that no test waits for a longer one; elsewhere width counts for more.
    at_once = None if jax.default_backend() == "cpu" else 1024
    keys = jax.random.split(jax.random.fold_in(*key), count * replays)
    with jax.default_matmul_precision("highest"):
        return jax.lax.map(one, (which, keys), batch_size=at_once)
