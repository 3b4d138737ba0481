"""Law: reversible jumps visit models as often as the posterior says, and their ratio is the paper's.

Fifteen models of four columns, each integrated over its coefficients by quadrature (good to 3e-4, by more nodes). 256
independent chains give an honest standard error for every share; thresholds are 5 of them, 6e-7 false alarms for each
of about twenty figures, and 0.01 besides.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import tallmc as tm
from tallmc.numerics.keys import as_key
from tests.controls import CarelessJumps
from tests.registry import real
from tests.selections import exact_models, small_data

NUM_CHAINS, SIZE_PENALTY = 256, 1.0
FLAT = tm.Posterior(lambda position, row: 0.0 * row, np.zeros(4, np.float32)).model


@pytest.fixture(scope="module")
def posterior():
    X, y = small_data()
    return tm.models.variable_selection(np.asarray(real(X)), np.asarray(real(y)), SIZE_PENALTY)


@pytest.fixture(scope="module")
def exact():
    return exact_models(*small_data(), SIZE_PENALTY, floor=1e-3)


def excess(posterior, proposal, exact, rule=None, **options):
    """Largest distance, beyond chance, of a model's share and of two moments; and the largest of a share by itself."""
    num_columns = len(next(iter(exact)))
    start = {"beta": np.asarray(real(np.eye(num_columns)[0])), "gamma": np.arange(num_columns) == 0}
    settings = {"num_samples": 1000, "num_warmup": 300, "num_chains": NUM_CHAINS} | options
    kernel = tm.MetropolisHastings(proposal, tm.Exact(batch_size=256) if rule is None else rule)
    run = tm.sample(posterior, kernel, init=start, **settings)
    assert run.samples["gamma"].dtype == np.bool_
    figures, wanted = [], []
    sums = np.asarray(run.samples["beta"], float).sum(axis=2)
    for gamma, (share, _, _) in exact.items():
        figures.append(np.all(run.samples["gamma"] == np.asarray(gamma), axis=2).mean(axis=1))
        wanted.append(share)
    for power in (1, 2):
        figures.append((sums**power).mean(axis=1))
        wanted.append(sum(values[0] * values[power] for values in exact.values()))
    means, errors = np.mean(figures, axis=1), np.std(figures, axis=1, ddof=1) / np.sqrt(NUM_CHAINS)
    off = np.abs(means - wanted)
    return np.max(off - 5 * errors - 3e-4), np.max(off[: len(exact)])


@pytest.mark.parametrize("jumps", [0.5, pytest.param(0.9, marks=pytest.mark.slow)])
def test_models_are_visited_as_often_as_the_posterior_says(posterior, exact, jumps):
    beyond_chance, largest = excess(posterior, tm.ReversibleJump(0.3, [0.4, 0.3, 0.5, 0.4], jumps), exact)
    assert beyond_chance <= 0
    assert largest < 0.01


