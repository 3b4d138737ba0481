"""Follows a likelihood from the position on, operation by operation, and keeps what is known of every number."""

from collections.abc import Sequence
from typing import Any

import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from tallmc.bounds import arithmetic
from tallmc.bounds.primitives import LONGEST_LOOP, applied, together
from tallmc.bounds.recognised import recognised
from tallmc.bounds.refusal import NotCoveredError, line_of, not_covered
from tallmc.bounds.values import moves, new_guard, of_one_kind, on_parts, plain

CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"}


def read(jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """What is known of a function's results.

    Args:
        jaxpr: The function as JAX records it.
        constants: What it closes over.
        arguments: What is known of its arguments.
    """
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    known |= zip(jaxpr.invars, arguments, strict=True)

    def of(atom: Any) -> Any:
        return atom.val if isinstance(atom, jex.Literal) else known[atom]

    for equation in jaxpr.eqns:
        inputs = [of(atom) for atom in equation.invars]
        try:
            outputs = _read_one(jaxpr, equation, inputs)
        except NotCoveredError as error:
            raise (error if error.line else NotCoveredError(error.operation, line_of(equation))) from error
        known |= zip(equation.outvars, outputs, strict=True)
    return [of(atom) for atom in jaxpr.outvars]


def _read_one(jaxpr: Any, equation: Any, inputs: list[Any]) -> list[Any]:
    name = equation.primitive.name
    if not any(moves(value) for value in inputs):
        return _evaluated(jaxpr, equation, inputs)
    inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    if name in CALLS and inner is not None:
        return read(*body(inner), inputs)
    match name:
        case "custom_jvp_call":
            return recognised(equation, inputs)
        case "scan":
            return _unrolled(equation, inputs)
        case "cond":
            return _branched(equation, inputs)
        case "stop_gradient":
            return [new_guard(plain(inputs[0]), line_of(equation))]
        case _:
            return applied(equation, inputs)


def body(inner: Any) -> tuple[Any, Sequence[Any]]:
    """Of a function that another calls, with what it closes over."""
    return (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, ())


def _evaluated(jaxpr: Any, equation: Any, inputs: list[Any]) -> list[Any]:
    """An operation on what does not depend on the position."""
    values = {
        atom: value for atom, value in zip(equation.invars, inputs, strict=True) if not isinstance(atom, jex.Literal)
    }
    alone = jaxpr.replace(constvars=(), invars=list(values), outvars=equation.outvars, eqns=[equation])
    return jex.jaxpr_as_fun(jex.ClosedJaxpr(alone, ()))(*values.values())


def _unrolled(equation: Any, inputs: list[Any]) -> list[Any]:
    """A loop over a few steps, one after the other."""
    parameters = equation.params
    length, fixed, carried = (parameters[name] for name in ("length", "num_consts", "num_carry"))
    if length > LONGEST_LOOP:
        raise not_covered(equation, f"a scan of more than {LONGEST_LOOP} steps")
    inner, constants = body(parameters["jaxpr"])
    outer, carry, each = inputs[:fixed], inputs[fixed : fixed + carried], inputs[fixed + carried :]
    order = range(length - 1, -1, -1) if parameters["reverse"] else range(length)
    stacks: dict[int, list[Any]] = {}
    for step in order:
        some = [on_parts(lambda x, step=step: x[step], value) for value in each]
        results = read(inner, constants, [*outer, *carry, *some])
        carry, stacks[step] = results[:carried], results[carried:]
    columns = [[stacks[step][place] for step in range(length)] for place in range(len(equation.outvars) - carried)]
    return [*carry, *(_stacked(column) for column in columns)]


def _stacked(column: list[Any]) -> Any:
    values: list[Any] = list(of_one_kind(column))
    return together(values, lambda *parts: jnp.stack(parts)) if moves(values[0]) else jnp.stack(values)


def _branched(equation: Any, inputs: list[Any]) -> list[Any]:
    """A branch that data decides: all are followed, and one is taken."""
    index, *arguments = inputs
    if moves(index):
        raise not_covered(equation, "a branch that depends on the position")
    branches = [read(*body(branch), arguments) for branch in equation.params["branches"]]
    chosen = jnp.clip(jnp.asarray(index).astype(np.int32), 0, len(branches) - 1)
    return [arithmetic.select(chosen, *cases) for cases in zip(*branches, strict=True)]
