"""Sums, products and comparisons of numbers, by what is known of each."""

from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tallmc.bounds import affine, jet, unary
from tallmc.bounds.affine import Affine
from tallmc.bounds.interval import Interval, outward, plus, up
from tallmc.bounds.jet import Jet
from tallmc.bounds.log_sum import log_add_exp
from tallmc.bounds.refusal import NotCoveredError
from tallmc.bounds.values import (
    Exponential,
    Guarded,
    Verdict,
    as_float,
    as_jet,
    certainly_positive,
    decided,
    exponential,
    guarded,
    merged,
    moves,
    of_one_kind,
    plain,
)


def add(a: Any, b: Any) -> Any:
    """The sum."""
    if isinstance(a, Guarded) or isinstance(b, Guarded):
        (x, some), (y, others) = _without_guards(a), _without_guards(b)
        return guarded(add(x, y), merged(some, others))
    if isinstance(a, Exponential) or isinstance(b, Exponential):
        one, other = (x if isinstance(x, Exponential) else _as_exponential(x) for x in (a, b))
        if one is not None and other is not None and one.guards == other.guards:
            direct = None if one.direct is None or other.direct is None else jet.add(one.direct, other.direct)
            return Exponential(_log_add(one.log, other.log), one.guards, direct)
    a, b = plain(a), plain(b)
    match a, b:
        case (Affine(), Affine()):
            return affine.add(a, b)
        case (Affine(), _) if not moves(b):
            return affine.shift(a, as_float(b))
        case (_, Affine()) if not moves(a):
            return affine.shift(b, as_float(a))
        case (_, _) if moves(a) or moves(b):
            return jet.add(as_jet(a), as_jet(b))
        case _:
            return as_float(a) + as_float(b)


def negate(a: Any) -> Any:
    """With its sign changed."""
    if isinstance(a, Guarded):
        return Guarded(negate(a.value), tuple((number, -times) for number, times in a.guards))
    a = plain(a)
    match a:
        case Affine():
            return affine.negate(a)
        case Jet():
            return jet.negate(a)
        case _:
            return -as_float(a)


def multiply(a: Any, b: Any) -> Any:
    """The product; of a number with itself if both are the same."""
    if isinstance(a, Guarded) or isinstance(b, Guarded):
        return _times_guarded(*((a, b) if isinstance(a, Guarded) else (b, a)))
    if isinstance(a, Exponential) and isinstance(b, Exponential):
        return exponential(add(a.log, b.log), merged(a.guards, b.guards))
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Exponential) and certainly_positive(other):
            direct = None if one.direct is None else jet.scale(one.direct, as_float(other))
            return Exponential(add(one.log, jnp.log(as_float(other))), one.guards, direct)
    if a is b:
        return jet.squared(as_jet(a))
    a, b = plain(a), plain(b)
    for one, other in ((a, b), (b, a)):
        if not moves(other):
            if isinstance(one, Affine):
                return affine.scale(one, as_float(other))
            if isinstance(one, Jet):
                return jet.scale(one, as_float(other))
    if not moves(a):
        return as_float(a) * as_float(b)
    return jet.multiply(as_jet(a), as_jet(b))


def divide(a: Any, b: Any) -> Any:
    """The quotient."""
    if isinstance(b, Exponential):
        log, guards = b.log, tuple((number, -times) for number, times in b.guards)
        return multiply(a, exponential(negate(log), guards))
    if not moves(b):
        return multiply(a, 1 / as_float(b))
    return multiply(a, jet.compose(unary.power(-1.0), as_jet(b)))


def power(a: Any, exponent: Any) -> Any:
    """A power: of what moves with an exponent that is known, or the other way round, or of two that move."""
    if not moves(exponent):
        if isinstance(exponent, Tracer) or np.ndim(exponent) > 0:
            # An exponent of each row: by way of the logarithm, so of positive numbers.
            return exponential(multiply(logarithm(a), as_float(exponent)))
        return raised(a, float(exponent))
    if not moves(a):
        return exponential(multiply(exponent, jnp.log(as_float(a))))
    return exponential(multiply(logarithm(a), exponent))


