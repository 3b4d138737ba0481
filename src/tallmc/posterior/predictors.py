"""What a likelihood knows a position through: a few numbers, linear in it, found in the code that a user wrote.

However many coordinates there are, a row mostly sees them through a few linear functions: the inner product of its
columns with the coefficients, its group's intercept, a log scale. Between these *predictors* and the log likelihood
lies a function of a few numbers. Derivatives of that function are cheap, and everything that is worked out for all
rows (Hessians, what an expansion leaves of a row) is products of matrices besides.

The predictors are found by following the operations of the likelihood, as JAX records them, from the position on: as
long as an operation is linear, what comes out is; what enters the first operation that is not is a predictor.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree, Real

_MOST = 16  # predictors; work on their second derivatives grows with the square

# Operations, by what they do to things that are linear in the position.
_CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"}
_PICKING = {"reshape", "squeeze", "broadcast_in_dim", "slice", "split", "transpose", "rev", "dynamic_slice", "gather"}
_ADDING = {"add", "add_any", "sub", "neg", "reduce_sum", "cumsum", "concatenate", "pad"}
_MULTIPLYING = {"mul", "dot_general"}

# What a number is, from the position's point of view: free of it; some of its coordinates, unchanged; linear (and a
# constant may be added); anything else.
_FREE, _PICKED, _LINEAR, _ELSE = range(4)


class _Operation(NamedTuple):
    """One step of a likelihood; what goes in and comes out is named by its place among all that appears."""

    apply: Callable[..., list[Any]]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Predictors:
    """The predictors of a likelihood and the function that is left.

    Args:
        count: How many predictors there are, m.
        num_coordinates: Of a position, d.
        num_shared: How many coordinates all rows look at, in any order; they are the first of what `seen` gives.
        num_seen: How many coordinates a row looks at in all: q.
    """

    def __init__(self, program: "_Program", cuts: Sequence[int]):
        self._program, self._cuts = program, cuts
        self.num_coordinates = program.size(program.position)
        self.count = sum(map(program.size, cuts))
        leaves = _leaves(program, cuts)
        self._leaves = [leaf for leaf in leaves if not program.by_row[leaf]]
        self.num_shared = sum(map(program.size, self._leaves))
        self._leaves += [leaf for leaf in leaves if program.by_row[leaf]]
        self.num_seen = sum(map(program.size, self._leaves))

    def at(self, flat: Real[Array, " d"], row: PyTree) -> Real[Array, " m"]:
        """The predictors of a row at a flat position."""
        return self._joined(self._cuts, self._program.inputs(flat, row), flat.dtype)

    def link(self, predictors: Real[Array, " m"], row: PyTree) -> Real[Array, ""]:
        """The log likelihood of a row, given its predictors."""
        known = self._program.inputs(None, row) | self._split(self._cuts, predictors)
        return self._program.evaluate([self._program.output], known)[0]

    def seen(self, flat: Real[Array, " d"], row: PyTree) -> Real[Array, " q"]:
        """The coordinates that a row looks at; the same one may be there twice."""
        return self._joined(self._leaves, self._program.inputs(flat, row), flat.dtype)

    def numbers(self, like: Real[Array, " d"], row: PyTree) -> Int[Array, " q"]:
        """Which these are."""
        return self.seen(jnp.arange(self.num_coordinates, dtype=like.dtype), row).astype(jnp.int32)

    def of_seen(self, seen: Real[Array, " q"], row: PyTree) -> Real[Array, " m"]:
        """The predictors, given the coordinates that the row looks at."""
        known = self._program.inputs(None, row) | self._split(self._leaves, seen)
        return self._joined(self._cuts, known, seen.dtype)

    def _joined(self, wanted: Sequence[int], known: dict[int, Any], dtype: Any) -> Array:
        values = self._program.evaluate(wanted, known)
        return jnp.concatenate([jnp.ravel(value).astype(dtype) for value in values])

    def _split(self, names: Sequence[int], flat: Array) -> dict[int, Any]:
        shapes = [self._program.shapes[name] for name in names]
        edges = np.cumsum([int(np.prod(shape.shape)) for shape in shapes])[:-1].tolist()
        parts = jnp.split(flat, edges)
        return {
            name: part.reshape(shape.shape).astype(shape.dtype)
            for name, part, shape in zip(names, parts, shapes, strict=True)
        }


def predictors_of(
    log_likelihood: Callable[[PyTree, PyTree], Real[Array, ""]],
    unravel: Callable[[Array], PyTree],
    flat: Any,
    row: PyTree,
) -> Predictors | None:
    """The predictors of a likelihood; None if they are not fewer than the coordinates, or too many to be of use.

    Args:
        log_likelihood: Of one row.
        unravel: From a flat position to one that the likelihood takes.
        flat: A flat position, or its shape.
        row: A row, or its shapes.

    Example:
        >>> import jax.numpy as jnp
        >>> def log_likelihood(position, row):
        ...     error = (row["y"] - row["x"] @ position[:3]) / jnp.exp(position[3])
        ...     return -0.5 * error**2 - position[3]
        >>> row = {"x": jnp.ones(3), "y": jnp.ones(())}
        >>> predictors = predictors_of(log_likelihood, lambda flat: flat, jnp.arange(4.0), row)
        >>> predictors.at(jnp.arange(4.0), row).tolist()  # y less the inner product, and the log scale
        [-2.0, 3.0]
    """
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), (flat, row))
    program = _Program(lambda flat, row: log_likelihood(unravel(flat), row), *shapes)
    cuts = _cuts(program)
    count = sum(map(program.size, cuts))
    return Predictors(program, cuts) if 0 < count <= min(_MOST, program.size(program.position) - 1) else None


class _Program:
    """A likelihood as a list of operations, and what each number in it is."""

    def __init__(self, function: Callable[[Array, PyTree], Array], flat: Any, row: PyTree):
        self.shapes: list[Any] = []
        self.constants: dict[int, Any] = {}
        self.operations: list[_Operation] = []
        self.origin: dict[int, int] = {}  # of what comes out of an operation, which it is
        self.kinds: dict[int, int] = {}
        self.by_row: dict[int, bool] = {}
        self._picked: dict[tuple[str, str, tuple[int, ...]], list[int]] = {}
        closed = jax.make_jaxpr(function)(flat, row)
        arguments = [self._new(variable.aval) for variable in closed.jaxpr.invars]
        self.position, self._row = arguments[0], arguments[1:]
        self.kinds |= {name: _FREE for name in self._row} | {self.position: _PICKED}
        self.by_row |= {name: True for name in self._row} | {self.position: False}
        (self.output,) = self._add(closed.jaxpr, closed.consts, arguments)

    def size(self, name: int) -> int:
        """How many numbers a name stands for."""
        return int(np.prod(self.shapes[name].shape))

    def inputs(self, flat: Array | None, row: PyTree) -> dict[int, Any]:
        """What is known of a row, and of a position if there is one."""
        known = dict(zip(self._row, jax.tree.leaves(row), strict=True))
        return known if flat is None else known | {self.position: flat}

    def evaluate(self, wanted: Sequence[int], known: dict[int, Any]) -> list[Any]:
        """Works out numbers from others, by the operations that this takes."""
        values = self.constants | known
        needed = set(wanted) - values.keys()
        steps = []
        for operation in reversed(self.operations):
            if needed.intersection(operation.outputs):
                steps.append(operation)
                needed.update(set(operation.inputs) - values.keys())
        for apply, inputs, outputs in reversed(steps):
            results = apply(*(values[name] for name in inputs))
            # What is known beforehand stays: it may be a predictor that is to be varied.
            values |= {name: value for name, value in zip(outputs, results, strict=True) if name not in known}
        return [values[name] for name in wanted]

    def _new(self, shape: Any) -> int:
        self.shapes.append(shape)
        return len(self.shapes) - 1

    def _constant(self, value: Any, shape: Any) -> int:
        name = self._new(shape)
        self.constants[name], self.kinds[name], self.by_row[name] = value, _FREE, False
        return name

    def _add(self, jaxpr: Any, constants: Iterable[Any], arguments: Iterable[int]) -> list[int]:
        """Adds the operations of a function, those of functions that it calls among them; returns what comes out."""
        names: dict[Any, int] = dict(zip(jaxpr.invars, arguments, strict=True))
        names |= {v: self._constant(value, v.aval) for v, value in zip(jaxpr.constvars, constants, strict=True)}

        def name_of(atom: Any) -> int:
            return self._constant(atom.val, atom.aval) if isinstance(atom, jex.Literal) else names[atom]

        for equation in jaxpr.eqns:
            inputs = [name_of(atom) for atom in equation.invars]
            inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
            if equation.primitive.name in _CALLS and inner is not None:
                body, consts = (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, ())
                names |= zip(equation.outvars, self._add(body, consts, inputs), strict=True)
                continue
            # What is picked twice is picked once, or one coordinate would be two predictors. Parameters of other
            # operations may hold what their text does not show.
            same = equation.primitive.name, str(equation.params), tuple(inputs)
            if same in self._picked:
                names |= zip(equation.outvars, self._picked[same], strict=True)
                continue
            outputs = [self._new(variable.aval) for variable in equation.outvars]
            if equation.primitive.name in _PICKING:
                self._picked[same] = outputs
            names |= zip(equation.outvars, outputs, strict=True)
            self.kinds |= dict.fromkeys(outputs, self._kind(equation, [self.kinds[name] for name in inputs]))
            self.by_row |= dict.fromkeys(outputs, any(self.by_row[name] for name in inputs))
            variables = list(dict.fromkeys(atom for atom in equation.invars if not isinstance(atom, jex.Literal)))
            alone = jaxpr.replace(constvars=(), invars=variables, outvars=equation.outvars, eqns=[equation])
            inputs = tuple(names[variable] for variable in variables)
            self.origin |= dict.fromkeys(outputs, len(self.operations))
            self.operations.append(_Operation(jex.jaxpr_as_fun(jex.ClosedJaxpr(alone, ())), inputs, tuple(outputs)))
        return [name_of(atom) for atom in jaxpr.outvars]

    @staticmethod
    def _kind(equation: Any, kinds: list[int]) -> int:
        """Of what comes out of an operation, by what goes in."""
        name, most = equation.primitive.name, max(kinds, default=_FREE)
        moving = [kind for kind in kinds if kind != _FREE]
        only_the_first = len(moving) == 1 and kinds[0] != _FREE
        if most in (_FREE, _ELSE):
            return most
        if name == "convert_element_type":
            return most if jnp.issubdtype(equation.params["new_dtype"], jnp.floating) else _ELSE
        if name in _PICKING or name == "div":
            return (most if name in _PICKING else _LINEAR) if only_the_first else _ELSE
        if name == "concatenate" and len(moving) == len(kinds):
            return most
        if name in _ADDING or (name == "select_n" and kinds[0] == _FREE):
            return _LINEAR
        return _LINEAR if name in _MULTIPLYING and len(moving) == 1 else _ELSE


def _cuts(program: _Program) -> list[int]:
    """As few linear numbers as what is not linear can be worked out from, given the row."""
    linear = {name for name, kind in program.kinds.items() if kind in (_PICKED, _LINEAR)}
    ends = {name for op in program.operations if program.kinds[op.outputs[0]] == _ELSE for name in op.inputs}
    cuts = _without_derived(program, linear & (ends | {program.output}))
    for name in sorted(linear):
        # Two numbers that are worked out from an earlier one are better replaced by that one.
        if program.size(name) < sum(map(program.size, cuts)):
            cuts = min(cuts, _without_derived(program, {*cuts, name}), key=lambda some: sum(map(program.size, some)))
    return cuts


def _without_derived(program: _Program, cuts: set[int]) -> list[int]:
    """Leaves out what can be worked out from the others: the last first, for it may come from earlier ones."""
    kept = set(cuts)
    for name in sorted(cuts, reverse=True):
        if program.position not in _origins(program, [name], kept - {name}):
            kept.remove(name)
    return sorted(kept)


def _leaves(program: _Program, cuts: Sequence[int]) -> list[int]:
    """The picked coordinates that the predictors are worked out from."""
    picked = {name for name, kind in program.kinds.items() if kind == _PICKED}
    return sorted(_origins(program, cuts, picked))


def _origins(program: _Program, names: Iterable[int], stops: set[int]) -> set[int]:
    """What numbers that depend on the position are worked out from: some of `stops`, or the position itself."""
    origins, seen, waiting = set[int](), set[int](), list(names)
    while waiting:
        name = waiting.pop()
        if name in seen or program.kinds[name] == _FREE:
            continue
        seen.add(name)
        if name in stops or name == program.position:
            origins.add(name)
        else:
            waiting.extend(program.operations[program.origin[name]].inputs)
    return origins
