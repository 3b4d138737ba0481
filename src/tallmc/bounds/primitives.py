"""What each of JAX's operations does to what is known of its arguments."""

import math
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallmc.bounds import affine, arithmetic, jet, unary
from tallmc.bounds.affine import Affine
from tallmc.bounds.interval import Interval
from tallmc.bounds.jet import Jet
from tallmc.bounds.log_sum import log_sum_exp
from tallmc.bounds.refusal import not_covered
from tallmc.bounds.values import (
    Exponential,
    Verdict,
    as_jet,
    decided,
    moves,
    of_one_kind,
    on_parts,
    plain,
    spread,
)

_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": arithmetic.add,
    "add_any": arithmetic.add,
    "sub": lambda a, b: arithmetic.add(a, arithmetic.negate(b)),
    "neg": arithmetic.negate,
    "mul": arithmetic.multiply,
    "div": arithmetic.divide,
    "pow": arithmetic.power,
    "square": lambda a: arithmetic.raised(a, 2.0),
    "sqrt": lambda a: arithmetic.raised(a, 0.5),
    "rsqrt": lambda a: arithmetic.raised(a, -0.5),
    "exp": arithmetic.exponentiate,
    "exp2": lambda a: arithmetic.exponentiate(arithmetic.multiply(a, np.log(2.0))),
    "log": arithmetic.logarithm,
    "log1p": arithmetic.logarithm_of_one_plus,
    "abs": arithmetic.size,
    "sign": arithmetic.sign,
    "max": arithmetic.larger,
    "min": arithmetic.smaller,
    "clamp": arithmetic.clamped,
    "is_finite": arithmetic.is_finite,
}
_FUNCTIONS = {
    "expm1": unary.expm1,
    "logistic": unary.logistic,
    "tanh": unary.tanh,
    "erf": unary.erf,
    "erfc": unary.erfc,
    "lgamma": unary.lgamma,
    "digamma": unary.digamma,
    "sin": unary.sin,
    "cos": unary.cos,
}
LONGEST_LOOP = 64  # steps that are read one after the other; a judgement: reading takes time for each
_COMPARISONS = ("gt", "ge", "lt", "le", "eq", "ne")
_COMBINATIONS = ("and", "or", "not")
_KNOWN = {"integer_pow", *_ELEMENTWISE, *_FUNCTIONS, *_COMPARISONS, *_COMBINATIONS}
# Operations that move numbers about, with the places of what is moved; the others say where to.
_PLACED: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(("reshape", "squeeze", "broadcast_in_dim", "expand_dims", "slice", "transpose", "rev"), (0,)),
    **dict.fromkeys(("split", "copy", "copy_p", "dynamic_slice", "gather", "tile"), (0,)),
    **dict.fromkeys(("pad", "dynamic_update_slice"), (0, 1)),
    "scatter": (0, 2),
    "concatenate": None,  # all of them
}
MOVING_ABOUT = frozenset(_PLACED)
_ADDED: dict[str, tuple[int, ...]] = {"reduce_sum": (0,), "cumsum": (0,), "scatter-add": (0, 2)}


def applied(equation: Any, inputs: list[Any]) -> list[Any]:
    """What comes out of an operation, some of whose arguments depend on the position.

    Args:
        equation: As JAX records it.
        inputs: What is known of its arguments.
    """
    name = equation.primitive.name
    shape = tuple(equation.outvars[0].aval.shape)
    if name in _PLACED or name in _ADDED:
        return _placed(equation, inputs)
    if name == "dot_general":
        return [arithmetic.dot(inputs[0], inputs[1], equation.params["dimension_numbers"])]
    if name in ("cumprod", "reduce_prod"):
        return [_product(equation, inputs[0])]
    if name in ("reduce_max", "reduce_min"):
        return [_extreme(equation, inputs[0])]
    if name in ("reduce_and", "reduce_or"):
        return [on_parts(lambda x: equation.primitive.bind(x, **equation.params), inputs[0])]
    if name == "convert_element_type":
        return [_converted(equation, inputs[0])]
    if name == "select_n":
        which, *cases = inputs
        which = spread(which, shape) if moves(which) or np.ndim(which) else which
        return [arithmetic.select(which, *(spread(case, shape) for case in cases))]
    if name not in _KNOWN:
        raise not_covered(equation)
    over = [spread(x, shape) if moves(x) or np.ndim(x) else x for x in inputs]
    if len(inputs) == 2 and inputs[0] is inputs[1]:
        over[1] = over[0]  # the same number, which a product with itself must know
    return [_elementwise(equation, name, over)]


def _elementwise(equation: Any, name: str, inputs: list[Any]) -> Any:
    if name == "integer_pow":
        return arithmetic.raised(inputs[0], float(equation.params["y"]))
    if name in _COMPARISONS:
        return arithmetic.compared(name, *inputs)
    if name in _COMBINATIONS:
        return arithmetic.combined(name, *inputs)
    if name in _FUNCTIONS:
        return jet.compose(_FUNCTIONS[name], as_jet(inputs[0]))
    return _ELEMENTWISE[name](*inputs)


