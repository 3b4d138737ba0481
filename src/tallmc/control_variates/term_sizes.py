"""How large the numbers were that a function's value is the sum of: what rounding is in proportion to.

A log likelihood such as `y * z - exp(z)` may come out near zero from two terms near three. It is rounded as its terms
are, and of that its value shows nothing.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jaxtyping import Array, Real

_CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"}
_MOVED = {"reshape", "squeeze", "broadcast_in_dim", "slice", "transpose", "rev", "convert_element_type", "copy"}


def term_sizes(function: Callable[[Array], Array], at: Real[Array, "*n"]) -> Real[Array, "*n"]:
    """The sum of the sizes of the terms that a value is made of, followed back through sums and products.

    Args:
        function: Of one array.
        at: Where.

    Example:
        >>> import jax.numpy as jnp
        >>> float(term_sizes(lambda z: (2.0 * z - 1.5) - (0.5 - z), jnp.asarray(0.5)))
        3.5
    """
    closed = jax.make_jaxpr(function)(at)
    (result,) = _followed(closed.jaxpr, closed.consts, [(at, jnp.abs(at))])
    return result[1]


def _followed(jaxpr: Any, constants: Any, arguments: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Values, with the sizes of their terms."""
    known: dict[Any, tuple[Any, Any]] = {
        variable: (value, _size(value)) for variable, value in zip(jaxpr.constvars, constants, strict=True)
    }
    known |= zip(jaxpr.invars, arguments, strict=True)

    def of(atom: Any) -> tuple[Any, Any]:
        return (atom.val, _size(atom.val)) if isinstance(atom, jex.Literal) else known[atom]

    for equation in jaxpr.eqns:
        inputs = [of(atom) for atom in equation.invars]
        inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
        if equation.primitive.name in _CALLS and inner is not None:
            body, consts = (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, ())
            known |= zip(equation.outvars, _followed(body, consts, inputs), strict=True)
            continue
        variables = {a: value for a, (value, _) in zip(equation.invars, inputs, strict=True) if _is_variable(a)}
        alone = jaxpr.replace(constvars=(), invars=list(variables), outvars=equation.outvars, eqns=[equation])
        values = jex.jaxpr_as_fun(jex.ClosedJaxpr(alone, ()))(*variables.values())
        sizes = _sizes(equation, inputs, values)
        known |= zip(equation.outvars, zip(values, sizes, strict=True), strict=True)
    return [of(atom) for atom in jaxpr.outvars]


def _sizes(equation: Any, inputs: list[tuple[Any, Any]], values: list[Any]) -> list[Any]:
    """Of what comes out of one operation; one that neither adds nor multiplies begins anew."""
    name, sizes = equation.primitive.name, [size for _, size in inputs]
    if len(values) != 1 or not jnp.issubdtype(values[0].dtype, jnp.floating):
        return [_size(value) for value in values]
    match name:
        case "add" | "add_any" | "sub":
            return [sizes[0] + sizes[1]]
        case "mul":
            return [sizes[0] * sizes[1]]
        case "div":
            return [sizes[0] / _size(inputs[1][0])]
        case "neg":
            return [sizes[0]]
        case "reduce_sum" if jnp.issubdtype(sizes[0].dtype, jnp.floating):
            return [equation.primitive.bind(sizes[0], **equation.params)]
        case "select_n":
            return [equation.primitive.bind(inputs[0][0], *sizes[1:], **equation.params)]
        case _ if name in _MOVED and jnp.issubdtype(sizes[0].dtype, jnp.floating):
            return [equation.primitive.bind(sizes[0], **equation.params)]
        case _:
            return [_size(values[0])]


def _size(value: Any) -> Any:
    value = jnp.asarray(value)
    return jnp.abs(value) if jnp.issubdtype(value.dtype, jnp.floating) else value


def _is_variable(atom: Any) -> bool:
    return not isinstance(atom, jex.Literal)
