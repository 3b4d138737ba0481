"""Random fields and Gibbs sampling of them.

Conditional probabilities are compared with their formulas, and with what the design of the t-test makes of those; whole
fields with their exact distribution, by enumeration. Thresholds are 4 standard errors unless said otherwise: 6e-5 false
alarms a figure. Seeds are fixed.
"""

import itertools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.fields import SiteUpdates, kernel, shape_of
from tallmc.fields.layout import lay_out
from tallmc.numerics.keys import as_key
from tallmc.run.native import native
from tests.registry import real

NUM_UPDATES = 20_000


def brute_force(scopes, tables, values):
    """Log probability of an assignment, factor by factor."""
    return sum(
        float(table[tuple(values[variable] for variable in scope)]) for scope, table in zip(scopes, tables, strict=True)
    )


def many_factors(num_variables, num_factors, scale, seed=0, num_values=2, size=3):
    """A field with several factors for the same variables."""
    generator = np.random.default_rng(seed)
    scopes = np.stack([generator.permutation(num_variables)[:size] for _ in range(num_factors)])
    return scopes, np.asarray(real(scale * generator.normal(size=(num_factors, *(num_values,) * size))))


def mixed_field():
    """Factors of one, two and three variables, of 2, 3 and 4 values."""
    generator = np.random.default_rng(1)
    num_values = (2, 3, 4, 2)
    scopes = [np.array([[1], [2]]), np.array([[0, 1], [3, 0]]), np.array([[3, 1, 0]])]
    tables = []
    for scope in (scopes[0][:1], scopes[0][1:], scopes[1][:1], scopes[1][1:], scopes[2]):
        tables.append(generator.normal(size=(1, *(num_values[variable] for variable in scope[0]))))
    parts = [scopes[0][:1], scopes[0][1:], scopes[1][:1], scopes[1][1:], scopes[2]]
    flat = [(part[0], table[0]) for part, table in zip(parts, tables, strict=True)]
    return tm.models.random_field(parts, tables), flat, num_values


FIELDS = {
    "dense": lambda: many_factors(8, 60, 1.0),
    "pairs": lambda: many_factors(300, 900, 1.0, size=2),
    "three values": lambda: many_factors(6, 40, 1.0, num_values=3),
    "five variables each": lambda: many_factors(12, 40, 1.0, size=5),
}


# The model.


def test_log_density_adds_up_the_factors():
    scopes, tables = many_factors(7, 30, 1.0, num_values=3)
    field = tm.models.random_field(scopes, tables)
    values = np.random.default_rng(2).integers(0, 3, 7)
    assert float(field.log_density(values)) == pytest.approx(brute_force(scopes, tables, values), abs=1e-4)


def test_factors_of_several_sizes_and_variables_of_several_values():
    field, flat, num_values = mixed_field()
    for values in itertools.product(*map(range, num_values)):
        expected = sum(float(table[tuple(values[variable] for variable in scope)]) for scope, table in flat)
        assert float(field.log_density(np.array(values))) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", FIELDS)
def test_factors_laid_out_by_site_say_what_the_field_says(name):
    """The fast twin: what an update looks up is the difference of two assignments, factor by factor."""
    scopes, tables = FIELDS[name]()
    _check_layout(tm.models.random_field(scopes, tables))


def test_layout_of_a_mixed_field():
    _check_layout(mixed_field()[0])


