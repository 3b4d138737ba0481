"""Compiles the library's own functions by hand: counted, timed, several at once, and kept on disk between processes.

`equinox.filter_jit` compiles inside the first call, in the thread of that call, and forgets everything when the process
ends. JAX can remember, but only by settings that hold for the user's code as well. A `program` does both for itself
alone: it traces and lowers a function for arguments of one kind, and then takes the executable from a table in memory,
from a folder of its own, or from the compiler.
"""

import dataclasses
import functools
import inspect
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Generic, ParamSpec, TypeVar, overload

import equinox as eqx
import jax

from tallmc.numerics import program_store
from tallmc.numerics.program_arguments import Static, debugging, settings, shape_of, sort_out, unhashable

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
Options = Mapping[str, Any] | Callable[[], Mapping[str, Any]]

# Compiler options for a program that runs for less time than it takes to compile, as all without loops do: the older of
# XLA's two ways to make code for a CPU. It takes two thirds of the time; passes over all rows would run a fifth longer.
COMPILED_SOON: Mapping[str, Any] = {"xla_cpu_use_fusion_emitters": False}

# Executables kept in memory, of all programs together. A model needs about ten, so these are the last 25 models; a
# user who writes a new likelihood for every call must not fill the memory, at up to some megabytes an executable.
_MOST_ENTRIES = 256


@dataclasses.dataclass(frozen=True)
class Ledger:
    """What programs cost so far in this process. The difference of two ledgers is the cost of what lies in between.

    Attributes:
        compiled: Programs that XLA compiled.
        loaded: Programs that were read from disk.
        shared: Programs that another function, or an equal one made anew, had left in memory.
        seconds: Spent on tracing, lowering, and compiling or loading; a sum over threads that may have overlapped.
        elapsed: The same by the clock on the wall: seconds in which some thread was at it.
    """

    compiled: int = 0
    loaded: int = 0
    shared: int = 0
    seconds: float = 0.0
    elapsed: float = 0.0

    @property
    def count(self) -> int:
        """Programs obtained, in whichever way."""
        return self.compiled + self.loaded + self.shared

    def __sub__(self, before: "Ledger") -> "Ledger":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(before), strict=True)
        return Ledger(*(now - then for now, then in pairs))


def programs_ledger() -> Ledger:
    """What programs have cost so far, in all threads; it stays as it is when more are compiled.

    Example:
        >>> import jax.numpy as jnp
        >>> before = programs_ledger()
        >>> program(lambda x: x + 1)(jnp.float32(1))
        Array(2., dtype=float32)
        >>> (programs_ledger() - before).count
        1
    """
    return _ledger


_lock = threading.Lock()
# JAX traces in one thread at a time: two threads in the same function with a derivative of its own end in an error.
_tracing = threading.RLock()
_ledger = Ledger()
_table: dict[tuple, "_Entry"] = {}
_pending: dict[tuple, Future] = {}
_by_digest: weakref.WeakValueDictionary[str, jax.stages.Compiled] = weakref.WeakValueDictionary()
_clock = itertools.count()


