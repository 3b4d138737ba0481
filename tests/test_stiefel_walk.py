"""The walk on matrices with orthonormal columns: it stays there, is symmetric, and leaves the uniform law alone.

Thresholds are 5 standard errors, 6e-7 false alarms a figure, unless it says otherwise; seeds are fixed.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import beta, kstest

import tallmc as tm
from tallmc.models.ica import IcaLikelihood
from tallmc.numerics.arithmetic import matrix_product, rounded, solved_by_elimination
from tallmc.numerics.keys import as_key
from tallmc.proposals.stiefel_walk import nearest_orthonormal, random_skew, rotated
from tallmc.run import drivers
from tests.registry import real
from tests.test_drivers import assert_same_run

SHAPES = [(2, 1), (3, 2), (3, 3), (6, 2)]
EPSILON = float(jnp.finfo(real(0).dtype).eps)


NUM_CHAINS = 256


def flat_likelihood(position, row):
    return 0.0 * row * jnp.sum(position)


FLAT = tm.Posterior(flat_likelihood, np.zeros(8, np.float32)).model


def orthonormal(shape, seed=0):
    return np.asarray(real(np.linalg.qr(np.random.default_rng(seed).normal(size=shape))[0]))


class NotProjected(tm.StiefelWalk):
    """Negative control: rounding is left to add up."""

    def propose(self, key, position, model):
        skew = rounded(self.scale.astype(position.dtype) * random_skew(key, len(position), position.dtype))
        return tm.Move(rotated(position, skew), jnp.zeros((), position.dtype))


class TriangularWalk(tm.Proposal):
    """Negative control: normal noise, and columns put right one after the other, by Gram-Schmidt.

    It leaves the uniform law alone, so it takes more than that law to see that it is not symmetric.
    """

    scale: float

    def propose(self, key, position, model):
        noisy = position + self.scale * jax.random.normal(key, position.shape, position.dtype)
        columns = []
        for column in noisy.T:
            for other in columns:
                column = column - jnp.sum(other * column) * other
            columns.append(column / jnp.sqrt(jnp.sum(column**2)))
        return tm.Move(jnp.stack(columns, axis=1), jnp.zeros((), position.dtype))


class LopsidedWalk(tm.Proposal):
    """Negative control: more noise in the first coordinate, and back to the nearest point."""

    scales: ClassVar = (0.9, 0.2)

    def propose(self, key, position, model):
        noise = jnp.asarray(self.scales, position.dtype) * jax.random.normal(key, (2,), position.dtype)
        noisy = position + noise.reshape(position.shape)
        return tm.Move(noisy / jnp.sqrt(jnp.sum(noisy**2)), jnp.zeros((), position.dtype))


@eqx.filter_jit
def farthest(proposal, position, key, steps):
    """The largest entry of |W^T W - I| on a walk that accepts everything."""
    one = jnp.eye(position.shape[1], dtype=position.dtype)

    def step(time, carry):
        here, worst = carry
        here = proposal.propose(jax.random.fold_in(key, time), here, FLAT).position
        return here, jnp.maximum(worst, jnp.max(jnp.abs(here.T @ here - one)))

    with jax.default_matmul_precision("highest"):
        return jax.lax.fori_loop(0, steps, step, (position, jnp.zeros((), position.dtype)))[1]


def drift(proposal, shape, steps):
    return float(farthest(proposal, real(orthonormal(shape)), as_key(1), jnp.int32(steps))) / EPSILON


# A row's product with itself is rounded p times, by half a unit in the last place each.
@pytest.mark.parametrize("shape", [(4, 4), (6, 2)])
def test_a_hundred_thousand_steps_stay_on_the_manifold_to_rounding(shape):
    assert drift(tm.StiefelWalk(0.3), shape, 100_000) <= 2 * shape[0]


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_a_million_steps_stay_on_the_manifold_to_rounding(scale):
    assert drift(tm.StiefelWalk(scale), (4, 4), 1_000_000) <= 8


def test_without_the_projection_rounding_adds_up():
    """Negative control of the tests above."""
    assert drift(NotProjected(0.3), (4, 4), 20_000) > 5 * 8


def test_a_rotation_by_the_opposite_angles_leads_back():
    """The inverse of a step is the step of the other sign, whose density is the same: symmetry rests on this."""
    for seed, (rows, columns) in enumerate(SHAPES):
        here = real(orthonormal((rows, columns), seed))
        skew = 1.7 * random_skew(as_key(seed), rows, here.dtype)
        np.testing.assert_array_equal(skew, -skew.T)
        there_and_back = jax.jit(lambda here, skew: rotated(rotated(here, skew), -skew))
        np.testing.assert_allclose(there_and_back(here, skew), here, atol=40 * EPSILON)


def test_projecting_commutes_with_rotations():
    """Also off the manifold, where it does something: so it takes rounding away and favours no direction."""
    off = real(orthonormal((4, 2)) + 1e-2 * np.random.default_rng(1).normal(size=(4, 2)))
    skew = random_skew(as_key(0), 4, off.dtype)
    both = jax.jit(lambda w, a: (nearest_orthonormal(rotated(w, a)), rotated(nearest_orthonormal(w), a)))(off, skew)
    np.testing.assert_allclose(*both, atol=40 * EPSILON)
    assert np.abs(off.T @ off - np.eye(2)).max() > 1e-3


def test_small_products_and_systems_are_those_of_numpy():
    generator = np.random.default_rng(0)
    left, right, skew = generator.normal(size=(5, 3)), generator.normal(size=(3, 4)), generator.normal(size=(5, 5))
    np.testing.assert_allclose(matrix_product(real(left), real(right)), left @ right, rtol=1e-4, atol=1e-5)
    system = np.eye(5) + skew - skew.T
    np.testing.assert_allclose(
        solved_by_elimination(real(system), real(left)), np.linalg.solve(system, left), rtol=1e-3, atol=1e-5
    )


def flow_scores(proposal, shape, count=200_000):
    """How much more often one goes from W to W' than back, in standard errors, for some functions of both.

    Steps from the uniform law: what a rotation of both changes nothing in is a function of W^T W', and the way back has
    its transpose.
    """
    start = jnp.asarray(orthonormal(shape))
    keys = jax.random.split(as_key(3), count)
    there = jax.vmap(lambda key: proposal.propose(key, start, FLAT).position)(keys)
    between = np.asarray(jnp.einsum("pi,npj->nij", start, there, precision="highest"), float)
    back = np.swapaxes(between, 1, 2)
    figures = [lambda m: m[:, 0, -1], lambda m: m[:, 0, -1] ** 2, lambda m: m[:, 0, -1] * m[:, 0, 0]]
    figures += [lambda m: np.abs(m[:, 0, -1]) * m[:, -1, -1], lambda m: m[:, 0, -1] ** 2 * m[:, 0, 0]]
    differences = np.stack([figure(between) - figure(back) for figure in figures])
    return np.abs(differences.mean(axis=1)) / (differences.std(axis=1) / np.sqrt(count) + 1e-12)


@pytest.mark.parametrize("scale", [0.3, np.array([[0, 0.1, 0.5], [0.1, 0, 0.9], [0.5, 0.9, 0]])], ids=["one", "planes"])
@pytest.mark.parametrize("shape", [(3, 2), (3, 3)])
def test_the_walk_is_symmetric(shape, scale):
    assert np.all(flow_scores(tm.StiefelWalk(scale), shape) < 5)


def test_columns_put_right_one_after_the_other_are_not():
    """Negative control."""
    assert np.max(flow_scores(TriangularWalk(0.5), (3, 2))) > 10


@eqx.filter_jit
def walks(proposal, start, keys, steps):
    """Chains that accept everything, as under a flat likelihood, without their first steps."""

    def one(key):
        def step(here, time):
            here = proposal.propose(jax.random.fold_in(key, time), here, FLAT).position
            return here, here

        return jax.lax.scan(step, start, jnp.arange(steps))[1][50:]

    return jax.vmap(one)(keys)


def uniform_scores(proposal, shape):
    """Moments of entries, less those of the uniform law, in standard errors over chains; and the draws.

    Entries have mean 0, squares 1/p, fourth powers 3 / (p (p + 2)); products of two in a row are uncorrelated; a
    determinant has mean 0.
    """
    start = jnp.asarray(orthonormal(shape))
    draws = np.asarray(walks(proposal, start, jax.random.split(as_key(4), NUM_CHAINS), 450), float)
    draws, rows = draws.reshape(NUM_CHAINS, 400, len(start), -1), shape[0]
    figures = [draws, draws**2 - 1 / rows, draws**4 - 3 / (rows * (rows + 2))]
    if draws.shape[3] > 1:
        figures.append(draws[..., 0] * draws[..., 1])
    if draws.shape[2] == draws.shape[3]:
        figures.append(np.linalg.det(draws))
    figures = np.concatenate([figure.mean(axis=1).reshape(NUM_CHAINS, -1) for figure in figures], axis=1)
    spread = figures.std(axis=0, ddof=1) / np.sqrt(NUM_CHAINS)
    return np.abs(figures.mean(axis=0)) / np.maximum(spread, 1e-9), draws


@pytest.mark.parametrize("shape", SHAPES)
def test_a_flat_likelihood_leaves_the_uniform_law(shape):
    """Moments of all entries; and the distribution of one, a Beta of its square, by the last draw of each chain."""
    scores, draws = uniform_scores(tm.StiefelWalk(0.5), shape)
    assert np.all(scores < 5)
    squares = draws[:, -1, 0, 0] ** 2
    assert kstest(squares, beta(0.5, (shape[0] - 1) / 2).cdf).pvalue > 1e-6  # independent chains


def test_rotations_alone_see_half_of_the_square_matrices():
    """Negative control: without reflections a determinant keeps its sign."""
    assert np.max(uniform_scores(tm.StiefelWalk(0.5, reflections=0.0), (3, 3))[0]) > 100


def test_a_lopsided_walk_is_not_uniform():
    """Negative control."""
    assert np.max(uniform_scores(LopsidedWalk(), (2, 1))[0]) > 10


def circular_likelihood(position, row):
    """Of an angle, with a second harmonic: two modes of different weight."""
    return row["first"] @ position + row["second"] * (position[0] ** 2 - position[1] ** 2)


def circular_posterior():
    generator = np.random.default_rng(5)
    rows = {"first": generator.normal(0.004, 0.1, size=(300, 2)), "second": generator.normal(0.003, 0.1, size=300)}
    return tm.Posterior(circular_likelihood, jax.tree.map(lambda column: np.asarray(real(column)), rows))


def circular_scores(proposal, rule):
    """The masses of twelve arcs of the circle, less those by quadrature, in standard errors over chains."""
    posterior = circular_posterior()
    run = tm.sample(
        posterior,
        tm.MetropolisHastings(proposal, rule),
        init=np.asarray(real([1.0, 0.0])),
        num_samples=800,
        num_warmup=100,
        num_chains=NUM_CHAINS,
    )
    angle = (np.arange(12_000) + 0.5) / 12_000 * 2 * np.pi - np.pi
    sums = jax.tree.map(lambda column: np.sum(np.asarray(column, float), axis=0), posterior.data)
    density = np.exp(sums["first"] @ np.stack([np.cos(angle), np.sin(angle)]) + sums["second"] * np.cos(2 * angle))
    wanted = density.reshape(12, -1).sum(axis=1) / density.sum()
    assert wanted.max() / wanted.min() > 5  # not flat
    found = np.arctan2(run.samples[..., 1], run.samples[..., 0])
    arcs = np.clip(((found + np.pi) / (2 * np.pi) * 12).astype(int), 0, 11)
    shares = np.stack([(arcs == arc).mean(axis=1) for arc in range(12)], axis=1)
    return np.abs(shares.mean(axis=0) - wanted) / (shares.std(axis=0, ddof=1) / np.sqrt(NUM_CHAINS))


@pytest.mark.parametrize("rule", [tm.Exact(300), pytest.param(tm.ExactBarker(300), marks=pytest.mark.slow)])
def test_a_posterior_on_the_circle_is_that_of_quadrature(rule):
    assert np.all(circular_scores(tm.StiefelWalk(1.0), rule) < 5)


def test_a_lopsided_walk_on_the_circle_is_seen():
    """Negative control."""
    assert np.max(circular_scores(LopsidedWalk(), tm.Exact(300))) > 10


def matrix_likelihood(position, row):
    """Element by element, so that drivers agree bit for bit."""
    return jnp.sin(rounded(position["w"][0, 0] * row)) + position["u"][1] * 0.5


def test_both_drivers_give_the_same_chains_bit_for_bit():
    """A matrix and a vector of length one in one position; each is moved, and the loop is one piece of machine code."""
    rows = np.asarray(real(np.random.default_rng(0).normal(size=3001)))
    posterior = tm.Posterior(matrix_likelihood, rows, tm.models.OrthonormalColumns(), temperature=60.0)
    init = {"w": orthonormal((4, 4)), "u": orthonormal((3, 1)).ravel()}
    kernel = tm.MetropolisHastings(tm.StiefelWalk(0.3), tm.MHMinibatch(50))
    before = set(drivers._not_native)
    runs = [
        tm.sample(posterior, kernel, init=init, num_samples=300, num_warmup=100, num_chains=3, driver=driver)
        for driver in (tm.ChainByChain(), tm.Together(rounds=32))
    ]
    assert set(drivers._not_native) == before
    assert_same_run(*runs)
    one = runs[0]
    assert one.stats["accepted"].mean() > 0.05
    for name in init:
        assert np.all(one.samples[name].std(axis=1) > 1e-3)
    assert np.allclose(np.linalg.norm(one.samples["u"], axis=-1), 1, atol=4 * EPSILON)
    assert (one.num_chains, len(one.summary().table)) == (3, 16 + 3)


def test_warm_up_tunes_the_angles_and_cuts_those_that_are_too_long():
    kernel = tm.MetropolisHastings(tm.StiefelWalk(1e-3), tm.Exact(300))
    run = tm.sample(circular_posterior(), kernel, init=np.asarray(real([1.0, 0.0])), num_samples=200, num_warmup=800)
    assert np.all(run.step_size > 100)
    assert np.all(np.isfinite(run.samples))
    far = tm.StiefelWalk(1e6)
    start = jnp.asarray(orthonormal((3, 3)))
    ends = jax.vmap(lambda key: far.propose(key, start, FLAT).position)(jax.random.split(as_key(0), 4000))
    cosines = np.asarray(jnp.einsum("pi,npi->n", start, ends)) / 3
    assert abs(cosines.mean()) < 0.2
    assert cosines.std() > 0.2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tm.StiefelWalk(0.0), "positive"),
        (lambda: tm.StiefelWalk(np.nan), "positive"),
        (lambda: tm.StiefelWalk(np.array([0.1, 0.2])), "symmetric matrix"),
        (lambda: tm.StiefelWalk([[0.1, 0.2], [0.3, 0.1]]), "symmetric matrix"),
        (lambda: tm.StiefelWalk([[0.1, 0.0], [0.0, 0.1]]), "positive"),
        (lambda: tm.StiefelWalk(0.1, reflections=1.5), "share"),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def matrix_flat(position, row):
    return 0.0 * row * jnp.sum(position["w"])


@pytest.mark.parametrize(
    ("w", "message"),
    [
        (2 * np.eye(3), r"start from np.linalg.qr\(init\['w'\]\)\[0\]"),
        (np.ones(3), r"np.linalg.norm"),
        (np.eye(3)[:2], r"pass init\['w'\].T"),
        (np.zeros((2, 2, 2)), "move only such"),
        (np.stack([np.eye(3), np.ones((3, 3))]), "orthonormal columns"),  # of the second chain alone
        (np.eye(4), "planes of 3 rows"),
    ],
)
def test_positions_that_are_not_orthonormal_are_refused(w, message):
    kernel = tm.MetropolisHastings(tm.StiefelWalk(np.full((3, 3), 0.1)), tm.Exact(8))
    posterior = tm.Posterior(matrix_flat, np.zeros(8, np.float32))
    init = {"w": np.asarray(real(w))}
    if w.shape == (2, 3, 3):
        posterior = tm.Posterior(lambda p, row: 0.0 * row * p["w"][0, 0].reshape(()), np.zeros(8, np.float32))
    num_chains = 2 if w.shape == (2, 3, 3) else 7  # a start with an axis of 7 there is not
    with pytest.raises(ValueError, match=message):
        tm.sample(posterior, kernel, init=init, num_chains=num_chains, num_samples=10, num_warmup=0)


ICA = tm.models.ica(np.random.default_rng(0).laplace(size=(500, 3)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"tm.StiefelWalk\(0.1\)"),
        ({"init": np.eye(3)}, r"tm.StiefelWalk\(0.1\)"),
        ({"kernel": tm.NUTS(), "init": np.eye(3)}, "NUTS leaves"),
        ({"kernel": tm.MetropolisHastings(tm.RandomWalk(0.1), tm.Exact()), "init": np.eye(3)}, "RandomWalk leaves"),
        ({"kernel": tm.MetropolisHastings(tm.StiefelWalk(0.1), tm.Exact())}, "init=np.eye"),
        (
            {
                "kernel": tm.MetropolisHastings(tm.StiefelWalk(0.1), tm.MHMinibatch()),
                "init": np.eye(3),
                "control_variate": tm.Taylor(),
            },
            r"tm.Taylor\(at=init\)",
        ),
    ],
)
def test_nothing_moves_orthonormal_matrices_as_if_they_were_free(options, message):
    assert isinstance(ICA.log_likelihood, IcaLikelihood)
    with pytest.raises(ValueError, match=message) as error:
        tm.sample(ICA, **options)
    assert "\n" not in str(error.value)
