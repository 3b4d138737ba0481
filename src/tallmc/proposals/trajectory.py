"""Hamiltonian trajectories: leapfrog steps along the slope of a log density."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Real

from tallmc.numerics.arithmetic import matvec, rounded

Slope = Callable[[Real[Array, " d"]], Real[Array, " d"]]


def leapfrog(
    slope: Slope,
    factor: Real[Array, "..."],
    start: Real[Array, " d"],
    velocity: Real[Array, " d"],
    step_size: Real[Array, ""],
    num_steps: Int[Array, ""],
) -> tuple[Real[Array, " d"], Real[Array, " d"]]:
    """Follows a trajectory: where it ends, and with which velocity. Reversible, and keeps volumes as they are.

    Args:
        slope: Gradient of the log density.
        factor: What one unit of velocity moves: one number, one a coordinate, or a lower Cholesky factor of something
            like the posterior's covariance; the mass matrix is its inverse. Velocities are standard normal.
        start: Where it begins.
        velocity: At the start.
        step_size: Time of one step.
        num_steps: How many; all of them, wherever they lead.
    """
    along, back = _products(factor)

    def kick(at: Array, velocity: Array, share: float) -> Array:
        return velocity + rounded(share * step_size * back(slope(at)))

    def one_step(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        count, at, velocity = carry
        at = at + rounded(step_size * along(velocity))
        # Half a kick ends one step and another half begins the next: but for the last step they are one.
        share = jnp.where(count + 1 < num_steps, 1.0, 0.5).astype(velocity.dtype)
        return count + 1, at, velocity + rounded(share * step_size * back(slope(at)))

    first = jnp.int32(0), start, kick(start, velocity, 0.5)
    _, end, velocity = jax.lax.while_loop(lambda carry: carry[0] < num_steps, one_step, first)
    return end, velocity


def _products(factor: Array) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """The factor, and its transpose, times a vector."""
    if factor.ndim < 2:
        times = lambda vector: rounded(factor * vector)  # noqa: E731
        return times, times
    transposed = factor.T
    return lambda vector: matvec(factor, vector), lambda vector: matvec(transposed, vector)


def jittered(key: Array, num_steps: Int[Array, ""]) -> Int[Array, ""]:
    """Between half as many steps and half as many again, so that no trajectory closes to a circle each time."""
    low, high = (num_steps + 1) // 2, num_steps + num_steps // 2
    return jax.random.randint(key, (), low, high + 1, jnp.int32)
