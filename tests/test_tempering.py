"""Tempered ladders: the right distribution, evidence with its error, the swaps that are tried, and what is told.

Targets have two modes, and are known by quadrature. Distances in total variation are of histograms with 32 cells; with
the effective draws of these runs (20,000 and more) chance alone gives about 0.012. All seeds are fixed.
"""

import itertools
import warnings

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.compose.exchange import ExchangeOnAllRows, OnAllRows
from tallmc.compose.ladder_parts import order_after
from tallmc.run.exchanges import Exchanges, stepping_stones
from tallmc.setup.rungs import placed_evenly
from tallmc.setup.tempering import proper_prior
from tallmc.whole_metropolis import WholeMetropolis
from tests.registry import real
from tests.two_modes import HEATS, NUM_ROWS, distance, grid, in_one_dimension, in_two_dimensions, sampled, walk


@pytest.fixture(scope="module")
def one():
    return in_one_dimension()


@pytest.fixture(scope="module")
def two():
    return in_two_dimensions()


def ladder_of(size, *, few=False):
    """Exact rungs and swaps; or minibatches for both, but for the coldest."""
    scale = 0.3 if size == 1 else np.array([0.3, 0.3])
    if not few:
        return tm.Ladder(HEATS, WholeMetropolis(tm.RandomWalk(scale), -1.0), moves=2)
    small = walk(scale, tm.MHMinibatch(50))
    return tm.Ladder(HEATS, [walk(scale), *[small] * 3], swaps=tm.MHMinibatch(50), moves=2)


@pytest.fixture(scope="module")
def exact(one):
    return sampled(one, ladder_of(1))


def test_exact_rungs_in_one_dimension(exact):
    assert distance(exact) < 0.02


@pytest.mark.slow
def test_exact_rungs_in_two_dimensions(two):
    assert distance(sampled(two, ladder_of(2))) < 0.02


def test_minibatch_rungs_in_one_dimension(one):
    run = sampled(one, ladder_of(1, few=True), num_samples=1000)
    assert distance(run) < 0.04
    assert np.all(run.exchanges.rows[2:] < run.exchanges.rows[0])
    assert run.exchanges.swap_rows[-1] < NUM_ROWS


@pytest.mark.slow
def test_minibatch_rungs_in_two_dimensions(two):
    assert distance(sampled(two, ladder_of(2, few=True), num_samples=1000)) < 0.04


@pytest.mark.slow
def test_without_a_ladder_chains_stay_where_they_are(one):
    """Otherwise the tests above would say nothing of crossing."""
    assert distance(sampled(one, walk())) > 0.3


class Forgetful(ExchangeOnAllRows):
    """Weighs a swap by the hotter rung's temperature alone, and not by the difference of both."""

    def observe(self, state, memory, model, window):
        state, done = super().observe(state, memory, model, window)
        inverse = 1 / (state.facing.temperatures * model.temperature)
        ratios = inverse[1:] * (state.energies[1:] - state.energies[:-1])
        accepted = state.facing.tried & (ratios > state.thresholds)
        return OnAllRows(state.facing, state.thresholds, state.energies, accepted, state.rows), done


def test_a_wrong_ratio_is_caught(one):
    """Negative control."""
    wrong = eqx.tree_at(lambda ladder: ladder.exchange, ladder_of(1), Forgetful())
    assert distance(sampled(one, wrong)) > 0.04


def test_evidence_is_that_of_quadrature(one):
    """Within 4 of its standard errors, which are small."""
    run = sampled(one, tm.Ladder([*HEATS, np.inf], walk()), num_chains=8, num_samples=4000)
    density, cell = grid(one, 4001)
    log_prior_constant = 0.5 * np.log(2 * np.pi) + np.log(1.5)
    expected = np.log(np.sum(np.exp(density - density.max())) * cell) + density.max() - log_prior_constant
    found = run.exchanges
    assert found.log_evidence_error < 0.05
    assert abs(found.log_evidence - expected) < 4 * found.log_evidence_error


