"""What tests of programs compile, and how they compare results and costs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tallmc.numerics.keys import as_key
from tallmc.numerics.programs import programs_ledger


class Line(eqx.Module):
    slope: jax.Array
    link: object
    power: int = eqx.field(static=True)


def value(line, x):
    return line.link(line.slope * x**line.power).sum()


def everything(line, x, key):
    key, other = jax.random.split(key)
    noise = jax.random.normal(other, x.shape, x.dtype)
    return {"line": line, "key": key, "sum": value(line, x) + noise, "name": "line", "none": None, "two": 2.5}


LINE, X = Line(jnp.float32(0.3), jnp.tanh, 2), jnp.linspace(0, 1, 5, dtype=jnp.float32)
KEYS = {"ours": as_key(3), "default": jax.random.key(3), "rbg": jax.random.key(3, impl="rbg")}


def cost(action):
    before = programs_ledger()
    action()
    return programs_ledger() - before


def assert_same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert type(a) is type(b)
        if isinstance(a, jax.Array):
            assert (a.dtype, a.weak_type if hasattr(a, "weak_type") else None, a.committed) == (
                b.dtype,
                b.weak_type if hasattr(b, "weak_type") else None,
                b.committed,
            )
            if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
                a, b = jax.random.key_data(a), jax.random.key_data(b)
            np.testing.assert_array_equal(a, b)
        else:
            assert a == b
