"""The fast keys give the same numbers as JAX's own: the slow twin."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tallmc.numerics.keys import as_key, uniforms_from, words_from

DRAWS = {
    "bits": lambda key: jax.random.bits(key, (7,)),
    "bytes": lambda key: jax.random.bits(key, (5,), jnp.uint8),
    "normal": lambda key: jax.random.normal(key, (3, 4)),
    "uniform": lambda key: jax.random.uniform(key),
    "randint": lambda key: jax.random.randint(key, (9,), 0, 1000),
    "split": lambda key: jax.random.key_data(jax.random.split(key, 5)),
    "fold_in": lambda key: jax.random.key_data(jax.random.fold_in(key, 123)),
    "in_a_map": lambda key: jax.vmap(jax.random.normal)(jax.random.split(key, 6)),
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1])
def test_same_numbers_as_jax(name, seed):
    np.testing.assert_array_equal(DRAWS[name](as_key(seed)), DRAWS[name](jax.random.key(seed)))


def test_every_kind_of_key_is_welcome():
    expected = jax.random.key_data(as_key(5))
    for key in (jax.random.key(5), jax.random.PRNGKey(5), as_key(5)):
        np.testing.assert_array_equal(jax.random.key_data(as_key(key)), expected)


@pytest.mark.parametrize("key", [as_key(3), jax.random.key(3, impl="rbg")], ids=["threefry", "rbg"])
def test_numbers_from_a_key_in_pieces(key):
    """200,000 pairs of 2,000 pieces: uniform, and independent of the one before, within 5 s.e. (3e-6 false alarms)."""
    starts = 100 * jnp.arange(2000, dtype=jnp.int32)
    draws = jax.vmap(lambda start: uniforms_from(key, start, (100,), jnp.result_type(float)))(starts)
    draws = np.asarray(draws, float).ravel()
    assert 0 <= draws.min() <= draws.max() < 1
    assert abs(draws.mean() - 1 / 2) < 5 * np.sqrt(1 / 12 / len(draws))
    assert abs(np.mean(draws**2) - 1 / 3) < 5 * np.sqrt(4 / 45 / len(draws))
    assert abs(np.mean((draws[1:] - 1 / 2) * (draws[:-1] - 1 / 2))) < 5 / 12 / np.sqrt(len(draws))


def test_pieces_of_a_key_are_one_tape():
    high, low = words_from(as_key(3), jnp.int32(0), (20,))
    for start in (0, 7, 13):
        piece = words_from(as_key(3), jnp.int32(start), (7,))
        np.testing.assert_array_equal(piece, (high[start : start + 7], low[start : start + 7]))


def test_anything_else_is_refused():
    with pytest.raises(ValueError, match="int or a JAX key"):
        as_key("seed")


def test_keys_whose_numbers_depend_on_the_batch_are_replaced():
    """A chain alone must be the chain it is among others; with JAX's own "rbg" keys it is not."""
    key = as_key(jax.random.key(3, impl="rbg"))
    keys = jax.random.split(key, 4)
    alone = [jax.random.normal(one, (5,)) for one in keys]
    np.testing.assert_array_equal(jax.vmap(lambda one: jax.random.normal(one, (5,)))(keys), jnp.stack(alone))
    assert np.any(jax.random.key_data(key) != jax.random.key_data(as_key(jax.random.key(4, impl="rbg"))))


@pytest.mark.parametrize("derive", [lambda key: jax.random.split(key, 2), lambda key: jax.random.fold_in(key, 3)])
def test_keys_are_not_merged_with_what_they_come_from(derive):
    """In JAX 0.11 a CPU's compiler never ends on a chain of keys that is merged into one loop."""
    assert "optimization_barrier" in jax.jit(derive).lower(as_key(0)).as_text()
