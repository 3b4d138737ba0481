"""Equi-energy jumps: exact with small stores, on an enumerable target and against quadrature; and what is told of them.

The targets and the tolerance are those of `test_tempering`. All seeds are fixed.
"""

import itertools
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.compose.equi_energy import RingMemory
from tallmc.compose.exchange import Facing
from tallmc.compose.ring_stores import RingStore, Visited
from tallmc.diagnostics.report import write_report
from tallmc.setup.equi_energy import levels_between
from tallmc.whole_metropolis import WholeMetropolis
from tests.registry import real
from tests.two_modes import HEATS, NUM_ROWS, distance, grid, in_one_dimension, in_two_dimensions, sampled, walk

LEVELS = [299.5, 303.0, 321.0]
WIDE = [321.0]  # two rings, with many energies in each: what is wrong with a ratio then shows

# An enumerable target: eight states with these log likelihoods, three rungs, two rings, two slots each.
HEIGHTS, COLDEST, EDGES = np.array([0.0, -0.4, -1.0, -1.9, -2.2, -3.0, -4.5, -6.0]), np.array([1.0, 3.0, 9.0]), [2.0]
REPLICAS, SLOTS = 40_000, 2


class Printed(tm.EnergyRings):
    """The ratio in the text of Li and Wong (2017), A.2.1: of the candidate alone, at temperatures k and k + 2.

    Energies are measured from the lowest level; from zero, as there, no jump would ever be accepted.
    """

    def log_ratio(self, cooling, here, there):
        return cooling * there


@pytest.fixture(scope="module")
def one():
    return in_one_dimension()


def ladder_of(size, *, few=False, levels=LEVELS, kind=tm.EnergyRings):
    """Exact rungs; or minibatches but for the coldest, which jump now and then."""
    scale = 0.3 if size == 1 else np.array([0.3, 0.3])
    if not few:
        return tm.Ladder(HEATS, WholeMetropolis(tm.RandomWalk(scale), -1.0), moves=2, swaps=kind(levels))
    small = walk(scale, tm.MHMinibatch(50))
    return tm.Ladder(HEATS, [walk(scale), *[small] * 3], moves=2, swaps=kind(levels, probability=0.5))


def chances(heat, states=slice(None)):
    weights = np.exp(HEIGHTS[states] / heat)
    return weights / weights.sum()


def in_equilibrium(generator):
    """Rungs and stores of all replicas, drawn from the distribution that jumps must leave as it is."""
    rungs = np.stack([generator.choice(8, REPLICAS, p=chances(heat)) for heat in COLDEST], axis=1)
    rings = [np.flatnonzero(EDGES[0] > -HEIGHTS), np.flatnonzero(EDGES[0] <= -HEIGHTS)]
    stored = [
        [generator.choice(ring, (REPLICAS, SLOTS), p=chances(heat, ring)) for ring in rings] for heat in COLDEST[1:]
    ]
    return rungs, np.moveaxis(np.array(stored), 2, 0)


def visited(states):
    return Visited(real(states), real(HEIGHTS[states]), jnp.zeros(states.shape, jnp.int32))


@pytest.fixture(scope="module", params=[tm.EnergyRings, Printed])
def after_one_scan(request):
    """Where rungs and stored states are after one scan of jumps, and which were accepted."""
    posterior = tm.Posterior(lambda position, row: -row * position, real(np.zeros(10)))
    rings = request.param(EDGES, SLOTS).prepared_for(posterior.model, 0)
    rungs, stored = in_equilibrium(np.random.default_rng(0))
    stores = RingStore(visited(stored), jnp.full(stored.shape[:-1], SLOTS, jnp.int32))

    def scan(key, own, stores):
        # Levels are measured from the lowest, as energies are.
        facing = Facing(own.position, real(COLDEST), jnp.int32(0), jnp.int32(0), rings.level, own.energy + EDGES[0])
        shifted = eqx.tree_at(lambda s: s.states.energy, stores, stores.states.energy + EDGES[0])
        done = rings.exchanged(rings.begin(key, facing, posterior.model), RingMemory(shifted, own.mark))
        return done.positions, done.memory.stores.states.position, done.accepted

    keys = jax.random.split(jax.random.key(1), REPLICAS)
    found = jax.jit(jax.vmap(scan))(keys, visited(rungs), stores)
    return request.param, *(np.asarray(part) for part in found)


def farthest(seen, expected):
    """The largest distance of a share from its chance, in standard errors."""
    shares = np.bincount(seen.ravel().astype(int), minlength=8) / seen.size
    return np.max(np.abs(shares - expected) / np.sqrt(expected * (1 - expected) / seen.size + 1e-12))