def _placed(equation: Any, inputs: list[Any]) -> list[Any]:
    name = equation.primitive.name
    places = _PLACED.get(name, _ADDED.get(name))
    places = tuple(range(len(inputs))) if places is None else places
    if any(moves(value) for place, value in enumerate(inputs) if place not in places):
        raise not_covered(equation, f"{name} at a place that depends on the position")

    def bound(*placed: Any) -> Any:
        arguments = list(inputs)
        for place, value in zip(places, placed, strict=True):
            arguments[place] = value
        return equation.primitive.bind(*arguments, **equation.params)

    if len(places) > 1:
        found: Any = together(of_one_kind([inputs[place] for place in places]), bound, adding=name in _ADDED)
    elif name == "reduce_sum":
        found = _sum(inputs[0], equation.params["axes"], bound)
    elif name in _ADDED:
        found = _added(plain(inputs[0]), bound)
    else:
        several = len(equation.outvars) if equation.primitive.multiple_results else None
        found = _moved(inputs[0], bound, several)
    return found if equation.primitive.multiple_results else [found]


def _moved(value: Any, function: Callable[..., Any], several: int | None) -> Any:
    """One result, or several."""
    if several is None:
        return on_parts(function, value)
    return [on_parts(lambda x, part=part: function(x)[part], value) for part in range(several)]


def _sum(value: Any, axes: tuple[int, ...], function: Callable[..., Any]) -> Any:
    if not isinstance(value, Exponential) or not axes:
        return _added(plain(value), function)
    kept = [axis for axis in range(len(value.shape)) if axis not in axes]
    count = math.prod(value.shape[axis] for axis in axes)

    def last(x: Any) -> Any:
        return jnp.transpose(x, (*kept, *axes)).reshape(*(x.shape[axis] for axis in kept), count)

    log = log_sum_exp(on_parts(last, value.log))
    return Exponential(log, value.guards, None if value.direct is None else jet.added_up(function, value.direct))


def _product(equation: Any, value: Any) -> Any:
    """Of several numbers, one after the other."""
    if equation.primitive.name == "reduce_prod":
        for axis in sorted(equation.params["axes"], reverse=True):
            ends = _running_products(equation, value, axis, reverse=False)
            value = on_parts(lambda x, axis=axis: jnp.squeeze(x, axis), ends[-1])
        return value
    axis, reverse = equation.params["axis"], equation.params["reverse"]
    products = _running_products(equation, value, axis, reverse=reverse)
    values: list[Any] = list(of_one_kind(products[::-1] if reverse else products))
    return together(values, lambda *parts: jnp.concatenate(parts, axis))


def _running_products(equation: Any, value: Any, axis: int, *, reverse: bool) -> list[Any]:
    count = value.shape[axis]
    if count > LONGEST_LOOP:
        raise not_covered(equation, f"a product of more than {LONGEST_LOOP} numbers")
    factors = [on_parts(lambda x, k=k: jax.lax.slice_in_dim(x, k, k + 1, axis=axis), value) for k in range(count)]
    return list(accumulate(factors[::-1] if reverse else factors, arithmetic.multiply))


def _added(value: Affine | Jet, function: Callable[..., Any]) -> Any:
    return affine.mapped(function, value) if isinstance(value, Affine) else jet.added_up(function, value)


def together(values: list[Any], function: Callable[..., Any], *, adding: bool = False) -> Any:
    """An operation on several arrays, of one kind by now."""
    if isinstance(values[0], Affine):
        matrix = _along_last(function, [value.matrix for value in values])
        offset, terms = (function(*(getattr(value, name) for value in values)) for name in ("offset", "terms"))
        return values[0]._replace(offset=offset, matrix=matrix, terms=terms)
    found = Jet(
        *(Interval(*(function(*end) for end in zip(*column, strict=True))) for column in zip(*values, strict=True))
    )
    return jet.added_up(lambda x: x, found) if adding else found


def _along_last(function: Callable[..., Any], matrices: list[Any]) -> Any:
    return jax.vmap(function, in_axes=-1, out_axes=-1)(*matrices)


def _extreme(equation: Any, value: Any) -> Jet:
    """The largest or smallest of several numbers; one of one is itself."""
    x = as_jet(value)

    def over(part: Any) -> Any:
        return equation.primitive.bind(part, **equation.params)

    axes = equation.params["axes"]
    if math.prod(value.shape[axis] for axis in axes) == 1:
        return jet.mapped(over, x)
    interval = Interval(over(x.value.low), over(x.value.high))
    steepest = Interval(jnp.min(x.slope.low, axis=axes), jnp.max(x.slope.high, axis=axes))
    one_of_them = jet.constant(interval.low)._replace(slope=steepest)
    return jet.across_a_kink(one_of_them, one_of_them, interval)


def _converted(equation: Any, value: Any) -> Any:
    """Between precisions; what a coarse one would round away is not followed."""
    kind = np.dtype(equation.params["new_dtype"])
    if isinstance(value, Verdict):
        return value if kind == np.bool_ else decided(value)
    if not jnp.issubdtype(kind, jnp.floating) or kind.itemsize < 4:
        raise not_covered(equation, f"a conversion to {kind.name}")
    return value
