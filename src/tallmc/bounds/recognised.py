"""Functions of JAX's library that come with a derivative of their own, recognised whole.

A function is one of these if it has its name, its derivative's name and, operation by operation, its program: whatever
is merely called like one is not taken for it.
"""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tallmc.bounds import arithmetic, jet, unary
from tallmc.bounds.affine import Affine
from tallmc.bounds.jet import Jet
from tallmc.bounds.log_sum import log_add_exp
from tallmc.bounds.refusal import not_covered
from tallmc.bounds.values import as_float, as_jet, moves, of_one_kind, plain, spread


def _log_add_exp(a: Any, b: Any) -> Any:
    if not moves(b) or not moves(a):
        moving, known = (a, as_float(b)) if moves(a) else (b, as_float(a))
        # log(exp(x) + exp(c)) = c + softplus(x - c)
        excess = as_jet(arithmetic.add(moving, -known))
        return jet.add(jet.constant(known), jet.compose(unary.softplus, excess))
    one, other = of_one_kind([a, b])
    assert isinstance(one, Affine | Jet)
    assert isinstance(other, Affine | Jet)
    return log_add_exp(one, other)


def _log_ndtr(x: Any) -> Any:
    return jet.compose(unary.log_ndtr, as_jet(x))


def _x_log(factor: Any, y: Any, log: Callable[[Any], Any], known_log: Callable[[Any], Any]) -> Any:
    """The product with a logarithm; zero where the factor is, which says something new only where the logarithm is
    infinite, and there nothing is known if the factor depends on the position."""
    product = arithmetic.multiply(factor, log(y) if moves(y) else known_log(as_float(y)))
    if moves(factor):
        return product
    return arithmetic.select(as_float(factor) != 0, jnp.zeros(product.shape), plain(product))


_RULES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "logaddexp": (jnp.logaddexp, _log_add_exp),
    "_log_ndtr": (jax.scipy.special.log_ndtr, _log_ndtr),
    "log_ndtr": (jax.scipy.special.log_ndtr, _log_ndtr),
    "xlogy": (jax.scipy.special.xlogy, lambda x, y: _x_log(x, y, arithmetic.logarithm, jnp.log)),
    "xlog1py": (jax.scipy.special.xlog1py, lambda x, y: _x_log(x, y, arithmetic.logarithm_of_one_plus, jnp.log1p)),
}


def recognised(equation: Any, inputs: list[Any]) -> list[Any]:
    """What comes out of a function with a derivative of its own.

    Args:
        equation: A `custom_jvp_call`.
        inputs: What is known of its arguments.
    """
    name = _name(equation)
    if name not in _RULES:
        raise not_covered(equation, f"{name}, which has a derivative of its own (custom_jvp)")
    if name_of_known(equation) is None:
        raise not_covered(equation, f"{name}, which is not JAX's function of that name")
    rule = _RULES[name][1]
    shape = tuple(equation.outvars[0].aval.shape)
    return [rule(*(spread(x, shape) for x in inputs))]


def name_of_known(equation: Any) -> str | None:
    """Which of JAX's functions a `custom_jvp_call` is; None if it is none of those with a rule."""
    name = _name(equation)
    if name not in _RULES:
        return None
    shapes = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in equation.invars]
    theirs = _call_in(jax.make_jaxpr(_RULES[name][0])(*shapes).jaxpr)
    return name if _text(equation) == _text(theirs) else None


def _call_in(jaxpr: Any) -> Any:
    """The function with a derivative of its own that another consists of, in whatever it is wrapped."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "custom_jvp_call":
            return equation
        inner = equation.params.get("jaxpr")
        found = None if inner is None else _call_in(inner.jaxpr)
        if found is not None:
            return found
    return None


def _name(equation: Any) -> str:
    found = re.search(r"\bname=(\S+)", _shown(equation))
    return found.group(1) if found else "a function"


def _shown(equation: Any) -> str:
    return " ".join(str(equation).split())


def _text(equation: Any) -> tuple[str, str | None]:
    """Its program, and the name of its derivative."""
    if equation is None:
        return "", None
    derivative = re.search(r"\bjvp=(\S+)", _shown(equation))
    call = equation.params["call_jaxpr"]
    constants = [str(constant) for constant in getattr(call, "consts", ())]
    return f"{call}{constants}", derivative.group(1) if derivative else None