def raised(a: Any, exponent: float) -> Any:
    """A power with an exponent that is written in the program."""
    if isinstance(a, Exponential):
        if a.guards:
            raise NotCoveredError("stop_gradient")
        return exponential(multiply(a.log, jnp.asarray(exponent)))
    if exponent == 2.0:
        return jet.squared(as_jet(a))
    return jet.compose(unary.power(exponent), as_jet(a))


def exponentiate(a: Any) -> Any:
    """The exponential."""
    value, guards = _without_guards(a)
    return exponential(plain(value), guards)


def logarithm(a: Any) -> Any:
    """The logarithm; of an exponential it is what was exponentiated."""
    if isinstance(a, Exponential):
        return guarded(a.log, a.guards)
    return jet.compose(unary.log, as_jet(a))


def logarithm_of_one_plus(a: Any) -> Any:
    """The same of one and a number."""
    if isinstance(a, Exponential) and not a.guards:
        return jet.compose(unary.softplus, as_jet(a.log))
    return jet.compose(unary.log1p, as_jet(a))


def size(a: Any) -> Any:
    """The absolute value, which has a kink."""
    if isinstance(a, Exponential):
        return a
    x = as_jet(a)
    low, high = x.value
    kinked = jet.across_a_kink(x, jet.negate(x), Interval(jnp.zeros_like(low), x.value.size))
    return jet.choose(low >= 0, x, jet.choose(high <= 0, jet.negate(x), kinked))


def sign(a: Any) -> Any:
    """One, minus one, or not known."""
    if isinstance(a, Exponential):
        return jnp.ones(a.shape)
    low, high = as_jet(a).value
    return jet.constant(jnp.where(low > 0, 1.0, jnp.where(high < 0, -1.0, jnp.nan)))


def larger(a: Any, b: Any) -> Any:
    """The larger of two numbers, which has a kink where they are equal."""
    kind = of_one_kind([a, b])
    x, y = as_jet(kind[0]), as_jet(kind[1])
    value = Interval(jnp.maximum(x.value.low, y.value.low), jnp.maximum(x.value.high, y.value.high))
    kinked = jet.across_a_kink(x, y, value)
    return jet.choose(x.value.low >= y.value.high, x, jet.choose(y.value.low >= x.value.high, y, kinked))


def smaller(a: Any, b: Any) -> Any:
    """The smaller of two numbers."""
    return negate(larger(negate(a), negate(b)))


def clamped(least: Any, a: Any, most: Any) -> Any:
    """Between two limits."""
    return smaller(larger(a, least), most)


def compared(name: str, a: Any, b: Any) -> Any:
    """Which of two numbers is larger, as far as the region decides it."""
    if a is b:  # `x != x` asks whether a number is none: it is one, where anything is known of it
        known = jnp.isfinite(as_jet(a).value.size)
        same = name in ("eq", "le", "ge")
        return Verdict(known if same else jnp.zeros_like(known), jnp.ones_like(known) if same else ~known)
    if isinstance(a, Verdict) or isinstance(b, Verdict):
        raise NotCoveredError("a comparison of comparisons")
    x, y = as_jet(a).value, as_jet(b).value
    above, below = x.low > y.high, x.high < y.low
    not_above, not_below = x.high <= y.low, x.low >= y.high
    match name:
        case "gt":
            return Verdict(above, ~not_above)
        case "ge":
            return Verdict(not_below, ~below)
        case "lt":
            return Verdict(below, ~not_below)
        case "le":
            return Verdict(not_above, ~above)
        case "eq":
            return Verdict(jnp.zeros_like(above), ~(above | below))
        case _:
            return Verdict(above | below, jnp.ones_like(above))


def is_finite(a: Any) -> Verdict:
    """Whether a number is one, in float32 as well."""
    size_ = as_jet(a).value.size
    certain = size_ < 1e30
    return Verdict(certain, jnp.ones_like(certain))


def combined(name: str, *answers: Any) -> Verdict:
    """And, or, not."""
    pairs = [x if isinstance(x, Verdict) else Verdict(jnp.asarray(x, bool), jnp.asarray(x, bool)) for x in answers]
    if name == "not":
        return Verdict(~pairs[0].possible, ~pairs[0].certain)
    joined = jnp.logical_and if name == "and" else jnp.logical_or
    return Verdict(joined(pairs[0].certain, pairs[1].certain), joined(pairs[0].possible, pairs[1].possible))


