"""Chains along a stream: rows come in stages, and a test may begin in one and end in another."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from tallmc.feed import Feed, StreamedFeed
from tallmc.run.chain import Chain, Problem, conclude_transition, observe_until_decided
from tallmc.run.records import Record, pack

_Carry = tuple[Chain, Record, Array]  # the last: rounds that are left


def streamed_loop(
    problem: Problem, chain: Chain, record: Record, until: Int[Array, ""], rounds: Int[Array, ""]
) -> tuple[Chain, Record]:
    """Moves one chain to `until` transitions, or by so many rounds: then it stops in whatever test it is."""
    capacity = jax.tree.leaves(record)[0].shape[0]

    def part_of_a_test(carry: _Carry) -> _Carry:
        chain, record, rounds = carry
        chain, decided, rounds = observe_until_decided(problem, chain, rounds)

        def conclude(chain: Chain) -> tuple[Chain, Record]:
            chain, draw = conclude_transition(problem, chain)
            return chain, pack(draw)

        def wait(chain: Chain) -> tuple[Chain, Record]:
            return chain, {name: jnp.zeros(array.shape[1:], array.dtype) for name, array in record.items()}

        chain, new = jax.lax.cond(decided, conclude, wait, chain)
        slot = jnp.maximum(chain.finished - 1 - problem.num_warmup, 0) & (capacity - 1)
        write = lambda array, row: array.at[slot].set(jnp.where(decided, row, array[slot]))  # noqa: E731
        return chain, jax.tree.map(write, record, new), rounds

    def goes_on(carry: _Carry) -> Bool[Array, ""]:
        return (carry[0].finished < until) & (carry[2] > 0)

    chain, record, _ = jax.lax.while_loop(goes_on, part_of_a_test, (chain, record, rounds))
    return chain, record


def stage_length(feed: Feed) -> int:
    """Rounds that a stage lasts."""
    assert isinstance(feed, StreamedFeed)
    return feed.windows
