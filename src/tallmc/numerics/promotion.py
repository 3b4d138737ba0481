"""For calls into other libraries, which count on JAX as it comes."""

import contextlib
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def promoting() -> Iterator[None]:
    """JAX mixes dtypes and ranks, as functions of other libraries count on, even if the caller has forbidden it."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
