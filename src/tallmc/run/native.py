"""Compiles a loop of small steps into one function on a CPU."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax.experimental.xla_metadata import set_xla_metadata


def native(function: Callable[..., Any]) -> Callable[..., Any]:
    """Asks XLA to emit `function`, loops and all, as one piece of machine code.

    XLA runs a compiled loop on a CPU as a list of small kernels, handed out one by one. A round of a chain is some
    thirty of them, a few nanoseconds of work each at fifty nanoseconds of overhead. XLA emits calls that carry the
    marks set here as a whole instead: the same arithmetic, three times as fast for windows of a few hundred rows.
    Where the mark means nothing to the compiler, nothing is lost but that. Some operations (a sort, a factorisation)
    need XLA's runtime: with one of those inside, compilation fails, and the caller has to do without.
    """
    inner: Callable[..., Any] = eqx.filter_jit(function)

    def outer(*args: Any) -> Any:
        leaves, structure = jax.tree.flatten(inner(*args))
        # A mark on any one output is a mark on the call that gives it.
        leaves[-1] = set_xla_metadata(leaves[-1], xla_cpu_small_call="true", inlineable="false")
        return jax.tree.unflatten(structure, leaves)

    return outer
