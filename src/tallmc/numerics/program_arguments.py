"""What a program depends on besides the function: the kinds of its arguments, and settings of JAX.

This is worked out in every call, so it has to be quick: some 20 microseconds for a pytree of 60 arrays.
"""

import operator
import types
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec

# What is debugged with these is told by JAX's own dispatch, which is then left to work as it does.
_DEBUGGING = ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs")
# Settings that change what is traced or how it is compiled; contexts of a thread (`jax.default_device`) show here too.
_SETTINGS = (
    "jax_enable_x64",
    "jax_explicit_x64_dtypes",
    "jax_default_device",
    "jax_platforms",
    "jax_platform_name",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_enable_custom_prng",
    "jax_legacy_prng_key",
    "jax_threefry_partitionable",
    "jax_threefry_gpu_kernel_lowering",
    "jax_random_seed_offset",
    "jax_high_dynamic_range_gumbel",
    "jax_softmax_custom_jvp",
    "jax_use_direct_linearize",
    "jax_use_simplified_jaxpr_constants",
    "jax_enable_checks",
    "jax_debug_key_reuse",
    "jax_allow_f16_reductions",
    "jax_use_shardy_partitioner",
    "jax_disable_most_optimizations",
    "jax_optimization_level",
    "jax_exec_time_optimization_effort",
    "jax_memory_fitting_level",
    "jax_memory_fitting_effort",
)
_read_debugging = operator.attrgetter(*(name for name in _DEBUGGING if hasattr(jax.config, name)))
_read_settings = operator.attrgetter(*(name for name in _SETTINGS if hasattr(jax.config, name)))


def debugging() -> bool:
    """Whether JAX is asked to run functions in a way that only its own dispatch can."""
    return any(_read_debugging(jax.config))


def settings() -> tuple:
    """Of JAX, as they are in this thread now."""
    return _read_settings(jax.config), jax.sharding.get_abstract_mesh()


_ARRAY, _HOST_ARRAY, _SHAPE, _TRACED, _STATIC = range(1, 6)
# What has been recognised once: asking `isinstance` of every leaf in every call would take most of the call.
_kinds: dict[type, int] = {
    np.ndarray: _HOST_ARRAY,
    jax.ShapeDtypeStruct: _SHAPE,
    **dict.fromkeys((bool, int, float, complex, str, bytes, types.FunctionType, types.BuiltinFunctionType), _STATIC),
}


class Static(NamedTuple):
    """Describes a leaf that is no array. The type belongs to it because 1 == True."""

    kind: type
    value: Any


def _kind(leaf: Any) -> int:
    if isinstance(leaf, Tracer):
        return _TRACED
    if isinstance(leaf, jax.Array):
        _kinds[type(leaf)] = _ARRAY  # JAX has but a few such types; those of other leaves might be made in a loop
        return _ARRAY
    return _HOST_ARRAY if eqx.is_array(leaf) else _STATIC


def sort_out(leaves: list, shapes_are_arrays: bool) -> tuple[list | None, tuple]:
    """The arrays, or None if one is traced; and of each leaf what a program depends on."""
    arrays, signature = [], []
    known, keep, describe = _kinds.get, arrays.append, signature.append
    for leaf in leaves:
        kind = known(type(leaf)) or _kind(leaf)
        if kind == _ARRAY:
            # An array that is not committed goes where the program runs. `aval` is what `jax.typeof` gives, in a
            # thirtieth of the time.
            describe((leaf.aval, _place(leaf.sharding)) if leaf.committed else leaf.aval)
        elif kind == _HOST_ARRAY:
            describe(jax.typeof(leaf))  # float64 is float32 to JAX, unless told otherwise
        elif kind == _SHAPE and shapes_are_arrays:
            describe(jax.typeof(leaf) if leaf.sharding is None else (jax.typeof(leaf), _place(leaf.sharding)))
        elif kind == _TRACED:
            return None, ()
        else:
            # A text for floats, because 0.0 == -0.0 and NaN is not itself.
            describe(Static(type(leaf), leaf.hex() if type(leaf) is float else leaf))
            continue
        keep(leaf)
    return arrays, tuple(signature)


def _place(sharding: Any) -> Any:
    """Where an array is. Of copies on several devices JAX has more than one description, which are not equal."""
    if type(sharding) is NamedSharding and len(sharding.spec) and sharding.is_fully_replicated:
        return NamedSharding(sharding.mesh, PartitionSpec(), memory_kind=sharding.memory_kind)
    return sharding


def shape_of(described: Any) -> jax.ShapeDtypeStruct:
    """What stands for an array that was described so."""
    seen, sharding = described if isinstance(described, tuple) else (described, None)
    return jax.ShapeDtypeStruct(seen.shape, seen.dtype, sharding=sharding, weak_type=seen.weak_type)


def unhashable(name: str, leaves: list, structure: Any) -> str:
    """Says which part of the arguments cannot be static."""
    paths = jax.tree.leaves_with_path(jax.tree.unflatten(structure, range(structure.num_leaves)))
    for (path, _), leaf in zip(paths, leaves, strict=True):
        try:
            hash(None if eqx.is_array(leaf) else leaf)
        except TypeError:
            where = jax.tree_util.keystr(path[1:])
            return f"argument {where} of {name} is a {type(leaf).__name__}: neither an array nor hashable"
    return f"the static parts of the arguments of {name} cannot be compared: {structure}"