def _check_layout(field):
    shape = shape_of(field.log_likelihood, field.data)
    tables = lay_out(shape, field.data, seed=3)
    generator = np.random.default_rng(4)
    factors = jnp.arange(shape.degree, dtype=jnp.int32)
    look = jax.jit(lambda values, site, new: tables.log_ratios(shape, values, site, new, factors))
    for site in generator.permutation(shape.num_sites)[:12]:
        values = generator.integers(0, shape.num_values).astype(np.int32)
        new = (values[site] + 1 + generator.integers(shape.num_values[site] - 1)) % shape.num_values[site]
        proposed = values.copy()
        proposed[site] = new
        rows = np.asarray(field.log_ratios(values, proposed, field.data))
        touched = np.any(np.asarray(field.data["scope"]) == site, axis=1)
        found = np.asarray(look(jnp.asarray(values), jnp.int32(site), jnp.int32(new)))
        degree = int(tables.degrees[site])
        assert degree == touched.sum()
        np.testing.assert_allclose(np.sort(found[:degree]), np.sort(rows[touched]), atol=2e-6)
        assert np.all(found[degree:] == 0)


# One update: conditional probabilities.


def conditional(field, values, site):
    """Log odds of the second value of a binary variable, and the spread of its factors' parts."""
    scope, table = field.data["scope"], np.asarray(field.data["log_table"], float)
    touched = np.flatnonzero(np.any(scope == site, axis=1))
    low, high = values.copy(), values.copy()
    low[site], high[site] = 0, 1
    ratios = table[(touched, *high[scope[touched]].T)] - table[(touched, *low[scope[touched]].T)]
    return ratios.sum(), ratios.std() * np.sqrt(len(ratios)), len(ratios)


def updated(field, rule, values, site, seed=0):
    """One update of a variable, many times: how often it took its second value, and the factors that each read."""
    shape = shape_of(field.log_likelihood, field.data)
    order = np.concatenate([[site], np.delete(np.arange(len(values)), site)])
    updates = SiteUpdates(rule, shape, tm.FixedSweep(order))
    keys = jax.random.split(as_key(seed), NUM_UPDATES)
    taken, read = updates_of_the_first(updates, field.model, lay_out(shape, field.data, seed), keys, values)
    return np.asarray(taken)[:, site].mean(), np.asarray(read)


def first_updates(updates, model, tables, keys, values):
    """The first update of a sweep under each key."""

    def one(key):
        def look(state):
            return updates.observe(state, model, tables)[0]

        begun = updates.begin(key, values, model, jnp.int32(0))
        done = jax.lax.while_loop(lambda state: state.number == 0, look, begun)
        return done.values, done.tally.rows

    return jax.lax.map(one, keys)


updates_of_the_first = native(first_updates)


def quiet(function, *args, **options):
    return function(*args, progress=False, **options)


SCOPES, TABLES = many_factors(10, 4000, 0.04)
SMALL = tm.models.random_field(SCOPES, TABLES)
START = np.random.default_rng(5).integers(0, 2, 10).astype(np.int32)
EXACT_RULES = {
    "exact_barker": lambda: tm.ExactBarker(),
    "exact": lambda: tm.Exact(),
    "mh_minibatch": lambda: tm.MHMinibatch(100),
    "austere_without_error": lambda: tm.AustereMH(0.0, 100),
    "mh_sub_lhd": lambda: tm.MHSubLhd(delta=1e-4, bound="scan"),
}


@pytest.mark.parametrize("name", EXACT_RULES)
def test_an_update_draws_from_the_conditional(name):
    log_odds, _, _ = conditional(SMALL, START, 4)
    expected = 1 / (1 + np.exp(-log_odds))
    assert 0.1 < expected < 0.9
    found, _ = updated(SMALL, EXACT_RULES[name](), START, 4)
    allowed = 0.005 if name == "mh_minibatch" else 0.0
    assert abs(found - expected) < allowed + 4 * np.sqrt(expected * (1 - expected) / NUM_UPDATES)


