"""Numbers that change as a chain goes on: `tm.AustereMH(epsilon=tm.schedule.power(0.2))`.

Time is the number of transitions that a chain has made, warm-up included. A schedule is a function of time and of
nothing else: what a chain has seen never changes it while draws are kept, so a transition at a given time has one
kernel, and audits find the number that was in force. `redesigned` is filled in during warm-up alone.
"""

import abc
from collections.abc import Mapping
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Real

_LATE = 2**30  # a time that no chain comes to
_NEVER = np.int32(2**31 - 1)


class Schedule(eqx.Module):
    """A number for every time; written in JAX, for it is asked inside compiled code."""

    @abc.abstractmethod
    def __call__(self, time: Int[Array, ""]) -> Real[Array, ""]:
        """The number to use at this time, counted in transitions of the chain."""

    def corners(self) -> tuple[float, ...]:
        """Numbers between which all lie, the last one that of the end; first and last, for what only rises or falls."""
        return tuple(float(self(jnp.int32(time))) for time in (0, _LATE))


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


class _Steps(Schedule):
    """Stays at `values[k]` from `times[k]` on; the first value holds from the start."""

    times: Int[np.ndarray | Array, " changes"]
    values: Real[np.ndarray | Array, " changes+1"]

    def __call__(self, time: Int[Array, ""]) -> Real[Array, ""]:
        values = jnp.asarray(self.values, jnp.result_type(float))
        return values[jnp.sum(time >= jnp.asarray(self.times), dtype=jnp.int32)]

    def corners(self) -> tuple[float, ...]:
        return tuple(float(value) for value in self.values)


class Redesigned(Schedule):
    """What `redesigned` makes: the error to keep to, and the numbers that warm-up has filled in so far.

    Args:
        max_error: Of an acceptance probability, on average over moves.
        times: From which on each design is in force; those still to come are never reached.
        values: The number at the start, and that of each design.
    """

    changes_in_warmup: ClassVar[bool] = True
    max_error: float
    times: Int[np.ndarray | Array, " designs"]
    values: Real[np.ndarray | Array, " designs+1"]

    def __call__(self, time: Int[Array, ""]) -> Real[Array, ""]:
        """The number of the latest design before this time."""
        return _Steps(self.times, self.values)(time)

    def corners(self) -> tuple[float, ...]:
        """Those of the designs so far."""
        return tuple(float(value) for value in self.values[: self.made + 1])

    @property
    def made(self) -> int:
        """Designs so far."""
        return int(np.sum(np.asarray(self.times) < _NEVER))

    @property
    def planned(self) -> int:
        """Designs in all."""
        return len(self.times)

    def designed(self, time: int, value: float) -> "Redesigned":
        """The same with one more design, in force from this time on."""
        times, values = np.array(self.times), np.array(self.values)
        times[self.made], values[self.made + 1 :] = time, value
        return Redesigned(self.max_error, times, values)


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


def steps(values: Mapping[int, float]) -> Schedule:
    """Stays at each number until the next one's time: `{0: 100.0, 400: 1.0}` is 100 for 400 transitions, then 1.

    Args:
        values: The number from each time on. One of the times is 0.

    Returns:
        The schedule.

    Example:
        >>> import jax.numpy as jnp
        >>> cooling = steps({0: 100.0, 400: 1.0})
        >>> float(cooling(jnp.int32(399))), float(cooling(jnp.int32(400)))
        (100.0, 1.0)
    """
    times = sorted(values)
    if not times or times[0] != 0:
        raise ValueError("steps needs the number to begin with: one of the times must be 0, as in {0: 100.0, 400: 1.0}")
    if any(isinstance(time, bool) or not isinstance(time, int | np.integer) or time >= _LATE for time in times):
        raise ValueError(f"times must be whole numbers of transitions, got {times}")
    numbers = [float(values[time]) for time in times]
    if not all(np.isfinite(number) and number >= 0 for number in numbers):
        raise ValueError(f"the numbers of a schedule must be finite and not negative, got {numbers}")
    return _Steps(np.asarray(times[1:], np.int32), np.asarray(numbers, np.float32))


def redesigned(max_error: float, *, start: float = 0.05, num_designs: int = 4) -> Schedule:
    """An epsilon that warm-up designs anew, several times, from the moves that chains are making then.

    For `tm.AustereMH` (Korattikara et al., 2014, supplement D). Chains pause for each design, all at the same
    transition; moves are drawn from where they have been, every row is read once for them, and the largest epsilon is
    taken whose error of the acceptance probability is at most `max_error` on average (as `tm.design.average`, at the
    rule's batch size and boundary). The last design comes four fifths into warm-up. From there on epsilon does not
    change, so that kept draws come from one fixed kernel; during warm-up it follows the chains, and those
    draws are discarded.

    Args:
        max_error: Error of an acceptance probability, averaged over moves.
        start: Epsilon until the first design.
        num_designs: How often to design; evenly over four fifths of warm-up.

    Returns:
        The schedule, to be passed as `epsilon`.

    Example:
        >>> import tallmc as tm
        >>> rule = tm.AustereMH(tm.schedule.redesigned(max_error=0.01), batch_size=500)
    """
    if not 0 < max_error < 0.5:
        raise ValueError(f"max_error must lie between 0 and 0.5, got {max_error}")
    if isinstance(num_designs, bool) or not isinstance(num_designs, int | np.integer) or num_designs < 1:
        raise ValueError(f"num_designs must be a whole number of at least 1, got {num_designs!r}")
    if not 0 <= start < 1:
        raise ValueError(f"start must lie in [0, 1), got {start}; it is the error allowed to one look")
    return Redesigned(float(max_error), np.full(num_designs, _NEVER), np.full(num_designs + 1, start, np.float32))


def _check(**values: float | int) -> None:
    for name, value in values.items():
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a positive number, got {value}")
