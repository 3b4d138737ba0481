"""Laws of Langevin steps along minibatch gradients: what they propose, and that a test makes them reversible.

The target is normal and known: a regression on one column, so that the noise of the gradient depends on the position.
Chains start from it, so after any number of transitions they must be draws of it, and pairs of successive draws must be
exchangeable. Figures of 2,048 independent chains have honest standard errors; 5 of them are 6e-7 false alarms each.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.numerics.keys import as_key
from tallmc.proposals.sgld import minibatch_slope
from tests.registry import real

NUM_ROWS, NUM_CHAINS, NUM_DRAWS, TEMPERATURE = 1_000, 2_048, 12, 40.0


def log_likelihood(slope, row):
    return -0.5 * (row["y"] - slope * row["x"]) ** 2


def log_prior(slope):
    return -0.5 * slope**2


@pytest.fixture(scope="module")
def posterior():
    generator = np.random.default_rng(7)
    x = generator.exponential(size=NUM_ROWS)
    data = {"x": np.asarray(real(x)), "y": np.asarray(real(0.5 * x + generator.normal(size=NUM_ROWS)))}
    return tm.Posterior(log_likelihood, data, log_prior, temperature=TEMPERATURE)


def moments(posterior):
    """Mean and standard deviation, in closed form."""
    x, y = (np.asarray(posterior.data[name], float) for name in ("x", "y"))
    precision = 1 + np.sum(x * x) / TEMPERATURE
    return np.sum(x * y) / TEMPERATURE / precision, precision**-0.5


class BackFromOtherRows(tm.SGLD):
    """The way here is proposed from one half of a window, and the way back weighed by the other half."""

    sort: bool = eqx.field(static=True)

    def __init__(self, step_size, batch_size, sort):
        super().__init__(step_size, batch_size)
        self.sort = sort

    def propose(self, key, position, model, window):
        half = window.size // 2
        order = jnp.argsort(window.rows["y"]) if self.sort else jnp.arange(window.size)
        here, there = (
            tm.feed.Window(jax.tree.map(lambda leaf, some=some: leaf[some], window.rows), jnp.int32(half), half)
            for some in (order[:half], order[half:])
        )
        variance, at = self.step_size.astype(position.dtype), position[None]
        ahead = variance / 2 * minibatch_slope(model, lambda flat: flat[0], at, here)
        moved = ahead + jnp.sqrt(variance) * jax.random.normal(key, at.shape, at.dtype)
        back = variance / 2 * minibatch_slope(model, lambda flat: flat[0], at + moved, there)
        log_ratio = jnp.sum((moved - ahead) ** 2 - (moved + back) ** 2) / (2 * variance)
        return tm.Move((at + moved)[0], log_ratio)


def worst_deviation(posterior, proposal, rule):
    """Of the moments of draws, and of what exchangeable pairs have on average, in standard errors: the largest."""
    mean, sd = moments(posterior)
    start = mean + sd * np.random.default_rng(1).normal(size=NUM_CHAINS)
    run = tm.sample(
        posterior,
        tm.MetropolisHastings(proposal, rule),
        init=np.asarray(real(start)),
        num_samples=NUM_DRAWS,
        num_warmup=0,
        num_chains=NUM_CHAINS,
        driver=tm.Together(),
        rng_key=3,
    )
    assert 0.1 < run.stats["accepted"].mean() < 0.97
    z = (np.asarray(run.samples, float) - mean) / sd
    one, two = z[:, :-1], z[:, 1:]
    figures = [z, z**2 - 1, z**3, one * two**2 - one**2 * two, one * two**3 - one**3 * two, np.tanh(3 * (two - one))]
    of_chains = np.stack([figure.mean(axis=1) for figure in figures])
    errors = of_chains.std(axis=1, ddof=1) / np.sqrt(NUM_CHAINS)
    return float(np.max(np.abs(of_chains.mean(axis=1)) / errors))


RULES = {
    "exact": lambda: tm.Exact(500),
    "exact_barker": lambda: tm.ExactBarker(500),
    "mh_minibatch": lambda: tm.MHMinibatch(100),
}


@pytest.mark.parametrize("name", RULES)
def test_a_test_makes_minibatch_steps_reversible(posterior, name):
    """Steps as long as the posterior is wide, and gradients of 50 rows of 1,000."""
    _, sd = moments(posterior)
    assert worst_deviation(posterior, tm.SGLD(float(sd) ** 2, 50), RULES[name]()) < 5


@pytest.mark.filterwarnings("ignore:in .* of the tests one or two rows outweighed")
@pytest.mark.parametrize("name", ["exact", "mh_minibatch"])
def test_a_way_back_from_other_rows_is_caught(posterior, name):
    """Negative control: low outcomes lead here and high ones back, which are not the two ways of one component."""
    _, sd = moments(posterior)
    assert worst_deviation(posterior, BackFromOtherRows(float(sd) ** 2 / 4, 100, True), RULES[name]()) > 20


def test_a_way_back_from_rows_that_could_change_places_is_no_error(posterior):
    """Two halves in random order are exchangeable, and detailed balance holds for their pair: what the control above is
    caught at is not that rows differ, but that the two sets could not change places."""
    _, sd = moments(posterior)
    assert worst_deviation(posterior, BackFromOtherRows(float(sd) ** 2, 100, False), tm.Exact(500)) < 5


def test_steps_that_nothing_tests_are_as_wide_as_theory_says(posterior):
    """With gradients of all rows the chain is autoregressive: its variance is that of the posterior over
    1 - step / (4 variance). A test mends it. 5 Monte Carlo errors."""
    mean, sd = moments(posterior)
    step = 1.5 * sd**2
    for rule, widened in ((tm.AlwaysAccept(), 1 / (1 - 1.5 / 4)), (tm.Exact(NUM_ROWS), 1.0)):
        kernel = tm.MetropolisHastings(tm.SGLD(float(step), NUM_ROWS), rule)
        options = {"init": float(mean), "num_samples": 3000, "num_warmup": 0, "num_chains": 4}
        if isinstance(rule, tm.AlwaysAccept):
            with pytest.warns(UserWarning, match="makes no test"):
                run = tm.sample(posterior, kernel, **options)
        else:
            run = tm.sample(posterior, kernel, **options)
        line = run.summary().table.iloc[0]
        assert abs(line["sd"] - sd * widened**0.5) < 5 * line["mcse_sd"]
        assert abs(line["mean"] - mean) < 5 * line["mcse_mean"]


MODELS = {"plain": None, "expanded": tm.Taylor(2), "expanded_to_first_order": tm.Taylor(1)}


def model_of(posterior, control, at):
    return posterior.model if control is None else type(control)(control.order).expand(posterior, at).model


@pytest.fixture(scope="module")
def logistic():
    X, y, _ = tm.models.generate_logistic(300, 3)
    return tm.models.logistic_regression(X, y)


def numpy_slope(posterior, expansion_at, order, position, chosen):
    """The gradient that a minibatch gives, in NumPy and float64: expansion on all rows, what it leaves on a few."""
    X, y = (np.asarray(posterior.data[name], float) for name in ("x", "y"))

    def of_rows(at, rows):
        return X[rows].T @ (y[rows] - 1 / (1 + np.exp(-X[rows] @ at)))

    def polynomial(rows):
        slope = of_rows(expansion_at, rows)
        if order == 2:
            chance = 1 / (1 + np.exp(-X[rows] @ expansion_at))
            slope = slope - (X[rows].T * (chance * (1 - chance))) @ X[rows] @ (position - expansion_at)
        return slope

    everything, share = np.arange(len(y)), len(y) / len(chosen)
    if order is None:
        return -position + share * of_rows(position, chosen)
    return -position + polynomial(everything) + share * (of_rows(position, chosen) - polynomial(chosen))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("count", [40, 23])
def test_a_move_is_that_of_the_equation(logistic, name, count):
    """Equation 22 by hand: both densities are normal around where the same rows lead; windows may be partial."""
    control = MODELS[name]
    at, step = np.array([0.3, -0.2, 0.1]), 0.02
    factor = np.array([[1.0, 0.0, 0.0], [0.4, 0.8, 0.0], [-0.3, 0.2, 0.5]])
    model = model_of(logistic, control, real(at))
    chosen = np.arange(40) * 7
    window = tm.feed.Window(jax.tree.map(lambda leaf: real(leaf[chosen]), logistic.data), jnp.int32(count), 40)
    position = np.array([0.5, 0.1, -0.4])
    move = tm.SGLD(step, 40, factor).propose(as_key(5), real(position), model, window)
    new, order = np.asarray(move.position, float), None if control is None else control.order
    inverse = np.linalg.inv(factor)

    def log_density(start, end):
        drift = step / 2 * factor @ factor.T @ numpy_slope(logistic, at, order, start, chosen[:count])
        return -np.sum((inverse @ (end - start - drift)) ** 2) / (2 * step)

    wanted = log_density(new, position) - log_density(position, new)
    assert abs(wanted) > 0.1
    assert float(move.log_ratio) == pytest.approx(wanted, rel=2e-3, abs=2e-3)


@pytest.mark.parametrize("name", MODELS)
def test_all_rows_have_the_gradient_of_the_posterior(logistic, name):
    position = real([0.4, 0.0, -0.3])
    model = model_of(logistic, MODELS[name], real([0.3, -0.2, 0.1]))
    window = tm.feed.Window(jax.tree.map(real, logistic.data), jnp.int32(300), 300)
    found = minibatch_slope(model, lambda flat: flat, position, window)
    np.testing.assert_allclose(found, jax.grad(logistic.log_density)(position), rtol=1e-3, atol=1e-3)


def test_the_noise_of_a_step_has_the_variance_that_was_given(posterior):
    """Without a slope, 20,000 steps: 5 standard errors of a variance are 5 % of it."""
    flat = tm.Posterior(lambda place, row: 0.0 * place * row, np.zeros(100, np.float32))
    window = tm.feed.Window(real(np.zeros(10)), jnp.int32(10), 10)
    for proposal, variance in ((tm.SGLD(0.3, 10), 0.3), (tm.SGLD(0.3, 10).rescaled(jnp.float32(2.0)), 1.2)):
        keys = jax.random.split(as_key(0), 20_000)
        moved = jax.vmap(lambda key, p=proposal: p.propose(key, real(0.0), flat.model, window).position)(keys)
        assert np.var(moved) == pytest.approx(variance, rel=0.05)
