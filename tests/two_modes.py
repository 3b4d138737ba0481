"""Targets with two modes, in one and two dimensions, that quadrature knows; and how far a run is from them."""

import warnings

import jax.numpy as jnp
import numpy as np

import tallmc as tm
from tests.registry import real

NUM_ROWS, TEMPERATURE = 600, 3.0
HEATS = [1.0, 3.0, 10.0, 40.0]


def likelihood_1d(position, row):
    return -0.5 * (row - position**2 - 0.2 * position) ** 2 / 4


def prior_1d(position):
    return -0.5 * ((position - 0.2) / 1.5) ** 2


def likelihood_2d(position, row):
    a, b = position[0], position[1]
    return -0.5 * (row[0] - a**2) ** 2 / 4 - 0.5 * (row[1] - a - b) ** 2 / 4


def prior_2d(position):
    return -0.5 * jnp.sum((position - real([0.1, 0.0])) ** 2)


def in_one_dimension():
    rows = np.random.default_rng(0).normal(1.4, 2.0, NUM_ROWS)
    return tm.Posterior(likelihood_1d, np.asarray(real(rows)), prior_1d, temperature=TEMPERATURE)


def in_two_dimensions():
    rows = np.random.default_rng(1).normal([1.2, 0.5], 2.0, (NUM_ROWS, 2))
    return tm.Posterior(likelihood_2d, np.asarray(real(rows)), prior_2d, temperature=TEMPERATURE)


def grid(posterior, size):
    """Log density of a posterior on a grid, and the volume of a cell of it; rows are summed by their moments."""
    places = np.linspace(-4, 4, size)
    rows = np.asarray(posterior.data, float)
    if rows.ndim == 1:
        mean = places**2 + 0.2 * places
        squares = np.sum(rows**2) - 2 * mean * rows.sum() + NUM_ROWS * mean**2
        return -squares / 8 / TEMPERATURE - 0.5 * ((places - 0.2) / 1.5) ** 2, places[1] - places[0]
    a, b = np.meshgrid(places, places, indexing="ij")
    first = np.sum(rows[:, 0] ** 2) - 2 * a**2 * rows[:, 0].sum() + NUM_ROWS * a**4
    second = np.sum(rows[:, 1] ** 2) - 2 * (a + b) * rows[:, 1].sum() + NUM_ROWS * (a + b) ** 2
    prior = -0.5 * ((a - 0.1) ** 2 + b**2)
    return -(first + second) / 8 / TEMPERATURE + prior, (places[1] - places[0]) ** 2


def distance(run):
    """In total variation from quadrature; in two dimensions of each coordinate's histogram, and of the modes."""
    density, _ = grid(run.posterior, 4001 if run.samples.ndim == 2 else 801)
    masses = np.exp(density - density.max())
    draws = np.asarray(run.samples, float).reshape(run.samples.shape[0] * run.samples.shape[1], -1)
    found = []
    for axis in range(draws.shape[1]):
        others = tuple(other for other in range(masses.ndim) if other != axis)
        marginal = masses.sum(axis=others) / masses.sum()
        places, cumulative = np.linspace(-4, 4, len(marginal)), np.cumsum(marginal)
        edges = np.interp(np.linspace(0, 1, 33)[1:-1], cumulative - marginal / 2, places)
        edges = np.unique(np.concatenate([[-9], edges, [9]]))
        cell = (places[1] - places[0]) / 2
        expected = np.diff(np.interp(edges, places + cell, cumulative))
        seen = np.histogram(draws[:, axis], edges)[0] / len(draws)
        found.append(np.abs(seen - expected).sum() / 2)
    return max(found)


def walk(scale=0.3, rule=None):
    return tm.MetropolisHastings(tm.RandomWalk(scale), tm.Exact(batch_size=200) if rule is None else rule)


def sampled(posterior, ladder, **options):
    start = 1.0 if posterior.data.ndim == 1 else np.array([1.0, -0.5])
    settings = {"num_samples": 3000, "num_warmup": 300, "num_chains": 32, "progress": False} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tm.ConvergenceWarning)
        return tm.sample(posterior, ladder, init=np.asarray(real(start)), **settings)