@pytest.mark.parametrize("forgets_choice", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_ratio_that_leaves_something_out_is_caught(posterior, exact, forgets_choice):
    """Negative control: without the choice of the column, or without the density of its coefficient."""
    careless = CarelessJumps(tm.ReversibleJump(0.3, 0.15), forgets_choice)
    beyond_chance, largest = excess(posterior, careless, exact, num_samples=300)
    assert beyond_chance > 0
    assert largest > 0.01


def test_a_floor_makes_the_posterior_proper_and_is_sampled_as_it_says():
    """Two columns that rows say little of: zero is not ruled out, and the floor decides how often chains are there."""
    generator = np.random.default_rng(1)
    X = generator.normal(size=(40, 2))
    y = (generator.random(40) < 1 / (1 + np.exp(-0.5 * X[:, 0]))).astype(float)
    shares = {}
    for floor in (0.1, 0.5):
        exact = exact_models(X, y, 1.0, floor, nodes=8)
        posterior = tm.models.variable_selection(np.asarray(real(X)), np.asarray(real(y)), 1.0, floor=floor)
        beyond_chance, largest = excess(posterior, tm.ReversibleJump(0.3, 0.4), exact, num_samples=600)
        assert beyond_chance <= 0
        assert largest < 0.01
        shares[floor] = exact[True, False][0]
    assert abs(shares[0.1] - shares[0.5]) > 0.02


def test_the_ratio_is_the_papers():
    """Equations 36 to 38, with the choice of the column in the chance of a move (ERRATA), for moves of every kind."""
    X, y = small_data()
    penalty, most, birth_scale, half = 0.05, 4, 0.7, 0.25
    posterior = tm.models.variable_selection(np.asarray(real(X)), np.asarray(real(y)), penalty)
    proposal = tm.ReversibleJump(0.3, birth_scale, jumps=2 * half)
    kinds = set()
    propose = eqx.filter_jit(proposal.propose)
    known_change = eqx.filter_jit(posterior.model.known_change)
    for seed in range(60):
        size = 1 + seed % most
        gamma = np.random.default_rng(seed).permutation(np.arange(most) < size)
        beta = np.where(gamma, np.random.default_rng(seed + 1).normal(size=most), 0)
        position = {"beta": real(beta), "gamma": jnp.asarray(gamma)}
        move = propose(as_key(seed), position, posterior.model)
        new = {name: np.asarray(part, float) for name, part in move.position.items()}
        known = float(known_change(position, move.position).offset + move.log_ratio)
        k, grown = int(gamma.sum()), int(new["gamma"].sum()) - int(gamma.sum())
        assert np.all(new["beta"][new["gamma"] == 0] == 0)
        before, after = np.abs(np.asarray(real(beta))).sum(), np.abs(new["beta"]).sum()
        j = int(np.argmax(new["gamma"] != gamma))
        if grown == 0:
            printed = -k * math.log(before) + k * math.log(after)
        elif grown == 1:
            chances = (half / (most - k)) / (half / (k + 1))
            printed = -k * math.log(before) + (k + 1) * math.log(after) + math.log(chances)
            printed += norm.logpdf(new["beta"][j], 0, birth_scale) + math.log((most - k) / (penalty * k))
        else:
            chances = (half / k) / (half / (most - k + 1))
            printed = -k * math.log(before) + (k - 1) * math.log(after) + math.log(chances)
            printed -= norm.logpdf(beta[j], 0, birth_scale) - math.log(penalty * (k - 1) / (most - k + 1))
        np.testing.assert_allclose(known, -printed, rtol=2e-4, atol=2e-4)  # mu_0 is minus what is known, less log u
        kinds.add((grown, size in (1, most)))
    assert {kind for kind, _ in kinds} == {-1, 0, 1}


def test_steps_are_of_each_kind_and_column_as_often_as_it_says():
    """100,000 steps from a model of three columns of five: kinds within 5 standard errors, columns alike."""
    count, gamma = 100_000, np.asarray([True, False, True, True, False])
    position = {"beta": real(np.where(gamma, 1.0, 0.0)), "gamma": jnp.asarray(gamma)}
    proposal = tm.ReversibleJump(0.1, 0.1, jumps=0.6)
    moves = jax.jit(jax.vmap(lambda key: proposal.propose(key, position, FLAT)))(jax.random.split(as_key(3), count))
    grown = np.asarray(moves.position["gamma"]).sum(axis=1) - 3
    for kind, share in ((1, 0.3), (-1, 0.3), (0, 0.4)):
        assert abs((grown == kind).mean() - share) < 5 * math.sqrt(share * (1 - share) / count)
        changed = np.any(
            np.stack([np.asarray(moves.position[name]) != np.asarray(position[name]) for name in position]), axis=0
        )[grown == kind]
        assert np.all(changed.sum(axis=1) == 1)
        eligible = ~gamma if kind == 1 else gamma
        expected = changed.shape[0] / eligible.sum()
        assert np.all(np.abs(changed.sum(axis=0)[eligible] - expected) < 5 * math.sqrt(expected))
        assert not changed[:, ~eligible].any()


@pytest.mark.parametrize(("size", "kind"), [(1, -1), (5, 1)])
def test_the_last_column_stays_and_there_is_no_sixth(size, kind):
    gamma = np.arange(5) < size
    position = {"beta": real(np.where(gamma, 1.0, 0.0)), "gamma": jnp.asarray(gamma)}
    proposal = tm.ReversibleJump(jumps=0.9)
    moves = jax.jit(jax.vmap(lambda key: proposal.propose(key, position, FLAT)))(jax.random.split(as_key(4), 1000))
    grown = np.asarray(moves.position["gamma"]).sum(axis=1) - size
    assert set(grown.tolist()) == {0, -kind}
