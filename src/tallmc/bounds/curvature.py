"""Whether a function is concave for all positions and all rows, by the rules that say so without looking at either.

These are those of disciplined convex programming (Grant, Boyd & Ye, 2006, https://doi.org/10.1007/0-387-30528-9_7):
sums, products with what has a known sign, and functions that grow keep curvature. What they do not see is not claimed.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from tallmc.bounds.primitives import MOVING_ABOUT
from tallmc.bounds.reader import CALLS, body
from tallmc.bounds.recognised import name_of_known


class Kind(Enum):
    """What a number is as a function of the position, for all rows."""

    POSITIVE = auto()  # free of the position, and never negative
    NEGATIVE = auto()  # the same, and never positive
    FREE = auto()
    AFFINE = auto()
    CONVEX = auto()
    CONCAVE = auto()
    LOG_CONVEX = auto()  # positive, with a convex logarithm
    ELSE = auto()


_FREE = (Kind.POSITIVE, Kind.NEGATIVE, Kind.FREE)
_OPPOSITE = {
    Kind.POSITIVE: Kind.NEGATIVE,
    Kind.NEGATIVE: Kind.POSITIVE,
    Kind.CONVEX: Kind.CONCAVE,
    Kind.LOG_CONVEX: Kind.CONCAVE,
    Kind.CONCAVE: Kind.CONVEX,
}
_ADDING = {"reduce_sum", "cumsum", "scatter-add", "add", "add_any", "select_n", "concatenate", "pad"}


def is_concave(function: Callable[..., Any], flat: Any, *others: PyTree) -> bool:
    """Whether a function of a flat position is seen to be concave in it, whatever the other arguments are.

    What `stop_gradient` holds fixed is taken for a constant, as JAX takes it: ask only where that cancels.

    Args:
        function: Of a position, and of others.
        flat: A position, or its shape.
        *others: Other arguments, or their shapes.

    Example:
        >>> import jax.numpy as jnp
        >>> is_concave(lambda p, row: row @ p - jnp.exp(row @ p), jnp.ones(2), jnp.ones(2))
        True
        >>> is_concave(lambda p, row: (row @ p) ** 2, jnp.ones(2), jnp.ones(2))
        False
    """
    closed = jax.make_jaxpr(function)(flat, *others)
    kinds = [Kind.AFFINE] + [Kind.FREE] * (len(closed.jaxpr.invars) - 1)
    (found,) = _kinds(closed.jaxpr, closed.consts, kinds)
    return found in (*_FREE, Kind.AFFINE, Kind.CONCAVE)


def _kinds(jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Kind]) -> list[Kind]:
    known: dict[Any, Kind] = dict(zip(jaxpr.constvars, map(_of_known, constants), strict=True))
    known |= zip(jaxpr.invars, arguments, strict=True)

    def of(atom: Any) -> Kind:
        return _of_known(atom.val) if isinstance(atom, jex.Literal) else known[atom]

    for equation in jaxpr.eqns:
        inputs = [of(atom) for atom in equation.invars]
        inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
        if equation.primitive.name in CALLS and inner is not None:
            outputs = _kinds(*body(inner), inputs)
        else:
            outputs = [_applied(equation, inputs)] * len(equation.outvars)
        known |= zip(equation.outvars, outputs, strict=True)
    return [of(atom) for atom in jaxpr.outvars]


def _of_known(value: Any) -> Kind:
    if not isinstance(value, np.ndarray | np.generic | float | int | jax.Array) or isinstance(value, Tracer):
        return Kind.FREE
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "fiu":
        return Kind.FREE
    return Kind.POSITIVE if np.all(numbers >= 0) else Kind.NEGATIVE if np.all(numbers <= 0) else Kind.FREE


def _applied(equation: Any, inputs: list[Kind]) -> Kind:
    name = equation.primitive.name
    if name == "stop_gradient":
        return Kind.FREE
    if all(kind in _FREE for kind in inputs):
        return _of_free(name, inputs)
    match name:
        case "sub":
            return _sum([inputs[0], _negative(inputs[1])])
        case "neg":
            return _negative(inputs[0])
        case "mul" | "dot_general":
            first, second = equation.invars
            same = first is second and (name == "mul" or first.aval.ndim == 1)
            return _even_power(inputs[0]) if same else _product(*inputs)
        case "div":
            return _product(*inputs) if inputs[1] in _FREE else Kind.ELSE
        case "square":
            return _even_power(inputs[0])
        case "integer_pow":
            return _even_power(inputs[0]) if equation.params["y"] == 2 else Kind.ELSE
        case "select_n":
            return _sum(inputs[1:]) if inputs[0] in _FREE else Kind.ELSE
        case "convert_element_type":
            return inputs[0] if np.dtype(equation.params["new_dtype"]).kind == "f" else Kind.ELSE
        case _ if name in _ADDING:
            return _sum(inputs)
        case _ if name in MOVING_ABOUT:
            return inputs[0] if all(kind in _FREE for kind in inputs[1:]) else Kind.ELSE
        case "custom_jvp_call":
            return _grown(name_of_known(equation) or "", inputs)
        case _:
            return _grown(name, inputs)


def _grown(name: str, inputs: list[Kind]) -> Kind:
    """Functions that grow, and are convex or concave."""
    bending_up = all(kind in (*_FREE, Kind.AFFINE, Kind.CONVEX, Kind.LOG_CONVEX) for kind in inputs)
    bending_down = all(kind in (*_FREE, Kind.AFFINE, Kind.CONCAVE) for kind in inputs)
    match name:
        case "exp" | "exp2":
            return Kind.LOG_CONVEX if bending_up else Kind.ELSE
        case "logaddexp" | "max" | "reduce_max":
            return Kind.CONVEX if bending_up else Kind.ELSE
        case "log" if inputs[0] is Kind.LOG_CONVEX:
            return Kind.CONVEX
        case "log1p" if inputs[0] is Kind.LOG_CONVEX:  # of one and a number, whose logarithm is convex as well
            return Kind.CONVEX
        case "abs":
            return Kind.CONVEX if inputs[0] is Kind.AFFINE else inputs[0] if inputs[0] is Kind.LOG_CONVEX else Kind.ELSE
        case "log" | "log1p" | "log_ndtr" | "_log_ndtr" | "min" | "reduce_min" | "sqrt":
            return Kind.CONCAVE if bending_down else Kind.ELSE
        case _:
            return Kind.ELSE


def _of_free(name: str, inputs: list[Kind]) -> Kind:
    match name:
        case "exp" | "square" | "abs" | "sqrt" | "logistic":
            return Kind.POSITIVE
        case "mul" | "div" | "dot_general":
            return _product(*inputs)
        case "neg":
            return _negative(inputs[0])
        case "convert_element_type" | "stop_gradient" | "max":
            return inputs[0] if len(set(inputs)) == 1 else Kind.FREE
        case _ if name in MOVING_ABOUT or name in ("add", "reduce_sum"):
            return inputs[0] if len(inputs) == 1 or len(set(inputs)) == 1 else Kind.FREE
        case _:
            return Kind.FREE


def _negative(kind: Kind) -> Kind:
    return _OPPOSITE.get(kind, kind)


def _even_power(kind: Kind) -> Kind:
    return Kind.CONVEX if kind is Kind.AFFINE else Kind.LOG_CONVEX if kind is Kind.LOG_CONVEX else Kind.ELSE


def _product(a: Kind, b: Kind) -> Kind:
    known, moving = (a, b) if a in _FREE else (b, a)
    if known not in _FREE:
        return Kind.LOG_CONVEX if a is b is Kind.LOG_CONVEX else Kind.ELSE
    if moving is Kind.AFFINE:
        return Kind.AFFINE
    if known is Kind.FREE or moving is Kind.FREE:
        return Kind.FREE if moving in _FREE else Kind.ELSE
    return moving if known is Kind.POSITIVE else _negative(moving)


def _sum(kinds: Sequence[Kind]) -> Kind:
    """Of numbers, or of numbers of which one is taken."""
    present = set(kinds)
    if Kind.ELSE in present:
        return Kind.ELSE
    if present <= {Kind.POSITIVE, Kind.LOG_CONVEX}:
        return Kind.LOG_CONVEX
    bent = {Kind.CONVEX if kind is Kind.LOG_CONVEX else kind for kind in present - {*_FREE, Kind.AFFINE}}
    if len(bent) == 1:
        return bent.pop()
    return Kind.ELSE if bent else Kind.AFFINE
