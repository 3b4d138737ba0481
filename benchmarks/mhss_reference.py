"""Metropolis-Hastings with scalable subsampling (Prado, Nemeth & Sherlock, 2024), in plain NumPy, as it was published.

Logistic regression with a centred normal prior. A second-order control variate at the mode, the published bound, and
random-walk proposals with covariance kappa^2 V / d. Exact: the posterior is the stationary law. Beyond the authors'
package, there is a prior and no random index is used twice.
"""

import time
from dataclasses import dataclass

import numpy as np

ROW_CONSTANT = np.sqrt(3) / 18  # the largest third derivative of log(1 + exp(z))
STEPS_BETWEEN_LOOKS = 100  # at the clock


@dataclass(frozen=True)
class Chain:
    """What came of a run: draws (draw, d), rows read by each step, the share accepted and the seconds it took."""

    draws: np.ndarray
    rows: np.ndarray
    accepted: float
    seconds: float


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Walker's table, by Vose's method: keep column i with probability `keep[i]`, otherwise take `other[i]`."""
    keep = (weights * (len(weights) / weights.sum())).tolist()
    other = list(range(len(keep)))
    small = [column for column, mass in enumerate(keep) if mass < 1]
    large = [column for column, mass in enumerate(keep) if mass >= 1]
    while small and large:
        poor, rich = small.pop(), large[-1]
        other[poor] = rich
        keep[rich] -= 1 - keep[poor]
        if keep[rich] < 1:
            small.append(large.pop())
    for column in small + large:  # what is left misses 1 by rounding only
        keep[column] = 1.0
    return np.array(keep), np.array(other)


class Indices:
    """An endless supply of row numbers drawn in proportion to weights, a block at a time."""

    def __init__(self, weights: np.ndarray, generator: np.random.Generator, block: int = 50_000):
        self.keep, self.other = alias_table(weights)
        self.generator, self.block = generator, block
        self.drawn, self.used = np.empty(0, np.int64), 0

    def take(self, count: int) -> np.ndarray:
        """The next so many."""
        if self.used + count > len(self.drawn):
            columns = self.generator.integers(len(self.keep), size=max(count, self.block))
            kept = self.generator.random(len(columns)) < self.keep[columns]
            self.drawn, self.used = np.where(kept, columns, self.other[columns]), 0
        self.used += count
        return self.drawn[self.used - count : self.used]


def bound(a: np.ndarray, b: np.ndarray, step: np.ndarray) -> float:
    """M of the paper for order 2: a row's remainder is at most c_i M. `a` and `b` are positions less the mode."""
    length = np.sqrt(step @ step)
    return 0.5 * length * (length**2 / 6 + _spread(a, step, length) + _spread(b, step, length))


def _spread(offset: np.ndarray, step: np.ndarray, length: float) -> float:
    """Squared length of an offset, times a factor that grows with its cosine to the step."""
    square = offset @ offset
    cosine = abs(offset @ step) / max(np.sqrt(square) * length, 1e-300)
    s = np.sqrt(2 + cosine**2 / 4) - cosine / 2
    return square * (2 + cosine * s) ** 1.5 / (s * 3**1.5)


class Target:
    """A logistic posterior, its expansion at the mode, and the constant c_i of each row."""

    def __init__(self, X: np.ndarray, y: np.ndarray, mode: np.ndarray, prior_precision: float = 1.0):
        self.X, self.y, self.mode, self.prior_precision = X, y, mode.astype(np.float64), prior_precision
        self.at_mode = X @ self.mode
        chance = 1 / (1 + np.exp(-self.at_mode))
        self.gradient = X.T @ (y - chance)
        self.hessian = -(X.T * (chance * (1 - chance)).astype(X.dtype)) @ X
        self.constants = ROW_CONSTANT * np.einsum("ij,ij->i", X, X).astype(np.float64) ** 1.5
        self.total = float(self.constants.sum())

    def prior_ratio(self, position: np.ndarray, proposed: np.ndarray) -> float:
        """Of the proposed position to this one, in logs."""
        return 0.5 * self.prior_precision * (position @ position - proposed @ proposed)

    def proxy_ratio(self, a: np.ndarray, b: np.ndarray) -> float:
        """The likelihood's log ratio by its expansion, the sum of r_i."""
        return self.gradient @ (b - a) + 0.5 * (b @ self.hessian @ b - a @ self.hessian @ a)

    def exact_ratio(self, position: np.ndarray, proposed: np.ndarray) -> float:
        """The likelihood's log ratio on all rows."""
        before, after = self.X @ position, self.X @ proposed
        return float(np.sum(self.y * (after - before) - np.logaddexp(0, after) + np.logaddexp(0, before)))

    def remainders(self, position: np.ndarray, proposed: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """D_i of the rows: how much the proxy overstates the log ratio. The responses cancel."""
        before, after = np.stack([position, proposed]) @ self.X[rows].T
        mode = self.at_mode[rows]
        chance = 1 / (1 + np.exp(-mode))
        bend = 0.5 * chance * (1 - chance) * ((after - mode) ** 2 - (before - mode) ** 2)
        return np.logaddexp(0, after) - np.logaddexp(0, before) - chance * (after - before) - bend


def step(target: Target, position: np.ndarray, proposed: np.ndarray, indices: Indices) -> tuple[bool, int]:
    """Whether to accept, and the rows it took to know."""
    generator = indices.generator
    a, b = position - target.mode, proposed - target.mode
    size = bound(a, b, proposed - position)
    prior = target.prior_ratio(position, proposed)
    if target.total * size >= len(target.y):
        return generator.exponential() > -(prior + target.exact_ratio(position, proposed)), len(target.y)
    if generator.exponential() <= -(prior + target.proxy_ratio(a, b)):
        return False, 0
    rows = indices.take(generator.poisson(target.total * size))
    if not len(rows):
        return True, 0
    remainder, largest = target.remainders(position, proposed, rows), target.constants[rows] * size
    phi = np.minimum(remainder, 0) + largest
    kept = generator.random(len(rows)) * largest < phi
    return generator.exponential() > -np.sum(np.log1p(-remainder[kept] / phi[kept])), len(rows)


def sample(
    target: Target, covariance: np.ndarray, seconds: float, seed: int = 0, kappa: float = 1.5, max_steps: int = 10**6
) -> Chain:
    """One chain for about so many seconds, from a draw near the mode.

    Args:
        target: The posterior.
        covariance: V, the inverse of the negative Hessian at the mode.
        seconds: How long to go on; tables are built before.
        seed: Of the random numbers.
        kappa: Scale of the proposals; the authors' default.
        max_steps: The most to make.

    Returns:
        Draws and what they cost.
    """
    generator = np.random.default_rng(seed)
    indices = Indices(target.constants, generator)
    root = np.linalg.cholesky(covariance)
    position = target.mode + root @ generator.normal(size=len(root))
    draws, rows, accepted = [], [], 0
    started = time.perf_counter()
    while len(draws) < max_steps and time.perf_counter() - started < seconds:
        moves = generator.normal(size=(STEPS_BETWEEN_LOOKS, len(root))) @ (kappa / np.sqrt(len(root)) * root.T)
        for move in moves:
            moved, read = step(target, position, position + move, indices)
            position = position + move if moved else position
            accepted += moved
            draws.append(position)
            rows.append(read)
    spent = time.perf_counter() - started
    return Chain(np.array(draws), np.array(rows), accepted / len(draws), spent)
