"""The fast keys give the same numbers as JAX's own: the slow twin."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tallmc.keys import as_key

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
    other = jax.random.key(5, impl="rbg")
    assert as_key(other) is other


def test_anything_else_is_refused():
    with pytest.raises(ValueError, match="int or a JAX key"):
        as_key("seed")