@pytest.mark.parametrize(("epsilon", "boundary"), [(0.01, 0.5), (0.1, 1.0), (0.2, 0.5)])
def test_a_sequential_update_errs_as_the_design_predicts(epsilon, boundary):
    """Both ways: from either value the variable ends at 1 with the chance of the design."""
    for site, first in ((4, 0), (4, 1), (2, 0)):
        values = START.copy()
        values[site] = first
        log_odds, spread, count = conditional(SMALL, values, site)
        expected = tm.design.conditional_error(log_odds, spread, 100 / count, epsilon, boundary)
        chance = 1 / (1 + np.exp(-log_odds)) + expected.error
        found, read = updated(SMALL, tm.AustereMH(epsilon, 100, boundary), values, site, seed=site)
        # A mean of 100 rows of uneven size is not quite normal: 0.005, as for tests on rows.
        assert abs(found - chance) < 0.005 + 4 * np.sqrt(chance * (1 - chance) / NUM_UPDATES)
        assert np.mean(read) / count == pytest.approx(expected.data_fraction, abs=0.02)


def test_metropolis_level_fails_that_law(monkeypatch):
    """The negative control: a rule that is left with its own level."""
    monkeypatch.setattr(kernel, "barker_offset", lambda rule, key: jnp.zeros((), jnp.result_type(float)))
    # A window of its own, so that no program compiled before serves.
    log_odds, _, _ = conditional(SMALL, START, 4)
    expected = 1 / (1 + np.exp(-log_odds))
    found, _ = updated(SMALL, tm.AustereMH(0.0, 102), START, 4)
    assert abs(found - expected) > 15 * np.sqrt(expected * (1 - expected) / NUM_UPDATES)


def test_design_of_an_update_by_brute_force():
    """The slow twin of the quadrature: a sum over a fine grid of levels, one test each."""
    log_odds, spread, first_fraction, epsilon = 1.3, 2.0, 0.1, 0.05
    found = tm.design.conditional_error(log_odds, spread, first_fraction, epsilon)
    width = np.repeat([0.001, 0.01], [2000, 3800])
    distance = np.cumsum(width) - width / 2
    test = tm.design.sequential_test(distance / spread, first_fraction, epsilon)
    below, above = (width / (2 * np.cosh((log_odds + side * distance) / 2)) ** 2 for side in (-1, 1))
    assert found.error == pytest.approx(np.sum((above - below) * test.error), abs=2e-6)
    assert found.wrong_decisions == pytest.approx(np.sum((above + below) * test.error), abs=2e-6)
    assert found.data_fraction == pytest.approx(np.sum((above + below) * test.data_fraction), abs=2e-6)
    mirrored = tm.design.conditional_error(-log_odds, spread, first_fraction, epsilon)
    assert mirrored.error == pytest.approx(-found.error, abs=1e-9)


def test_the_largest_conditional_error_of_the_dense_field():
    """0.02 is a standard deviation: with a variance of 0.02 the error would be 0.028 (both known beforehand)."""
    log_odds = np.linspace(-10, 10, 401)
    for scale, largest in ((0.02, 0.006), (np.sqrt(0.02), 0.028)):
        spread = np.sqrt(2 * 4851) * scale
        found = tm.design.conditional_error(log_odds, spread, 500 / 4851, 0.01)
        assert np.max(np.abs(found.error)) == pytest.approx(largest, abs=5e-4)


# Whole fields.


def exact_distribution(field, num_values):
    """Of all assignments, in the order of `states`."""
    log_density = np.array([float(v) for v in _densities(field, num_values)])
    weights = np.exp(log_density - log_density.max())
    return weights / weights.sum()


def _densities(field, num_values):
    every = np.array(list(itertools.product(*map(range, num_values))), np.int32)
    rows = jax.tree.map(jnp.asarray, field.data)
    return jax.lax.map(lambda values: jnp.sum(field.model.log_likelihoods(values, rows)), jnp.asarray(every))


def frequencies(samples, num_values):
    """Of each chain, how often it was in each assignment."""
    states = np.ravel_multi_index(np.moveaxis(samples, -1, 0), num_values)
    size = int(np.prod(num_values))
    return np.stack([np.bincount(chain, minlength=size) / len(chain) for chain in states])


