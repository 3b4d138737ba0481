"""The Gaussian mixture of Seita et al., section 6.1: a million rows at temperature 10,000."""

import jax
import jax.numpy as jnp
import numpy as np

import tallmc as tm
from tallmc.models.gaussian_mixture import generate_mixture

TEMPERATURE = 1e4
START = np.array([0.0, 1.0], np.float32)
PROPOSAL_SD = 0.15
BIN_WIDTH = 0.1
EDGES = np.arange(-2.0, 3.0 + 1e-9, BIN_WIDTH), np.arange(-3.5, 3.5 + 1e-9, BIN_WIDTH)


def posterior(num_rows: int = 1_000_000) -> tm.Posterior:
    """The tempered posterior; temperature grows with the rows so that its shape does not change."""
    return tm.models.gaussian_mixture(generate_mixture(num_rows), temperature=TEMPERATURE * num_rows / 1e6)


def kernel(rule: tm.AcceptanceRule, step: float = PROPOSAL_SD) -> tm.MetropolisHastings:
    """The paper's proposal: its covariance of 0.15 must read standard deviation."""
    return tm.MetropolisHastings(tm.RandomWalk(step), rule)


def _weighted_log_likelihood(position, row):
    near = -((row["x"] - position[0]) ** 2) / 4
    far = -((row["x"] - position[0] - position[1]) ** 2) / 4
    return row["weight"] * jnp.logaddexp(near, far)


def binned_posterior(num_rows: int = 1_000_000, num_bins: int = 1024) -> tm.Posterior:
    """The same posterior from 1,024 weighted rows, so that exact rules can make millions of steps.

    Bins are 0.01 wide and sit at their rows' mean; what that changes in the log posterior is below 1e-4.
    """
    full = posterior(num_rows)
    rows = np.asarray(full.data, float)
    edges = np.linspace(rows.min(), rows.max() + 1e-3, num_bins + 1)
    where = np.digitize(rows, edges) - 1
    weight = np.bincount(where, minlength=num_bins)
    centre = np.bincount(where, rows, minlength=num_bins) / np.maximum(weight, 1)
    kept = weight > 0
    data = {"x": centre[kept].astype(np.float32), "weight": weight[kept].astype(np.float32)}
    return tm.Posterior(_weighted_log_likelihood, data, full.log_prior, full.temperature)


def grid_posterior(binned: tm.Posterior) -> np.ndarray:
    """The true mass of every bin of 0.1 by 0.1, by 5 x 5 points in each."""
    points = [(edges[:-1, None] + BIN_WIDTH * np.array([0.1, 0.3, 0.5, 0.7, 0.9])).ravel() for edges in EDGES]
    rows = jax.tree.map(jnp.asarray, binned.data)

    @jax.jit
    def line(first):
        return jax.vmap(lambda second: binned.log_density(jnp.stack([first, second]), rows))(
            jnp.asarray(points[1], jnp.float32)
        )

    log_density = np.stack([np.asarray(line(jnp.float32(first)), float) for first in points[0]])
    mass = np.exp(log_density - log_density.max())
    mass = mass.reshape(len(EDGES[0]) - 1, 5, len(EDGES[1]) - 1, 5).sum(axis=(1, 3))
    return mass / mass.sum()


def total_variation(samples: np.ndarray, truth: np.ndarray) -> float:
    """Distance of the draws' histogram from the truth."""
    draws = np.asarray(samples).reshape(-1, 2)
    counts, _, _ = np.histogram2d(draws[:, 0], draws[:, 1], EDGES)
    shares = counts / len(draws)
    return float((np.abs(shares - truth).sum() + 1 - shares.sum()) / 2)
