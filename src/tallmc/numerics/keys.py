"""Random keys that compile into the code around them.

JAX's default generator, threefry, is lowered to a loop on a CPU and to a separate kernel launch on a GPU. A Markov
chain draws a handful of numbers a step, so that fixed cost dominates: six draws took 7 microseconds of a step that
needs 3. Written out without the loop the same generator, giving the same bits, takes 0.2.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl
from jaxtyping import Array, Int, UInt32

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_TAG = "utf"


def _threefry(key: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds (Salmon et al., 2011), unrolled."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(_PARITY))
    x0, x1 = high + schedule[0], low + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << jnp.uint32(rotation)) | (x1 >> jnp.uint32(32 - rotation))
            x1 = x1 ^ x0
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return x0, x1


def _count(shape: Sequence[int]) -> tuple[Array, Array]:
    if math.prod(shape) >= 2**32:
        raise ValueError(f"cannot draw {math.prod(shape)} numbers from one key; split the key first")
    low = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    return jnp.zeros_like(low), low


def _seed(seed: Array) -> UInt32[Array, "2"]:
    return jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))


def _split(key: UInt32[Array, "2"], shape: Sequence[int]) -> Array:
    return jnp.stack(_threefry(key, *_count(shape)), axis=-1)


def _fold_in(key: UInt32[Array, "2"], data: int | Array) -> UInt32[Array, "2"]:
    return jnp.stack(_threefry(key, jnp.uint32(0), jnp.asarray(data).astype(jnp.uint32)))


def _random_bits(key: UInt32[Array, "2"], bit_width: int, shape: Sequence[int]) -> Array:
    high, low = _threefry(key, *_count(shape))
    if bit_width == 64:
        return (high.astype(jnp.uint64) << jnp.uint64(32)) | low.astype(jnp.uint64)
    return (high ^ low).astype({8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}[bit_width])


unrolled_threefry = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="unrolled_threefry",
    tag=_TAG,
)


def as_key(rng_key: Any) -> Array:
    """Turns an int or a JAX key into a key that is fast inside a compiled loop.

    Keys of JAX's default generator keep their numbers: only the compiled code differs. Keys of another generator
    are used as they are.

    Args:
        rng_key: An int or a JAX key, new style or old.

    Example:
        >>> import jax
        >>> bool(jax.random.uniform(as_key(3)) == jax.random.uniform(jax.random.key(3)))
        True
    """
    if isinstance(rng_key, int | np.integer):
        rng_key = jax.random.key(int(rng_key), impl="threefry2x32")
    if not hasattr(rng_key, "dtype"):
        raise ValueError(f"rng_key must be an int or a JAX key, not {type(rng_key).__name__}")
    if not jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(rng_key, jnp.uint32), impl=unrolled_threefry)
    if str(jax.random.key_impl(rng_key)) in ("rbg", "unsafe_rbg"):
        # Their numbers depend on how many chains are drawn for at once.
        return jax.random.wrap_key_data(jax.random.bits(rng_key, (2,), jnp.uint32), impl=unrolled_threefry)
    if str(jax.random.key_impl(rng_key)) != "threefry2x32":
        return rng_key
    return jax.random.wrap_key_data(jax.random.key_data(rng_key), impl=unrolled_threefry)


def transition_keys(key: Array, transition: Int[Array, ""]) -> tuple[Array, Array]:
    """For the kernel and for the feed, to end a transition (0: to start the chain) and begin the next."""
    twice = jnp.uint32(2) * transition.astype(jnp.uint32)
    return jax.random.fold_in(key, twice), jax.random.fold_in(key, twice + jnp.uint32(1))


def words_from(key: Array, start: Int[Array, ""], shape: Sequence[int]) -> tuple[Array, Array]:
    """Pairs of random words, number `start` and the following of those that belong to a key.

    A test that draws now and then takes its words from one key, as from a tape, and derives no further keys. Words of a
    key must not be taken in this way and in another.

    Example:
        >>> import jax.numpy as jnp
        >>> words, _ = words_from(as_key(0), jnp.int32(0), (4,))
        >>> bool(words_from(as_key(0), jnp.int32(1), (3,))[0][0] == words[1])
        True
    """
    if str(jax.random.key_impl(key)) != _TAG:
        bits = jax.random.bits(jax.random.fold_in(key, start), (2, *shape), jnp.uint32)
        return bits[0], bits[1]
    high, low = _count(shape)
    return _threefry(jax.random.key_data(key), high, low + start.astype(jnp.uint32))


def uniforms_from(key: Array, start: Int[Array, ""], shape: Sequence[int], dtype: Any) -> Array:
    """Uniform numbers in [0, 1), each from a pair of `words_from`."""
    high, low = words_from(key, start, shape)
    if jnp.finfo(dtype).bits < 64:
        return ((high ^ low) >> jnp.uint32(8)).astype(dtype) * 2.0**-24
    return ((high >> jnp.uint32(5)).astype(dtype) * 2.0**26 + (low >> jnp.uint32(6)).astype(dtype)) * 2.0**-53
