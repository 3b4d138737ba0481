"""Stochastic gradient descent as in Korattikara et al.: one row a step, step sizes C1 (C2 + t)^-C3."""

import time

import numba
import numpy as np

GRID = [(c1, c2, c3) for c1 in (0.03, 0.3, 1.0) for c2 in (1.0, 10.0) for c3 in (0.5, 0.7)]


@numba.njit(cache=False)
def _descend(X, y, order, position, first, c1, c2, c3):
    for number in range(len(order)):
        row = order[number]
        predictor = 0.0
        for column in range(len(position)):
            predictor += X[row, column] * position[column]
        pull = c1 * (c2 + first + number) ** -c3 * (y[row] - 1 / (1 + np.exp(-predictor)))
        for column in range(len(position)):
            position[column] += pull * X[row, column]


def descend(X, y, checkpoints, constants, seed=0):
    """Positions after so many rows, and the seconds each took."""
    order = np.random.default_rng(seed).integers(len(X), size=max(checkpoints))
    position, found, first, seconds = np.zeros(X.shape[1]), [], 0, 0.0
    for last in checkpoints:
        started = time.perf_counter()
        _descend(X, y, order[first:last], position, first, *constants)
        seconds += time.perf_counter() - started
        found.append((last, seconds, position.copy()))
        first = last
    return found


def best_of_grid(X, y, checkpoints, loss):
    """The constants whose last position has the smallest loss, and that run. The search itself is not charged."""
    descend(X, y, [10], GRID[0])
    runs = {constants: descend(X, y, checkpoints, constants) for constants in GRID}
    best = min(runs, key=lambda constants: loss(runs[constants][-1][2]))
    return best, runs[best]
