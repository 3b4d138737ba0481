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
from jaxtyping import Array, Int, PyTree, UInt32

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_TAG = "utf"


def _threefry(key: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """Threefry-2x32 with 20 rounds (Salmon et al., 2011), unrolled; of NumPy's arrays on the host."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(_PARITY))
    x0, x1 = high + schedule[0], low + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))
            x1 = x1 ^ x0
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


def _count(shape: Sequence[int]) -> tuple[Array, Array]:
    if math.prod(shape) >= 2**32:
        raise ValueError(f"cannot draw {math.prod(shape)} numbers from one key; split the key first")
    low = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    return jnp.zeros_like(low), low


def _seed(seed: Array) -> UInt32[Array, "2"]:
    return jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))


def _derived(key: UInt32[Array, "2"], high: Array, low: Array) -> Array:
    """New keys; on a CPU they are worked out before what is drawn from them.

    Without the barrier XLA merges a key with the keys it comes from and with its draws. In JAX 0.11 LLVM's loop
    vectoriser then walks all paths through sixty rounds, each of which doubles their number, and never ends. On a GPU,
    where merging is what makes rounds short, chains would be an eighth slower with it.
    """
    words = _threefry(key, high, low)
    apart = jax.lax.platform_dependent(*words, cpu=_kept_apart, default=lambda *both: both)
    return jnp.stack(apart, axis=-1)


def _kept_apart(high: Array, low: Array) -> tuple[Array, Array]:
    return jax.lax.optimization_barrier((high, low))


def _split(key: UInt32[Array, "2"], shape: Sequence[int]) -> Array:
    return _derived(key, *_count(shape))


def _fold_in(key: UInt32[Array, "2"], data: int | Array) -> UInt32[Array, "2"]:
    return _derived(key, jnp.uint32(0), jnp.asarray(data).astype(jnp.uint32))


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
        return _wrapped(_seed_words(int(rng_key)), unrolled_threefry)
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


def split_on_host(key: Array, count: int) -> Array:
    """`jax.random.split`, without compiling anything if the key is of the library's own kind."""
    if str(jax.random.key_impl(key)) != _TAG:
        return jax.random.split(key, count)
    low = np.arange(count, dtype=np.uint32)
    return _wrapped(np.stack(_threefry(_words(key), np.zeros_like(low), low), axis=-1), jax.random.key_impl(key))


def folded_on_host(key: Array, number: int) -> Array:
    """`jax.random.fold_in`, likewise."""
    if str(jax.random.key_impl(key)) != _TAG:
        return jax.random.fold_in(key, number)
    high, low = _threefry(_words(key), np.zeros(1, np.uint32), np.full(1, number, np.uint32))
    return _wrapped(np.concatenate([high, low]), jax.random.key_impl(key))


def word_on_host(key: Array) -> int:
    """The one word of `jax.random.bits(key)`, likewise."""
    if str(jax.random.key_impl(key)) != _TAG:
        return int(jax.random.bits(key))
    high, low = _threefry(_words(key), np.zeros(1, np.uint32), np.zeros(1, np.uint32))
    return int((high ^ low)[0])


def _words(key: Array) -> np.ndarray:
    """Of a key, each as a vector, because NumPy warns of scalars that wrap around."""
    return np.asarray(jax.random.key_data(key))[:, None]


def _seed_words(seed: int) -> UInt32[np.ndarray, "2"]:
    """What JAX makes of a seed, without compiling anything: its low word, and its high one if there are 64 bits."""
    high = seed >> 32 if jax.dtypes.canonicalize_dtype(np.int64) == np.int64 else 0
    return np.asarray([high & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


def unstacked(tree: PyTree, count: int) -> list[PyTree]:
    """Trees of host arrays, one for each place of a leading axis; keys stay keys. Nothing is compiled."""
    leaves, structure = jax.tree.flatten(tree)
    columns = [_split_up(leaf, count) for leaf in leaves]
    return [jax.tree.unflatten(structure, parts) for parts in zip(*columns, strict=True)]


def part_of(tree: PyTree, some: slice | np.ndarray) -> PyTree:
    """Some places of a leading axis, as host arrays; keys stay keys. Nothing is compiled."""

    def cut(leaf: Any) -> Any:
        if not _is_key(leaf):
            return np.asarray(leaf)[some]
        return _wrapped(np.asarray(jax.random.key_data(leaf))[some], jax.random.key_impl(leaf))

    return jax.tree.map(cut, tree)


def stacked(trees: Sequence[PyTree]) -> PyTree:
    """The other way round."""
    columns = zip(*(jax.tree.leaves(tree) for tree in trees), strict=True)
    return jax.tree.unflatten(jax.tree.structure(trees[0]), [_put_together(column) for column in columns])


def _wrapped(words: np.ndarray, impl: Any) -> Array:
    """Host words as keys, without compiling anything."""
    return jax.random.wrap_key_data(jax.device_put(words), impl=impl)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _split_up(leaf: Any, count: int) -> list[Any]:
    if not _is_key(leaf):
        array = np.asarray(leaf)
        return [array[i, ...] for i in range(count)]  # not array[i]: of a vector that would be a scalar
    words = np.asarray(jax.random.key_data(leaf))
    return [_wrapped(words[i], jax.random.key_impl(leaf)) for i in range(count)]


def _put_together(leaves: Sequence[Any]) -> Any:
    if not _is_key(leaves[0]):
        return np.stack([np.asarray(leaf) for leaf in leaves])
    words = np.stack([np.asarray(jax.random.key_data(leaf)) for leaf in leaves])
    return _wrapped(words, jax.random.key_impl(leaves[0]))


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


def told(key: int | Array) -> str | int:
    """A key as a reader can type it in again.

    Example:
        >>> told(3), told(as_key(3))
        (3, '[0, 3]')
    """
    return int(key) if isinstance(key, int | np.integer) else str(jax.random.key_data(as_key(key)).tolist())