@pytest.mark.parametrize("sweep", [tm.RandomSweep(), tm.FixedSweep([2, 0, 3, 1])])
def test_a_mixed_field_is_drawn_from(sweep):
    """Variables of two, three and four values; each assignment's frequency over 64 chains."""
    field, _, num_values = mixed_field()
    run = quiet(
        tm.gibbs,
        field,
        tm.ExactBarker(),
        num_samples=1000,
        num_warmup=50,
        num_chains=64,
        sweep=sweep,
        driver=tm.Together(),
    )
    found, expected = frequencies(run.samples, num_values), exact_distribution(field, num_values)
    error = np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    assert np.max(np.abs(found.mean(axis=0) - expected) / np.maximum(error, 1e-4)) < 5  # of 48: 3e-5 false alarms


def test_a_tempered_field_is_drawn_from():
    field, _, num_values = mixed_field()
    field = field.at_temperature(2.0)
    run = quiet(tm.gibbs, field, tm.ExactBarker(), num_samples=1000, num_warmup=50, num_chains=64, driver=tm.Together())
    hot = exact_distribution(field, num_values) ** 0.5
    found = frequencies(run.samples, num_values)
    error = np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    assert np.max(np.abs(found.mean(axis=0) - hot / hot.sum()) / np.maximum(error, 1e-4)) < 5


def test_epsilon_of_a_hundredth_is_exact_gibbs_to_monte_carlo_error():
    """Ten variables, 4,000 factors; the total variation of each of 8 chains to the exact distribution."""
    expected = exact_distribution(SMALL, (2,) * 10)
    distances = {}
    for name, rule in {
        "exact": tm.ExactBarker(),
        "austere": tm.AustereMH(0.01, 100),
        "loose": tm.AustereMH(0.3, 100),
    }.items():
        run = quiet(tm.gibbs, SMALL, rule, num_samples=2000, num_warmup=50, num_chains=8, rng_key=1)
        found = frequencies(run.samples, (2,) * 10)
        distances[name] = 0.5 * np.sum(np.abs(found - expected), axis=1)
        share = run.stats["rows"].mean() / run.session.model.num_rows
        assert share == 1 if name == "exact" else 0.1 < share < 0.95
    spread = np.sqrt(sum(np.var(distances[name], ddof=1) / 8 for name in ("exact", "austere")))
    assert abs(distances["austere"].mean() - distances["exact"].mean()) < 4 * spread
    assert distances["loose"].mean() > distances["exact"].mean() + 8 * spread  # the figure can tell


def test_the_stationary_distribution_keeps_the_bound():
    """Theorem 4 on a field of four variables: exact and approximate sweeps as matrices, at four epsilons."""
    scopes, tables = many_factors(4, 2000, 0.06, seed=3)
    field = tm.models.random_field(scopes, tables)
    every = np.array(list(itertools.product((0, 1), repeat=4)), np.int32)
    exact, slack = exact_distribution(field, (2,) * 4), []
    found = {site: [conditional(field, values, site) for values in every] for site in range(4)}
    for epsilon in (0.01, 0.05, 0.1, 0.2):
        sweeps, largest = [np.eye(16), np.eye(16)], 0.0
        for site in range(4):
            log_odds, spread, counts = (np.array(part) for part in zip(*found[site], strict=True))
            error = tm.design.conditional_error(log_odds, spread, 100 / counts[0], epsilon).error
            chance = 1 / (1 + np.exp(-log_odds))
            largest = max(largest, float(np.max(np.abs(error))))
            for which, taken in enumerate((chance, chance + error)):
                sweeps[which] = sweeps[which] @ _update(every, site, taken)
        contraction = max(0.5 * np.abs(a - b).sum() for a, b in itertools.combinations(sweeps[0], 2))
        np.testing.assert_allclose(exact @ sweeps[0], exact, atol=1e-6)
        stationary = np.linalg.matrix_power(sweeps[1], 500)[0]
        distance = 0.5 * np.abs(stationary - exact).sum()
        bound = tm.design.gibbs_stationary_error(largest, contraction, num_updates=4)
        assert 0 < distance <= bound
        slack.append(bound / distance)
    assert max(slack) < 1000  # a bound, not a platitude