def test_jumps_leave_rungs_and_stores_in_equilibrium(after_one_scan):
    """Within 5 standard errors, 23 shares; the printed ratio does not, by far."""
    kind, rungs, stored, _ = after_one_scan
    far = [farthest(rungs[:, k], chances(heat)) for k, heat in enumerate(COLDEST)]
    for ring, inside in enumerate([EDGES[0] > -HEIGHTS, EDGES[0] <= -HEIGHTS]):
        for k, heat in enumerate(COLDEST[1:]):
            expected = np.where(inside, np.exp(HEIGHTS / heat), 0)
            far.append(farthest(stored[:, k, ring], expected / expected.sum()))
    assert (max(far) > 10) if kind is Printed else (max(far) < 5)


def test_jumps_are_accepted_as_often_as_enumeration_says(after_one_scan):
    """Of each pair, within 5 standard errors."""
    kind, _, _, accepted = after_one_scan
    ring, off = (EDGES[0] <= -HEIGHTS).astype(int), []
    for k, (cold, hot) in enumerate(itertools.pairwise(COLDEST)):
        ratio = (1 / cold - 1 / hot) * (HEIGHTS[None] - HEIGHTS[:, None])
        there = np.where(ring[:, None] == ring[None], np.exp(HEIGHTS / hot)[None], 0)
        there /= there.sum(axis=1, keepdims=True)
        chance = chances(cold) @ (there * np.exp(np.minimum(ratio, 0))).sum(axis=1)
        off.append(abs(accepted[:, k].mean() - chance) / np.sqrt(chance * (1 - chance) / REPLICAS))
    assert (max(off) > 10) if kind is Printed else (max(off) < 5)


def test_a_reservoir_keeps_each_of_what_it_was_offered_alike():
    """Of nine states three are kept: each with chance 1/3, 20,000 times, within 5 standard errors."""

    def fill(key):
        like = Visited(real([0.0]), real([0.0]), jnp.zeros(1, jnp.int32))
        empty = jax.tree.map(lambda leaf: leaf[0], RingStore.empty(like, 1, 3))
        uniforms = jax.random.uniform(key, 9)

        def offer(store, i):
            number = i.astype(uniforms.dtype)
            state = Visited(number, number, i)
            return store.offer(jnp.int32(0), state, uniforms[i], jnp.bool_(True)), None

        return jax.lax.scan(offer, empty, jnp.arange(9, dtype=jnp.int32))[0].states.mark[0]

    kept = np.asarray(jax.jit(jax.vmap(fill))(jax.random.split(jax.random.key(0), 20_000)))
    shares = np.bincount(kept.ravel(), minlength=9) / len(kept)
    assert np.max(np.abs(shares - 1 / 3)) < 5 * np.sqrt(2 / 9 / 20_000)


@pytest.fixture(scope="module")
def exact(one):
    return sampled(one, ladder_of(1), num_samples=2000)


def test_exact_rungs_in_one_dimension(exact):
    assert distance(exact) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("levels", [LEVELS, WIDE])
def test_many_draws_in_one_dimension(one, levels):
    assert distance(sampled(one, ladder_of(1, levels=levels))) < 0.02


@pytest.mark.slow
def test_the_printed_ratio_is_caught(one):
    """Negative control: the test above, at the limit that minibatches are allowed."""
    assert distance(sampled(one, ladder_of(1, levels=WIDE, kind=Printed))) > 0.04


@pytest.mark.slow
def test_exact_rungs_in_two_dimensions():
    two = in_two_dimensions()
    assert distance(sampled(two, ladder_of(2, levels=[601.5, 605.0, 620.0]))) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_minibatch_rungs(one, size):
    target, levels = (one, LEVELS) if size == 1 else (in_two_dimensions(), [601.5, 605.0, 620.0])
    run = sampled(target, ladder_of(size, few=True, levels=levels), num_samples=2000)
    assert distance(run) < 0.04
    assert np.all(run.exchanges.rows[2:] < run.exchanges.rows[0])
    looked = run.stats["swap_rows"][..., 0]
    assert set(np.unique(looked)) == {0, NUM_ROWS}  # energies are looked at only when there are jumps
    assert 0.45 < (looked > 0).mean() < 0.55


