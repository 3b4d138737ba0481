"""Window adaptation of a step size and a mass matrix (Stan's), made of BlackJAX's parts and carried as plain arrays."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Real

from tallmc.numerics.promotion import promoting

# Stan's numbers: steps before the first window, of the first window, and after the last; below so many there is none.
_FIRST, _WINDOW, _LAST, _FEWEST = 75, 25, 50, 20
_MOST_WINDOWS = 32  # they double in length, so no warm-up has more


class Schedule(eqx.Module):
    """When to learn what, for a warm-up of some length. All are arrays, so another length compiles nothing anew.

    Args:
        num_steps: Length of the warm-up.
        slow: Before which step windows begin, and end: inside them the mass matrix is learned as well.
        ends: The last step of each window, padded with -1.
    """

    num_steps: Int[np.ndarray, ""]
    slow: Int[np.ndarray, "2"]
    ends: Int[np.ndarray, " windows"]

    @classmethod
    def of(cls, num_steps: int) -> "Schedule":
        """BlackJAX's (and Stan's) for so many steps.

        Example:
            >>> Schedule.of(1000).ends[:6].tolist()
            [99, 149, 249, 449, 949, -1]
        """
        first, window, last = _FIRST, _WINDOW, _LAST
        if first + window + last > num_steps:
            first, last = int(0.15 * num_steps), int(0.1 * num_steps)
            window = num_steps - first - last
        start, stop, ends = first, num_steps - last if num_steps >= _FEWEST else first, []
        while start < stop:
            # A window that would leave too little for one twice as long takes all that is left.
            end, window = (start + window, 2 * window) if 3 * window <= stop - start else (stop, window)
            ends.append(end - 1)
            start = end
        padded = np.full(_MOST_WINDOWS, -1, np.int32)
        padded[: len(ends)] = ends
        return cls(np.asarray(num_steps, np.int32), np.asarray([first, stop], np.int32), padded)


class Adapted(eqx.Module):
    """What has been learned so far.

    Args:
        steps: State of BlackJAX's dual averaging, as a tuple.
        mass: State of BlackJAX's adaptation of the mass matrix.
        turns: Transitions learned from.
    """

    steps: Any
    mass: Any
    turns: Int[Array, ""]

    @property
    def inverse_mass(self) -> Real[Array, "..."]:
        """A variance for each coordinate, or their covariance."""
        return self.mass.inverse_mass_matrix

    def unfinished(self, schedule: Schedule) -> Bool[Array, ""]:
        """Whether there is still something to learn."""
        return self.turns < schedule.num_steps

    def once(self, learned: "Adapted", schedule: Schedule, *, warming: Bool[Array, ""]) -> "Adapted":
        """What was learned, if there was still something to learn; once warm-up is over there never is.

        A kernel that takes turns with others may have had fewer turns by then than its schedule has steps.
        """
        still = warming & self.unfinished(schedule)
        kept = Adapted(self.steps, self.mass, jnp.where(warming, self.turns, schedule.num_steps))
        return jax.tree.map(lambda new, old: jnp.where(still, new, old), learned, kept)

    def step_size(self, schedule: Schedule) -> Real[Array, ""]:
        """While warm-up lasts the one to try next, after that the average of those tried since its last window."""
        warming = self.unfinished(schedule)
        never = self.steps.step == 1  # nothing tried since the last window: there is no average yet
        return jnp.exp(jnp.where(warming | never, self.steps.log_step_size, self.steps.log_step_size_avg))


def begin(size: int, step_size: Real[Array, ""], *, dense: bool) -> Adapted:
    """Nothing learned yet.

    Args:
        size: Coordinates of a position.
        step_size: The first to try.
        dense: Whether to learn a whole matrix, not only its diagonal.
    """
    with promoting():
        steps, mass = _parts(jnp.zeros(()), dense=dense)
        # BlackJAX begins with Python's numbers; what is carried round a loop must be arrays of one dtype throughout.
        step_state, mass_state = jax.tree.map(_as_array, (steps[0](step_size), mass[0](size)))
        return Adapted(step_state, mass_state, jnp.int32(0))


def learn(
    adapted: Adapted,
    schedule: Schedule,
    target: Real[Array, ""],
    position: Real[Array, " d"],
    acceptance: Real[Array, ""],
) -> Adapted:
    """Learns from one transition.

    Args:
        adapted: So far.
        schedule: Says what to learn now.
        target: The mean chance to accept that the step size should give.
        position: Where the transition ended.
        acceptance: The mean chance to accept along its trajectory.
    """
    turn, kept = adapted.turns, (adapted.steps, adapted.mass)
    inside = (turn >= schedule.slow[0]) & (turn < schedule.slow[1])
    with promoting():
        (da_init, da_update, da_final), (_, update, final) = _parts(target, dense=adapted.inverse_mass.ndim == 2)
        steps = da_update(adapted.steps, acceptance)
        mass = jax.lax.cond(inside, lambda: _like(update(adapted.mass, position), adapted.mass), lambda: adapted.mass)
        steps, mass = jax.lax.cond(
            jnp.any(schedule.ends == turn),
            lambda: _like((da_init(da_final(steps)), final(mass)), kept),
            lambda: _like((steps, mass), kept),
        )
    return Adapted(steps, mass, turn + 1)


def _parts(target: Any, *, dense: bool) -> tuple[Any, Any]:
    """Init, update and final of the step size and of the mass matrix."""
    from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    return dual_averaging_adaptation(target), mass_matrix_adaptation(not dense)


def _as_array(leaf: Any) -> Array:
    whole = isinstance(leaf, int) or jnp.issubdtype(jnp.result_type(leaf), jnp.integer)
    return jnp.asarray(leaf, jnp.int32 if whole else jnp.result_type(float))


def _like(new: Any, old: Any) -> Any:
    return jax.tree.map(lambda leaf, like: jnp.asarray(leaf, like.dtype), new, old)