def carried_over(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """The function for another thread, under the device that this one has chosen by `jax.default_device`."""
    device = getattr(jax.config, "jax_default_device", None)

    @functools.wraps(function)
    def wrapped(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        if device is None:
            return function(*args, **kwargs)
        with jax.default_device(device):
            return function(*args, **kwargs)

    return wrapped


def forget_programs() -> None:
    """Empties the table in memory, so that what is needed next is loaded or compiled again."""
    with _lock:
        _table.clear()
        _by_digest.clear()


class _Entry:
    """An executable, and how the result of the function is put together again from what it returns."""

    def __init__(self, compiled: jax.stages.Compiled, structure: Any, leaves: list, positions: list[int]):
        self.compiled, self.structure = compiled, structure
        self.leaves, self.positions = leaves, positions
        self.used = next(_clock)

    def __call__(self, arrays: list) -> Any:
        self.used = next(_clock)
        outputs = self.compiled(*arrays)
        if len(self.positions) < len(self.leaves):
            leaves = list(self.leaves)
            for position, output in zip(self.positions, outputs, strict=True):
                leaves[position] = output
            outputs = leaves
        return jax.tree.unflatten(self.structure, outputs)


class Program(Generic[_Result]):
    """A function that is compiled for each kind of arguments once; made by `program`, and called like the function."""

    def __init__(self, function: Callable[..., _Result], donate: Sequence[int], options: Options, name: str):
        if any(map(eqx.is_array, jax.tree.leaves(function))):
            raise ValueError(f"{name} holds arrays; make a program of a plain function and pass them as arguments")
        functools.update_wrapper(self, function, updated=())
        self.function: Callable[..., Any] = function
        self.donate, self.options, self.name = tuple(donate), options, name
        self._plain: Callable[..., _Result] = eqx.filter_jit(function)
        self._likes: dict[tuple, Any] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> _Result:
        """What the function returns, computed by a program that is obtained now if it is not there yet."""
        given, leaves, structure = self._flatten(args, kwargs)
        arrays, signature = sort_out(leaves, shapes_are_arrays=False)
        if arrays is None or debugging():
            return self._plain(*given[0], **given[1])
        return self._entry(leaves, structure, signature)(arrays)

    def prepare(self, *args: Any, **kwargs: Any) -> None:
        """Compiles or loads the program for such arguments, and does not run it.

        Threads may prepare at the same time: the compiler lets them. A context of JAX that is entered in one thread
        does not hold in others, and a program prepared outside of it is not the one that is called inside.

        Args:
            *args: As in a call; a `jax.ShapeDtypeStruct` may stand for an array that is not there yet.
            **kwargs: Likewise.
        """
        _, leaves, structure = self._flatten(args, kwargs)
        arrays, signature = sort_out(leaves, shapes_are_arrays=True)
        if arrays is not None and not debugging():
            self._entry(leaves, structure, signature)

    def like(self, *args: Any) -> Any:
        """What a call with such arguments would return, with a `jax.ShapeDtypeStruct` for each array.

        Nothing is compiled, and the function is traced for each kind of arguments only once.

        Args:
            *args: As in `prepare`.
        """
        _, leaves, structure = self._flatten(args, {})
        arrays, signature = sort_out(leaves, shapes_are_arrays=True)
        if arrays is None:
            return eqx.filter_eval_shape(self.function, *args)
        key = (structure, signature, settings())
        if (known := self._likes.get(key)) is None:
            while len(self._likes) >= _MOST_ENTRIES:
                del self._likes[next(iter(self._likes))]
            with _tracing:
                known = self._likes[key] = eqx.filter_eval_shape(self.function, *args)
        return known

    def _flatten(self, args: tuple, kwargs: dict) -> tuple[tuple[tuple, dict], list, Any]:
        """Arguments by position where they can be, so that naming one makes no second program."""
        if kwargs:
            bound = self._parameters.bind(*args, **kwargs)
            args, kwargs = bound.args, bound.kwargs
        return (args, kwargs), *jax.tree.flatten((args, kwargs))

    @functools.cached_property
    def _parameters(self) -> inspect.Signature:
        return inspect.signature(self.function)

    def _entry(self, leaves: list, structure: Any, signature: tuple) -> _Entry:
        key = (self, structure, signature, *settings())
        try:
            entry = _table.get(key)
        except TypeError as error:
            raise ValueError(unhashable(self.name, leaves, structure)) from error
        return entry if entry is not None else self._obtain(key, leaves, structure, signature)

    def _obtain(self, key: tuple, leaves: list, structure: Any, signature: tuple) -> _Entry:
        """Makes an entry, or waits for the thread that is at it."""
        with _lock:
            if (entry := _table.get(key)) is not None:
                return entry
            mine = (future := _pending.get(key)) is None
            if future is None:
                future = _pending[key] = Future()
        if not mine:
            return future.result()
        began, source = _open(), None
        try:
            entry, source = self._make(leaves, structure, signature)
        except BaseException as error:
            with _lock:
                del _pending[key]
            future.set_exception(error)
            raise
        finally:
            _close(began, source)
        with _lock:
            del _pending[key]
            _table[key] = entry
            while len(_table) > _MOST_ENTRIES:
                del _table[min(_table, key=lambda old: _table[old].used)]
        future.set_result(entry)
        return entry

    def _make(self, leaves: list, structure: Any, signature: tuple) -> tuple[_Entry, str]:
        """Traces, lowers, and takes the executable from wherever it is to be had; and says from where."""
        dynamic = [position for position, described in enumerate(signature) if not isinstance(described, Static)]
        template = [None if position in set(dynamic) else leaf for position, leaf in enumerate(leaves)]
        out: list = []

        def flat(*arrays: jax.Array) -> tuple:
            filled = list(template)
            for position, array in zip(dynamic, arrays, strict=True):
                filled[position] = array
            args, kwargs = jax.tree.unflatten(structure, filled)
            results, out_structure = jax.tree.flatten(self.function(*args, **kwargs))
            positions = [position for position, result in enumerate(results) if eqx.is_array(result)]
            kept = [None if eqx.is_array(result) else result for result in results]
            out[:] = out_structure, kept, positions
            return tuple(results[position] for position in positions)

        flat.__name__ = flat.__qualname__ = self.name
        shapes = [shape_of(signature[position]) for position in dynamic]
        donated = [i for i, position in enumerate(dynamic) if position in self._donated(structure)]
        with _tracing:
            lowered = jax.jit(flat, donate_argnums=donated).lower(*shapes)
        options = dict(self.options() if callable(self.options) else self.options)
        compiled, source = _executable(lowered, shapes, options)
        return _Entry(compiled, *out), source

    def _donated(self, structure: Any) -> set[int]:
        """Numbers of the leaves of the arguments that are given away."""
        if not self.donate:
            return set()
        ends = list(itertools.accumulate(child.num_leaves for child in structure.children()[0].children()))
        return {leaf for i in self.donate if i < len(ends) for leaf in range(ends[i - 1] if i else 0, ends[i])}


@overload
def program(
    function: Callable[..., _Result],
    *,
    donate: Sequence[int] = (),
    compiler_options: Options | None = None,
    name: str | None = None,
) -> Program[_Result]: ...


@overload
def program(
    *, donate: Sequence[int] = (), compiler_options: Options | None = None, name: str | None = None
) -> Callable[[Callable[..., _Result]], Program[_Result]]: ...


def program(
    function: Callable | None = None,
    *,
    donate: Sequence[int] = (),
    compiler_options: Options | None = None,
    name: str | None = None,
) -> Any:
    """Compiles a function for each kind of arguments, as `equinox.filter_jit` does, but ahead of time if asked to.

    JAX and NumPy arrays anywhere in the arguments are traced. Everything else is static, and must be hashable. Inside
    another transformation of JAX the function is traced as part of it.

    Args:
        function: A plain function of the arguments. As a decorator with options, leave it out.
        donate: Positions of arguments whose memory the results may take over. They cannot be used again.
        compiler_options: For XLA, or a function that gives them when something is to be compiled.
        name: Shown by profilers; that of the function if left out.

    Example:
        >>> import jax.numpy as jnp
        >>> @program
        ... def scaled(x, power):
        ...     return {"scaled": 2 * x**power, "power": power}
        >>> scaled.prepare(jax.ShapeDtypeStruct((2,), jnp.float32), 2)
        >>> scaled(jnp.ones(2), 2)
        {'power': 2, 'scaled': Array([2., 2.], dtype=float32)}
    """
    if function is None:
        return functools.partial(program, donate=donate, compiler_options=compiler_options, name=name)
    return Program(function, donate, compiler_options or {}, name or getattr(function, "__name__", "program"))


def _executable(
    lowered: jax.stages.Lowered, shapes: list[jax.ShapeDtypeStruct], options: dict
) -> tuple[jax.stages.Compiled, str]:
    """From memory, from disk, or from the compiler; and from which of them."""
    device, text = program_store.only_device(shapes), lowered.as_text()
    if device is not None and device.platform == "cpu" and "stablehlo.while" not in text:
        options = {**COMPILED_SOON, **options}
    digest = device and program_store.digest(lowered, text, shapes, options, device)
    if not digest or device is None:
        return _compiled(lowered, options), "compiled"
    if (compiled := _by_digest.get(digest)) is not None:
        return compiled, "shared"
    if (compiled := program_store.load(digest, lowered, device)) is not None:
        source = "loaded"
    else:
        began = time.perf_counter()
        compiled, source = _compiled(lowered, options), "compiled"
        program_store.store(digest, compiled, device, time.perf_counter() - began)
    _by_digest[digest] = compiled
    return compiled, source


def _compiled(lowered: jax.stages.Lowered, options: dict) -> jax.stages.Compiled:
    try:
        return lowered.compile(compiler_options=options or None)
    except (jax.errors.JaxRuntimeError, ValueError):
        # A version of XLA may not know how to be quick. To ask beforehand would take a program of its own.
        known = {name: value for name, value in options.items() if name not in COMPILED_SOON}
        if len(known) == len(options):
            raise
        return lowered.compile(compiler_options=known or None)


_at_work, _since = 0, 0.0  # threads that make a program now, and since when there are any


def _open() -> float:
    """A thread begins to make a program; returns the time."""
    global _at_work, _since
    with _lock:
        began = time.perf_counter()
        _since = _since if _at_work else began
        _at_work += 1
    return began


def _close(began: float, source: str | None) -> None:
    """It has done so, or failed."""
    global _ledger, _at_work, _since
    with _lock:
        now = time.perf_counter()
        _at_work -= 1
        # Counted up to now even if others are still at it, who then begin to count.
        elapsed, _since = _ledger.elapsed + now - _since, now
        counts = {} if source is None else {source: getattr(_ledger, source) + 1}
        _ledger = dataclasses.replace(_ledger, seconds=_ledger.seconds + now - began, elapsed=elapsed, **counts)
