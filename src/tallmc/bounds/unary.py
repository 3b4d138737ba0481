"""Functions of one number, with the ranges of their first three derivatives on an interval.

A derivative takes its extremes at the ends of the interval or where the next one is zero. These places are known for
each function here; tests/test_bounds_unary.py looks at each on a grid.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from tallmc.bounds.interval import Interval, exactly, negative, outward, scaled, where_known
from tallmc.bounds.jet import Ranges

Function = Callable[[Array], Array]

_PEAK_OF_TWO = math.log(2 + math.sqrt(3))  # where the second derivative of the logistic function is largest
_PEAK_OF_THREE = 2.2924316695611777  # the third: log((1 + s) / (1 - s)) with s = sqrt(2 / 3)
_SMALLEST_LGAMMA = 1.4616321449683623  # where digamma is zero
# XLA's lgamma and digamma in float64, and sums for their derivatives, against 40 digits: off by 2e-13 of their size or
# of 1 at most for arguments from 1e-3 to 1e6.
_GAMMA_ERROR = 1e-11


def rising(function: Function, x: Interval) -> Interval:
    """The range of a function that grows."""
    return outward(function(x.low), function(x.high))


def falling(function: Function, x: Interval) -> Interval:
    """The range of a function that falls."""
    return outward(function(x.high), function(x.low))


def turning(function: Function, places: tuple[float, ...], x: Interval) -> Interval:
    """The range of a function that turns at some places, and at no others."""
    low_end, high_end = function(x.low), function(x.high)
    low, high = jnp.minimum(low_end, high_end), jnp.maximum(low_end, high_end)
    for place in places:
        there = function(jnp.asarray(place, x.low.dtype))  # once, not for each number
        crossed = (x.low < place) & (place < x.high)
        low = jnp.where(crossed, jnp.minimum(low, there), low)
        high = jnp.where(crossed, jnp.maximum(high, there), high)
    return outward(low, high)


def exp(x: Interval) -> Ranges:
    """All derivatives are the function itself."""
    value = rising(jnp.exp, x)
    return Ranges(value, value, value, value)


def expm1(x: Interval) -> Ranges:
    """Less one."""
    derivatives = exp(x)
    return derivatives._replace(value=rising(jnp.expm1, x))


def log(x: Interval) -> Ranges:
    """Of positive numbers."""
    x = where_known(x, x.low > 0)
    first, second = falling(lambda u: 1 / u, x), rising(lambda u: -1 / (u * u), x)
    return Ranges(rising(jnp.log, x), first, second, falling(lambda u: 2 / (u * u * u), x))


def log1p(x: Interval) -> Ranges:
    """Of numbers above -1."""
    x = where_known(x, x.low > -1)
    derivatives = log(outward(1 + x.low, 1 + x.high))
    return derivatives._replace(value=rising(jnp.log1p, x))


def logistic(x: Interval) -> Ranges:
    """1 / (1 + exp(-x))."""
    third = turning(_logistic_third, (-_PEAK_OF_THREE, 0.0, _PEAK_OF_THREE), x)
    return Ranges(
        rising(jax.nn.sigmoid, x),
        turning(_logistic_first, (0.0,), x),
        turning(_logistic_second, (-_PEAK_OF_TWO, _PEAK_OF_TWO), x),
        third,
    )


def softplus(x: Interval) -> Ranges:
    """log(1 + exp(x)), whose derivative is the logistic function."""
    slope = logistic(x)
    return Ranges(rising(jax.nn.softplus, x), slope.value, slope.first, slope.second)


def tanh(x: Interval) -> Ranges:
    """A logistic function of twice the number, stretched."""
    inner = logistic(Interval(2 * x.low, 2 * x.high))
    four, eight, sixteen = map(jnp.asarray, (4.0, 8.0, 16.0))
    return Ranges(
        rising(jnp.tanh, x), scaled(inner.first, four), scaled(inner.second, eight), scaled(inner.third, sixteen)
    )


def erf(x: Interval) -> Ranges:
    """The error function."""
    root, other = math.sqrt(0.5), math.sqrt(1.5)

    def first(u: Array) -> Array:
        return 2 / math.sqrt(math.pi) * jnp.exp(-u * u)

    third = turning(lambda u: (4 * u * u - 2) * first(u), (-other, 0.0, other), x)
    return Ranges(
        rising(jax.scipy.special.erf, x),
        turning(first, (0.0,), x),
        turning(lambda u: -2 * u * first(u), (-root, root), x),
        third,
    )


def erfc(x: Interval) -> Ranges:
    """One less the error function."""
    inner = erf(x)
    value = falling(jax.scipy.special.erfc, x)
    return Ranges(value, negative(inner.first), negative(inner.second), negative(inner.third))


def lgamma(x: Interval) -> Ranges:
    """Logarithm of the gamma function, of positive numbers."""
    x = where_known(x, x.low > 0)
    slope = digamma(x)
    value = _loosened(turning(jax.scipy.special.gammaln, (_SMALLEST_LGAMMA,), x))
    return Ranges(value, slope.value, slope.first, slope.second)


def digamma(x: Interval) -> Ranges:
    """Its derivative: rises, ever more slowly."""
    x = where_known(x, x.low > 0)
    return Ranges(
        _loosened(rising(jax.scipy.special.digamma, x)),
        _loosened(falling(lambda u: polygamma(1, u), x)),
        _loosened(rising(lambda u: polygamma(2, u), x)),
        _loosened(falling(lambda u: polygamma(3, u), x)),
    )


def polygamma(order: int, x: Array) -> Array:
    """The derivatives 1, 2 and 3 of digamma, of positive numbers.

    Sum of 1 / (x + k)^(order + 1) for k below 12, and the Euler-Maclaurin formula for the rest: what is left out is
    less than 1e-15 of it.
    """
    power, shifted = order + 1, x + 12
    total = sum((1 / (x + k) ** power for k in range(12)), start=jnp.zeros_like(x))
    rest = shifted ** (1 - power) / (power - 1) + shifted ** (-power) / 2
    rising_factor, falling_power = float(power), -power
    # Bernoulli numbers over factorials: 1/12, -1/720, 1/30240, -1/1209600, 1/47900160, -691/1307674368000.
    for number, over in enumerate((1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000)):
        rest = rest + over * rising_factor * shifted ** (falling_power - 1)
        low = power + 2 * number + 1
        rising_factor, falling_power = rising_factor * low * (low + 1), falling_power - 2
    sign = 1 if order % 2 else -1
    return sign * math.factorial(order) * (total + rest)


def log_ndtr(x: Interval) -> Ranges:
    """Logarithm of the normal distribution function.

    Its derivative h, the inverse Mills ratio, falls; the second, -h (x + h), lies between -1 and 0 and rises; the third
    is positive with one peak. Below -8 digits would be lost, and what is known of h stands in: with t = -x it lies
    between (3 t + sqrt(t^2 + 8)) / 4 (Sampford, 1953) and (t + sqrt(t^2 + 4)) / 2 (Birnbaum, 1942).
    """
    clipped = Interval(jnp.maximum(x.low, _MILLS_FROM), jnp.maximum(x.high, _MILLS_FROM))
    below = x.low < _MILLS_FROM
    first = falling(_mills, clipped)
    steepest = jnp.where(below, (jnp.sqrt(x.low * x.low + 4) - x.low) / 2, first.high)
    flattest = jnp.where(x.high < _MILLS_FROM, (jnp.sqrt(x.high * x.high + 8) - 3 * x.high) / 4, first.low)
    second = _loosened(rising(lambda u: -_mills(u) * (u + _mills(u)), clipped))
    third = _loosened(turning(_log_ndtr_third, (_PEAK_OF_LOG_NDTR,), clipped))
    # The third derivative rises up to its peak, so that below -8 it lies between 0 and what it is there.
    third = Interval(jnp.where(below, 0.0, third.low), third.high)
    return Ranges(
        _loosened(rising(jax.scipy.special.log_ndtr, x)),
        _loosened(Interval(flattest, steepest)),
        Interval(jnp.where(below, -1.0, second.low), jnp.minimum(second.high, 0.0)),
        third,
    )


def sin(x: Interval) -> Ranges:
    """By the turning points between the ends."""
    value, slope = _wave(jnp.sin, x, 0.25), _wave(jnp.cos, x, 0.0)
    return Ranges(value, slope, negative(value), negative(slope))


def cos(x: Interval) -> Ranges:
    """By the turning points between the ends."""
    value, slope = _wave(jnp.cos, x, 0.0), negative(_wave(jnp.sin, x, 0.25))
    return Ranges(value, slope, negative(value), negative(slope))


def power(exponent: float) -> Callable[[Interval], Ranges]:
    """A power with an exponent that is known: a whole number, or any number for positive numbers.

    Args:
        exponent: Of the power.
    """
    whole = float(exponent).is_integer()

    def ranges(x: Interval) -> Ranges:
        if not whole:
            x = where_known(x, x.low > 0)
        elif exponent < 0:
            x = where_known(x, (x.low > 0) | (x.high < 0))
        factors = [1.0, exponent, exponent * (exponent - 1), exponent * (exponent - 1) * (exponent - 2)]
        parts = [_multiple_of_power(factor, exponent - k, x, whole) for k, factor in enumerate(factors)]
        return Ranges(*parts)

    return ranges


def _multiple_of_power(factor: float, exponent: float, x: Interval, whole: bool) -> Interval:
    """On an interval on one side of zero a power is monotone; else it turns at zero, if at all."""
    if factor == 0:
        return exactly(jnp.zeros_like(x.low) * x.low)

    def function(u: Array) -> Array:
        return factor * (jnp.power(u, int(exponent)) if whole else jnp.power(u, exponent))

    return turning(function, (0.0,) if whole and exponent > 0 else (), x)


def _logistic_first(u: Array) -> Array:
    return jax.nn.sigmoid(u) * jax.nn.sigmoid(-u)


def _logistic_second(u: Array) -> Array:
    return -_logistic_first(u) * jnp.tanh(u / 2)


def _logistic_third(u: Array) -> Array:
    first = _logistic_first(u)
    return first * (1 - 6 * first)


_MILLS_FROM = -8.0
_PEAK_OF_LOG_NDTR = 1.00236934


def _mills(u: Array) -> Array:
    return jnp.exp(-u * u / 2 - jax.scipy.special.log_ndtr(u)) / math.sqrt(2 * math.pi)


def _log_ndtr_third(u: Array) -> Array:
    h = _mills(u)
    return h * ((u + h) * (u + 2 * h) - 1)


def _loosened(x: Interval) -> Interval:
    """By what functions may be off that XLA or sums of our own work out less well."""
    slack = _GAMMA_ERROR * (1 + x.size)
    return Interval(x.low - slack, x.high + slack)


def _wave(function: Function, x: Interval, offset: float) -> Interval:
    """Of a wave with its tops at whole numbers of turns plus an offset."""
    ends = outward(jnp.minimum(function(x.low), function(x.high)), jnp.maximum(function(x.low), function(x.high)))

    def crossed(at: float) -> Array:
        turn = 2 * math.pi
        # A little wider than the interval, as turns are rounded.
        return jnp.floor(x.high / turn - at + 1e-9) >= jnp.ceil(x.low / turn - at - 1e-9)

    low = jnp.where(crossed(offset + 0.5), jnp.minimum(ends.low, -1.0), ends.low)
    high = jnp.where(crossed(offset), jnp.maximum(ends.high, 1.0), ends.high)
    return Interval(low, high)
