"""Control variates: what is subtracted and what is added are the same, and nothing cancels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.control_variates import covariance_factor
from tallmc.control_variates.remainder import remainder
from tests.registry import real

FINE = jnp.result_type(float) == jnp.float64


def softplus(z):
    return np.logaddexp(np.longdouble(0), z)


def exact_remainder(z, step, order):
    """In extended precision."""
    z, step = np.longdouble(z), np.longdouble(step)
    chance = 1 / (1 + np.exp(-z))
    derivatives = [softplus(z), chance, chance * (1 - chance) / 2]
    return softplus(z + step) - sum(derivatives[k] * step**k for k in range(order + 1))


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("size", [1e-3, 1e-2, 0.1, 0.5, 2.0, 10.0])
def test_remainders_keep_their_digits(order, size):
    z = np.asarray(real([-3.0, -0.7, 0.1, 2.0]))
    for step in (np.asarray(real(size)), np.asarray(real(-size))):
        found = remainder(jax.nn.softplus, jnp.asarray(z), jnp.full(4, step), order)
        expected = np.asarray(exact_remainder(z, step, order), float)
        np.testing.assert_allclose(found, expected, rtol=1e-5 if FINE else 3e-4)


@pytest.fixture(scope="module")
def logistic():
    X, y, _ = tm.models.generate_logistic(3000, 4, seed=1)
    return tm.models.logistic_regression(np.asarray(real(X)) * np.asarray(real([1.0, 30.0, 0.02, 1.0])), y)


def plain_logistic(position, row):
    """The same likelihood, for the library a function like any other."""
    z = row["x"] @ position
    return row["y"].astype(z.dtype) * z - jax.nn.softplus(z)


def moves(posterior, precision, centre, step, num_moves=5):
    """Pairs of positions about one posterior standard deviation from the centre."""
    generator = np.random.default_rng(2)
    factor = covariance_factor(precision)
    for _ in range(num_moves):
        start, change = generator.normal(size=(2, len(factor)))
        yield tuple(real(np.asarray(centre, float) + factor @ w) for w in (start, start + step * change))


def exact_log_ratio(posterior, old, new):
    """In float64, by NumPy."""
    x, y = (np.asarray(posterior.data[name], float) for name in ("x", "y"))
    old, new = np.asarray(old, float), np.asarray(new, float)

    def density(b):
        return np.sum(y * (x @ b) - np.logaddexp(0, x @ b)) - 0.5 * np.sum(b**2)

    return density(new) - density(old)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("form", ["closed", "general"])
def test_what_is_known_and_what_rows_add_make_the_log_ratio(logistic, order, form):
    likelihood = logistic.log_likelihood if form == "closed" else plain_logistic
    posterior = tm.Posterior(likelihood, logistic.data, logistic.log_prior)
    centre = tm.optimise.mode(logistic, progress=False).position
    controlled = tm.Taylor(order).expand(posterior, centre)
    for step in (0.1, 1.0, 5.0):
        for old, new in moves(posterior, controlled.precision, centre, step):
            whole = controlled.model.known_change(old, new).offset + jnp.sum(
                controlled.model.log_ratios(old, new, posterior.data)
            )
            np.testing.assert_allclose(whole, exact_log_ratio(posterior, old, new), rtol=1e-4, atol=3e-5)


def test_temperature_divides_both_parts(logistic):
    centre = tm.optimise.mode(logistic, progress=False).position
    hot, cold = (tm.Taylor(2).expand(p, centre).model for p in (logistic.at_temperature(4.0), logistic))
    old, new = centre + 0.1, centre - 0.1
    prior = logistic.log_prior(new) - logistic.log_prior(old)
    np.testing.assert_allclose(
        hot.known_change(old, new).offset - prior, (cold.known_change(old, new).offset - prior) / 4, rtol=1e-4
    )
    ratios = (p.log_ratios(old, new, logistic.data) for p in (hot, cold))
    np.testing.assert_allclose(next(ratios) * 4, next(ratios), rtol=1e-5, atol=1e-9)


def test_expected_rows_fall_as_the_posterior_narrows():
    """A hundred times the rows: order 2 leaves a tenth of the rows to read."""
    rows = []
    for num_rows in (2000, 200_000):
        X, y, _ = tm.models.generate_logistic(num_rows, 3)
        posterior = tm.models.logistic_regression(np.asarray(real(X)), np.asarray(real(y)))
        centre = tm.optimise.mode(posterior, progress=False).position
        controlled = tm.Taylor(2).expand(posterior, centre)
        changes = [
            controlled.model.bounds.mean_change(old, new)
            for old, new in moves(posterior, controlled.precision, centre, 1.0)
        ]
        rows.append(num_rows * float(np.mean(changes)))
    assert 8 < rows[0] / rows[1] < 12
    assert rows[1] < 1


def test_rows_read_for_the_expansion_are_counted(logistic):
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.001), tm.MHMinibatch())
    options = {"init": np.zeros(4), "num_samples": 10, "num_warmup": 0, "num_chains": 1}
    at_zero = tm.sample(logistic, kernel, control_variate=tm.Taylor(2, at=np.zeros(4)), **options)
    at_mode = tm.sample(logistic, kernel, control_variate=tm.Taylor(2), **options)
    assert at_zero.setup_rows == 2 * 3000 + 1000  # the sums, the bounds, and the look at where chains start
    assert at_mode.setup_rows > at_zero.setup_rows + 3000


def test_factor_of_badly_scaled_precision():
    generator = np.random.default_rng(0)
    root = generator.normal(size=(4, 4)) * np.array([1e-4, 1.0, 1e3, 1e6])[:, None]
    precision = root @ root.T
    factor = covariance_factor(precision)
    np.testing.assert_allclose(factor.T @ precision @ factor, np.eye(4), atol=1e-6)
    assert np.all(np.triu(factor, 1) == 0)
    assert covariance_factor(np.array([[1.0, 1.0], [1.0, 1.0]])) is None
    assert covariance_factor(np.array([[1.0, 0.0], [0.0, -1.0]])) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"control_variate": tm.Taylor(1)}, "needs control_variate=tm.Taylor"),
        ({"feed": tm.InMemoryFeed}, "draws rows by weight"),
    ],
)
def test_what_does_not_go_together_is_named(logistic, options, message):
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.001), tm.MHSS(order=2))
    with pytest.raises(ValueError, match=message):
        tm.sample(logistic, kernel, init=np.zeros(4), **options)


@pytest.mark.parametrize("order", [1, 2])
def test_a_move_and_its_way_back_have_the_same_bound(logistic, order):
    """Detailed balance of the exact rules rests on it."""
    controlled = tm.Taylor(order).expand(logistic, tm.optimise.mode(logistic, progress=False).position)
    bounds = controlled.model.bounds
    for step in (0.1, 1.0, 4.0):
        for old, new in moves(logistic, controlled.precision, controlled.model.expansion.centre, step):
            np.testing.assert_allclose(bounds.reach(old, new), bounds.reach(new, old), rtol=1e-12 if FINE else 2e-5)


@pytest.mark.parametrize("order", [1, 2])
def test_no_row_is_left_with_more_than_its_bound(order):
    """Nor are bounds idle: a row that looks along the move, where its derivative is largest, comes near its own."""
    x = np.array([[1.0, 0.0], [0.0, 2.0], [-0.5, 0.5]] * 20)
    centre = real([np.log(2 + np.sqrt(3.0)) if order == 2 else 0.0, 0.0])  # where a logistic row bends most
    posterior = tm.models.logistic_regression(np.asarray(real(x)), np.asarray(real(np.arange(60) % 2)))
    model = tm.Taylor(order, at=centre).expand(posterior, centre).model
    constants, largest = model.bounds.constants(posterior.rows), 0.0
    for step in (0.03, 0.1, 1.0):
        for start, end in ((0.0, 1.0), (0.5, 1.0), (-1.0, 1.0)):
            old, new = (centre + real([step * where, 0.1 * step * where]) for where in (start, end))
            said = np.abs(np.asarray(model.log_ratios(old, new, posterior.data), float))
            allowed = constants * float(model.bounds.reach(old, new))
            assert np.all(said <= allowed * 1.001)
            largest = max(largest, np.max(said / np.maximum(allowed, 1e-12)))
    assert largest > 0.6


@pytest.mark.parametrize(
    ("rule", "options", "message"),
    [
        (tm.Mint(100, 0.2), {"control_variate": tm.Taylor()}, "leave control_variate out"),
        (tm.MHSubLhd(bound=lambda old, new: 1.0), {"control_variate": tm.Taylor()}, "leave bound out"),
        (tm.Exact(), {"control_variate": tm.Taylor(), "feed": tm.WeightedFeed}, "each row once"),
        (tm.MHSubLhd(), {"control_variate": tm.Taylor(), "feed": tm.WeightedFeed}, "each row once"),
    ],
)
def test_rules_that_an_expansion_or_weights_would_mislead_refuse(logistic, rule, options, message):
    with pytest.raises(ValueError, match=message):
        tm.sample(logistic, tm.MetropolisHastings(tm.RandomWalk(0.001), rule), init=np.zeros(4), **options)


def test_order_is_one_or_two():
    for make in (tm.Taylor, tm.MHSS):
        with pytest.raises(ValueError, match="order must be 1 or 2"):
            make(order=3)