@pytest.mark.slow
def test_evidence_of_a_conjugate_model():
    """Rows normal around a normal mean; the ladder is placed by hand."""
    rows = np.asarray(real(np.random.default_rng(3).normal(0.3, 1.0, 200)))
    posterior = tm.Posterior(
        lambda mean, row: -0.5 * (row - mean) ** 2 - 0.5 * np.log(2 * np.pi), rows, lambda mean: -0.5 * mean**2
    )
    run = sampled(posterior, tm.Ladder([1, 3, 10, 40, 200, np.inf], walk(0.1)), num_chains=8, num_samples=4000)
    covariance = np.eye(200) + np.ones((200, 200))
    values = np.asarray(rows, float)
    expected = -0.5 * (values @ np.linalg.solve(covariance, values) + np.linalg.slogdet(2 * np.pi * covariance)[1])
    found = run.exchanges
    assert found.log_evidence_error < 0.05
    assert abs(found.log_evidence - expected) < 4 * found.log_evidence_error


def test_stepping_stones_on_independent_draws():
    """Energies drawn exactly (a chi-square's), 400 times: the error is that of the estimate, within a fifth."""
    generator, inverse = np.random.default_rng(5), np.array([1.0, 0.5, 0.25])
    found = []
    for _ in range(400):
        energies = -generator.chisquare(4, (2, 200, 3)) / 2 / inverse
        found.append(stepping_stones(energies, inverse))
    values, errors = np.array(found).T
    expected = 2 * np.log(inverse[-1] / inverse[0])  # the integral over four coordinates, to the power of -4 / 2
    assert abs(values.mean() - expected) < 4 * values.std() / 20 + 0.01
    assert abs(errors.mean() / values.std() - 1) < 0.2


def test_pairs_take_turns(exact):
    """Even pairs, then odd ones, without a coin; and none is accepted that was not tried."""
    tried = exact.stats["swap_tried"]
    assert np.array_equal(tried[:, 0], np.tile([True, False, True], (32, 1)))
    assert np.array_equal(tried[:, 1:], ~tried[:, :-1])
    assert not np.any(exact.stats["swap_accepted"] & ~tried)
    assert np.array_equal(order_after(jnp.array([True, False, True])), [1, 0, 3, 2])


def test_swaps_are_accepted_as_often_as_independent_states_say(exact):
    """Of tempered grids: the chance that a pair swaps, within 5 standard errors of draws that follow each other."""
    density, _ = grid(exact.posterior, 4001)
    prior = -0.5 * ((np.linspace(-4, 4, 4001) - 0.2) / 1.5) ** 2
    energies = density - prior
    for k, (cold, hot) in enumerate(itertools.pairwise(HEATS)):
        here, there = (np.exp(energies / heat + prior - np.max(energies / heat + prior)) for heat in (cold, hot))
        here, there = here[::4] / here[::4].sum(), there[::4] / there[::4].sum()
        ratio = (1 / cold - 1 / hot) * (energies[None, ::4] - energies[::4, None])
        chance = here @ np.exp(np.minimum(ratio, 0)) @ there
        shares = exact.stats["swap_accepted"][..., k].mean(axis=1) * 2
        assert abs(shares.mean() - chance) < 5 * shares.std() / np.sqrt(31)


def test_states_that_travel_are_counted():
    """One state is carried down the ladder of three and back up; the others are in its way."""
    accepted = np.zeros((1, 6, 2), bool)
    for scan, pair in enumerate([1, 0, 0, 1]):
        accepted[0, scan, pair] = True
    stats = {
        "rung_temperature": np.tile([1.0, 2.0, 4.0], (1, 6, 1)),
        "swap_tried": np.ones((1, 6, 2), bool),
        "swap_accepted": accepted,
        "swap_rows": np.ones((1, 6, 2), int),
        "rung_energy": np.zeros((1, 6, 3)),
        "energy_level": np.zeros((1, 6)),
        "rung_accepted": np.ones((1, 6, 3), bool),
        "scan_rows": np.ones((1, 6, 3), int),
    }
    found = Exchanges.of(stats, 1.0, 10)
    assert found.arrivals.tolist() == [0]  # it began in the middle
    assert found.round_trips.tolist() == [0]
    stats["swap_accepted"] = np.concatenate([accepted[:, 3:4], accepted[:, :4], accepted[:, 4:5]], axis=1)
    stats["swap_accepted"][0, 0, 1] = False
    assert Exchanges.of(stats, 1.0, 10).barrier == pytest.approx(2 - 4 / 6)