def select(which: Any, *cases: Any) -> Any:
    """One of several, by what data says; or by what the position says, where the whole region is of one mind."""
    if any(isinstance(case, Verdict) for case in cases):
        cases = tuple(decided(case) if isinstance(case, Verdict) else case for case in cases)
    if isinstance(which, Verdict):
        return _by_verdict(which, *cases)
    if moves(which):
        raise NotCoveredError("a choice by a number that depends on the position")
    guards = {case.guards if isinstance(case, Guarded) else () for case in cases}
    if len(guards) > 1:
        raise NotCoveredError("stop_gradient")
    kinds = of_one_kind([case.value if isinstance(case, Guarded) else case for case in cases])
    which = jnp.asarray(which)
    found: Any = kinds[0]
    for number, case in enumerate(kinds[1:], start=1):
        chosen = which if which.dtype == bool else which == number
        if isinstance(case, Affine):
            found = affine.choose(jnp.broadcast_to(chosen, case.shape), case, found)
        elif isinstance(case, Jet):
            found = jet.choose(jnp.broadcast_to(chosen, case.shape), case, found)
        else:
            found = jnp.where(chosen, as_float(case), as_float(found))
    return guarded(found, guards.pop())


def _by_verdict(which: Verdict, no: Any, yes: Any) -> Jet:
    one, other = as_jet(yes), as_jet(no)
    low, high = jnp.minimum(one.value.low, other.value.low), jnp.maximum(one.value.high, other.value.high)
    certain, possible = (jnp.broadcast_to(answer, low.shape) for answer in which)
    return jet.choose(certain, one, jet.choose(~possible, other, jet.unknown_but(Interval(low, high))))


def dot(a: Any, b: Any, dimensions: Any) -> Any:
    """A product of matrices."""
    product = partial(jax.lax.dot_general, dimension_numbers=dimensions, precision="highest")
    left, right = dimensions[0]
    if a is b and len(a.shape) == 1 and left == right:
        return jet.added_up(jnp.sum, jet.squared(as_jet(a)))
    a, b = plain(a), plain(b)
    if isinstance(b, Affine) and not moves(a):
        known = as_float(a)
        return affine.contracted(b, lambda x: product(known, x), lambda x: product(jnp.abs(known), x))
    if isinstance(a, Affine) and not moves(b):
        known = as_float(b)
        return affine.contracted(a, lambda x: product(x, known), lambda x: product(x, jnp.abs(known)))
    return _dot_of_jets(as_jet(a), as_jet(b), product)


def _dot_of_jets(a: Jet, b: Jet, product: Any) -> Jet:
    def times(x: Interval, y: Interval) -> Interval:
        """By the middles and half widths of both."""
        (m, r), (n, s) = (((z.low + z.high) / 2, up((z.high - z.low) / 2)) for z in (x, y))
        middle, terms = product(m, n), product(x.size, y.size)
        width = product(jnp.abs(m), s) + product(r, jnp.abs(n)) + product(r, s)
        return outward(middle - width, middle + width, terms)

    def total(order: int) -> Interval:
        parts = [times(a[k], b[order - k]) for k in range(order + 1)]
        return reduce(plus, parts)

    return Jet(*map(total, range(4)))


def _without_guards(a: Any) -> tuple[Any, tuple]:
    return (a.value, a.guards) if isinstance(a, Guarded) else (a, ())


def _times_guarded(a: Guarded, factor: Any) -> Any:
    if moves(factor) or isinstance(factor, Tracer) or np.ndim(factor) or not float(factor).is_integer():
        raise NotCoveredError("stop_gradient")
    guards = tuple((number, times * int(factor)) for number, times in a.guards if int(factor))
    return guarded(multiply(a.value, factor), guards)


def _as_exponential(a: Any) -> Exponential | None:
    """A positive number that is written in the program."""
    return exponential(jnp.log(as_float(a))) if certainly_positive(a) else None


def _log_add(a: Affine | Jet, b: Affine | Jet) -> Affine | Jet:
    one, other = of_one_kind([a, b])
    assert isinstance(one, Affine | Jet)
    assert isinstance(other, Affine | Jet)
    return log_add_exp(one, other)
