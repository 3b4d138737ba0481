"""Compiles a loop of small steps into one function on a CPU."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata
from jaxtyping import Array, PyTree

from tallmc.numerics.programs import program


class Native:
    """A function whose program is one piece of machine code; called and prepared like a `Program`."""

    def __init__(self, function: Callable[..., Any]):
        inner: Callable[..., Any] = eqx.filter_jit(lambda *args: (function(*args), _one_of_each(args)))

        def outer(*args: Any) -> Any:
            result, read = inner(*args)
            leaves, structure = jax.tree.flatten(result)
            # A mark on any one output is a mark on the call that gives it.
            leaves[-1] = set_xla_metadata(leaves[-1], xla_cpu_small_call="true", inlineable="false")
            return jax.tree.unflatten(structure, leaves), read

        name = getattr(function, "__name__", "native")
        self._program = program(outer, compiler_options=_emit_everything, name=name)

    def __call__(self, *args: Any) -> Any:
        """The function's result; what was read for the sake of reading is dropped."""
        return self._program(*args)[0]

    def prepare(self, *args: Any) -> None:
        """Compiles or loads the program for such arguments, and does not run it; see `Program.prepare`."""
        self._program.prepare(*args)


def native(function: Callable[..., Any]) -> Native:
    """Compiles `function`, and asks XLA to emit it, loops and all, as one piece of machine code.

    XLA runs a compiled loop on a CPU as a list of small kernels, handed out one by one. A round of a chain is some
    thirty of them, a few nanoseconds of work each at fifty nanoseconds of overhead. XLA emits calls that carry the
    marks set here as a whole instead: the same arithmetic, three times as fast for windows of a few hundred rows.
    Where the mark means nothing to the compiler, nothing is lost but that. Some operations (a sort, a factorisation)
    need XLA's runtime: with one of those inside, compilation fails, and the caller has to do without.
    """
    return Native(function)


# Keeps XLA from calling a library for large sums of products: a call cannot be part of one piece of machine code.
_EMIT_EVERYTHING = {"xla_cpu_experimental_ynn_fusion_type": ""}


@functools.cache
def _emit_everything() -> dict[str, str]:
    """These options, or none if this version of XLA does not know them: they are private to it, and come and go."""
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        try:
            jax.jit(lambda x: x + 1, compiler_options=_EMIT_EVERYTHING)(0.0)
        except (jax.errors.JaxRuntimeError, ValueError):
            return {}
    return _EMIT_EVERYTHING


def _one_of_each(args: PyTree) -> list[Array]:
    """Reads a number of every array. An argument that a marked call never reads, such as a column of the data that the
    likelihood ignores, ends the process in XLA's emitter."""
    arrays = jax.tree.map(
        lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, eqx.filter(args, eqx.is_array)
    )
    return [leaf.ravel()[0] for leaf in jax.tree.leaves(arrays) if leaf.size]


def _is_key(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