@pytest.mark.parametrize("few", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_both_drivers_make_the_same_chains(two, few):
    options = {"num_samples": 60, "num_warmup": 40, "num_chains": 3}
    alone = sampled(two, ladder_of(2, few=few), driver=tm.ChainByChain(), **options)
    together = sampled(two, ladder_of(2, few=few), driver=tm.Together(rounds=32), **options)
    assert np.array_equal(alone.samples, together.samples)
    for name, values in alone.stats.items():
        if values.dtype.kind == "f":  # sums over a likelihood whose products a compiler may round in two ways
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
    assert "round trips" in str(longer.summary())


@pytest.mark.slow
def test_rungs_of_their_own_kinds(one):
    """NUTS, a minibatch, and Mint, whose own temperature is taken off its rung's; each tells of its own."""
    kernels = [tm.NUTS(), walk(), walk(rule=tm.MHMinibatch(50)), walk(rule=tm.Mint(50, 0.3))]
    run = sampled(one, tm.Ladder(HEATS, kernels), num_samples=300, num_warmup=200, num_chains=4)
    assert [part.label for part in run.kernel.parts()][:4] == ["NUTS", "Exact", "MHMinibatch", "Mint"]
    assert np.all(run.part_stats(0)["gradients"] > 0)
    assert run.part_stats(3)["rows"].max() == 50
    assert np.all(run.part_stats(4)["rows"] == NUM_ROWS)
    assert np.all(run.exchanges.acceptance > 0.2)


def test_rungs_too_far_apart_are_warned_of(one):
    with pytest.warns(UserWarning, match="rungs 0 and 1 .* swapped"):
        run = sampled(one.at_temperature(0.003), tm.Ladder([1, 1e7], walk(0.01)), num_samples=300, num_chains=2)
    assert run.exchanges.lonely == (0,)
    assert any("does not reach the draws" in note for note in run.summary().notes)


def test_evidence_without_a_proper_reference_is_refused(exact, one):
    with pytest.raises(ValueError, match="end the ladder with an infinite"):
        _ = exact.exchanges.log_evidence
    kernel = tm.Ladder([1, 10, np.inf], walk(), swaps=tm.MHMinibatch(50))
    run = sampled(one, kernel, num_samples=20, num_chains=2)
    with pytest.raises(ValueError, match="on a few rows"):
        _ = run.exchanges.log_evidence


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tm.Ladder([1.0], walk()), "at least two temperatures"),
        (lambda: tm.Ladder([2.0, 3.0], walk()), "must increase from 1"),
        (lambda: tm.Ladder([1.0, 3.0, 2.0], walk()), "must increase from 1"),
        (lambda: tm.Ladder([1.0, 3.0], [walk()]), "pass one for each rung"),
        (lambda: tm.Ladder([1.0, 3.0], walk(), moves=0), "moves must be"),
        (lambda: tm.Ladder([1.0, 3.0], tm.Cycle([walk()])), "made of kernels"),
        (lambda: tm.Ladder([1.0, 3.0], walk()).at([1.0, 2.0, 3.0]), "pass as many"),
    ],
)
def test_bad_ladders_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_swaps_by_a_rule_with_a_temperature_of_its_own_are_refused(one):
    with pytest.raises(ValueError, match="one of its own"):
        sampled(one, tm.Ladder([1.0, 3.0], walk(), swaps=tm.Mint(50, 0.3)))


def test_the_ladder_of_the_paper():
    """Batches grow downwards by gamma and set the temperatures, T = N^(1 - lambda)."""
    ladder = tm.Ladder.geometric(tm.RandomWalk(0.1), 10**6, 1000, 10.0, 0.5, tm.Mint)
    rules = [part.rule for part in ladder.parts()[:-1]]
    assert [rule.batch_size for rule in rules[1:]] == [100_000, 10_000, 1000]
    expected = [1.0, *(10 ** (6 * (1 - rule.exponent)) for rule in rules[1:])]
    np.testing.assert_allclose(ladder.temperatures, expected, rtol=1e-5)
    assert rules[-1].exponent == pytest.approx(0.25)
    with pytest.raises(ValueError, match="growth > 1"):
        tm.Ladder.geometric(tm.RandomWalk(0.1), 10**6, 1000, 1.0)