def _update(every, site, chance):
    """The matrix of one update."""
    matrix = np.zeros((len(every), len(every)))
    for row, values in enumerate(every):
        for new, weight in ((0, 1 - chance[row]), (1, chance[row])):
            after = values.copy()
            after[site] = new
            matrix[row, np.ravel_multi_index(after, (2,) * len(values))] += weight
    return matrix


# The engine.


def test_both_drivers_give_the_same_chains():
    scopes, tables = many_factors(9, 900, 0.1, num_values=3)
    field = tm.models.random_field(scopes, tables)
    runs = [
        quiet(
            tm.gibbs,
            field,
            tm.AustereMH(0.1, 50),
            num_samples=40,
            num_chains=3,
            num_warmup=3,
            driver=driver,
            thinning=2,
        )
        for driver in (tm.ChainByChain(), tm.Together())
    ]
    np.testing.assert_array_equal(runs[0].samples, runs[1].samples)
    np.testing.assert_array_equal(runs[0].stats["rows"], runs[1].stats["rows"])


def test_a_run_goes_on_and_is_saved(tmp_path):
    options = dict(num_chains=2, rng_key=3, sweep=tm.FixedSweep(), driver=tm.ChainByChain())
    whole = quiet(tm.gibbs, SMALL, tm.AustereMH(0.1, 100), num_samples=60, **options)
    part = quiet(tm.gibbs, SMALL, tm.AustereMH(0.1, 100), num_samples=40, **options)
    part.save(tmp_path / "run.zarr")
    for again in (part, tm.load(tmp_path / "run.zarr"), tm.load(tmp_path / "run.zarr", SMALL)):
        np.testing.assert_array_equal(again.extend(20, progress=False).samples, whole.samples)


def test_a_summary_says_what_was_read():
    run = quiet(tm.gibbs, SMALL, tm.ExactBarker(), num_samples=50, thinning=2)
    degrees = np.bincount(SCOPES.ravel())
    assert np.all(run.stats["rows"] == 2 * degrees.sum())
    assert run.stats["used_all_rows"].all()
    assert run.summary().costs["share_of_rows"] == 1
    assert "20 updates" in str(run.summary())
    read = quiet(tm.gibbs, SMALL, tm.AustereMH(0.2, 100), num_samples=50).summary().costs["share_of_rows"]
    assert 0.05 < read < 0.6


def test_random_sweeps_come_to_every_variable_once_in_all_orders():
    sweep = tm.RandomSweep()

    def order(key):
        drawn = sweep.start(key)
        return jnp.stack([sweep.site(drawn, jnp.int32(place), 3) for place in range(3)])

    orders = np.asarray(jax.jit(jax.vmap(order))(jax.random.split(jax.random.key(0), 6000)))
    assert np.all(np.sort(orders, axis=1) == np.arange(3))
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6
    assert np.all(np.abs(counts - 1000) < 5 * np.sqrt(1000 * 5 / 6))


def test_one_huge_factor_is_noticed():
    scopes, tables = many_factors(6, 600, 0.01)
    tables = tables.copy()
    tables[::200] += 3 * np.asarray(real(np.random.default_rng(0).normal(size=(3, 2, 2, 2))))
    field = tm.models.random_field(scopes, tables)
    with pytest.warns(tm.NormalityWarning, match="one or two factors outweighed"):
        quiet(tm.gibbs, field, tm.AustereMH(0.3, 50), num_samples=200)


# Bad input.


