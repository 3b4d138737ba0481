"""A compiled loop of draws that goes on for about so many seconds; compilation is not part of them."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

MAX_DRAWS = 100_000  # of one run; room for as many is set aside


@dataclass
class Loop:
    """Draws by `step(key, state, data) -> (state, position, work)`, compiled once for any number of them.

    Data is an argument rather than a constant of the compiled program. `state` moves on with every call.
    """

    step: Callable
    state: Any
    data: Any
    seed: int = 0

    def __post_init__(self):
        self.calls, self.compiled = 0, jax.jit(self._run)

    def _run(self, state, data, key, count):
        _, position, _ = jax.eval_shape(self.step, key, state, data)

        def body(index, carry):
            state, draws, work = carry
            state, position, cost = self.step(jax.random.fold_in(key, index), state, data)
            return state, draws.at[index].set(position), work.at[index].set(cost)

        room = jnp.zeros((MAX_DRAWS, *position.shape), position.dtype), jnp.zeros(MAX_DRAWS, jnp.float32)
        return jax.lax.fori_loop(0, count, body, (state, *room))

    def draw(self, count: int) -> tuple[np.ndarray, float, float]:
        """So many draws, their work in total and the seconds they took."""
        self.calls += 1
        key = jax.random.fold_in(jax.random.key(self.seed), self.calls)
        started = time.perf_counter()
        self.state, draws, work = jax.block_until_ready(self.compiled(self.state, self.data, key, count))
        seconds = time.perf_counter() - started
        return np.asarray(draws)[:count], float(np.asarray(work, np.float64)[:count].sum()), seconds

    def draw_for(self, seconds: float) -> tuple[np.ndarray, float, float]:
        """As many draws as take about so many seconds, judged by a few before."""
        self.draw(1)
        count, spent = 4, 0.0
        while (spent := self.draw(count)[2]) < 0.05 * seconds and count < MAX_DRAWS:
            count = min(4 * count, MAX_DRAWS)
        return self.draw(int(np.clip(count * seconds / spent, 20, MAX_DRAWS)))