@pytest.mark.slow
def test_rungs_that_remember_make_the_same_decisions(two):
    """Two kernels of one law: shares of moves of all rungs agree, and swaps read nothing."""
    scale = np.array([0.1, 0.15])
    fixed = {"num_warmup": 0, "num_chains": 64, "num_samples": 400}
    kept = sampled(two, tm.Ladder(HEATS, WholeMetropolis(tm.RandomWalk(scale), -1.0), moves=2), **fixed)
    plain = sampled(two, tm.Ladder(HEATS, walk(scale), moves=2), **fixed)
    shares = [run.stats["rung_accepted"][:, 100:].mean(axis=1) for run in (kept, plain)]
    error = np.sqrt(sum(share.var(axis=0, ddof=1) / 64 for share in shares))
    assert np.all(np.abs(shares[0].mean(axis=0) - shares[1].mean(axis=0)) < 5 * error)
    energies = [run.stats["rung_energy"] + NUM_ROWS * run.stats["energy_level"][..., None] for run in (kept, plain)]
    means = [np.asarray(values, float)[:, 100:].mean(axis=1) for values in energies]
    error = np.sqrt(sum(mean.var(axis=0, ddof=1) / 64 for mean in means))
    assert np.all(np.abs(means[0].mean(axis=0) - means[1].mean(axis=0)) < 5 * error)
    assert not np.any(kept.stats["swap_rows"])
    assert np.all(kept.stats["rows"] == 4 * 2 * NUM_ROWS)
    # What a rung remembers is the log likelihood of where it is, swaps or not.
    last = np.asarray(kept.samples[:5, -1], float)
    rows = np.asarray(two.data, float)
    for position, energy in zip(last, energies[0][:5, -1, 0], strict=True):
        expected = np.sum(-0.125 * (rows[:, 0] - position[0] ** 2) ** 2 - 0.125 * (rows[:, 1] - position.sum()) ** 2)
        assert energy == pytest.approx(expected, abs=0.02)


@pytest.mark.slow
def test_temperatures_are_placed_in_warm_up(one):
    """From a bad guess: afterwards neighbours reject about alike, and the ends are where they were."""
    run = sampled(one, tm.Ladder([1, 1.1, 1.2, 1.3, 300], walk(), adapts=True), num_warmup=800, num_chains=8)
    found = run.exchanges
    assert found.temperatures[[0, -1]].tolist() == [1, 300]
    assert np.ptp(found.acceptance) < 0.2
    assert run.num_warmup >= 800
    again = run.extend(20, progress=False)
    assert np.array_equal(again.exchanges.temperatures, found.temperatures)


def test_places_are_even_in_rejections():
    heats = placed_evenly(np.array([1.0, 10.0, np.inf]), np.array([0.3, 0.3]), 5)
    assert heats[0] == 1
    assert heats[2] == pytest.approx(10)
    assert np.isinf(heats[-1])
    assert np.all(np.diff(heats) > 0)


@pytest.mark.slow
def test_parallel_tempering_needs_no_more_than_a_posterior(one):
    """With a proper prior up to that, and the evidence is that of quadrature; without one up to the number of rows."""
    run = tm.parallel_tempering(one, init=np.asarray(real(1.0)), num_samples=3000, num_chains=8, progress=False)
    density, cell = grid(one, 4001)
    expected = np.log(np.sum(np.exp(density - density.max())) * cell) + density.max() - 0.5 * np.log(2 * np.pi * 2.25)
    found = run.exchanges
    assert abs(found.log_evidence - expected) < 4 * found.log_evidence_error
    assert distance(run) < 0.05
    assert "seems proper" in run.choices[0]
    flat = tm.Posterior(likelihood_1d, one.data)
    run = tm.parallel_tempering(flat, init=np.asarray(real(1.0)), num_samples=20, num_warmup=0, progress=False)
    assert run.exchanges.temperatures[-1] == NUM_ROWS
    assert "cannot be a rung" in run.choices[0]


