"""A random permutation that takes no memory: any part of it can be worked out by itself."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt32

NUM_KEYS = 6  # words of a permutation's key, one for each round


def permuted(ranks: UInt32[Array, " k"], num_rows: int, round_keys: UInt32[Array, " rounds"]) -> Int[Array, " k"]:
    """The rows at these places of a pseudo-random order of all rows.

    A Feistel network over the row numbers, applied again to what is no row number (cycle walking).

    Args:
        ranks: Places, all below `num_rows`.
        num_rows: Rows in all.
        round_keys: `NUM_KEYS` random words; other words give another order.

    Example:
        >>> import jax.numpy as jnp
        >>> order = permuted(jnp.arange(5, dtype=jnp.uint32), 5, jnp.arange(6, dtype=jnp.uint32))
        >>> sorted(order.tolist())
        [0, 1, 2, 3, 4]
    """
    half_bits = max((num_rows - 1).bit_length() + 1, 2) // 2
    low_mask = jnp.uint32(2**half_bits - 1)

    def encrypt(number: Array) -> Array:
        left, right = number >> jnp.uint32(half_bits), number & low_mask
        for i in range(NUM_KEYS):
            left, right = right, left ^ (_mix(right ^ round_keys[i]) & low_mask)
        return (left << jnp.uint32(half_bits)) | right

    def walk(number: Array) -> Array:
        return jnp.where(number < num_rows, number, encrypt(number))

    return jax.lax.while_loop(lambda n: jnp.any(n >= num_rows), walk, encrypt(ranks)).astype(jnp.int32)


def _mix(word: Array) -> Array:
    """The 32-bit finaliser of MurmurHash3: every input bit flips every output bit with probability one half."""
    word = (word ^ (word >> jnp.uint32(16))) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> jnp.uint32(13))) * jnp.uint32(0xC2B2AE35)
    return word ^ (word >> jnp.uint32(16))
