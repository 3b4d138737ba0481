"""Variable selections small enough to be worked out exactly, by quadrature over the coefficients of every model."""

import itertools

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln


def small_data(num_rows=150, seed=0):
    """Four columns, two of them correlated; the first matters, the second hardly."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(num_rows, 4))
    X[:, 2] += 0.6 * X[:, 1]
    y = generator.random(num_rows) < 1 / (1 + np.exp(-X @ [1.6, 0.35, 0.0, 0.0]))
    return X, y.astype(float)


def exact_models(X, y, size_penalty, floor, nodes=5):
    """Of every model, as a tuple of truth values: its probability, and mean and spread of each coefficient."""
    found = {}
    for gamma in itertools.product([False, True], repeat=X.shape[1]):
        if any(gamma):
            found[gamma] = _integrals(X[:, np.asarray(gamma)], y, X.shape[1], size_penalty, floor, nodes)
    total = sum(mass for mass, *_ in found.values())
    return {gamma: (mass / total, first / mass, second / mass) for gamma, (mass, first, second) in found.items()}


def _integrals(X, y, num_columns, size_penalty, floor, nodes):
    """Mass, and that times the mean of the sum of coefficients and of its square."""
    size = X.shape[1]
    signed = X * (2 * y - 1)[:, None]
    mode = minimize(lambda beta: np.logaddexp(0, -signed @ beta).sum(), np.full(size, 0.01)).x
    chance = 1 / (1 + np.exp(-X @ mode))
    spread = np.sqrt(np.diag(np.linalg.inv((X * (chance * (1 - chance))[:, None]).T @ X)))
    axes = [_axis(m, s, floor if size <= 2 else None, nodes) for m, s in zip(mode, spread, strict=True)]
    beta, weight = (
        np.stack([grid.ravel() for grid in np.meshgrid(*(axis[part] for axis in axes), indexing="ij")], axis=1)
        for part in (0, 1)
    )
    log_likelihood = np.concatenate(
        [-np.logaddexp(0, -some @ signed.T).sum(axis=1) for some in np.array_split(beta, 1 + len(beta) // 20_000)]
    )
    length = np.maximum(np.abs(beta).sum(axis=1), floor)
    prior = size * np.log(size_penalty) + betaln(size, num_columns - size + 1) - size * np.log(length)
    mass = weight.prod(axis=1) * np.exp(log_likelihood + prior + 0.6 * len(y))
    sums = beta.sum(axis=1)
    return mass.sum(), (mass * sums).sum(), (mass * sums**2).sum()


def _axis(mode, spread, floor, nodes):
    """Gauss-Legendre panels that end where the prior has its kink, and crowd there if it matters."""
    cuts = [mode - 8 * spread, mode - 2.5 * spread, 0.0, mode + 2.5 * spread, mode + 8 * spread]
    if floor is not None:
        near = floor * 4.0 ** np.arange(0, 8)
        cuts += [*-near, *near]
    cuts = np.unique(np.clip(cuts, min(cuts[0], 0), max(cuts[4], 0)))
    at, weight = np.polynomial.legendre.leggauss(nodes)
    pairs = list(itertools.pairwise(cuts))
    return tuple(
        np.concatenate(part)
        for part in (
            [(a + b) / 2 + (b - a) / 2 * at for a, b in pairs],
            [(b - a) / 2 * weight for a, b in pairs],
        )
    )