def test_parallel_tempering_takes_temperatures_or_a_ladder(one):
    options = {"init": np.asarray(real(1.0)), "num_samples": 20, "num_warmup": 20, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        by_heats = tm.parallel_tempering(one, [1, 5, 25], **options)
        by_ladder = tm.parallel_tempering(one, tm.Ladder([1, 5, 25], walk()), **options)
    assert by_heats.exchanges.temperatures.tolist() == by_ladder.exchanges.temperatures.tolist() == [1, 5, 25]
    with pytest.raises((ValueError, TypeError), match="Ladder"):  # the type check of the tests comes first
        tm.parallel_tempering(one, walk(), **options)
    with pytest.raises(ValueError, match="must increase from 1"):
        tm.parallel_tempering(one, [2, 5], **options)


@pytest.mark.parametrize(
    ("log_prior", "proper"),
    [
        (lambda p: -0.5 * jnp.sum(p**2), True),
        (lambda p: -jnp.sum(jnp.log1p(p**2)), True),
        (lambda p: 0 * jnp.sum(p), False),
        (lambda p: -0.5 * p[0] ** 2, False),
        (lambda p: -jnp.logaddexp(0.0, p[0]) - 0.5 * p[1] ** 2, False),
    ],
)
def test_priors_that_do_not_fall_are_found_out(log_prior, proper):
    posterior = tm.Posterior(
        lambda p, row: -0.5 * (row - p[0] - p[1]) ** 2, np.asarray(real(np.arange(50.0))), log_prior
    )
    assert proper_prior(posterior, np.asarray(real([0.0, 0.0])), None) == proper


def weights_between(draws, edges):
    """Shares of draws between edges, by chain, and their standard errors from what chains differ by."""
    shares = np.stack([np.histogram(chain, edges)[0] for chain in np.asarray(draws, float)]) / draws.shape[1]
    return shares.mean(axis=0), shares.std(axis=0, ddof=1) / np.sqrt(len(shares))


def two_modes(position, row):
    return -0.125 * (row - position**2) ** 2


def five_modes(position, row):
    """Rows know the cosine of a parameter: a mode near every odd half."""
    return -0.5 * (row + jnp.cos(jnp.pi * position)) ** 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("likelihood", "mean", "prior_mean", "edges"),
    [
        (two_modes, lambda t: t**2, 0.4, [-9, 0, 9]),
        (five_modes, lambda t: -np.cos(np.pi * t), 0.5, [-9, -1, 0, 1, 2, 9]),
    ],
)
def test_sample_finds_the_weights_of_modes_by_itself(likelihood, mean, prior_mean, edges):
    """100,000 rows, weights by the prior alone; within 3 Monte Carlo errors of quadrature, and without a doubt."""
    truth = mean(np.array(1.0 if likelihood is two_modes else 0.5))
    rows = np.asarray(real(truth + np.random.default_rng(7).normal(size=100_000)))
    posterior = tm.Posterior(likelihood, rows, lambda t: -0.5 * (t - prior_mean) ** 2)
    run = tm.sample(posterior, init=np.asarray(real(0.45)), num_chains=16, num_samples=500, num_warmup=300)
    assert isinstance(run.kernel, tm.Ladder)
    assert not run.doubts
    assert "reached the coldest" in str(run.summary())
    places = np.linspace(-6, 6, 240_001)
    values, means = np.asarray(rows, float), mean(places)
    precision = 0.25 if likelihood is two_modes else 1.0
    density = -0.5 * precision * (len(rows) * means**2 - 2 * means * values.sum()) - 0.5 * (places - prior_mean) ** 2
    masses = np.exp(density - density.max())
    expected = np.histogram(places, edges, weights=masses)[0] / masses.sum()
    found, errors = weights_between(run.samples, edges)
    assert np.all(np.abs(found - expected) < 3 * errors)
    assert np.max(errors) < 0.05
