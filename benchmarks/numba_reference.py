"""The same test as `MHMinibatch`, as a tight Numba loop that gathers random rows: what one would write by hand."""

import math

import numba
import numpy as np

import tallmc as tm

_PILOT, _FEWEST, _INFLATION = 32, 50, 1.5


@numba.njit(fastmath=True, cache=False)
def _log_likelihood(first, second, x):
    near = -0.25 * (x - first) * (x - first)
    far = -0.25 * (x - first - second) * (x - first - second)
    high, low = max(near, far), min(near, far)
    return high + math.log1p(math.exp(low - high))


@numba.njit(fastmath=True, cache=False)
def _chain(rows, temperature, scale, batch_size, atoms, cumulative, num_steps, seed):
    np.random.seed(seed)
    num_rows = rows.shape[0]
    first, second, accepted, read = 0.0, 1.0, 0, 0
    for _ in range(num_steps):
        new_first, new_second = first + scale * np.random.normal(), second + scale * np.random.normal()
        offset = (first**2 - new_first**2) / 20 + (second**2 - new_second**2) / 2
        mean = squares = pilot_variance = 0.0
        count, needed, seen = 0, float(_FEWEST), 0
        while True:
            for _ in range(batch_size):
                x = rows[np.random.randint(num_rows)]
                value = (_log_likelihood(new_first, new_second, x) - _log_likelihood(first, second, x)) / temperature
                count += 1
                delta = value - mean
                mean += delta / count
                squares += delta * (value - mean)
                seen += 1
                if seen == _PILOT:
                    pilot_variance = squares / (count - 1)
                    planned = pilot_variance * num_rows * num_rows
                    needed = max(_FEWEST, planned / (1 / _INFLATION + planned / num_rows))
                    mean = squares = 0.0
                    count = 0
            noise = (squares / (count - 1) / 3 + 2 * pilot_variance / 3) * num_rows * num_rows / count
            noise *= 1 - count / num_rows
            if (count >= needed and noise < 2.0) or seen >= num_rows:
                break
        read += seen
        correction = atoms[np.searchsorted(cumulative, np.random.random())]
        top_up = np.random.normal() * math.sqrt(max(1 - noise, 0.0))
        if offset + num_rows * mean + top_up + correction > 0:
            first, second = new_first, new_second
            accepted += 1
    return accepted / num_steps, read / num_steps


def run(posterior: tm.Posterior, scale: float, batch_size: int, num_steps: int, seed: int = 0) -> tuple[float, float]:
    """Acceptance rate and rows a step of one chain."""
    law = tm.correction_law(1.0)
    rows = np.asarray(posterior.data)
    cumulative = np.cumsum(law.masses)[:-1]
    return _chain(rows, float(posterior.temperature), scale, batch_size, law.atoms, cumulative, num_steps, seed)
