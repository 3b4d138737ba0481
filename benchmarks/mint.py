"""What Mint samples, beside exact tempered MH: the tied-mean mixture of Li and Wong (2017, section 4.1).

A million rows, batches of 1,000, half the largest exponent, so that the stated temperature is 31,623; a flat prior,
under which both modes weigh the same.
"""

import jax
import jax.numpy as jnp
import numpy as np

import tallmc as tm
from benchmarks import mixture
from tallmc.models.gaussian_mixture import generate_mixture

NUM_ROWS, BATCH_SIZE = 1_000_000, 1000
EXPONENT = np.log(BATCH_SIZE) / np.log(NUM_ROWS) / 2
TEMPERATURE = NUM_ROWS ** (1 - EXPONENT)
NUM_CHAINS, NUM_DRAWS, STEP = 20, 50_000, 0.8
# Cells of a quarter by a quarter: of 50,000 draws that follow each other, many fall into each that matters.
EDGES = np.arange(-4.0, 5.0 + 1e-9, 0.25), np.arange(-6.0, 6.0 + 1e-9, 0.25)
COLUMNS = (
    "sampler",
    "total variation to the grid",
    "sd over chains",
    "all chains together",
    "ratio of the modes",
    "rows a step",
)


def posteriors() -> tuple[tm.Posterior, tm.Posterior]:
    """With all rows, for Mint; and tempered, from 1,024 weighted rows, for what is exact."""
    likelihood = tm.models.gaussian_mixture(generate_mixture(10)).log_likelihood
    full = tm.Posterior(likelihood, generate_mixture(NUM_ROWS))
    binned = mixture.binned_posterior(NUM_ROWS)
    return full, tm.Posterior(binned.log_likelihood, binned.data, temperature=TEMPERATURE)


def grid_masses(binned: tm.Posterior) -> np.ndarray:
    """The true mass of every cell, by 5 x 5 points in each."""
    points = [(edges[:-1, None] + 0.25 * np.array([0.1, 0.3, 0.5, 0.7, 0.9])).ravel() for edges in EDGES]
    rows = jax.tree.map(jnp.asarray, binned.data)

    @jax.jit
    def line(first):
        at = jax.vmap(lambda second: binned.log_density(jnp.stack([first, second]), rows))
        return at(jnp.asarray(points[1], jnp.float32))

    height = np.stack([np.asarray(line(jnp.float32(first)), float) for first in points[0]])
    mass = np.exp(height - height.max()).reshape(len(EDGES[0]) - 1, 5, len(EDGES[1]) - 1, 5).sum(axis=(1, 3))
    return mass / mass.sum()


def distances(samples: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """In total variation, of each chain."""
    found = []
    for draws in np.asarray(samples):
        shares = np.histogram2d(draws[:, 0], draws[:, 1], EDGES)[0] / len(draws)
        found.append((np.abs(shares - truth).sum() + 1 - shares.sum()) / 2)
    return np.array(found)


def mode_ratio(samples: np.ndarray) -> tuple[float, float]:
    """Of the masses above and below t2 = 0, which swapping both components exchanges; and its standard error."""
    above = (np.asarray(samples)[..., 1] > 0).mean(axis=1)
    share, error = above.mean(), above.std(ddof=1) / np.sqrt(len(above))
    return share / (1 - share), error / (1 - share) ** 2


def draws(posterior: tm.Posterior, rule: tm.AcceptanceRule, num_draws: int = NUM_DRAWS, seed: int = 0) -> tm.Run:
    """Of all chains, half of which start at either mode."""
    init = np.tile(np.array([[0.0, 1.0], [1.0, -1.0]], np.float32), (NUM_CHAINS // 2, 1))
    kernel = tm.MetropolisHastings(tm.RandomWalk(STEP), rule)
    options = {"num_warmup": 500, "num_chains": NUM_CHAINS, "progress": False, "rng_key": seed}
    return tm.sample(posterior, kernel, init=init, num_samples=num_draws, **options)


def run():
    """Both samplers, a line each."""
    full, tempered = posteriors()
    truth = grid_masses(tempered)
    for name, posterior, rule in (
        ("Mint, one batch of 1,000 shared by both positions", full, tm.Mint(BATCH_SIZE, EXPONENT)),
        ("exact MH at temperature 31,623", tempered, tm.Exact(1024)),
    ):
        found = draws(posterior, rule)
        apart, (ratio, error) = distances(found.samples, truth), mode_ratio(found.samples)
        rows = found.stats["rows"].mean() if posterior is full else NUM_ROWS
        yield (
            name,
            f"{apart.mean():.4f}",
            f"{apart.std(ddof=1):.4f}",
            f"{distances(found.samples.reshape(1, -1, 2), truth)[0]:.4f}",
            f"{ratio:.3f} +- {error:.3f}",
            f"{rows:,.0f}",
        )
