"""Predictors found in a likelihood's code: the same function, the same derivatives, for far less work."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import tallmc as tm
from tallmc.control_variates import expansion
from tallmc.posterior import block_sums
from tallmc.posterior.block_sums import derivative_sums, first_of
from tallmc.posterior.predictors import predictors_of

NUM_ROWS, NUM_GROUPS = 40, 6
generator = np.random.default_rng(0)
ROWS = {
    "x": generator.normal(size=(NUM_ROWS, 3)),
    "y": generator.integers(0, 2, NUM_ROWS).astype(float),
    "count": generator.poisson(3.0, NUM_ROWS).astype(float),
    "group": generator.integers(0, NUM_GROUPS, NUM_ROWS).astype(np.int32),
    "other": generator.integers(-NUM_GROUPS, NUM_GROUPS, NUM_ROWS).astype(np.int8),
    "grade": generator.integers(0, 4, NUM_ROWS),
}


def _linear(p, row):
    return -0.5 * ((row["y"] - row["x"] @ p["b"]) / jnp.exp(p["s"])) ** 2 - p["s"]


def _stretched(p, row):
    """A product of two that are linear, which is not."""
    z = p["s"] * (row["x"] @ p["b"])
    return row["y"] * z - jax.nn.softplus(z)


def _logistic(p, row):
    z = row["x"] @ p["b"] + p["s"]
    return row["y"] * z - jax.nn.softplus(z)


def _by_hand(p, row):
    z = sum(row["x"][k] * p["b"][k] for k in range(3)) / 2 - jnp.sum(p["b"][:2] * row["x"][1:])
    return row["count"] * z - jnp.exp(z)


def _groups(p, row):
    z = p["a"][row["group"]] + row["x"] @ p["b"]
    return row["y"] * z - jnp.logaddexp(0.0, z)


def _only_groups(p, row):
    return -0.5 * (row["count"] - p["a"][row["group"]]) ** 2


def _slopes_of_groups(p, row):
    z = jnp.dot(p["c"][row["group"]], row["x"]) + jnp.where(row["y"] > 0, p["b"][0], 2 * p["b"][1])
    return row["count"] * z - jnp.exp(z)


def _ability(p, row):
    z = jnp.exp(p["b"][0]) * (p["a"][row["group"]] - jnp.take(p["a"], row["other"]))
    return row["y"] * z - jax.nn.softplus(z)


def _ordinal(p, row):
    edges = jnp.concatenate([jnp.array([-30.0]), jnp.cumsum(p["c"][0]), jnp.array([30.0])])
    z = p["s"] * 0.5
    chances = jax.nn.sigmoid(edges[row["grade"] + 1] - z) - jax.nn.sigmoid(edges[row["grade"]] - z)
    return jnp.log(jnp.abs(chances) + 0.01)


def _mixture(p, row):
    error = lambda mean: -0.5 * (row["y"] - mean) ** 2  # noqa: E731
    weight = p["s"]
    return jnp.logaddexp(
        jax.nn.log_sigmoid(weight) + error(row["x"] @ p["b"]), jax.nn.log_sigmoid(-weight) + error(p["a"][0])
    )


def _with_a_jit(p, row):
    return jax.jit(lambda q, r: jax.checkpoint(_logistic)(q, r))(p, row)


def _with_an_own_derivative(p, row):
    @jax.custom_jvp
    def cubed(z):
        return z**3

    cubed.defjvp(lambda at, along: (at[0] ** 3, 3 * at[0] ** 2 * along[0]))
    return -cubed(row["x"] @ p["b"]) - p["s"]


def _with_a_loop(p, row):
    z = row["x"] @ p["b"]
    return -jax.lax.fori_loop(0, 3, lambda _, u: jnp.sin(u) + 0.1 * u * z, z)


POSITION = {"a": generator.normal(size=NUM_GROUPS), "b": generator.normal(size=3), "s": np.float64(0.3)}
POSITION["c"] = generator.normal(size=(NUM_GROUPS, 3))
SIZE = NUM_GROUPS + 3 + 1 + 3 * NUM_GROUPS
# The predictors of each, and how many of the coordinates that a row looks at are the same for all rows.
FORMS = [
    (_linear, 2, 4),
    (_stretched, 2, 4),
    (_logistic, 1, 4),
    (_by_hand, 1, 5),
    (_groups, 1, 3),
    (_only_groups, 1, 0),
    (_slopes_of_groups, 1, 2),
    (_ability, 2, 1),
    (_ordinal, 2, 4),
    (_mixture, 3, 5),
    (_with_a_jit, 1, 4),
    (_with_an_own_derivative, 2, 4),
    (_with_a_loop, 1, 3),
]
forms = pytest.mark.parametrize(("likelihood", "count", "shared"), FORMS, ids=[form[0].__name__ for form in FORMS])


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


@forms
def test_predictors_and_link_are_the_likelihood(likelihood, count, shared):
    flat, unravel = ravel_pytree(POSITION)
    rows = jax.tree.map(jnp.asarray, ROWS)
    predictors = predictors_of(likelihood, unravel, flat, first_of(rows))
    assert predictors is not None
    assert flat.size == SIZE == predictors.num_coordinates
    assert (predictors.count, predictors.num_shared) == (count, shared)
    step = jnp.cos(jnp.arange(SIZE))

    @jax.jit
    @jax.vmap
    def looked_at(row):
        here, near, far = (predictors.at(flat + k * step, row) for k in range(3))
        seen = predictors.seen(flat, row)
        values = predictors.link(here, row), likelihood(unravel(flat), row)
        return values, (seen, flat[predictors.numbers(flat, row)]), (predictors.of_seen(seen, row), here), (near, far)

    values, seen, (again, here), (near, far) = looked_at(rows)
    np.testing.assert_allclose(*values, rtol=1e-13)
    np.testing.assert_array_equal(*seen)
    np.testing.assert_allclose(again, here, rtol=1e-13)
    np.testing.assert_allclose(2 * (near - here), far - here, atol=1e-12)  # linear


@forms
def test_their_sums_of_derivatives_are_those_of_the_whole_likelihood(likelihood, count, shared, monkeypatch):
    del count, shared
    flat, unravel = ravel_pytree(POSITION)
    rows, valid = jax.tree.map(jnp.asarray, ROWS), jnp.arange(NUM_ROWS) != 5
    cheap = jax.jit(lambda at: derivative_sums(likelihood, unravel, at, rows, valid, curvature=True))(flat)
    monkeypatch.setattr(block_sums, "predictors_of", lambda *_: None)
    slow = jax.jit(lambda at: derivative_sums(likelihood, unravel, at, rows, valid, curvature=True))(flat)
    for one, other in zip(cheap, slow, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("likelihood", "order"), [(_linear, 2), (_mixture, 2), (_slopes_of_groups, 1)])
def test_what_an_expansion_leaves_is_that_of_the_whole_likelihood(likelihood, order, monkeypatch):
    flat, unravel = ravel_pytree(POSITION)
    posterior = tm.Posterior(likelihood, ROWS, log_prior=lambda p: 0.0)
    rows = jax.tree.map(jnp.asarray, ROWS)
    model = tm.Taylor(order).expand(posterior, POSITION).model
    old, new = (unravel(flat + 0.02 * along(jnp.arange(SIZE))) for along in (jnp.sin, jnp.cos))
    cheap = eqx.filter_jit(lambda model: model.log_ratios(old, new, rows))(model)
    pairs = [jax.tree.map(lambda a, b: jnp.stack([a, b]), *ends) for ends in ((old, new), (new, old))]
    both = eqx.filter_jit(lambda model: model.log_ratios_of_moves(*pairs, rows))(model)
    monkeypatch.setattr(expansion, "predictors_of", lambda *_: None)
    slow = eqx.filter_jit(lambda model: model.log_ratios(old, new, rows))(model)
    assert float(jnp.max(jnp.abs(slow))) > 1e-7
    np.testing.assert_allclose(cheap, slow, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(both, [cheap, -cheap], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    "likelihood",
    [
        lambda p, row: -jnp.sum((p["a"] - row["y"]) ** 2) - jnp.sum(jnp.sin(p["c"]) * row["x"][None]),  # too many
        lambda p, row: jnp.sum(jax.lax.cumprod(jnp.concatenate([p["b"], p["a"], p["c"].ravel(), p["s"][None]]))),
        lambda p, row: row["y"],  # says nothing of the position
    ],
)
def test_without_few_predictors_there_are_none(likelihood):
    flat, unravel = ravel_pytree(POSITION)
    assert predictors_of(likelihood, unravel, flat, first_of(jax.tree.map(jnp.asarray, ROWS))) is None


def test_constants_that_are_traced_are_no_obstacle():
    flat, unravel = ravel_pytree(POSITION)
    rows, valid = jax.tree.map(jnp.asarray, ROWS), jnp.ones(NUM_ROWS, bool)

    @jax.jit
    def sums(scale):
        scaled = lambda p, row: scale * _groups(p, row)  # noqa: E731
        return derivative_sums(scaled, unravel, flat, rows, valid, curvature=True)

    for one, two in zip(sums(1.0), sums(2.0), strict=True):
        np.testing.assert_allclose(2 * one, two, rtol=1e-12)
