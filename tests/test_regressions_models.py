"""Every regression: its likelihood, the bounds of its link, and what an expansion may leave of a row."""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import tallmc as tm
from tallmc.control_variates import Taylor
from tallmc.models.linear_regression import NormalLink
from tallmc.models.logistic_regression import LogisticLink
from tallmc.models.probit_regression import ProbitLink
from tallmc.models.regression import regression
from tallmc.models.robust_regression import StudentLink
from tallmc.models.softplus_link import SoftplusLink
from tallmc.posterior.linear_predictor import Link
from tests.registry import real

FLOAT = jnp.result_type(float)
SINGLE = FLOAT.name == "float32"
NOISE, SCALE, DEGREES = 0.7, 0.6, 3.0
NUM_ROWS, COLUMN_SCALES = 2000, np.asarray([1.0, 300.0, 0.02, 5.0])


def softplus(z):
    return np.logaddexp(0, z)


def sigmoid_derivatives(z):
    """Of the softplus: first, second and third."""
    chance = scipy.special.expit(z)
    curvature = chance * scipy.special.expit(-z)
    return chance, curvature, curvature * (1 - 2 * chance)


def logistic_derivatives(z, y):
    first, second, third = sigmoid_derivatives(z)
    return y - first, -second, -third


def probit_derivatives(z, y):
    sign = 2 * y - 1
    z = sign * z
    slope = np.sqrt(2 / np.pi) / scipy.special.erfcx(-z / np.sqrt(2))
    return sign * slope, -slope * (z + slope), sign * slope * ((z + slope) * (z + 2 * slope) - 1)


def softplus_derivatives(z, y):
    (s1, s2, s3), mean = sigmoid_derivatives(z), softplus(z)
    slope = s1 / mean
    log_mean = slope, s2 / mean - slope**2, s3 / mean - 3 * s2 * s1 / mean**2 + 2 * slope**3
    return tuple(y * of_log - of_mean for of_log, of_mean in zip(log_mean, (s1, s2, s3), strict=True))


def student_derivatives(z, y):
    unit = SCALE * DEGREES**0.5
    u = (y - z) / unit
    square = 1 + u**2
    shapes = u / square, -(1 - u**2) / square**2, -2 * u * (3 - u**2) / square**3
    return tuple((DEGREES + 1) * shape / unit**order for order, shape in enumerate(shapes, 1))


def normal_derivatives(z, y):
    return (y - z) / NOISE**2, np.full_like(z, -1 / NOISE**2), np.zeros_like(z)


class Case(NamedTuple):
    """A regression, and what is known of it: float64 twins, and a way to draw outcomes at linear predictors."""

    build: Callable
    link: Link
    reference: Callable
    derivatives: Callable
    outcomes: tuple[float, ...]
    draw: Callable


CASES = {
    "logistic": Case(
        tm.models.logistic_regression,
        LogisticLink(),
        lambda z, y: scipy.stats.logistic.logcdf((2 * y - 1) * z),
        logistic_derivatives,
        (0.0, 1.0),
        lambda generator, z: generator.random(z.shape) < scipy.special.expit(z),
    ),
    "probit": Case(
        tm.models.probit_regression,
        ProbitLink(),
        lambda z, y: scipy.stats.norm.logcdf((2 * y - 1) * z),
        probit_derivatives,
        (0.0, 1.0),
        lambda generator, z: generator.normal(size=z.shape) < z,
    ),
    "softplus": Case(
        tm.models.poisson_regression,
        SoftplusLink(),
        lambda z, y: scipy.stats.poisson.logpmf(y, softplus(z)) + scipy.special.gammaln(y + 1),
        softplus_derivatives,
        (0.0, 1.0, 2.0, 7.0, 40.0),
        lambda generator, z: generator.poisson(softplus(z)),
    ),
    "robust": Case(
        lambda X, y, **options: tm.models.robust_regression(X, y, scale=SCALE, degrees_of_freedom=DEGREES, **options),
        StudentLink(real(SCALE), real(DEGREES)),
        lambda z, y: scipy.stats.t.logpdf(y, DEGREES, z, SCALE) - scipy.stats.t.logpdf(0, DEGREES, 0, SCALE),
        student_derivatives,
        (-3.0, 0.0, 2.5),
        lambda generator, z: z + SCALE * generator.standard_t(DEGREES, size=z.shape),
    ),
    "linear": Case(
        lambda X, y, **options: tm.models.linear_regression(X, y, noise_sd=NOISE, **options),
        NormalLink(real(NOISE)),
        lambda z, y: scipy.stats.norm.logpdf(y, z, NOISE) - scipy.stats.norm.logpdf(0, 0, NOISE),
        normal_derivatives,
        (-3.0, 0.0, 2.5),
        lambda generator, z: z + NOISE * generator.normal(size=z.shape),
    ),
}
UNBOUNDED_SLOPE = ("linear", "probit")
every_model = pytest.mark.parametrize("name", CASES)


