"""A temperature that changes as chains go on: which density each draw is of, in both drivers, and what runs say of it.

Thresholds are 5 standard errors over independent chains: 6e-7 false alarms each. Seeds are fixed.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tests.registry import real

NUM_ROWS, HOT, SWITCH = 2000, 100.0, 400


def log_likelihood(mean, row):
    return -0.5 * (row - mean) ** 2


def normal_rows():
    rows = np.random.default_rng(0).normal(size=NUM_ROWS)
    return np.asarray(real((rows - rows.mean()) / rows.std()))


def posterior(temperature):
    return tm.Posterior(log_likelihood, normal_rows(), temperature=temperature)


COOLING = {0: HOT, SWITCH: 1.0}


def run(temperature, rule=None, scale=0.2, **options):
    kernel = tm.MetropolisHastings(tm.RandomWalk(scale), rule or tm.MHMinibatch(50))
    settings = {"num_samples": 800, "num_warmup": 0, "num_chains": 64} | options
    return tm.sample(posterior(temperature), kernel, init=0.0, **settings)


def hot_run(*args, **options):
    """A run that must warn of its hot draws."""
    with pytest.warns(UserWarning, match="no draws of the posterior"):
        return run(*args, **options)


def variances(draws):
    """Of each draw number over the chains' mean square, in the posterior's variance at temperature 1."""
    return np.mean(np.square(np.asarray(draws, float)), axis=1) * NUM_ROWS


@pytest.fixture(scope="module")
def cooled():
    with pytest.warns(UserWarning, match="draws were made at temperatures from 100 to 100"):
        return run(tm.schedule.steps(COOLING), tm.Exact(500), num_samples=1600)


def test_each_draw_is_of_the_posterior_at_its_temperature(cooled):
    """Normal rows: the variance at temperature T is T / rows. Steps then are ten times too long, and still right."""
    for part, wanted in ((slice(100, SWITCH), HOT), (slice(700, 1600), 1.0)):
        found = variances(cooled.samples[:, part])
        assert abs(found.mean() - wanted) < 5 * found.std(ddof=1) / 8


def test_a_run_records_its_temperatures_and_doubts_its_hot_draws(cooled):
    heat = cooled.stats["temperature"]
    np.testing.assert_array_equal(heat[:, :SWITCH], HOT)
    np.testing.assert_array_equal(heat[:, SWITCH:], 1.0)
    assert float(cooled.posterior.temperature) == 1.0
    assert "25,600 of 102,400 draws" in " ".join(cooled.doubts)
    assert any("no draws of the posterior at 1" in note for note in cooled.summary().notes)


def test_warm_up_that_outlasts_the_schedule_leaves_nothing_to_doubt_and_tunes_again():
    """The step that suits temperature 100 is ten times too long at 1; warm-up goes on until it has found another."""
    done = run(tm.schedule.steps(COOLING), num_warmup=2000, num_samples=200, num_chains=4)
    assert not done.heat_doubts
    assert 0.1 < done.stats["accepted"].mean() < 0.25


def test_both_drivers_and_an_extended_run_give_the_same_chains():
    options = {"num_samples": 300, "num_warmup": 200, "num_chains": 3}
    alone = hot_run(tm.schedule.steps(COOLING), driver=tm.ChainByChain(), **options)
    together = hot_run(tm.schedule.steps(COOLING), driver=tm.Together(), **options)
    short = hot_run(tm.schedule.steps(COOLING), **(options | {"num_samples": 100}))
    longer = short.extend(200)
    for other in (together, longer):
        np.testing.assert_array_equal(alone.samples, other.samples)
        for name in alone.stats:
            np.testing.assert_array_equal(alone.stats[name], other.stats[name])


def test_a_constant_schedule_is_that_temperature():
    options = {"num_samples": 100, "num_warmup": 50, "num_chains": 2}
    np.testing.assert_array_equal(run(7.0, **options).samples, run(tm.schedule.steps({0: 7.0}), **options).samples)


@pytest.mark.parametrize("rule", [tm.AustereMH(0.0, 100), tm.MHSubLhd(bound=lambda a, b: 4 * jnp.abs(b - a))])
def test_an_audit_asks_at_the_temperature_of_the_step(rule):
    """Rules that decide as all rows do would be wrong at once if the audit asked at another temperature."""
    with pytest.warns(UserWarning, match="no draws of the posterior"):
        done = run(tm.schedule.steps(COOLING), rule, num_samples=800, num_chains=2)
    found = tm.audit(done, 200)
    assert found.error_rate == 0
    assert 0 < found.accepted.mean() < 1
    # Negative control: at the final temperature throughout, hot decisions look wrong.
    cold = tm.audit(with_heat(done, 1.0), 200)
    assert cold.error_rate > 0.05


def with_heat(done, temperature):
    """The run as if all its draws had been made at one temperature."""
    import dataclasses

    stats = done.stats | {"temperature": np.full_like(done.stats["temperature"], temperature)}
    return dataclasses.replace(done, stats=stats)


def test_barker_s_audit_too():
    with pytest.warns(UserWarning, match="no draws of the posterior"):
        done = run(tm.schedule.steps(COOLING), tm.MHMinibatch(50), num_samples=800, num_chains=2)
    found = tm.audit(done, 64)
    assert found.interval[0] < 0.01
    assert tm.audit(with_heat(done, 1.0), 64).interval[0] > 0.02


def test_an_expansion_is_tempered_as_the_rows_are():
    """With order 2 normal rows say nothing beyond it, so every figure is the polynomial's at the right temperature."""
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.2), tm.MHMinibatch(50))
    with pytest.warns(UserWarning, match="no draws of the posterior"):
        done = tm.sample(
            posterior(tm.schedule.steps(COOLING)),
            kernel,
            init=0.0,
            num_samples=1600,
            num_warmup=0,
            num_chains=64,
            control_variate=tm.Taylor(),
        )
    for part, wanted in ((slice(100, SWITCH), HOT), (slice(700, 1600), 1.0)):
        found = variances(done.samples[:, part])
        assert abs(found.mean() - wanted) < 5 * found.std(ddof=1) / 8


