"""Epsilons that warm-up designs anew, and those that follow an estimate of the risk."""

import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tests.registry import real

NUM_ROWS = 20_000


def log_likelihood(mean, row):
    return -0.5 * (row - mean) ** 2


def posterior(temperature=20.0):
    rows = np.asarray(real(np.random.default_rng(0).normal(size=NUM_ROWS)))
    return tm.Posterior(log_likelihood, rows, temperature=temperature)


def run(epsilon, scale=0.05, **options):
    kernel = tm.MetropolisHastings(tm.RandomWalk(scale), tm.AustereMH(epsilon, 500))
    settings = {"num_samples": 200, "num_warmup": 400, "num_chains": 4, "init": 0.3} | options
    return tm.sample(options.pop("target", None) or posterior(), kernel, **settings)


@pytest.fixture(scope="module")
def designed():
    return run(tm.schedule.redesigned(0.02))


def schedule_of(done):
    return done.session.kernel.rule.epsilon


def test_the_last_design_keeps_the_error_for_the_moves_of_the_kept_draws(designed):
    """Designed from 100 moves, judged on 100 others: within a third of what was asked for, and not far below it."""
    moments = tm.design.trial_moments(posterior(), designed)
    epsilon = schedule_of(designed).corners()[-1]
    error = np.mean(np.abs(tm.design.acceptance_error(moments.log_ratio, moments.spread, 0.025, epsilon).error))
    assert 0.01 < error < 0.027
    average = tm.design.epsilon_within(0.02, moments, 0.025)
    assert 0.6 < epsilon / average < 1.7


def test_nothing_changes_after_four_fifths_of_warm_up(designed):
    schedule = schedule_of(designed)
    np.testing.assert_array_equal(schedule.times, [80, 160, 240, 320])
    assert schedule.made == 4
    values = [float(schedule(jnp.int32(time))) for time in (0, 79, 80, 319, 320, 400, 2**30)]
    assert values[0] == values[1] == pytest.approx(0.05)
    assert values[1] != values[2]
    assert values[-1] == values[-2] == values[-3] == schedule.corners()[-1]
    assert any("epsilon was designed 4 times during warm-up" in choice for choice in designed.choices)


def test_every_design_s_rows_are_counted(designed):
    assert designed.setup_rows - run(0.05, num_samples=2).setup_rows == 4 * NUM_ROWS


def test_the_caller_s_kernel_is_left_alone(designed):
    assert designed.kernel.rule.epsilon.made == 0


def test_drivers_and_an_extended_run_agree():
    schedule = tm.schedule.redesigned(0.02, num_designs=2)
    options = {"num_samples": 120, "num_warmup": 100, "num_chains": 3}
    alone, together = (run(schedule, driver=driver, **options) for driver in (tm.ChainByChain(), tm.Together()))
    longer = run(schedule, **(options | {"num_samples": 40})).extend(80)
    for other in (together, longer):
        np.testing.assert_array_equal(alone.samples, other.samples)
        np.testing.assert_array_equal(alone.stats["rows"], other.stats["rows"])
        np.testing.assert_array_equal(schedule_of(alone).values, schedule_of(other).values)


def test_kept_draws_are_those_of_the_designed_rule():
    """The chains at the end of warm-up, moved on by a rule with the last epsilon as a constant: the same draws."""
    done = run(tm.schedule.redesigned(0.02), num_samples=150)
    short = run(tm.schedule.redesigned(0.02), num_samples=1)
    import dataclasses

    import equinox as eqx

    last = schedule_of(short).corners()[-1]
    constant = tm.schedule.steps({0: last})
    kernel = eqx.tree_at(lambda k: k.rule.epsilon, short.session.kernel, constant)
    fixed = dataclasses.replace(short, session=short.session._replace(kernel=kernel)).extend(149)
    np.testing.assert_array_equal(done.samples, fixed.samples)


def test_each_part_of_a_kernel_has_its_own_design():
    """Short steps allow more: at the same error their test may be rougher."""
    short, long = (
        tm.MetropolisHastings(tm.RandomWalk(scale), tm.AustereMH(tm.schedule.redesigned(0.02), 500))
        for scale in (0.02, 0.2)
    )
    done = tm.sample(posterior(), tm.Cycle([short, long]), init=0.0, num_samples=50, num_warmup=400)
    one, other = (part.rule.epsilon for part in done.session.kernel.parts())
    assert one.made == other.made == 4
    assert one.corners()[-1] != other.corners()[-1]


def test_saved_runs_keep_what_was_designed(designed, tmp_path):
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.05), tm.AustereMH(tm.schedule.redesigned(0.02), 500))
    rows = posterior().data
    done = tm.sample(
        tm.Posterior(log_likelihood, rows, temperature=20.0), kernel, init=0.3, num_warmup=100, num_samples=50
    )
    done.save(tmp_path / "run.zarr")
    again = tm.load(tmp_path / "run.zarr")
    np.testing.assert_array_equal(again.extend(50).samples, done.extend(50).samples)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tm.schedule.redesigned(0.7), "max_error must lie between 0 and 0.5"),
        (lambda: tm.schedule.redesigned(0.1, num_designs=0), "num_designs must be a whole number"),
        (lambda: tm.schedule.redesigned(0.1, start=1.5), r"start must lie in \[0, 1\)"),
        (
            lambda: run(tm.schedule.redesigned(0.1), num_warmup=0),
            "4 designs of a test need a num_warmup of at least 40",
        ),
    ],
)
def test_bad_input_names_the_fix(call, message):
    with pytest.raises(ValueError, match=message):
        call()
