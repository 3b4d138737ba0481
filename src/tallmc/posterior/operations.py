"""What a function does to the position, read off the operations that JAX records of it; nothing is compiled."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.extend.core as jex
from jaxtyping import PyTree

# A function with derivatives of its own is taken at its word: `logaddexp` looks at which of two is larger, smoothly.
_WITH_THEIR_OWN_RULES = {"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"}
_LOOPS = {"while", "scan", "cond"}
_GUARDS = {"stop_gradient", "is_finite"}  # what is made of these guards against overflow, and bends nothing

_KINKED = {
    "abs": "abs",
    "max": "maximum",
    "min": "minimum",
    "reduce_max": "max",
    "reduce_min": "min",
    "clamp": "clip",
    "sign": "sign",
    "floor": "floor",
    "ceil": "ceil",
    "round": "round",
    "select_n": "where",
    "sort": "sort",
}


class Operation(NamedTuple):
    """An operation that depends on the position.

    Args:
        equation: As JAX records it.
        moving: Which of its arguments depend on the position.
        held: Whether some argument was worked out with what only guards against overflow (`stop_gradient`).
    """

    equation: Any
    moving: tuple[bool, ...]
    held: bool

    @property
    def name(self) -> str:
        """As JAX calls it."""
        return self.equation.primitive.name


def operations_on(function: Callable[..., Any], position: PyTree, *others: PyTree) -> list[Operation]:
    """The operations that have some part of the position among what goes in.

    Those inside loops and branches count as well, those inside functions with derivatives of their own do not.

    Args:
        function: Of the position and the others.
        position: A position, or its shapes.
        *others: Other arguments, or their shapes.

    Example:
        >>> found = operations_on(lambda place, row: jax.numpy.exp(place) * jax.numpy.sin(row), 1.0, 2.0)
        >>> [operation.name for operation in found]
        ['exp', 'mul']
    """
    jaxpr = jax.make_jaxpr(function)(position, *others).jaxpr
    mine = len(jax.tree.leaves(position))
    places = range(len(jaxpr.invars))
    return list(_followed(jaxpr, [place < mine for place in places], [False for _ in places]))


def kinks_in(function: Callable[..., Any], position: PyTree, *others: PyTree) -> tuple[str, ...]:
    """Operations at which a derivative jumps, on numbers that depend on the position; by their names in `jax.numpy`.

    Args:
        function: Of the position and the others.
        position: A position, or its shapes.
        *others: Other arguments, or their shapes.

    Example:
        >>> kinks_in(lambda place, row: abs(row - place) + abs(row), 1.0, 2.0)
        ('abs',)
    """
    found = operations_on(function, position, *others)
    # The largest of several numbers, held fixed against overflow as in a softmax, has no derivative at all.
    guards = {"max", "reduce_max"} if any(one.name == "stop_gradient" for one in found) else set()
    names = []
    for one in found:
        chooses = one.name != "select_n" or one.moving[0]  # by a condition that depends on the position
        if one.name in _KINKED and one.name not in guards and chooses and not one.held:
            names.append(_KINKED[one.name])
    return tuple(dict.fromkeys(names))


def _followed(jaxpr: Any, moving: Sequence[bool], held: Sequence[bool]) -> Iterator[Operation]:
    depends = {variable for variable, moves in zip(jaxpr.invars, moving, strict=True) if moves}
    fixed = {variable for variable, is_held in zip(jaxpr.invars, held, strict=True) if is_held}
    for equation in jaxpr.eqns:
        moves = [_among(atom, depends) for atom in equation.invars]
        if not any(moves):
            continue
        holds = [_among(atom, fixed) for atom in equation.invars]
        name = equation.primitive.name
        depends.update(equation.outvars)
        if any(holds) or name in _GUARDS:
            fixed.update(equation.outvars)
        inner = [] if name in _WITH_THEIR_OWN_RULES else list(_inside(equation))
        if not inner or name in _LOOPS:
            yield Operation(equation, tuple(moves), any(holds))
        for body in inner:
            count = len(body.invars)
            # Loops and branches have arguments in an order of their own: there, all are taken to depend on it.
            straight = name not in _LOOPS and count == len(moves)
            yield from _followed(body, moves if straight else [True] * count, holds if straight else [False] * count)


def _among(atom: Any, variables: set[Any]) -> bool:
    return not isinstance(atom, jex.Literal) and atom in variables


def _inside(equation: Any) -> Iterator[Any]:
    """The functions that an operation calls."""
    for value in equation.params.values():
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, jex.ClosedJaxpr):
                yield one.jaxpr
            elif isinstance(one, jex.Jaxpr):
                yield one
