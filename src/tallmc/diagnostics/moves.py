"""Moves that a chain would try, and what all rows say of them."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from tallmc.metropolis import MetropolisHastings
from tallmc.numerics.keys import as_key
from tallmc.posterior import Model, Rows
from tallmc.posterior.passes import log_ratio_blocks
from tallmc.proposals.apart import proposal_source, proposed_from
from tallmc.run import Run


class Moves(NamedTuple):
    """Moves from `position` to `proposed`; leaves have a leading axis of moves.

    Args:
        position: Where the moves start.
        proposed: Where they would go.
        offset: The part of each move's log acceptance ratio that needs no data.
    """

    position: PyTree
    proposed: PyTree
    offset: np.ndarray


def moves_of(run: Run, num_moves: int = 100, rng_key: int | Array = 0) -> Moves:
    """Fresh proposals from draws of a run, evenly spread over it, at the step size its warm-up found.

    Proposals outside the prior's support are left out.
    """
    kernel, model = run.session.kernel, run.session.model
    if not isinstance(kernel, MetropolisHastings):
        raise ValueError(f"moves can be taken from a MetropolisHastings run, not from {type(kernel).__name__}")
    num_draws = run.num_chains * run.num_draws
    which = np.linspace(0, num_draws - 1, min(num_moves, num_draws)).astype(int)
    position = jax.tree.map(
        lambda leaf: jnp.asarray(leaf.reshape(num_draws, *leaf.shape[2:])[which]), run.unconstrained_samples
    )
    states = jax.tree.map(lambda leaf: leaf[which // run.num_draws], run.chains.state)

    source = proposal_source(kernel.proposal.needs, run.posterior.rows, model)

    def propose(key, position, state):
        move = proposed_from(source, kernel.tuned_proposal(kernel.abandon(state)), key, position, model)
        return move.position, model.known_change(position, move.position).offset + move.log_ratio

    proposed, offset = jax.vmap(propose)(jax.random.split(as_key(rng_key), len(which)), position, states)
    # What the prior rules out is rejected without a look at the data.
    possible = np.isfinite(offset)
    if not possible.any():
        raise ValueError("every proposal was outside the prior's support; use smaller steps")
    position, proposed = jax.tree.map(lambda leaf: leaf[possible], (position, proposed))
    return Moves(position, proposed, np.asarray(offset, float)[possible])


@dataclasses.dataclass(frozen=True)
class MoveMoments:
    """What all rows say of moves; each an array with one entry a move.

    Args:
        log_ratio: Log acceptance ratio, what needs no data included.
        spread: Standard deviation of a row's log ratio, times the square root of the number of rows.
        skewness: Of the rows' log ratios.
        kurtosis: Of the rows' log ratios, less 3.
    """

    log_ratio: np.ndarray
    spread: np.ndarray
    skewness: np.ndarray
    kurtosis: np.ndarray


def move_moments(model: Model, rows: Rows, moves: Moves) -> MoveMoments:
    """Reads every row once, in blocks. Moves that some row makes impossible are NaN throughout."""
    count, mean, powers = 0, np.zeros(len(moves.offset)), np.zeros((3, len(moves.offset)))
    for values in log_ratio_blocks(model, rows, moves.position, moves.proposed):
        size, block_mean = values.shape[1], values.mean(axis=1)
        centred = values - block_mean[:, None]
        squares = centred * centred
        block = np.stack([squares.sum(1), (squares * centred).sum(1), (squares * squares).sum(1)])
        count, mean, powers = _merge(count, mean, powers, size, block_mean, block)
    variance = powers[0] / count
    unit = np.where(variance > 0, variance, 1)  # rows that are all alike have neither skewness nor kurtosis
    return MoveMoments(
        log_ratio=count * mean + moves.offset,
        spread=np.sqrt(variance * count),
        skewness=np.where(variance > 0, powers[1] / count / unit**1.5, 0.0),
        kurtosis=np.where(variance > 0, powers[2] / count / unit**2 - 3, 0.0),
    )


def possible_moves(moments: MoveMoments) -> MoveMoments:
    """Without the moves that some row rules out: they are rejected at once by any rule."""
    kept = np.isfinite(moments.log_ratio) & np.isfinite(moments.spread)
    if not kept.any():
        raise ValueError("no move has a finite log ratio over all rows; use smaller steps")
    return MoveMoments(**{name: values[kept] for name, values in vars(moments).items()})


def _merge(count, mean, powers, size, block_mean, block):
    """Sums of squared, cubed and fourth deviations of two groups together (Pebay, 2008)."""
    total = count + size
    gap, share = block_mean - mean, size / total
    squares = powers[0] + block[0] + gap**2 * count * share
    cubes = powers[1] + block[1] + gap**3 * count * share * (1 - 2 * share)
    cubes = cubes + 3 * gap * ((1 - share) * block[0] - share * powers[0])
    fourth = powers[2] + block[2] + gap**4 * count * share * (1 - 3 * share * (1 - share))
    fourth = fourth + 6 * gap**2 * ((1 - share) ** 2 * block[0] + share**2 * powers[0])
    fourth = fourth + 4 * gap * ((1 - share) * block[1] - share * powers[1])
    return total, mean + gap * share, np.stack([squares, cubes, fourth])
