"""Numbers that change as a chain goes on: `tm.AustereMH(epsilon=tm.schedule.power(0.2))`.

Time is the number of transitions that a chain has made, warm-up included.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Real


class Schedule(eqx.Module):
    """A number for every time; written in JAX, for it is asked inside compiled code."""

    @abc.abstractmethod
    def __call__(self, time: Int[Array, ""]) -> Real[Array, ""]:
        """The number to use at this time, counted in transitions of the chain."""


class _Power(Schedule):
    start: float
    exponent: float
    delay: float

    def __call__(self, time: Int[Array, ""]) -> Real[Array, ""]:
        dtype = jnp.result_type(float)
        base = jnp.asarray(1 + time.astype(dtype) / self.delay, dtype)
        return jnp.asarray(self.start, dtype) * base ** jnp.asarray(-self.exponent, dtype)


class _Linear(Schedule):
    start: float
    end: float
    steps: float

    def __call__(self, time: Int[Array, ""]) -> Real[Array, ""]:
        dtype = jnp.result_type(float)
        share = jnp.minimum(time.astype(dtype) / self.steps, 1)
        return jnp.asarray(self.start + (self.end - self.start) * share, dtype)


def power(start: float, exponent: float = 0.5, delay: float | int = 1000) -> Schedule:
    """Falls as `start * (1 + time / delay) ** -exponent`: never zero, below any level in the end.

    Args:
        start: At time 0.
        exponent: How fast it falls.
        delay: Transitions before it falls noticeably.

    Returns:
        The schedule.

    Example:
        >>> import jax.numpy as jnp
        >>> print(f"{power(0.2, exponent=0.5, delay=100)(jnp.int32(300)):.3f}")
        0.100
    """
    _check(start=start, exponent=exponent, delay=delay)
    return _Power(float(start), float(exponent), float(delay))


def linear(start: float, end: float, steps: float | int) -> Schedule:
    """Goes from `start` to `end` in `steps` transitions and stays there.

    Args:
        start: At time 0.
        end: From time `steps` on.
        steps: Transitions.

    Returns:
        The schedule.

    Example:
        >>> import jax.numpy as jnp
        >>> print(f"{linear(0.2, 0.0, steps=100)(jnp.int32(50)):.3f}")
        0.100
    """
    _check(start=start, steps=steps)
    if not (np.isfinite(end) and end >= 0):
        raise ValueError(f"end must not be negative, got {end}")
    return _Linear(float(start), float(end), float(steps))


def _check(**values: float | int) -> None:
    for name, value in values.items():
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a positive number, got {value}")
