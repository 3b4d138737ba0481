"""Law: no derivative of a row's log likelihood, anywhere in the region and along any direction, exceeds its bound.

Random positions and directions, and the worst that gradient ascent finds from there. Derivatives are JAX's in float64,
whose rounding (1e-9 of the bound) is allowed for; a bound that is too small by more is an error, with no false alarms.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tallmc.bounds.of_row import derivative_bounds_of_row
from tallmc.numerics.flat import flatten
from tests import likelihoods
from tests.likelihoods import CASES

RADIUS, ROUNDING = 6.0, 1e-9


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def region(case, seed=1):
    """A centre, and correlated coordinates of different widths around it."""
    generator = np.random.default_rng(seed)
    mixing = np.eye(case.size) + 0.3 * generator.normal(size=(case.size, case.size))
    widths = case.width * generator.uniform(0.5, 1.5, case.size)
    centre = case.centre + 0.3 * generator.normal(size=case.size)
    return centre, widths[:, None] * mixing / np.linalg.norm(mixing, axis=1, keepdims=True)


def bounds(case, centre, stretch, rows, radius=RADIUS, pieces=2):
    """Three for each row."""
    _, unravel = flatten(np.zeros(case.size))
    middle, wide, radius, pieces = map(jnp.asarray, (centre, stretch, radius, pieces))

    def of_row(row):
        return derivative_bounds_of_row(case.log_likelihood, unravel, middle, wide, radius, pieces, row)

    return np.asarray(jax.jit(jax.vmap(of_row))(rows))


def derivatives(case, centre, stretch):
    """The first three along `stretch @ v` at `centre + stretch @ z`, of one row."""

    def found(z, v, row):
        at = lambda t: case.log_likelihood(centre + stretch @ (z + t * v), row)  # noqa: E731
        lower, all_of_them = at, []
        for _ in range(3):
            lower = lambda t, f=lower: jax.jvp(f, (t,), (jnp.ones(()),))[1]  # noqa: E731
            all_of_them.append(lower(jnp.zeros(())))
        return jnp.stack(all_of_them)

    return found


def points(size, count, seed, radius=RADIUS):
    """Positions in the ball, half of them on its surface, and directions."""
    generator = np.random.default_rng(seed)
    z, v = generator.normal(size=(2, count, size))
    z, v = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (z, v))
    outward = np.where(generator.random(count) < 0.5, 1.0, generator.random(count) ** (1 / size))
    # Half of the directions along the way from the centre, where skewed functions bend most.
    v = np.where(generator.random((count, 1)) < 0.3, z, v)
    return z * radius * outward[:, None], v


def shares(case, count, num_rows, seed=2):
    """The largest share that the derivatives at random points have of their bounds, for each order."""
    centre, stretch = region(case)
    rows = likelihoods.rows(num_rows)
    allowed = bounds(case, centre, stretch, rows)
    of_rows = jax.vmap(derivatives(case, centre, stretch), (None, None, 0))
    z, v = points(case.size, count, seed)
    found = np.abs(np.asarray(jax.jit(jax.vmap(of_rows, (0, 0, None)))(z, v, rows)))
    assert np.all(np.isfinite(allowed)), "a row has no bound"
    assert np.all(np.isfinite(found))
    return np.max(found / np.maximum(allowed, 1e-280), axis=(0, 1))


# Those that take long to compile are looked at among the slow tests only.
LONG = {"negative binomial", "Student t of any degree", "Student t", "gamma", "beta", "mixture", "recursion", "ability"}
LONG |= {"Weibull, censored", "small network", "error function", "softmax of chances", "softmax by hand", "logistic"}
LONG |= {"powers", "zero-inflated Poisson"}


@pytest.mark.parametrize("name", [name for name in CASES if name not in LONG])
def test_no_derivative_exceeds_its_bound(name):
    worst = shares(CASES[name], 200, 12)
    assert np.all(worst <= 1 + ROUNDING), worst
    # A bound that says nothing would pass too.
    assert worst[2] > 0.01, worst


def test_half_of_a_bound_would_be_caught():
    """Negative control: random points come near enough to what is possible."""
    assert np.all(shares(CASES["Poisson"], 200, 12) > 0.5)


def climbed(case, steps, count, num_rows, seed):
    """The largest share of the third derivative that gradient ascent finds, over positions and directions."""
    centre, stretch = region(case)
    rows = likelihoods.rows(num_rows)
    allowed = bounds(case, centre, stretch, rows)[:, 2]
    third = derivatives(case, centre, stretch)

    def share(place, row, bound):
        return jnp.log(jnp.abs(third(*place, row)[2]) / bound + 1e-30)

    def onto(place):
        z, v = place
        length = jnp.linalg.norm(z)
        return z * jnp.minimum(1, RADIUS / length), v / jnp.linalg.norm(v)

    def climb(z, v, row, bound):
        def step(place, _):
            value, slope = jax.value_and_grad(share)(place, row, bound)
            moved = [
                x + size * d / (jnp.linalg.norm(d) + 1e-30) for x, d, size in zip(place, slope, (0.7, 0.2), strict=True)
            ]
            return onto(tuple(moved)), value

        place, values = jax.lax.scan(step, (z, v), length=steps)
        return jnp.maximum(jnp.max(values), share(place, row, bound))

    each = jax.vmap(jax.vmap(climb, (None, None, 0, 0)), (0, 0, None, None))
    z, v = points(case.size, count, seed)
    return float(np.exp(np.max(jax.jit(each)(z, v, rows, allowed))))


@pytest.mark.parametrize("name", ["Poisson", "heteroscedastic"])
def test_gradient_ascent_finds_no_violation(name):
    assert climbed(CASES[name], 20, 8, 6, seed=3) <= 1 + ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_derivative_exceeds_its_bound_anywhere(name):
    """100,000 combinations of row, position and direction, and the worst that ascent finds from 40 starts."""
    at_random = shares(CASES[name], 1000, 100, seed=4)
    ascended = climbed(CASES[name], 60, 40, 25, seed=5)
    print(f"{name:26s} largest found / bound: random {at_random.round(3)}, ascent (third) {ascended:.3f}")
    assert np.all(at_random <= 1 + ROUNDING)
    assert ascended <= 1 + ROUNDING