def make_rows(case, seed=0):
    """Columns of very different sizes, some rows far from the others, and the coefficients behind the outcomes."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(NUM_ROWS, 4)) * generator.lognormal(0, 0.7, size=(NUM_ROWS, 1))
    X[:, 0] = 1
    coefficients = np.asarray([0.3, 0.8, -0.5, 0.4]) / COLUMN_SCALES
    X = (X * COLUMN_SCALES).astype(FLOAT)
    return X, case.draw(generator, X @ coefficients).astype(FLOAT), coefficients.astype(FLOAT)


@every_model
def test_likelihood_is_scipys(name):
    case = CASES[name]
    X, y, coefficients = make_rows(case)
    posterior = case.build(X, y)
    actual = posterior.log_likelihoods(2 * jnp.asarray(coefficients), jax.tree.map(jnp.asarray, posterior.data))
    expected = case.reference(X.astype(float) @ (2 * coefficients.astype(float)), y.astype(float))
    tolerance = 1e-5 if SINGLE else 1e-12
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@every_model
def test_prior_and_temperature_are_those_asked_for(name):
    case = CASES[name]
    X, y, coefficients = make_rows(case)
    posterior = case.build(X, y, prior_precision=2.0, temperature=3.0)
    assert float(posterior.temperature) == 3
    np.testing.assert_allclose(posterior.log_prior(jnp.asarray(coefficients)), -np.sum(coefficients**2), rtol=1e-6)


@eqx.filter_jit
def value_and_derivatives(link, z, y):
    """Of order 0 to 3, as the expansions take them."""
    function, found = (lambda z: link(z, y)), []
    for _ in range(4):
        found.append(function(z))
        function = partial(lambda inner, z: jax.jvp(inner, (z,), (jnp.ones_like(z),))[1], function)
    return found


@cache
def on_grid(name):
    """The link at all outcomes, from far out in one tail to far out in the other."""
    far = np.asarray([200.0, 1e4])
    points = np.concatenate([-far, np.linspace(-30, 30, 1201), np.linspace(-5, 0, 401), far]).astype(FLOAT)
    z, y = np.meshgrid(points, np.asarray(CASES[name].outcomes, FLOAT))
    return z, y, value_and_derivatives(CASES[name].link, jnp.asarray(z), jnp.asarray(y))


@every_model
def test_three_derivatives_are_right_into_both_tails(name):
    case, (z, y, actual) = CASES[name], on_grid(name)
    z, y = z[:, 2:-2].astype(float), y[:, 2:-2].astype(float)
    expected = case.reference(z, y), *case.derivatives(z, y)
    for order, (found, true) in enumerate(zip(actual, expected, strict=True)):
        # Relative to the value where it is large, and to the largest of all where it is not.
        floor = 1 if order == 0 else 0.1 * np.max(np.abs(true), axis=1, keepdims=True)
        error = np.abs(found[:, 2:-2] - true) / np.maximum(np.maximum(np.abs(true), floor), 1e-30)
        assert np.max(error) < (3e-4 if SINGLE else 1e-9), (order, z.ravel()[np.argmax(error)])


@every_model
def test_nothing_is_lost_far_out(name):
    link, (_, y, actual) = CASES[name].link, on_grid(name)
    for order, found in enumerate(actual):
        assert np.isfinite(found).all(), order
        if order > 0 and (bound := link.largest_derivative(order, jnp.asarray(y))) is not None:
            assert np.all(np.abs(found) <= np.asarray(bound) * (1 + 1e-5)), order


@every_model
@pytest.mark.parametrize("order", [1, 2, 3])
def test_no_derivative_exceeds_its_bound_and_some_come_close(name, order):
    case = CASES[name]
    grid = np.linspace(-30, 30, 60_001)
    for outcome in case.outcomes:
        bound = case.link.largest_derivative(order, real([outcome]))
        largest = np.max(np.abs(case.derivatives(grid, outcome)[order - 1]))
        if bound is None:
            assert order == 1
            assert name in UNBOUNDED_SLOPE
            assert largest > 25
        else:
            bound = float(np.squeeze(bound))
            assert largest <= bound * (1 + 1e-6)
            assert largest >= 0.9 * bound


def make_pairs(posterior, centre, stretch, seed=1):
    """Near and far, short steps and long ones; half of them where one row sees the whole of them."""
    generator = np.random.default_rng(seed)
    x = np.asarray(posterior.data["x"], float)
    pairs = []
    for i in range(60):
        directions = generator.normal(size=(2, len(centre)))
        if i % 2 == 0:
            directions[:] = stretch.T @ x[generator.integers(NUM_ROWS)]
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        distance, step = generator.choice([0.0, 0.3, 3.0, 30.0]), generator.choice([0.03, 0.3, 3.0, 30.0])
        signs = generator.choice([-1, 1], size=2)
        start = stretch @ directions[0] * distance * signs[0]
        pairs.append((centre + start, centre + start + stretch @ directions[1] * step * signs[1]))
    return (real(ends) for ends in np.swapaxes(pairs, 0, 1))


@eqx.filter_jit
def log_ratios_and_reach(posterior, starts, ends, rows):
    ratios = jax.vmap(lambda a, b: posterior.log_ratios(a, b, rows))(starts, ends)
    return ratios, jax.vmap(posterior.bounds.reach)(starts, ends)


def share_of_bounds(name, order, link=None):
    """|log ratio| over its bound, for each pair of positions and each row; nothing may be above 1."""
    case = CASES[name]
    X, y, centre = make_rows(case)
    posterior = case.build(X, y) if link is None else regression(link, {"x": X, "y": y}, 1.0, 1.0)
    centre = jnp.asarray(centre)
    controlled = Taylor(max(order, 1)).expand(posterior, centre)
    stretch = np.linalg.inv(np.linalg.cholesky(controlled.precision)).T
    examined = posterior.model if order == 0 else controlled.model
    starts, ends = make_pairs(posterior, np.asarray(centre, float), stretch)
    constants = examined.bounds.constants(posterior.rows)
    assert np.isclose(float(examined.bounds.largest), np.max(constants), rtol=1e-5)
    assert np.isclose(float(examined.bounds.mean), np.mean(constants), rtol=1e-5)
    ratios, reach = log_ratios_and_reach(examined, starts, ends, jax.tree.map(jnp.asarray, posterior.data))
    bounds = constants * np.asarray(reach, float)[:, None]
    ratios = np.abs(np.asarray(ratios, float))
    return np.divide(ratios, bounds, out=np.where(ratios > 0, np.inf, 0.0), where=bounds > 0)


ORDERS = [(name, order) for name in CASES for order in (0, 1, 2) if order > 0 or name not in UNBOUNDED_SLOPE]


@pytest.mark.parametrize(("name", "order"), ORDERS)
def test_bounds_hold_for_every_row_and_are_not_idle(name, order):
    shares = share_of_bounds(name, order)
    assert np.max(shares) <= 1
    if (name, order) == ("linear", 2):
        assert np.max(shares) == 0  # nothing is left of a parabola, not even rounding
    else:
        assert np.max(shares) > (0.4 if order == 0 else 0.85)


class Halved(Link):
    """Claims half of what is true."""

    link: Link

    def __call__(self, z, y):
        return self.link(z, y)

    def largest_derivative(self, order, y):
        return self.link.largest_derivative(order, y) / 2


@pytest.mark.parametrize(("name", "order"), [("logistic", 0), ("softplus", 1), ("robust", 2)])
def test_halved_bounds_are_found_out(name, order):
    assert np.max(share_of_bounds(name, order, Halved(CASES[name].link))) > 1


@pytest.mark.parametrize("name", UNBOUNDED_SLOPE)
def test_unbounded_slopes_are_owned_up_to(name):
    X, y, _ = make_rows(CASES[name])
    posterior = CASES[name].build(X, y)
    assert np.isinf(posterior.bounds.largest)
    with pytest.raises(ValueError, match=r"use tm\.Taylor"):
        posterior.bounds.constants(posterior.rows)


@pytest.mark.parametrize("name", ["robust", "linear"])
def test_another_noise_recompiles_nothing(name):
    traces = []

    @eqx.filter_jit
    def value(link, z, y):
        traces.append(1)
        return link(z, y), link.largest_derivative(2, y)

    for noise in (0.5, 2.0):
        link = jax.tree.map(lambda leaf, noise=noise: leaf * noise, CASES[name].link)
        value(link, real([1.0]), real([2.0]))
    assert len(traces) == 1


@every_model
@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((3, 2)), [0, 1], "X has 3 rows but y has 2"),
        (np.ones(3), [0, 1, 1], "X must be a matrix"),
        (np.ones((3, 2)), np.zeros((3, 1)), "y must be a vector"),
        (np.ones((3, 0)), [0, 1, 1], "no columns"),
    ],
)
def test_bad_columns_are_refused(name, X, y, message):
    with pytest.raises(ValueError, match=message):
        CASES[name].build(X, y)


@pytest.mark.parametrize(
    ("build", "y", "message"),
    [
        (tm.models.probit_regression, [0, 1, 2], "only 0 and 1; recode it"),
        (tm.models.probit_regression, [0.0, 1.0, np.nan], "only 0 and 1, but row 2 is NaN"),
        (tm.models.poisson_regression, [0, 1, -1], "whole numbers of at least 0; pass counts"),
        (tm.models.poisson_regression, [0, 1, 0.5], "whole numbers of at least 0; pass counts"),
        (tm.models.poisson_regression, [0.0, 1.0, np.inf], "whole numbers of at least 0; pass counts"),
        (tm.models.poisson_regression, [0.0, 1.0, np.nan], "whole numbers of at least 0, but row 2 is NaN"),
    ],
)
def test_bad_outcomes_are_refused(build, y, message):
    for outcomes in (y, jnp.asarray(y)):
        with pytest.raises(ValueError, match=message):
            build(np.ones((3, 2)), outcomes)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, [1.0, 2.0, 3.0]])
@pytest.mark.parametrize(
    ("build", "argument"),
    [
        (tm.models.robust_regression, "scale"),
        (tm.models.robust_regression, "degrees_of_freedom"),
        (tm.models.linear_regression, "noise_sd"),
    ],
)
def test_bad_noise_is_refused(build, argument, bad):
    with pytest.raises(ValueError, match=f"{argument} must be one positive, finite number"):
        build(np.ones((3, 2)), [0.0, 1.0, 2.0], **{argument: bad})
