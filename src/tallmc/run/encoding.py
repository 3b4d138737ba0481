"""Trees of modules and arrays as plain JSON and a list of arrays, and back. No pickles: nothing in a file is executed.

Modules, named tuples, enumerations and functions are written by the name under which they can be imported. A function
without such a name (a lambda, one defined inside another) cannot be written; a placeholder that says so comes back.

A file is not trusted to say what is imported or called: names lead into modules that are loaded already, nothing is
called to build a value, and functions are those that only compute, of this library and JAX, and the caller's own.
"""

import dataclasses
import enum
import functools
import math
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
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
        self.missing: dict[str, Any] = {}  # functions that have no name to be found by; None where two have the same
        self._known: dict[int, dict[str, Any]] = {}
        self._kept: list[Any] = []  # an array must live as long as its id stands for it

    def encode(self, value: Any) -> Any:
        """The value as JSON."""
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, enum.Enum):
            return {"enum": _name_of_class(value), "member": value.name}
        if isinstance(value, np.generic):  # a number of a width of its own, unlike Python's
            return {"scalar": self._encode_array(np.asarray(value))["array"]}
        if isinstance(value, int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, np.ndarray | jax.Array):
            return self._encode_array(value)
        if isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                raise ValueError(f"cannot save a dict with keys {list(value)}; name the parts of a position by strings")
            return {"dict": {key: self.encode(item) for key, item in value.items()}}
        if isinstance(value, jax.tree_util.PyTreeDef):
            return {"structure": self.encode(jax.tree.unflatten(value, range(value.num_leaves)))}
        if hasattr(value, "_fields") and isinstance(value, tuple):
            items = [self.encode(item) for item in value]
            return {"tuple_of": _name_of_class(value), "names": list(value._fields), "items": items}  # pyright: ignore
        if isinstance(value, tuple | list):
            return {type(value).__name__: [self.encode(item) for item in value]}
        if isinstance(value, functools.partial):
            return {"partial": [self.encode(part) for part in (value.func, value.args, value.keywords)]}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
            return {
                "class": _name_of_class(value),
                "fields": {name: self.encode(part) for name, part in fields.items()},
            }
        if callable(value):
            return {"function": name} if (name := _name_of(value)) else self._encode_missing(value)
        raise ValueError(
            f"cannot save a {type(value).__name__}; positions and settings must be arrays and plain values"
        )

    def _encode_missing(self, value: Any) -> dict[str, Any]:
        label = _label(value)
        self.missing[label] = value if self.missing.get(label, value) is value else None
        return {"missing": label}

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
        functions: For those that could not be written, by their labels.
    """

    def __init__(self, read: Callable[[int], np.ndarray], functions: Mapping[str, Any] | None = None):
        self.read, self.functions = functools.cache(read), functions or {}

    def decode(self, code: Any) -> Any:
        """The value behind some JSON."""
        if not isinstance(code, dict):
            return code
        if "array" in code:
            return self._decode_array(code)
        if "class" in code:
            return _rebuild(_class(code["class"]), {name: self.decode(part) for name, part in code["fields"].items()})
        if "scalar" in code:
            return self.read(code["scalar"])[()]
        if "structure" in code:
            return jax.tree.structure(self.decode(code["structure"]))
        if "tuple_of" in code:
            return _named_tuple(code["tuple_of"], code["names"], [self.decode(item) for item in code["items"]])
        if "enum" in code:
            return _member(_class(code["enum"]), code["member"])
        if "function" in code:
            return _function(code["function"])
        if "partial" in code:
            function, args, keywords = (self.decode(part) for part in code["partial"])
            return functools.partial(function, *args, **keywords)
        if "missing" in code:
            return self.functions.get(code["missing"]) or NotSaved(code["missing"])
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
    if not dataclasses.is_dataclass(kind) or callable(getattr(kind, "__del__", None)):
        raise ValueError(f"the run needs {kind!r} to be a module or dataclass, and it is none here")
    instance = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(instance, name, value)
    return instance


def _named_tuple(name: str, names: list[str], items: list[Any]) -> Any:
    """A named tuple; where its class is not loaded a dict, which is as good to look at."""
    try:
        kind = _class(name)
    except ValueError:
        return dict(zip(names, items, strict=True))
    if not (issubclass(kind, tuple) and len(getattr(kind, "_fields", ())) == len(items)):
        raise ValueError(f"the run needs {kind!r} to be a named tuple of {len(items)}, and it is none here")
    return tuple.__new__(kind, items)


def _member(kind: type, name: str) -> Any:
    if not issubclass(kind, enum.Enum) or name not in kind.__members__:
        raise ValueError(f"the run needs {kind!r} to be an enumeration, and it is none here")
    return kind.__members__[name]


def _name_of(value: Any) -> str:
    """Where it can be found again; empty if it cannot."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not module or not name or "<" in name:
        return ""
    try:
        same = _found(f"{module}:{name}") is value
    except ValueError:
        return ""
    return f"{module}:{name}" if same and (isinstance(value, type) or _is_harmless(module)) else ""