def test_rungs_are_in_rings_as_often_as_quadrature_says(exact):
    """The paper's Table 2: within 5 standard errors of the chains' means."""
    density, _ = grid(exact.posterior, 4001)
    prior = -0.5 * ((np.linspace(-4, 4, 4001) - 0.2) / 1.5) ** 2
    likelihood = (density - prior) * float(exact.posterior.temperature)
    ring = np.sum(-likelihood[:, None] >= np.array(LEVELS), axis=1)
    for k, heat in enumerate(HEATS):
        weights = np.exp((density - prior) / heat + prior - np.max((density - prior) / heat + prior))
        expected = np.bincount(ring, weights, minlength=4) / weights.sum()
        each = np.stack([(exact.stats["rung_ring"][..., k] == j).mean(axis=1) for j in range(4)], axis=-1)
        error = each.std(axis=0, ddof=1) / np.sqrt(len(each))
        assert np.all(np.abs(exact.exchanges.occupancy[k] - expected) < 5 * error + 1e-3)


def test_what_is_told(exact):
    found, said = exact.exchanges, str(exact.summary())
    assert np.all(found.acceptance > 0.5)
    assert not found.lonely
    assert found.arrivals.sum() > 1000
    at_rest = 3 * 4 * 2  # some of these may have come down in warm-up
    assert np.all(np.abs(found.round_trips - found.arrivals) <= at_rest + 4)
    assert "jumps to the next" in said
    assert "energy rings, % of scans" in said
    np.testing.assert_allclose(found.occupancy.sum(axis=1), 1)
    np.testing.assert_allclose(found.levels, LEVELS)


@pytest.mark.slow
@pytest.mark.parametrize("few", [False, True])
def test_both_drivers_make_the_same_chains(one, few):
    options = {"num_samples": 60, "num_warmup": 40, "num_chains": 3}
    alone = sampled(one, ladder_of(1, few=few), driver=tm.ChainByChain(), **options)
    together = sampled(one, ladder_of(1, few=few), driver=tm.Together(rounds=32), **options)
    assert np.array_equal(alone.samples, together.samples)
    for name, values in alone.stats.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(values, together.stats[name], rtol=1e-5, atol=1e-3, err_msg=name)
        else:
            assert np.array_equal(values, together.stats[name]), name


@pytest.mark.slow
def test_a_run_goes_on_and_is_kept(one, tmp_path):
    options = {"num_warmup": 40, "num_chains": 2}
    whole = sampled(one, ladder_of(1), num_samples=90, **options)
    part = sampled(one, ladder_of(1), num_samples=50, **options)
    part.save(tmp_path / "run")
    longer = tm.load(tmp_path / "run").extend(40, progress=False)
    assert np.array_equal(longer.samples, whole.samples)
    assert str(longer.exchanges) == str(whole.exchanges)


@pytest.mark.slow
def test_everything_is_chosen(one):
    """Temperatures and levels from a pilot run; the weight of the modes within 4 Monte Carlo errors of quadrature."""
    run = tm.equi_energy(one, init=np.asarray(real(1.0)), num_samples=3000, num_chains=16, progress=False)
    density, _ = grid(one, 4001)
    masses = np.exp(density - density.max())
    expected = masses[np.linspace(-4, 4, 4001) > 0].sum() / masses.sum()
    weights = (run.samples > 0).mean(axis=1)
    assert abs(weights.mean() - expected) < 4 * weights.std(ddof=1) / 4
    assert any("energy rings, cut at" in choice for choice in run.choices)
    assert run.setup_rows > NUM_ROWS * 1000


@pytest.mark.slow
def test_empty_stores_are_warned_of(one):
    """Without warm-up nothing is ever put into them."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run = sampled(one, ladder_of(1), num_samples=50, num_warmup=0, num_chains=2)
    assert run.exchanges.lonely == (0, 1, 2)
    assert sum("exchanged states 0 times in 0 attempts" in str(one.message) for one in said) == 3


@pytest.mark.slow
def test_a_report_shows_the_rings(exact, tmp_path):
    write_report({"rings": exact}, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "Ladder: rings" in text
    assert "energy rings, % of scans" in text


def test_levels_lie_between_rungs():
    energies = np.array([[1.0, 3.0, 3.0, np.inf], [1.0, 3.0, 3.0, np.inf]])
    assert levels_between(energies).tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tm.EnergyRings([]), "energies that increase"),
        (lambda: tm.EnergyRings([2.0, 1.0]), "energies that increase"),
        (lambda: tm.EnergyRings([1.0], slots=0), "slots must be"),
        (lambda: tm.EnergyRings([1.0], probability=0.0), "probability must be"),
        (lambda: tm.Ladder([1.0, 3.0], walk(), swaps=tm.EnergyRings([1.0]), adapts=True), "leave adapts out"),
        (lambda: tm.equi_energy(in_one_dimension(), ladder_of(1), levels=[1.0]), "rings of its own"),
        (lambda: tm.equi_energy(in_one_dimension(), levels=[2.0, 1.0]), "energies that increase"),
    ],
)
def test_what_is_wrong_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
