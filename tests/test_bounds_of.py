"""Bounds worked out from a likelihood's program: against those made by hand, where they end, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.bounds import FromProgram, usual_radius, why_not_covered
from tallmc.control_variates import covariance_factor
from tallmc.numerics.flat import flatten
from tests.registry import real

X, y, _ = tm.models.generate_logistic(2000, 4)
COUNTS = np.random.default_rng(3).poisson(np.exp(0.3 * X[:, 1])).astype(np.float32)


def own_poisson(position, row):
    z = row["x"] @ position
    return row["y"] * z - jnp.exp(z)


def own_logistic(position, row):
    z = row["x"] @ position
    return row["y"] * z - jax.nn.softplus(z)


def own_probit(position, row):
    return jax.scipy.stats.norm.logcdf((2 * row["y"] - 1) * (row["x"] @ position))


def own_softplus(position, row):
    mean = jax.nn.softplus(row["x"] @ position)
    return row["y"] * jnp.log(mean) - mean


def own_robust(position, row):
    return jax.scipy.stats.t.logpdf(row["y"], 4.0, row["x"] @ position, 1.0)


def own_linear(position, row):
    return -0.5 * (row["y"] - row["x"] @ position) ** 2


def own(log_likelihood, outcomes, **more):
    return tm.Posterior(log_likelihood, {"x": X, "y": outcomes}, lambda p: -0.5 * jnp.sum(p * p), **more)


READY = {
    "logistic": (tm.models.logistic_regression(X, y), own_logistic),
    "probit": (tm.models.probit_regression(X, y), own_probit),
    "softplus": (tm.models.poisson_regression(X, COUNTS, link=tm.models.SoftplusLink()), own_softplus),
    "robust": (tm.models.robust_regression(X, y), own_robust),
    "linear": (tm.models.linear_regression(X, y), own_linear),
}


@pytest.mark.parametrize("name", READY)
def test_bounds_are_at_most_a_tenth_above_those_made_by_hand(name):
    """What rows can say in the region is, as a rule, less than what they can say anywhere."""
    posterior, log_likelihood = READY[name]
    found = tm.optimise.mode(posterior, progress=False)
    factor = covariance_factor(found.hessian)
    worked_out = tm.bounds_of(tm.Posterior(log_likelihood, posterior.rows), found.position, factor)
    both = tm.bounds_of(posterior, found.position, factor)
    for order in (2, 3):
        by_hand = posterior.bounds.derivative_bounds(order, posterior.rows, factor)
        ours, tightest = (np.asarray((some.second, some.third)[order - 2], float) for some in (worked_out, both))
        print(f"{name}: order {order}, worked out / by hand {ours.sum() / max(by_hand.sum(), 1e-30):.3f}")
        assert ours.sum() <= 1.1 * by_hand.sum() + 1e-12
        assert np.all(tightest <= by_hand * (1 + 1e-5))


def test_own_likelihood_has_the_bounds_of_the_ready_one():
    ready = READY["logistic"][0]
    found = tm.optimise.mode(ready, progress=False)
    factor = covariance_factor(found.hessian)
    of_own = tm.bounds_of(own(own_logistic, y), found.position, factor)
    of_ready = tm.bounds_of(tm.Posterior(ready.log_likelihood, ready.rows, ready.log_prior), found.position, factor)
    np.testing.assert_allclose(of_own.third, of_ready.third, rtol=1e-5)
    assert of_own.rank_one
    assert of_ready.rank_one


def test_a_smaller_region_has_smaller_bounds():
    posterior, factor = own(own_poisson, COUNTS), 0.05 * np.eye(4)
    sums = [float(np.sum(tm.bounds_of(posterior, np.zeros(4, np.float32), factor, r).third)) for r in (0.1, 2.0, 6.0)]
    lengths = np.linalg.norm(X, axis=1) * 0.05
    at_centre = np.sum(lengths**3)
    assert at_centre < sums[0] < 1.05 * at_centre < sums[1] < sums[2]
    # exp(z) z'^3 has its largest value where z is: the closed form.
    assert abs(sums[2] / np.sum(lengths**3 * np.exp(6.0 * 1.001 * lengths)) - 1) < 1e-5


def moves_through(posterior, centre, factor, radius):
    bounds = tm.bounds_of(posterior, centre, factor, radius)
    bounded = tm.Posterior(posterior.log_likelihood, posterior.rows, posterior.log_prior, bounds=bounds)
    return tm.Taylor(2).expand(bounded, centre)


@pytest.fixture(scope="module")
def expanded():
    posterior = own(own_poisson, COUNTS)
    found = tm.optimise.mode(posterior, init=np.zeros(4, np.float32), progress=False)
    return moves_through(posterior, found.position, covariance_factor(found.hessian), 4.0), posterior


def test_the_reach_ends_where_the_region_does_whichever_way_a_step_goes(expanded):
    """Whether a step is decided on all rows is the same there and back, so that balance holds."""
    controlled, _ = expanded
    bounds, expansion = controlled.model.bounds, controlled.model.expansion
    stretch, centre = np.linalg.inv(np.asarray(expansion.whiten, float)), np.asarray(expansion.centre, float)
    directions = np.random.default_rng(1).normal(size=(200, 2, 4))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    distances = np.random.default_rng(2).choice([0.5, 3.9, 4.0, 4.1, 6.0], size=(200, 2, 1))
    ends = np.asarray(real((directions * distances) @ stretch.T + centre))
    there, back = (
        np.asarray(jax.vmap(bounds.reach)(jnp.asarray(a), jnp.asarray(b)))
        for a, b in ((ends[:, 0], ends[:, 1]), (ends[:, 1], ends[:, 0]))
    )
    np.testing.assert_array_equal(np.isinf(there), np.isinf(back))
    np.testing.assert_allclose(there, back, rtol=1e-5)
    furthest = distances.max(axis=(1, 2))
    assert np.all(np.isinf(there[furthest > 4.05]))
    assert np.all(np.isfinite(there[furthest < 3.95]))


def test_no_row_says_more_than_its_bound_between_positions_of_the_region(expanded):
    """What an expansion leaves of each row, in the precision of the run: rounding must not look like a violation."""
    controlled, posterior = expanded
    model, stretch = controlled.model, np.linalg.inv(np.asarray(controlled.model.expansion.whiten, float))
    ends = np.random.default_rng(1).normal(size=(20, 2, 4)) @ stretch.T + np.asarray(model.expansion.centre, float)
    for old, new in np.asarray(real(ends)):
        change = np.abs(np.asarray(model.log_ratios(old, new, posterior.rows.all()), float))
        allowed = controlled.constants * float(model.bounds.reach(old, new))
        assert np.all(change <= 1.001 * allowed)
    assert np.max(change / allowed) > 0.3  # and is not far from it


def erf_inv(position, row):
    return jax.scipy.special.erfinv(position[0]) * row["y"]


def with_a_derivative_of_its_own(position, row):
    @jax.custom_jvp
    def cubed(z):
        return z**3

    cubed.defjvp(lambda at, along: (at[0] ** 3, at[0] * along[0]))
    return cubed(position[0] * row["y"])


def called_like_a_function_of_jax(position, row):
    @jax.custom_jvp
    def logaddexp(a, b):
        return a * b + jnp.sin(a)

    logaddexp.defjvp(lambda at, along: (at[0] * at[1], along[0]))
    return logaddexp(position[0], row["y"])


def held_fixed(position, row):
    return jax.lax.stop_gradient(position[0]) * position[1] * row["y"]


def held_fixed_and_not_taken_back(position, row):
    z = row["x"] @ position
    return jnp.log(jnp.sum(jnp.exp(z * jnp.ones(2) - jax.lax.stop_gradient(z)))) + 2 * jax.lax.stop_gradient(z)


def loops(position, row):
    return jax.lax.while_loop(lambda z: z < 1, lambda z: z + 0.3, position[0] * row["y"])


def looks_up_by_position(position, row):
    return row["x"][jnp.argmax(position)]


REFUSED = {
    "erf_inv": erf_inv,
    "derivative of its own": with_a_derivative_of_its_own,
    "which is not JAX's": called_like_a_function_of_jax,
    "stop_gradient": held_fixed,
    "stop_gradient ": held_fixed_and_not_taken_back,
    "while": loops,
    "argmax": looks_up_by_position,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_refused_by_name_and_line(name):
    flat, unravel = flatten(np.zeros(4, np.float32))
    trouble = why_not_covered(REFUSED[name], unravel, flat.size, {"x": X[0], "y": X[0, 0]})
    assert name.strip() in str(trouble)
    assert "test_bounds_of.py" in trouble.line
    with pytest.raises(ValueError, match=r"no rule for .*line \d+ of test_bounds_of.py"):
        tm.bounds_of(own(REFUSED[name], y), np.zeros(4, np.float32), np.eye(4))


def test_rows_of_which_nothing_is_known_have_infinite_bounds():
    """A kink within the region: the first derivative is bounded, and no other."""

    def kinked(position, row):
        return -jnp.abs(row["y"] - row["x"] @ position)

    bounds = tm.bounds_of(own(kinked, X[:, 1] * 3), np.zeros(4, np.float32), 0.01 * np.eye(4))
    crossed = np.abs(3 * X[:, 1]) < usual_radius(4) * 0.01 * np.linalg.norm(X, axis=1)
    assert 0 < crossed.sum() < 2000
    np.testing.assert_array_equal(np.isinf(bounds.third), crossed)
    np.testing.assert_array_equal(np.isinf(bounds.second), crossed)
    np.testing.assert_allclose(bounds.first, 0.01 * np.linalg.norm(X, axis=1), rtol=1e-5)


def test_bad_input_is_refused():
    posterior = own(own_poisson, COUNTS)
    with pytest.raises(ValueError, match="factor must be an invertible matrix of 4 rows"):
        tm.bounds_of(posterior, np.zeros(4, np.float32), np.eye(3))
    with pytest.raises(ValueError, match="radius must be a positive number"):
        tm.bounds_of(posterior, np.zeros(4, np.float32), np.eye(4), radius=0.0)
    positive = own(own_poisson, COUNTS, transforms=tm.transforms.positive)
    with pytest.raises(ValueError, match=r"posterior\.unconstrained"):
        tm.bounds_of(positive, np.ones(4, np.float32), np.eye(4))
    bounds = tm.bounds_of(posterior, np.zeros(4, np.float32), 0.01 * np.eye(4))
    bounded = tm.Posterior(posterior.log_likelihood, posterior.rows, posterior.log_prior, bounds=bounds)
    with pytest.raises(ValueError, match="the expansion's centre lies"):
        tm.Taylor(2).expand(bounded, np.ones(4, np.float32))


def test_steps_out_of_the_region_are_decided_on_all_rows_and_counted():
    posterior = own(own_poisson, COUNTS)
    found = tm.optimise.mode(posterior, init=np.zeros(4, np.float32), progress=False)
    factor = covariance_factor(found.hessian)
    bounds = tm.bounds_of(posterior, found.position, factor, radius=2.0)  # a chain leaves it again and again
    bounded = tm.Posterior(posterior.log_likelihood, posterior.rows, posterior.log_prior, bounds=bounds)
    kernel = tm.MetropolisHastings(tm.CrankNicolson(found.position, factor, 1.0), tm.MHSS())
    run = tm.sample(bounded, kernel, init=found.position, control_variate=tm.Taylor(2, at=found.position), num_warmup=0)
    outside, rows = run.stats["outside"], run.stats["rows"]
    assert 0.2 < outside.mean() < 0.8
    # All of them, unless the first stage has said no already.
    assert np.all(rows[outside] == 2000)
    assert rows[~outside].mean() < 200
    assert run.stats["violations"].sum() == 0
    note = next(note for note in run.summary().notes if "worked out" in note)
    assert f"{int(outside.sum()):,} of {outside.size:,} steps led beyond" in note


def test_a_kernel_with_an_exact_rule_has_its_bounds_worked_out():
    posterior = own(own_poisson, COUNTS)
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.02), tm.MHSS())
    run = tm.sample(posterior, kernel, init=np.zeros(4, np.float32), num_samples=200, num_warmup=200)
    assert run.stats["rows"].mean() < 500
    assert run.stats["violations"].sum() == 0
    with pytest.raises(ValueError, match=r"no rule for erf_inv \(line \d+ of test_bounds_of.py\)"):
        tm.sample(
            own(erf_inv, y), kernel, init=np.full(4, 0.1, np.float32), control_variate=tm.Taylor(at=np.full(4, 0.1))
        )


def many(log_likelihood, outcome):
    """Enough rows for tests on few to pay."""
    big, _, _ = tm.models.generate_logistic(150_000, 4)
    return tm.Posterior(log_likelihood, {"x": big, "y": outcome(big)}, lambda p: -0.5 * jnp.sum(p * p))


def test_an_own_likelihood_is_sampled_by_exact_tests_on_few_rows():
    """Draws against the normal at the mode, which with so many rows is right to a twentieth of a standard deviation."""
    counts = np.random.default_rng(5)
    posterior = many(own_poisson, lambda x: counts.poisson(np.exp(0.2 * x[:, 1])).astype(np.float32))
    run = tm.sample(posterior, init=np.zeros(4, np.float32), progress=False)
    assert isinstance(run.kernel.rule, tm.MHSS)
    assert "worked out from the likelihood's own program" in "; ".join(run.choices)
    assert run.stats["rows"].mean() < 5
    assert run.stats["violations"].sum() == 0
    assert run.stats["outside"].sum() == 0
    assert run.audit.error_rate == 0
    assert run.doubts == ()
    found = tm.optimise.mode(posterior, init=np.zeros(4, np.float32), progress=False)
    factor = covariance_factor(found.hessian)
    draws = np.asarray(run.samples, float).reshape(-1, 4)
    white = np.linalg.solve(factor, (draws - np.asarray(found.position, float)).T)
    assert np.all(np.abs(white.mean(axis=1)) < 0.1)  # 4,000 draws: six Monte Carlo errors
    assert np.all(np.abs(white.std(axis=1) - 1) < 0.08)


def test_what_stands_in_the_way_of_bounds_is_among_the_choices():
    def damped(position, row):
        z = row["x"] @ position
        return -0.5 * (row["y"] - z) ** 2 - jax.scipy.special.i0e(z)

    run = tm.sample(many(damped, lambda x: x[:, 1]), init=np.zeros(4, np.float32), progress=False, num_samples=500)
    assert any("no rule for bessel_i0e (line" in choice for choice in run.choices)
    assert not isinstance(getattr(run.kernel, "rule", None), tm.MHSS)


def test_nothing_holds_everywhere():
    assert FromProgram().derivative_bounds(3, READY["logistic"][0].rows) is None
    assert not np.isfinite(float(FromProgram().mean))
