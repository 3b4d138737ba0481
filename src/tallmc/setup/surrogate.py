"""Draws from prior + expansion, which need no rows: where the posterior is, and how to move in it."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Real

from tallmc.control_variates import ExpandedModel, covariance_factor
from tallmc.numerics.keys import as_key
from tallmc.numerics.programs import program
from tallmc.posterior.passes import prior_derivatives
from tallmc.proposals.trajectory import jittered, leapfrog
from tallmc.run.mixing import mixing

# All are judgements: no measurement of other values is on record.
_CHAINS, _ROUND = 16, 150  # chains, and iterations of each round: two rounds to learn in, one to draw
_SMOOTH = 0.85  # share of trajectories whose energy error lets them pass
_QUARTER = math.pi / 2  # time after which a normal posterior has forgotten where a trajectory began
_MOST_STEPS = 64  # of a trajectory
_MIXED = 1.2  # R-hat up to which so few draws count as draws of one distribution


class Surrogate(NamedTuple):
    """What draws of prior + expansion say.

    Args:
        draws: (draw, coordinate); those of all chains, one after the other.
        mean: Of each coordinate.
        spread: Standard deviation of each coordinate.
        factor: Lower Cholesky factor that trajectories were followed with.
        step_size: Of their leapfrog steps.
        num_steps: Leapfrog steps of a trajectory.
        accepted: Share of trajectories that their energy error lets pass.
        r_hat: Largest of all coordinates.
    """

    draws: Float[np.ndarray, "draws d"]
    mean: Float[np.ndarray, " d"]
    spread: Float[np.ndarray, " d"]
    factor: Float[np.ndarray, "d d"]
    step_size: float
    num_steps: int
    accepted: float
    r_hat: float

    @property
    def mixed(self) -> bool:
        """Whether the draws are those of one distribution."""
        return self.r_hat < _MIXED and self.accepted > _SMOOTH / 2


def explore(model: ExpandedModel, unravel: Callable, start: np.ndarray) -> Surrogate | None:
    """Follows trajectories on prior + expansion; None if they fly off, so that there is nothing to be drawn from.

    The same model gives the same draws, whatever the key of the run.

    Args:
        model: With its expansion.
        unravel: From a flat position to one that the prior takes.
        start: Near which the chains begin.
    """
    expansion, dtype = model.expansion, np.dtype(model.expansion.centre.dtype)
    if expansion.curvature is None:
        return None
    whiten, curvature = (np.asarray(part, float) for part in (expansion.whiten, expansion.curvature))
    hessian = whiten.T @ (curvature[:, None] * whiten) / float(model.temperature)
    factor = _first_factor(model, unravel, start.astype(dtype), hessian)
    positions = start + np.random.default_rng(0).normal(size=(_CHAINS, len(start))) @ factor.T / 2
    step_size, num_steps, found = len(start) ** -0.25, 4, None
    for number in range(3):
        last = number == 2
        given = (part.astype(dtype) for part in (positions, hessian, factor))
        draws, passed, tuned = _follow(
            model,
            unravel,
            as_key(number),
            *given,
            np.float32(step_size),
            np.int32(num_steps),
            np.bool_(not last),
            _ROUND,
        )
        draws, passed, step_size = np.asarray(draws, float), np.asarray(passed, float), float(tuned)
        if not (np.all(np.isfinite(draws)) and math.isfinite(step_size)):
            return None
        positions = draws[-1]
        late = draws[_ROUND // 2 :] if not last else draws
        spread = late.reshape(-1, late.shape[-1]).std(axis=0)
        if not np.all(spread > 0):
            return None
        if not last:
            factor = factor * (spread / np.linalg.norm(factor, axis=1))[:, None]
            num_steps = int(np.clip(round(_QUARTER / step_size), 1, _MOST_STEPS))
        else:
            r_hat = float(np.max(mixing(np.swapaxes(draws, 0, 1)).r_hat))
            flat = draws.reshape(-1, draws.shape[-1])
            found = Surrogate(
                flat, flat.mean(axis=0), spread, factor, step_size, num_steps, float(passed.mean()), r_hat
            )
    return found


def _first_factor(
    model: ExpandedModel, unravel: Callable, start: np.ndarray, hessian: Real[np.ndarray, "d d"]
) -> Float[np.ndarray, "d d"]:
    """From the curvature where chains start; where that bends the wrong way, from its size along each coordinate."""
    precision = -hessian - prior_derivatives(model, unravel, start)[2]
    factor = covariance_factor(precision)
    if factor is not None:
        return factor
    scale = np.sqrt(np.abs(np.diag(precision)))
    values, vectors = np.linalg.eigh(precision / np.outer(scale, scale) if np.all(scale > 0) else precision)
    scale = scale if np.all(scale > 0) else np.ones_like(scale)
    values = np.maximum(np.abs(values), 1e-3 * np.max(np.abs(values)))
    upper = np.linalg.qr(((vectors / np.sqrt(values)) / scale[:, None]).T)[1]
    return upper.T * np.sign(np.diag(upper))


@program
def _follow(
    model: ExpandedModel,
    unravel: Callable,
    key: Array,
    positions: Array,
    hessian: Array,
    factor: Array,
    step_size: Array,
    num_steps: Array,
    learning: Array,
    count: int,
) -> tuple[Array, Array, Array]:
    """Iterations of all chains together: where they were, the share that passed, and the step size at the end."""
    expansion, dtype = model.expansion, positions.dtype
    gradient = expansion.gradient / model.temperature.astype(dtype)

    def slope(flat: Array) -> Array:
        prior = jax.grad(lambda at: jnp.asarray(model.log_prior(unravel(at)), dtype))(flat)
        return prior + gradient + hessian @ (flat - expansion.centre)

    def move(key: Array, flat: Array, step_size: Array) -> tuple[Array, Array]:
        key_velocity, key_steps, key_level = jax.random.split(key, 3)
        velocity = jax.random.normal(key_velocity, flat.shape, dtype)
        end, final = leapfrog(slope, factor, flat, velocity, step_size, jittered(key_steps, num_steps))
        known = model.known_change(unravel(flat), unravel(end)).offset
        change = known + jnp.sum((velocity - final) * (velocity + final)) / 2
        chance = jnp.exp(jnp.minimum(jnp.where(jnp.isfinite(change), change, -jnp.inf), 0)).astype(dtype)
        moved = jax.random.uniform(key_level, (), dtype) < chance
        return jnp.where(moved, end, flat), chance

    def iterate(carry: tuple[Array, Array], number: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        positions, step_size = carry
        keys = jax.random.split(jax.random.fold_in(key, number), len(positions))
        positions, chances = jax.vmap(move, (0, 0, None))(keys, positions, step_size)
        chance = jnp.mean(chances)
        gain = jnp.where(learning, (number.astype(dtype) + 2) ** -0.6, 0)
        return (positions, step_size * jnp.exp(gain * (chance - _SMOOTH))), (positions, chance)

    with jax.default_matmul_precision("highest"):
        carry = positions, step_size.astype(dtype)
        (_, tuned), (draws, chances) = jax.lax.scan(iterate, carry, jnp.arange(count, dtype=jnp.int32))
    return draws, jnp.mean(chances), tuned
