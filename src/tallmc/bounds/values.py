"""What the reader of a likelihood knows of a number: all, an affine form, a jet, or how it came about."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool

from tallmc.bounds import affine, jet, unary
from tallmc.bounds.affine import Affine
from tallmc.bounds.interval import Interval, exactly
from tallmc.bounds.jet import Jet
from tallmc.bounds.refusal import NotCoveredError

# Numbers that are held fixed against overflow (`stop_gradient`), each with its number and the line where it is, and how
# many times each is added.
Guards = tuple[tuple[tuple[int, str], int], ...]
_numbers = itertools.count()


class Guarded(NamedTuple):
    """A number plus multiples of guards: one number each, of which nothing need be known, for they cancel in the end.

    If they do, a function does not depend on them, and its derivatives are those that JAX gives, which takes them for
    constants.
    """

    value: Any
    guards: Guards

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the number."""
        return jnp.shape(self.value) if not moves(self.value) else self.value.shape


class Exponential(NamedTuple):
    """A positive number that is known by its logarithm; sums, products and logarithms of such stay exact.

    Args:
        log: Its logarithm, but for guards.
        guards: Of the logarithm.
        direct: Its jet; None if there are guards.
    """

    log: Affine | Jet
    guards: Guards
    direct: Jet | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the number."""
        return self.log.shape


class Verdict(NamedTuple):
    """The answer to a question about the position: whether it is yes in the whole region, and whether it can be."""

    certain: Bool[Array, "..."]
    possible: Bool[Array, "..."]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the answer."""
        return self.certain.shape


MOVING = (Affine, Jet, Guarded, Exponential, Verdict)


def moves(value: Any) -> bool:
    """Whether it may depend on the position."""
    return isinstance(value, MOVING)


def new_guard(value: Any, line: str) -> Guarded:
    """A number that is held fixed; there must be only one of it, or it would have to be known where each belongs."""
    if int(np.prod(value.shape)) != 1:
        raise NotCoveredError("stop_gradient of more than one number")
    return Guarded(jnp.zeros(value.shape), (((next(_numbers), line), 1),))


def guarded(value: Any, guards: Guards) -> Any:
    """The number itself, if there are no guards."""
    return Guarded(value, guards) if guards else value


def merged(a: Guards, b: Guards, sign: int = 1) -> Guards:
    """Guards of a sum, or of a difference."""
    total = dict(a)
    for number, times in b:
        total[number] = total.get(number, 0) + sign * times
    return tuple(sorted((number, times) for number, times in total.items() if times))


def exponential(log: Any, guards: Guards = ()) -> Exponential:
    """The exponential of a number that is known but for guards."""
    log = log if isinstance(log, Affine | Jet) else jet.constant(as_float(log))
    return Exponential(log, guards, None if guards else jet.compose(unary.exp, as_jet(log)))


def as_float(value: Any) -> Array:
    """In float64, whatever precision it was written in."""
    return jnp.asarray(value, jnp.float64)


def plain(value: Any) -> Any:
    """Known, affine or a jet; what is anything else becomes a jet."""
    if isinstance(value, Exponential):
        if value.direct is None:
            raise NotCoveredError("stop_gradient")
        return value.direct
    if isinstance(value, Guarded):
        raise NotCoveredError("stop_gradient")
    if isinstance(value, Verdict):
        return decided(value)
    return value


def decided(answer: Verdict) -> Jet:
    """Yes as one and no as zero; nothing is known of what the position decides, but that it lies between."""
    known = exactly(jnp.where(answer.certain == answer.possible, 0.0, jnp.nan))
    value = Interval(answer.certain.astype(float), answer.possible.astype(float))
    return Jet(value, known, known, known)


def as_jet(value: Any) -> Jet:
    """Whatever it is, as a jet."""
    value = plain(value)
    if isinstance(value, Affine):
        return value.jet
    return value if isinstance(value, Jet) else jet.constant(as_float(value))


def of_one_kind(values: Sequence[Any]) -> list[Affine] | list[Jet] | list[Array]:
    """All as affine numbers if they can be, else all as jets; if none moves, as they are."""
    values = [plain(value) for value in values]
    first = next((value for value in values if isinstance(value, Affine)), None)
    if any(isinstance(value, Jet) for value in values):
        return [as_jet(value) for value in values]
    if first is None:
        return values
    return [x if isinstance(x, Affine) else affine.without_position(as_float(x), first) for x in values]


def spread(value: Any, shape: tuple[int, ...]) -> Any:
    """Over more places: numbers of one place may meet arrays."""
    if jnp.shape(value) == shape if not moves(value) else value.shape == shape:
        return value

    def broadcast(x: Array) -> Array:
        return jnp.broadcast_to(x, shape)

    return on_parts(broadcast, value)


def on_parts(function: Any, value: Any) -> Any:
    """A function that moves numbers about, applied to all that is known of them."""
    match value:
        case Affine():
            return affine.mapped(function, value)
        case Jet():
            return jet.mapped(function, value)
        case Guarded():
            return Guarded(on_parts(function, value.value), value.guards)
        case Exponential():
            direct = None if value.direct is None else jet.mapped(function, value.direct)
            return Exponential(on_parts(function, value.log), value.guards, direct)
        case Verdict():
            return Verdict(function(value.certain), function(value.possible))
        case _:
            return function(jnp.asarray(value))


def certainly_positive(value: Any) -> bool:
    """Of a number written in the program: whether all of it is above zero."""
    return not isinstance(value, Tracer) and not moves(value) and bool(np.all(np.asarray(value) > 0))
