"""Hamiltonian trajectories: reversible, volume-preserving, right under every rule, tuned, and like other proposals."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.proposals.trajectory import jittered, leapfrog
from tallmc.proposals.tuning import Outcome
from tallmc.run.mixing import mixing
from tallmc.window_adaptation import Schedule
from tests.registry import real

WIDTHS = np.array([1.0, 10.0, 0.2])
ROWS = np.random.default_rng(0).normal(0.5, WIDTHS, size=(3000, 3))
FACTORS = {
    "one": np.asarray(0.7),
    "each": np.array([0.5, 2.0, 0.1]),
    "matrix": np.array([[0.5, 0.0, 0.0], [0.3, 2.0, 0.0], [0.1, -0.2, 0.4]]),
}
DRIVERS = {"alone": tm.ChainByChain, "together": lambda: tm.Together(rounds=32)}


def normal_likelihood(position, row):
    return -0.5 * jnp.sum(((row - position) / WIDTHS.astype(position.dtype)) ** 2)


def gamma_likelihood(log_rate, row):
    """Exponential rows: with a flat prior on the log rate, the rate is Gamma. Skewed where rows are few."""
    return log_rate - jnp.exp(log_rate) * row


@pytest.fixture(scope="module")
def posterior():
    return tm.Posterior(normal_likelihood, np.asarray(real(ROWS)))


def slope_of_a_well(flat):
    """Of minus a fourth power and a coupling: not linear."""
    return -(flat**3) - 0.3 * jnp.roll(flat, 1)


@pytest.mark.parametrize("name", FACTORS)
def test_a_trajectory_leads_back_and_keeps_volumes(name):
    factor, step, steps = real(FACTORS[name]), real(0.15), jnp.int32(7)
    start, velocity = real([0.3, -1.0, 0.5]), real([1.0, 0.4, -0.8])

    def follow(both):
        return jnp.concatenate(leapfrog(slope_of_a_well, factor, both[:3], both[3:], step, steps))

    both = jnp.concatenate([start, velocity])
    end = follow(both)
    back = follow(end.at[3:].multiply(-1))
    np.testing.assert_allclose(back[:3], start, atol=1e-5)
    np.testing.assert_allclose(back[3:], -velocity, atol=1e-5)
    volume = np.linalg.det(np.asarray(jax.jacfwd(follow)(both), float))
    assert volume == pytest.approx(1, abs=1e-4)


def test_it_is_as_exact_as_a_leapfrog_is():
    """The energy error falls with the square of the step."""
    errors = []
    for steps in (10, 20, 40):
        start, velocity = real([1.0, 0.2, -0.4]), real([0.3, -0.5, 0.8])
        end, final = leapfrog(lambda x: -x, jnp.ones(()), start, velocity, real(2 / steps), jnp.int32(steps))
        energy = [float(jnp.sum(x**2) + jnp.sum(v**2)) / 2 for x, v in ((start, velocity), (end, final))]
        errors.append(abs(energy[1] - energy[0]))
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.15)
    assert errors[1] / errors[2] == pytest.approx(4, rel=0.15)


def test_lengths_are_drawn_evenly_around_what_was_asked_for():
    keys = jax.random.split(jax.random.key(0), 4000)
    for mean, allowed in ((1, {1}), (2, {1, 2, 3}), (5, set(range(3, 8))), (10, set(range(5, 16)))):
        drawn = np.asarray(jax.vmap(lambda key, mean=mean: jittered(key, jnp.int32(mean)))(keys))
        assert set(drawn.tolist()) == allowed
        assert abs(drawn.mean() - mean) < 0.2


RULES = {
    "exact": lambda: tm.Exact(512),
    "barker": lambda: tm.ExactBarker(512),
    "minibatch": lambda: tm.MHMinibatch(50),
    "austere": lambda: tm.AustereMH(0.001, 100),
}


def check_normal(run, num_rows):
    """Means and standard deviations of 3 coordinates within 4.5 Monte Carlo errors (4e-5 false alarms; fixed seed)."""
    table = run.summary().table
    assert np.all(np.abs(table["mean"] - ROWS.mean(0)) < 4.5 * table["mcse_mean"])
    assert np.all(np.abs(table["sd"] - WIDTHS / np.sqrt(num_rows)) < 4.5 * table["mcse_sd"])


@pytest.mark.parametrize("rule", RULES)
def test_a_normal_in_closed_form_with_the_expansion_off_its_mode(posterior, rule):
    at = np.asarray(real(ROWS.mean(0) + 0.7 * WIDTHS / np.sqrt(3000)))
    kernel = tm.MetropolisHastings(tm.HMC(0.1, 20), RULES[rule]())
    options = {"control_variate": tm.Taylor(at=at), "num_samples": 2000, "num_warmup": 600, "rng_key": 3}
    run = tm.sample(posterior, kernel, init=at, **options)
    check_normal(run, 3000)
    assert run.summary().table["ess_bulk"].min() > 800


@pytest.mark.parametrize("expanded", [True, False])
def test_a_skewed_posterior_in_closed_form(expanded):
    """The rate of 12 exponential rows; twelve copies of each make rows for a minibatch to miss. Gamma(12, sum)."""
    rows = np.asarray(real(np.random.default_rng(1).exponential(size=12)))
    posterior = tm.Posterior(gamma_likelihood, rows)
    kernel = tm.MetropolisHastings(tm.HMC(0.2, 4), tm.Exact())
    at = np.asarray(real(-np.log(rows.mean()) + 0.2))
    control = tm.Taylor(at=at) if expanded else None
    run = tm.sample(posterior, kernel, init=at, control_variate=control, num_samples=4000, num_warmup=1000)
    rate = np.exp(np.asarray(run.samples, float))
    ess = float(mixing(rate[..., None]).ess_bulk[0])
    mean, sd = 12 / rows.sum(), np.sqrt(12) / rows.sum()
    assert abs(rate.mean() - mean) < 4.5 * sd / np.sqrt(ess)
    assert abs(rate.std() / sd - 1) < 4.5 / np.sqrt(ess)  # an error of a width is half of that where tails are normal
    assert ess > 1000


def test_gradients_of_all_rows_are_counted_and_right(posterior):
    kernel = tm.MetropolisHastings(tm.HMC(0.1, 5), tm.Exact())
    run = tm.sample(posterior, kernel, init=jnp.zeros(3), num_samples=1500, num_warmup=600)
    check_normal(run, 3000)
    assert np.all(run.stats["rows"] == 6000)


def test_a_trajectory_that_forgets_its_velocity_is_caught(posterior):
    """Negative control: without the change of kinetic energy the widths come out wrong."""

    class Careless(tm.HMC):
        def propose(self, key, position, model, window=None):
            return super().propose(key, position, model, window)._replace(log_ratio=jnp.zeros(()))

        def prepared_for(self, model, num_warmup):
            prepared = object.__new__(Careless)
            for field in dataclasses.fields(self):
                object.__setattr__(prepared, field.name, getattr(super().prepared_for(model, num_warmup), field.name))
            return prepared

    at = np.asarray(real(ROWS.mean(0)))
    kernel = tm.MetropolisHastings(Careless(1.4, 3, cholesky=np.diag(WIDTHS / np.sqrt(3000))), tm.Exact())
    run = tm.sample(posterior, kernel, init=at, control_variate=tm.Taylor(at=at), num_samples=2000, num_warmup=0)
    with pytest.raises(AssertionError):
        check_normal(run, 3000)


def trajectories(run):
    """What warm-up has left to each chain."""
    kernel = run.session.kernel
    return jax.vmap(lambda state: kernel.tuned_proposal(kernel.abandon(state)).trajectory)(run.chains.state)


def test_warmup_learns_widths_steps_and_lengths(posterior):
    at = np.asarray(real(ROWS.mean(0)))
    for dense in (False, True):
        kernel = tm.MetropolisHastings(tm.HMC(0.01, 20, dense_mass=dense), tm.Exact())
        run = tm.sample(posterior, kernel, init=at, control_variate=tm.Taylor(at=at), num_samples=500, num_warmup=1500)
        found = trajectories(run)
        covariance = np.asarray(found.factor, float)
        spread = np.linalg.norm(covariance, axis=2) if dense else covariance
        np.testing.assert_allclose(spread, np.broadcast_to(WIDTHS / np.sqrt(3000), (4, 3)), rtol=0.2)
        assert np.all(np.asarray(found.step_size) > 0.3)
        assert 0.7 < run.stats["accepted"].mean() < 0.97
        assert run.summary().table["ess_bulk"].min() > 700
        np.testing.assert_array_equal(run.step_size, np.asarray(found.step_size))


@pytest.mark.parametrize("by_energy", [True, False])
def test_rejections_for_the_rows_sake_do_not_shorten_steps(by_energy):
    """Where the trajectory knows its own energy, that alone decides on the step; else the test's decision does."""
    proposal = tm.HMC(0.5, 4, cholesky=np.eye(3))
    tuning = dataclasses.replace(proposal.tuning(0.234), by_energy=by_energy)
    at = jnp.zeros(3, real(0).dtype)
    before = tuning.init(at)
    rejected = Outcome(at, at, jnp.bool_(False), jnp.int32(100), real(0.0))
    after = tuning.update(before, rejected, real(0.5))
    assert bool(after.step_size > before.step_size) == by_energy
    kept = tuning.update(before, rejected, real(0.0))
    assert kept.step_size == before.step_size