def test_kernels_made_of_kernels_cool_too():
    part = tm.MetropolisHastings(tm.RandomWalk(0.2), tm.Exact(500))
    with pytest.warns(UserWarning, match="no draws of the posterior"):
        done = tm.sample(
            posterior(tm.schedule.steps({0: HOT, 300: 1.0})),
            tm.Cycle([part, tm.MetropolisHastings(tm.RandomWalk(0.04), tm.Exact(500))]),
            init=0.0,
            num_samples=700,
            num_warmup=0,
            num_chains=64,
        )
    for part, wanted in ((slice(100, 300), HOT), (slice(450, 700), 1.0)):
        found = variances(done.samples[:, part])
        assert abs(found.mean() - wanted) < 5 * found.std(ddof=1) / 8


def test_saved_runs_keep_the_schedule(tmp_path):
    with pytest.warns(UserWarning, match="no draws of the posterior"):
        done = run(tm.schedule.steps(COOLING), num_samples=300, num_warmup=200, num_chains=2)
    done.save(tmp_path / "run.zarr")
    again = tm.load(tmp_path / "run.zarr")
    np.testing.assert_array_equal(again.extend(200).stats["temperature"], done.extend(200).stats["temperature"])
    np.testing.assert_array_equal(again.extend(200).samples, done.extend(200).samples)
    with pytest.raises(ValueError, match="was sampled with"):
        tm.load(tmp_path / "run.zarr", posterior(1.0))


def test_a_schedule_survives_other_scales():
    half = tm.Posterior(
        lambda p, row: -0.5 * (row / p["sd"]) ** 2 - jnp.log(p["sd"]),
        normal_rows(),
        temperature=tm.schedule.steps(COOLING),
        transforms={"sd": tm.transforms.positive},
    )
    for other in (half.unconstrained, half.natural, half.at_temperature(half.schedule)):
        assert [float(other.schedule(jnp.int32(time))) for time in (0, SWITCH)] == [HOT, 1.0]
    assert half.at_temperature(3.0).schedule is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: posterior(tm.schedule.steps({0: 10.0, 5: 0.0})), "every temperature of a schedule must be"),
        (lambda: posterior(tm.schedule.redesigned(0.05)), "for the epsilon of tm.AustereMH"),
        (lambda: tm.schedule.steps({5: 1.0}), "one of the times must be 0"),
        (lambda: tm.schedule.steps({0: 1.0, 2: float("nan")}), "finite and not negative"),
        (lambda: tm.sample(posterior(tm.schedule.steps(COOLING))), "a method is chosen for one temperature"),
        (lambda: tm.sample(posterior(tm.schedule.steps(COOLING)), tm.NUTS(), init=0.0), "temperature changes"),
    ],
)
def test_bad_input_names_the_fix(call, message):
    with pytest.raises(ValueError, match=message):
        call()