def _name_of_class(value: Any) -> str:
    """The same of a value's class, without which it cannot be kept."""
    if not (name := _name_of(type(value))):
        raise ValueError(
            f"cannot save a {type(value).__qualname__}: its class cannot be found by name; define it at the top of a "
            "module"
        )
    return name


_INSTALLED = tuple({Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")})
# Of libraries, functions that only compute; any other could be named by a file to do harm when a run goes on.
_COMPUTING = (
    "jax.numpy",
    "jax.nn",
    "jax.scipy",
    "jax.lax",
    *(f"jax._src.{n}" for n in ("numpy", "nn", "scipy", "lax")),
)
_ACTING = ("tallmc.run", "tallmc.setup", "tallmc.console", "tallmc.diagnostics", "tallmc.commands", "tallmc.disk")


def _class(name: str) -> type:
    """A class of a module that is loaded. To be built it is not called, so it may be anybody's."""
    found = _found(name)
    if not isinstance(found, type):
        raise ValueError(f"the run needs {name} to be a class, and it is none here")
    return found


def _function(name: str) -> Any:
    """A function, or what stands for one that is not there, or not one to take from a file."""
    try:
        found = _found(name)
    except ValueError:
        return NotSaved(name.replace(":", "."))
    return found if callable(found) and _is_harmless(found.__module__) else NotSaved(name.replace(":", "."))


def _found(name: str) -> Any:
    """What has this name in a module that is loaded. None is loaded because a file names it."""
    module, _, path = name.partition(":")
    where = sys.modules.get(module)
    if where is None:
        raise ValueError(
            f"the run was saved with {path} of {module}, which is not loaded, and a file is not trusted to say what is "
            f"to be: import {module.partition('.')[0]} and load the run again"
        )
    try:
        found = functools.reduce(getattr, path.split("."), where)
    except AttributeError as error:
        raise ValueError(f"the run was saved with {path} of {module}, which is not there: {error}") from error
    if getattr(found, "__module__", None) not in sys.modules:
        raise ValueError(f"the run was saved with {path} of {module}, which is neither a class nor a function")
    return found


def _is_harmless(module: str) -> bool:
    """Whether functions of a module may be named by a file: those that compute, and the caller's own."""
    root = module.partition(".")[0]
    if root == "tallmc":
        return not module.startswith(_ACTING)
    if module.startswith(_COMPUTING):
        return True
    where = getattr(sys.modules[module], "__file__", None)
    if root in sys.stdlib_module_names - {"__main__"} or where is None:
        return module == "__main__"
    return not any(Path(where).resolve().is_relative_to(folder) for folder in _INSTALLED)


def _label(value: Any) -> str:
    return getattr(value, "__qualname__", type(value).__name__)
