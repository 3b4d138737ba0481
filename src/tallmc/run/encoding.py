"""Trees of modules and arrays as plain JSON and a list of arrays, and back. No pickles: nothing in a file is executed.

Modules, named tuples, enumerations and functions are written by the name under which they can be imported. A function
without such a name (a lambda, one defined inside another) cannot be written; a placeholder that says so comes back.
"""

import dataclasses
import enum
import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tallmc.numerics.keys import unrolled_threefry

_UNROLLED = "unrolled_threefry"


class NotSaved(eqx.Module):
    """Stands for a function that could not be saved.

    Args:
        what: Its name.
    """

    what: str = eqx.field(static=True)

    def __call__(self, *args: Any) -> Any:
        """There is nothing to call."""
        raise ValueError(
            f"{self.what} was not saved with the run, because it cannot be imported by name; pass the posterior again: "
            "tm.load(path, posterior). A function at the top of a module is saved"
        )


class Encoder:
    """Turns values into JSON; arrays go into a list, each once."""

    def __init__(self):
        self.arrays: list[np.ndarray] = []
        self._known: dict[int, dict[str, Any]] = {}
        self._kept: list[Any] = []  # an array must live as long as its id stands for it

    def encode(self, value: Any) -> Any:
        """The value as JSON."""
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, enum.Enum):
            return {"enum": _name_of(type(value)), "member": value.name}
        if isinstance(value, int | np.integer) and not isinstance(value, np.ndarray):
            return int(value)
        if isinstance(value, float | np.floating) and not isinstance(value, np.ndarray):
            return float(value) if math.isfinite(value) else {"float": str(float(value))}
        if isinstance(value, np.ndarray | jax.Array):
            return self._encode_array(value)
        if isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                raise ValueError(f"cannot save a dict with keys {list(value)}; name the parts of a position by strings")
            return {"dict": {key: self.encode(item) for key, item in value.items()}}
        if isinstance(value, jax.tree_util.PyTreeDef):
            return {"structure": self.encode(jax.tree.unflatten(value, range(value.num_leaves)))}
        if hasattr(value, "_fields") and isinstance(value, tuple):
            return {"tuple_of": _name_of(type(value)), "items": [self.encode(item) for item in value]}
        if isinstance(value, tuple | list):
            return {type(value).__name__: [self.encode(item) for item in value]}
        if isinstance(value, functools.partial):
            return {"partial": [self.encode(part) for part in (value.func, value.args, value.keywords)]}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
            return {
                "class": _name_of(type(value)),
                "fields": {name: self.encode(part) for name, part in fields.items()},
            }
        if callable(value):
            return {"function": name} if (name := _name_of(value)) else {"missing": _label(value)}
        raise ValueError(
            f"cannot save a {type(value).__name__}; positions and settings must be arrays and plain values"
        )

    def _encode_array(self, value: np.ndarray | jax.Array) -> dict[str, Any]:
        known = self._known.get(id(value))
        if known is None:
            known = {"array": len(self.arrays), "on_device": isinstance(value, jax.Array)}
            if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
                known["key"] = str(jax.random.key_impl(value))
                self.arrays.append(np.asarray(jax.random.key_data(value)))
            else:
                self.arrays.append(np.asarray(value))
            self._known[id(value)] = known
            self._kept.append(value)
        return known


class Decoder:
    """Turns what `Encoder` made back into values.

    Args:
        read: Gives an array by its number.
    """

    def __init__(self, read: Callable[[int], np.ndarray]):
        self.read = functools.cache(read)

    def decode(self, code: Any) -> Any:
        """The value behind some JSON."""
        if not isinstance(code, dict):
            return code
        if "array" in code:
            return self._decode_array(code)
        if "class" in code:
            return _rebuild(_found(code["class"]), {name: self.decode(part) for name, part in code["fields"].items()})
        if "structure" in code:
            return jax.tree.structure(self.decode(code["structure"]))
        if "tuple_of" in code:
            return _found(code["tuple_of"])(*(self.decode(item) for item in code["items"]))
        if "enum" in code:
            return _found(code["enum"])[code["member"]]
        if "function" in code:
            return _found(code["function"])
        if "partial" in code:
            function, args, keywords = (self.decode(part) for part in code["partial"])
            return functools.partial(function, *args, **keywords)
        if "missing" in code:
            return NotSaved(code["missing"])
        if "float" in code:
            return float(code["float"])
        if "dict" in code:
            return {key: self.decode(item) for key, item in code["dict"].items()}
        if "tuple" in code:
            return tuple(self.decode(item) for item in code["tuple"])
        return [self.decode(item) for item in code["list"]]

    def _decode_array(self, code: dict[str, Any]) -> np.ndarray | jax.Array:
        array = self.read(code["array"])
        if "key" in code:
            impl = unrolled_threefry if code["key"] in (_UNROLLED, "utf") else code["key"]
            return jax.random.wrap_key_data(jnp.asarray(array), impl=impl)
        return jnp.asarray(array) if code["on_device"] else array


def _rebuild(kind: type, fields: dict[str, Any]) -> Any:
    """An instance with these fields, whatever its `__init__` would make of them."""
    if not dataclasses.is_dataclass(kind):
        raise ValueError(f"the run needs {kind.__name__} to be a module or dataclass, and it is none here")
    instance = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(instance, name, value)
    return instance


def _name_of(value: Any) -> str:
    """Where it can be imported from; empty if it cannot."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not module or not name or "<" in name:
        return ""
    try:
        return f"{module}:{name}" if _found(f"{module}:{name}") is value else ""
    except (ImportError, AttributeError, ValueError):
        return ""


def _found(name: str) -> Any:
    module, path = name.split(":")
    try:
        return functools.reduce(getattr, path.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"the run was saved with {path} of {module}, which cannot be imported here: {error}"
        ) from error


def _label(value: Any) -> str:
    return getattr(value, "__qualname__", type(value).__name__)
