"""Posteriors that users write: a few are right, all can be built, and the benchmark of all knows right from wrong."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks import range as benchmark
from benchmarks.range_verdict import FEWEST, Estimates, distance, verdict

import tallmc as tm
from tests.range import CASES, SMALL, Case

DOUBTS = ["something is wrong"]
TRUTH = Estimates.exact(np.array([1.0, -2.0, 0.0]), np.array([1.0, 0.1, 10.0]))


def draws(seed, shift=(0, 0, 0), scale=(1, 1, 1), correlation=0.5, num_draws=1000):
    """Four chains of a stationary series with the moments of the truth, but for a shift and a factor."""
    noise = np.random.default_rng(seed).normal(size=(num_draws, 4, 3))
    series = [noise[0]]
    for fresh in noise[1:]:
        series.append(correlation * series[-1] + np.sqrt(1 - correlation**2) * fresh)
    white = np.moveaxis(np.array(series), 0, 1)
    return TRUTH.mean + TRUTH.sd * (np.array(shift) + np.array(scale) * white)


@pytest.mark.parametrize("doubts", [[], DOUBTS])
def test_right_draws_are_called_right(doubts):
    """Whether few or many are effective; 60 runs of six figures, 6e-5 false alarms each."""
    for seed in range(20):
        for correlation in (0.0, 0.5, 0.95):
            assert verdict(Estimates.of(draws(seed, correlation=correlation)), TRUTH, doubts) == "right"


@pytest.mark.parametrize("wrong", [{"shift": (0, 0.3, 0)}, {"scale": (1, 1, 0.85)}, {"scale": (1.2, 1, 1)}])
def test_wrong_draws_without_a_doubt_are_called_wrong(wrong):
    """A mean that is off by 0.3 sd, or a width by 15 %, in one coordinate of three."""
    for seed in range(20):
        found = Estimates.of(draws(seed, **wrong))
        assert verdict(found, TRUTH, []) == "WRONG"
        assert verdict(found, TRUTH, DOUBTS) == "doubted"


@pytest.mark.parametrize("correlation", [-0.5, 0.0, 0.7])
def test_errors_of_a_run_are_as_large_as_runs_differ(correlation):
    """Of means and of widths, also where a chain leaps from side to side. Over 200 runs of three coordinates the mean
    squared z is 1 within 0.25, four of its standard errors (6e-5 false alarms each), and what the figures of one run
    are uncertain by."""
    runs = [Estimates.of(draws(seed, correlation=correlation, num_draws=500)) for seed in range(200)]
    for value, error in (("mean", "mean_error"), ("sd", "sd_error")):
        z = [(getattr(run, value) - getattr(TRUTH, value)) / getattr(run, error) for run in runs]
        assert abs(np.mean(np.square(z)) - 1) < 0.25


def test_what_is_tolerated_is_not_wrong_however_many_draws():
    for wrong in ({"shift": (0, 0.08, 0)}, {"scale": (1, 1, 0.96)}):
        found = Estimates.of(draws(0, **wrong, num_draws=20_000, correlation=0.0))
        assert verdict(found, TRUTH, []) == "right"
    assert verdict(Estimates.of(draws(0, shift=(0, 0.12, 0), num_draws=20_000)), TRUTH, []) == "WRONG"


def test_errors_are_in_standard_deviations_and_the_worst_counts():
    found = distance(Estimates.exact(TRUTH.mean + TRUTH.sd * [0.1, -0.4, 0.2], TRUTH.sd * [1.1, 0.8, 1.2]), TRUTH)
    assert found.mean == pytest.approx(0.4)
    assert found.sd_ratio == pytest.approx(0.8)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_is_not_right(bad):
    found = Estimates.of(draws(0))
    assert verdict(found._replace(mean=found.mean * [1, bad, 1]), TRUTH, []) == "WRONG"
    assert verdict(found._replace(sd=found.sd * [1, 1, bad]), TRUTH, []) == "WRONG"


def test_a_chain_that_never_moved_has_no_effective_draws():
    stuck = draws(0)
    stuck[1, :, 2] = 5.0
    found = Estimates.of(stuck)
    assert found.ess.argmin() == 2
    assert found.ess.min() == 0
    assert not found.trusted


def test_a_poor_reference_calls_nothing_wrong():
    poor = Estimates.of(draws(1, correlation=0.99, num_draws=500))
    assert poor.ess.min() < FEWEST
    assert verdict(Estimates.of(draws(0, shift=(0, 3, 0))), poor, []) == "unknown"


def fields(found, **others):
    return {"estimates": {name: np.asarray(values).tolist() for name, values in found._asdict().items()}} | others


def test_a_line_of_the_table():
    truth, theirs = fields(TRUTH), fields(Estimates.of(draws(1, correlation=0.0)), seconds=8.0)
    ran = {"chosen": "a kernel", "rows_a_step": 10.0, "accepted": 0.5}
    mine = fields(Estimates.of(draws(0, correlation=0.0)), seconds=2.0, doubts=[], **ran)
    line, ratio = benchmark._line("name", mine, theirs, truth)
    assert len(line) == len(benchmark.COLUMNS)
    assert line[-1] == "right"
    assert ratio == pytest.approx(4, rel=0.2)
    assert line[5] == f"{ratio:.2g} x"
    wrong = mine | fields(Estimates.of(draws(0, shift=(1, 0, 0))))
    assert benchmark._line("name", wrong, theirs, truth)[0][-1] == "WRONG"
    for found, said in (
        ({"failed": "more than 2 s", "limit": 2.0}, "timeout"),
        ({"failed": "Killed"}, "failed"),
        ({"refused": "no prior", "seconds": 1.0}, "refused"),
    ):
        line, ratio = benchmark._line("name", found, theirs, truth)
        assert line[-1] == said
        assert len(line) == len(benchmark.COLUMNS)
        assert np.isnan(ratio)
    assert benchmark._line("name", mine, {"failed": "more than 2 s"}, {"failed": "too"})[0][-1] == "unknown"


def test_a_measurement_is_kept_until_what_it_depends_on_changes(monkeypatch, tmp_path):
    first = benchmark._key("reference", "cauchy_location", 0)
    assert benchmark._key("reference", "cauchy_location", 0) == first
    assert benchmark._key("reference", "cauchy_location", 1) != first
    chosen = CASES["cauchy_location"]()
    for change in ({"data": chosen.data + 1}, {"log_prior": lambda position: -(position**2)}, {"look": jnp.exp}):
        changed = chosen._replace(**change)
        monkeypatch.setitem(CASES, "cauchy_location", lambda changed=changed: changed)
        assert benchmark._key("reference", "cauchy_location", 0) != first


@pytest.mark.parametrize("name", CASES)
def test_every_posterior_can_be_built(name):
    """One number a row, one for the prior, and as many for the truth as are looked at."""
    chosen = CASES[name]()
    assert isinstance(chosen, Case)
    row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), chosen.data)
    position = jax.tree.map(jnp.asarray, chosen.init)
    assert jax.eval_shape(chosen.log_likelihood, position, row).shape == ()
    assert jnp.shape(jax.eval_shape(lambda at: jnp.asarray(chosen.log_prior(at)), position)) == ()
    seen = sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(chosen.look, position)))
    for moments in chosen.truth or ():
        assert moments.shape == (seen,)
    if chosen.same_as:
        other = CASES[chosen.same_as]()
        of_other = jax.eval_shape(other.look, jax.tree.map(jnp.asarray, other.init))
        assert jax.tree.structure(of_other) == jax.tree.structure(jax.eval_shape(chosen.look, position))
    assert set(SMALL) <= set(CASES)


@pytest.mark.parametrize("name", [name for name, build in CASES.items() if build().ready is not None])
def test_a_ready_model_has_the_density_that_nuts_is_given(name):
    """Up to a constant: differences between three positions."""
    chosen = CASES[name]()
    posterior, potential = chosen.posterior(), chosen.potential(jax.tree.map(jnp.asarray, chosen.data))
    at = [jnp.asarray(chosen.init) + 0.1 * shift for shift in (0, 1, -2)]
    ours, theirs = (np.array([float(density(one)) for one in at]) for density in (posterior.log_density, potential))
    np.testing.assert_allclose(np.diff(ours), -np.diff(theirs), rtol=1e-3, atol=0.02)


@pytest.mark.parametrize("name", ["linear_ready", "chance_by_hand", "shares_by_hand"])
def test_some_posteriors_in_closed_form(name):
    """What the benchmark would say of them; six figures a coordinate at most, 6e-5 false alarms each; fixed seed."""
    chosen = CASES[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = tm.sample(chosen.posterior(), init=chosen.init, num_samples=2000, progress=False)
    found = Estimates.of(chosen.looked_at(run.samples))
    assert verdict(found, Estimates.exact(*chosen.truth), []) == "right"