def same(one, other):
    np.testing.assert_array_equal(one.samples, other.samples)
    for name in one.stats:
        np.testing.assert_array_equal(one.stats[name], other.stats[name])


@pytest.mark.parametrize("options", [{}, {"cholesky": np.diag(WIDTHS / np.sqrt(3000))}])
def test_both_drivers_give_the_same_chains(posterior, options):
    at = np.asarray(real(ROWS.mean(0)))
    kernel = tm.MetropolisHastings(tm.HMC(0.3, 4, **options), tm.MHMinibatch(50))
    runs = [
        tm.sample(
            posterior,
            kernel,
            init=at,
            control_variate=tm.Taylor(at=at),
            num_samples=100,
            num_warmup=100,
            driver=driver(),
        )
        for driver in DRIVERS.values()
    ]
    same(*runs)


def test_a_saved_run_goes_on(posterior, tmp_path):
    at = np.asarray(real(ROWS.mean(0)))
    kernel = tm.MetropolisHastings(tm.HMC(0.3, 4), tm.MHMinibatch(50))
    options = {"init": at, "control_variate": tm.Taylor(at=at), "num_warmup": 100}
    long = tm.sample(posterior, kernel, num_samples=300, **options)
    short = tm.sample(posterior, kernel, num_samples=100, **options)
    short.save(tmp_path / "run")
    same(tm.load(tmp_path / "run").extend(200), long)