@pytest.mark.parametrize(
    ("scopes", "tables", "message"),
    [
        (np.array([[0.0, 1.0]]), np.zeros((1, 2, 2)), "whole numbers"),
        (np.array([0, 1]), np.zeros((1, 2, 2)), r"\(factors, variables in each\)"),
        (np.array([[0, -1]]), np.zeros((1, 2, 2)), "number variables from 0"),
        (np.array([[0, 1]]), np.zeros((1, 2, 2, 2)), r"must have shape \(1, values, values\)"),
        (np.array([[0, 1]]), np.zeros((2, 2, 2)), "must have shape"),
        (np.array([[0, 1]]), np.zeros((1, 2, 1)), "never varies"),
        (np.array([[1, 1]]), np.zeros((1, 2, 2)), "names a variable twice"),
        (np.array([[0, 1]]), np.full((1, 2, 2), -np.inf), "such as -30"),
        (np.array([[0, 2]]), np.zeros((1, 2, 2)), "variable 1 is in no factor"),
        (np.array([[0, 1], [1, 2]]), np.zeros((2, 2, 3)), "variable 1 has 2 values in one factor's table and 3"),
        ([np.array([[0, 1]])], np.zeros((1, 2, 2)), "list of as many"),
    ],
)
def test_fields_that_cannot_be(scopes, tables, message):
    with pytest.raises(ValueError, match=message):
        tm.models.random_field(scopes, tables)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rule": tm.MHSS()}, "draws rows by weight"),
        ({"rule": tm.MHSubLhd()}, "needs a bound"),
        ({"num_samples": 0}, "num_samples"),
        ({"thinning": 0}, "thinning"),
        ({"num_warmup": -1}, "num_warmup"),
        ({"init": np.zeros(3)}, "one value for each of the 10 variables"),
        ({"init": np.full(10, 2)}, "from 0 to its number of values"),
        ({"init": np.full(10, 0.5)}, "whole numbers"),
        ({"sweep": tm.FixedSweep([0, 1])}, "orders 2 variables"),
    ],
)
def test_what_gibbs_refuses(change, message):
    options = {"field": SMALL, "rule": tm.ExactBarker(), "num_samples": 5, **change}
    with pytest.raises(ValueError, match=message):
        quiet(tm.gibbs, options.pop("field"), options.pop("rule"), **options)


def test_what_is_of_another_kind_is_refused():
    """In a process of its own, for under pytest types are checked before the library is asked."""
    program = """
import numpy as np, tallmc as tm
field = tm.models.random_field(np.array([[0, 1]]), np.zeros((1, 2, 2)))
other = tm.Posterior(lambda mean, row: -(mean - row) ** 2, np.zeros(3))
for of, rule, options in (
    (1, tm.ExactBarker(), {}), (other, tm.ExactBarker(), {}), (field, "exact", {}),
    (field, tm.ExactBarker(), {"num_chains": 1.5}), (field, tm.ExactBarker(), {"sweep": "random"}),
    (field, tm.ExactBarker(), {"driver": 3}),
):
    try:
        tm.gibbs(of, rule, num_samples=5, **options)
    except ValueError as error:
        print(error)
"""
    lines = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    expected = (
        "field must be a random field",
        "field must be a random field",
        "rule must be an AcceptanceRule",
        "num_chains must be a whole number",
        "sweep must be tm.RandomSweep",
        "driver must be a Driver",
    )
    for line, words in zip(lines.splitlines(), expected, strict=True):
        assert words in line


def test_generated_fields_and_orders_are_checked():
    with pytest.raises(ValueError, match="at least 3"):
        tm.models.generate_dense_field(2)
    with pytest.raises(ValueError, match="scale"):
        tm.models.generate_dense_field(5, scale=-1.0)
    with pytest.raises(ValueError, match="every variable once"):
        tm.FixedSweep([0, 0])
    for wrong in ({"contraction": 1.0}, {"largest_error": -1.0}, {"num_updates": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            tm.design.gibbs_stationary_error(**{"largest_error": 0.1, "contraction": 0.5, **wrong})
    with pytest.raises(ValueError, match="finite"):
        tm.design.conditional_error(np.nan, 1.0, 0.1, 0.05)
