"""What epsilon costs: the width of a normal posterior, the bound on the stationary distribution, the risk of a mean.

Seeds are fixed. Thresholds are 5 standard errors over independent chains, 6e-7 false alarms each, unless said.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tests.registry import real

NUM_ROWS = 12_214


def log_likelihood(mean, row):
    return -0.5 * (row - mean) ** 2


def normal_rows(num_rows=NUM_ROWS):
    rows = np.random.default_rng(0).normal(size=num_rows)
    return np.asarray(real((rows - rows.mean()) / rows.std()))


def draws(rule, num_samples, scale=2.2, num_chains=32, temperature=1.0, num_warmup=0):
    """In posterior standard deviations."""
    rows = normal_rows()
    unit = np.sqrt(temperature / len(rows))
    run = tm.sample(
        tm.Posterior(log_likelihood, rows, temperature=temperature),
        tm.MetropolisHastings(tm.RandomWalk(float(scale * unit)), rule),
        init=0.0,
        num_samples=num_samples,
        num_warmup=num_warmup,
        num_chains=num_chains,
    )
    return np.asarray(run.samples, float) / unit, run


@pytest.mark.parametrize(
    ("epsilon", "least", "most"), [(0.01, 1.05, 1.08), (0.05, 1.27, 1.33), (0.1, 1.5, 1.61), (0.2, 1.88, 2.0)]
)
def test_widths_at_temperature_one_are_the_known_ones(epsilon, least, most):
    """Of a tuned random walk: 1.07, 1.28 to 1.31, 1.56 and 1.94. The steps that were tuned then are not on record; 2 to
    2.4 standard deviations give these ranges."""
    widths = [tm.design.normal_posterior(500 / NUM_ROWS, epsilon, scale=scale).sd for scale in (2.0, 2.2)]
    assert least < min(widths) <= max(widths) < most


@pytest.mark.parametrize("epsilon", [0.05])
def test_a_chain_is_as_wide_as_was_worked_out(epsilon):
    found, run = draws(tm.AustereMH(epsilon), 2000)
    squares = np.mean(found**2, axis=1)
    expected = tm.design.normal_posterior(500 / NUM_ROWS, epsilon, scale=2.2)
    error = squares.std(ddof=1) / np.sqrt(len(squares))
    assert abs(squares.mean() - expected.sd**2) < 5 * error + 0.01
    assert expected.sd**2 > 1 + 10 * error  # an exact chain would fail
    assert abs(run.stats["rows"].mean() / NUM_ROWS - expected.data_fraction) < 0.02
    assert abs(run.stats["accepted"].mean() - expected.acceptance) < 0.02


def test_without_error_nothing_widens_and_hot_posteriors_hardly_do():
    exact = tm.design.normal_posterior(0.05, 0.0)
    assert abs(exact.sd - 1) < 1e-6
    assert exact.total_variation < 1e-9
    assert abs(exact.data_fraction - 1) < 0.02  # but for proposals off the grid
    assert tm.design.normal_posterior(500 / NUM_ROWS, 0.05, temperature=100.0).sd < 1.01


def test_the_bias_of_the_squared_deviation_is_what_the_chain_has():
    """Estimated to first order from a trial run of exact tests, against the stationary distribution. Of the mean itself
    there is none."""
    _, run = draws(tm.Exact(4096), 2000)
    posterior = tm.Posterior(log_likelihood, normal_rows())
    epsilons = (0.001, 0.01, 0.05, 0.2)
    found = tm.design.risk(posterior, run, lambda mean: NUM_ROWS * mean**2, epsilons=epsilons)
    exact = [tm.design.normal_posterior(500 / NUM_ROWS, e, scale=2.2) for e in epsilons]
    # What 1,000 moves, one rate of decay instead of all, and the first order leave: 17 % at most, as measured.
    np.testing.assert_allclose(found.bias, [one.sd**2 - 1 for one in exact], rtol=0.25)
    np.testing.assert_allclose(found.data_fraction, [one.data_fraction for one in exact], atol=0.06)
    of_mean = tm.design.risk(posterior, run, lambda mean: np.sqrt(NUM_ROWS) * mean, epsilons=(0.05,))
    assert abs(of_mean.bias[0]) < 0.1 * found.bias[2]
    assert 2 < found.variance / 2 < 8  # of a squared normal number, 2, times an autocorrelation time of 4 to 5


BIAS = tm.design.Risk(
    epsilon=np.array([0.0, 0.01, 0.1]), bias=np.array([0.0, 0.1, 1.0]), data_fraction=np.array([1.0, 0.5, 0.1]),
    variance=10.0, num_rows=1000,
)  # fmt: skip


def test_the_best_epsilon_falls_as_the_budget_grows():
    assert [BIAS.best(rows) for rows in (1e3, 2e5, 1e8)] == [0.1, 0.01, 0.0]
    np.testing.assert_allclose(BIAS.after(1e4), [1.0, 0.51, 1.1])


def test_the_least_risk_schedule_falls_and_waits_for_warm_up():
    schedule = tm.design.least_risk(BIAS, 100_000, num_chains=1, num_warmup=500)
    values = [float(schedule(jnp.int32(time))) for time in (0, 499, 500, 2_000, 90_000)]
    assert values[0] == values[1] == pytest.approx(0.1)
    assert np.all(np.diff(values) <= 0)
    assert values[-1] < 0.1


def risk_along(bias, epsilon_of, budget):
    """Squared error to expect of the average of one chain once it has read so many rows."""
    spent, total, count = 0.0, 0.0, 0
    while spent < budget:
        k = int(np.argmin(np.abs(bias.epsilon - epsilon_of(count))))
        spent, total, count = spent + bias.data_fraction[k] * bias.num_rows, total + bias.bias[k], count + 1
    return (total / count) ** 2 + bias.variance / count


def test_the_schedule_is_good_at_every_moment_where_constants_are_good_at_one():
    """By its own reckoning: within half as much again of the best constant for each budget; each constant fails one."""
    schedule = tm.design.least_risk(BIAS, 100_000, num_chains=1)
    times = {0: float(schedule(jnp.int32(0)))} | {
        int(t): float(v) for t, v in zip(schedule.times, schedule.values[1:], strict=True)
    }

    def of(count):
        return times[max(time for time in times if time <= count)]

    budgets = (1e3, 1e4, 1e5, 1e6, 1e7)
    best = [min(BIAS.after(budget)) for budget in budgets]
    ours = [risk_along(BIAS, of, budget) / least for budget, least in zip(budgets, best, strict=True)]
    constants = [
        max(BIAS.after(budget)[k] / least for budget, least in zip(budgets, best, strict=True)) for k in range(3)
    ]
    assert max(ours) < 2.5
    assert max(ours) < min(constants) / 1.5


NUM_STATES = 5


def state_log_likelihood(position, row):
    return row[position.astype(jnp.int32)]


class AnyOther(tm.Proposal):
    """Any of the other states, all alike."""

    def propose(self, key, position, posterior):
        import jax

        step = jax.random.randint(key, (), 1, NUM_STATES).astype(position.dtype)
        return tm.Move(jnp.mod(position + step, NUM_STATES), jnp.zeros_like(position))


def states():
    """2,000 rows; states differ by about 1 in log density, and log ratios have a spread of 3."""
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(2000, NUM_STATES))
    rows = 2.0 * (rows - rows.mean(axis=0)) / rows.std(axis=0) / np.sqrt(2000)
    return rows + np.array([0.0, 1.0, -0.5, 0.5, -1.0]) / 2000


def chains_of(rows, epsilon, batch_size):
    """Transitions of the exact chain and of the one with the test; and the largest error of a chance to accept."""
    exact, tested, largest = np.zeros((5, 5)), np.zeros((5, 5)), 0.0
    for here in range(NUM_STATES):
        for there in set(range(NUM_STATES)) - {here}:
            ratios = rows[:, there] - rows[:, here]
            chance = min(1.0, np.exp(ratios.sum()))
            spread = ratios.std() * np.sqrt(len(rows))
            error = tm.design.acceptance_error(ratios.sum(), spread, batch_size / len(rows), epsilon).error
            exact[here, there], tested[here, there] = chance / 4, (chance + error) / 4
            largest = max(largest, abs(error))
    return *(chain + np.diag(1 - chain.sum(axis=1)) for chain in (exact, tested)), largest


def distance(one, other):
    return np.abs(np.asarray(one) - other).sum() / 2


@pytest.mark.parametrize("epsilon", [0.01, 0.05, 0.1, 0.2])
def test_chains_are_within_the_bound_on_the_stationary_distribution(epsilon):
    """Theorem 1 on five states: bound, distance worked out, and distance of chains. The slack is what the bound gives
    away: it adds up the worst error of all moves, with one sign, for as long as the chain remembers."""
    rows, batch_size, num_chains = states(), 100, 64
    exact, tested, largest = chains_of(rows, epsilon, batch_size)
    posterior = np.exp(rows.sum(axis=0)) / np.exp(rows.sum(axis=0)).sum()
    bound = tm.design.stationary_error(largest, tm.design.contraction(exact))
    worked_out = distance(np.linalg.matrix_power(tested, 1000)[0], posterior)
    run = tm.sample(
        tm.Posterior(state_log_likelihood, np.asarray(real(rows))),
        tm.MetropolisHastings(AnyOther(), tm.AustereMH(epsilon, batch_size)),
        init=0.0,
        num_samples=1500,
        num_warmup=50,
        num_chains=num_chains,
        feed=tm.IndexedFeed,
    )
    shares = np.stack([np.mean(np.asarray(run.samples) == state, axis=1) for state in range(NUM_STATES)], axis=1)
    measured = distance(shares.mean(axis=0), posterior)
    noise = np.sum(shares.std(axis=0, ddof=1)) / np.sqrt(num_chains) / 2
    print(f"epsilon {epsilon}: bound {bound:.4f}, worked out {worked_out:.4f}, measured {measured:.4f} ± {noise:.4f}")
    assert bound < 1
    assert measured < bound + 5 * noise
    assert abs(measured - worked_out) < 5 * noise + 0.005
    assert 1.2 < bound / worked_out < 40  # no bound without slack, and none that says nothing
    # Negative control: the bound of a test a thousand times as strict does not hold for this one.
    strict = tm.design.stationary_error(chains_of(rows, epsilon / 1000, batch_size)[2], tm.design.contraction(exact))
    assert measured - 5 * noise > strict


def test_contraction_is_the_worst_over_all_distributions():
    """No pair of 2,000 random distributions comes nearer by less, and two single states do exactly so."""
    exact, _, _ = chains_of(states(), 0.05, 100)
    factor = tm.design.contraction(exact)
    generator = np.random.default_rng(0)
    one, other = generator.dirichlet(np.ones(5) * 0.2, size=(2, 2000))
    shrunk = np.abs((one - other) @ exact).sum(axis=1) / np.abs(one - other).sum(axis=1)
    assert shrunk.max() <= factor + 1e-12
    assert factor == pytest.approx(max(distance(a, b) for a in exact for b in exact))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tm.design.contraction(np.ones((2, 3))), "square matrix"),
        (lambda: tm.design.normal_posterior(0.05, 0.05, scale=0.0), "scale must be a positive number"),
        (lambda: tm.design.normal_posterior(0.05, 0.05, temperature=-1.0), "temperature must be a positive number"),
        (lambda: tm.design.least_risk(BIAS, 0), "num_samples must be a whole number"),
    ],
)
def test_bad_input_names_the_fix(call, message):
    with pytest.raises(ValueError, match=message):
        call()