def test_its_steps_can_be_audited(posterior):
    at = np.asarray(real(ROWS.mean(0)))
    kernel = tm.MetropolisHastings(tm.HMC(0.3, 4), tm.AustereMH(0.001, 100))
    run = tm.sample(posterior, kernel, init=at, control_variate=tm.Taylor(at=at), num_samples=200, num_warmup=300)
    assert tm.audit(run).error_rate < 0.1


def test_it_takes_turns_with_others(posterior):
    at = np.asarray(real(ROWS.mean(0)))
    walk = tm.MetropolisHastings(tm.RandomWalk(WIDTHS / 50), tm.MHMinibatch(50))
    kernel = tm.Cycle([tm.MetropolisHastings(tm.HMC(0.1, 5), tm.Exact(512)), walk])
    options = {"control_variate": tm.Taylor(at=at), "num_samples": 3000, "num_warmup": 1000}
    check_normal(tm.sample(posterior, kernel, init=at, **options), 3000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"step_size": 0.0}, "step_size must be positive"),
        ({"num_steps": 0}, "num_steps must be a whole number"),
        ({"mass": -1.0}, "mass must hold positive numbers"),
        ({"mass": np.ones((2, 3))}, "square matrix"),
        ({"mass": np.array([[1.0, 2.0], [2.0, 1.0]])}, "positive definite"),
        ({"mass": 1.0, "cholesky": np.eye(2)}, "not both"),
        ({"mass": 1.0, "dense_mass": True}, "leave one of them out"),
        ({"cholesky": np.ones((2, 2))}, "lower Cholesky factor"),
    ],
)
def test_what_it_cannot_be_given(arguments, message):
    with pytest.raises(ValueError, match=message):
        tm.HMC(**arguments)


def test_a_mass_is_the_inverse_of_a_covariance():
    covariance = np.array([[2.0, 0.5], [0.5, 1.0]])
    by_mass = tm.HMC(mass=np.linalg.inv(covariance)).trajectory.factor
    np.testing.assert_allclose(by_mass, np.linalg.cholesky(covariance), rtol=1e-5)
    np.testing.assert_allclose(tm.HMC(mass=[4.0, 0.25]).trajectory.factor, [0.5, 2.0])


@pytest.mark.parametrize(
    ("proposal", "control", "message"),
    [
        (tm.HMC(mass=[1.0, 1.0]), tm.Taylor(), "for 2 coordinates but a position has 3"),
        (tm.HMC(), tm.Taylor(order=1), "expansion of order 2"),
    ],
)
def test_what_does_not_go_together_is_named(posterior, proposal, control, message):
    kernel = tm.MetropolisHastings(proposal, tm.Exact())
    with pytest.raises(ValueError, match=message):
        tm.sample(posterior, kernel, init=jnp.zeros(3), control_variate=control, num_samples=10)


def test_the_schedule_is_that_of_the_warmup(posterior):
    prepared = tm.HMC().prepared_for(posterior.model, 1000)
    np.testing.assert_array_equal(prepared.schedule.ends, Schedule.of(1000).ends)
    assert prepared.needs is not None
