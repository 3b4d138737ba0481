"""Threads that do not get into each other's way."""

import contextlib
import functools
from collections.abc import Iterator

from threadpoolctl import ThreadpoolController


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """For blocks of work that run side by side in threads of our own.

    Threads of a BLAS would wait for each other at every block, which on a busy machine takes longer than the work.
    """
    with _blas().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()
