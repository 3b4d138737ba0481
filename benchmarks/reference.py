"""Exact means and standard deviations of a logistic posterior, from all rows.

By importance sampling: draws of a normal, weighted by the ratio of posterior and normal. The normal has the mean and
the covariance of a short run, so the weights are nearly equal, and what is estimated is only the small difference of
the two. Any normal would give the right answer; a good one gives it from a few thousand draws. In many dimensions no
normal is good enough: there the draws are those of a Hamiltonian chain on all rows.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import tallmc as tm
from benchmarks import hamiltonian
from tallmc.control_variates import covariance_factor

ROWS_AT_A_TIME = 16_384


class Moments(NamedTuple):
    """Means, standard deviations, and the error of either.

    Args:
        mean: Of each coordinate.
        sd: Of each coordinate.
        error: Standard error of the worst of these, in standard deviations, from parts of the draws.
    """

    mean: np.ndarray
    sd: np.ndarray
    error: float


def moments(posterior: tm.Posterior, num_draws: int = 2000, seed: int = 0) -> Moments:
    """Of a posterior of `tm.models.logistic_regression`, from mirrored pairs of draws."""
    found = tm.optimise.mode(posterior, progress=False)
    controlled = tm.Taylor(2).expand(posterior, found.position)
    centre, factor = _normal(posterior)
    half = np.random.default_rng(seed).normal(size=(num_draws // 2, len(centre)))
    white = np.concatenate([half, -half], axis=1).reshape(num_draws, -1)  # a draw, then its mirror image
    points = jnp.asarray(centre + white @ factor.T - np.asarray(found.position, float), jnp.float32)
    log_weights = _log_densities(controlled.model, posterior.data, points) + np.sum(white**2, axis=1) / 2
    weights = np.exp(log_weights - log_weights.max())
    mean, sd = _moments(weights, white, factor)
    parts = [_moments(w, z, factor) for w, z in zip(np.split(weights, 10), np.split(white, 10), strict=True)]
    errors = [np.std([part[k] / sd for part in parts], axis=0, ddof=1) / np.sqrt(10) for k in (0, 1)]
    return Moments(centre + mean, sd, float(np.max(errors)))


def moments_of_chains(posterior: tm.Posterior, num_draws: int, seed: int = 0) -> Moments:
    """Of the same posterior, prior precision 1, from `num_draws` of each of many Hamiltonian chains."""
    found = tm.optimise.mode(posterior, progress=False)
    factor = covariance_factor(np.asarray(found.hessian))
    X, y = (np.asarray(posterior.data[name]) for name in ("x", "y"))
    draws = hamiltonian.draws(X, y, np.asarray(found.position, float), factor, num_draws, seed)
    mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
    parts = draws.mean(axis=1) / sd, ((draws - mean) ** 2).mean(axis=1) / (2 * sd**2)
    errors = [part.std(axis=0, ddof=1) / np.sqrt(len(part)) for part in parts]
    return Moments(mean, sd, float(np.max(errors)))


def _normal(posterior: tm.Posterior) -> tuple[np.ndarray, np.ndarray]:
    """Mean, and Cholesky factor of the covariance, of a short run."""
    run = tm.sample(posterior, num_samples=10_000, num_chains=2, progress=False)
    draws = np.asarray(run.samples, float).reshape(-1, run.samples.shape[-1])
    return draws.mean(axis=0), np.linalg.cholesky(np.cov(draws.T))


def _log_densities(model, data, steps: jax.Array) -> np.ndarray:
    """Of positions at some steps from the expansion, against the expansion's centre, on all rows."""
    centre = model.expansion.centre
    offsets = jax.vmap(lambda step: model.known_change(centre, centre + step).offset)(steps)

    @jax.jit
    def left(x, y, steps):
        step = jnp.matmul(x, steps.T, precision="highest")
        z = jnp.matmul(x, centre, precision="highest")[:, None]
        sign, chance = (1 - 2 * y)[:, None], jax.nn.sigmoid(z)
        rise = jax.nn.softplus(sign * (z + step)) - jax.nn.softplus(sign * z)
        expected = (chance - y[:, None]) * step + chance * (1 - chance) * step * step / 2
        return jnp.sum(expected - rise, axis=0)

    total = np.asarray(offsets, float)
    for start in range(0, model.num_rows, ROWS_AT_A_TIME):
        rows = slice(start, start + ROWS_AT_A_TIME)
        total = total + np.asarray(left(*(jnp.asarray(data[name][rows]) for name in ("x", "y")), steps), float)
    return total


def _moments(weights: np.ndarray, white: np.ndarray, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviations about the normal's mean, as differences from those of the normal."""
    excess = (weights / weights.mean() - 1)[:, None] * white
    mean = factor @ excess.mean(axis=0)
    second = factor @ (np.eye(white.shape[1]) + white.T @ excess / len(white)) @ factor.T
    return mean, np.sqrt(np.diag(second) - mean**2)
