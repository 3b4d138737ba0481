"""The logarithm of a sum of exponentials, whole: taken apart, its bounds would be a thousand times too wide.

Let a_k depend on a place on a line, with weights p = softmax(a). The first three derivatives of log sum exp a_k are
E[a'], E[a''] + Var(a') and E[a'''] + 3 Cov(a', a'') + K(a'), with moments under p and K the third cumulant. A variable
of range r has variance at most r^2 / 4 and a third cumulant of size at most r^3 / (6 sqrt 3); both are less where the
weights are known to be small.
"""

import math
from functools import partial

import jax.numpy as jnp
from jaxtyping import Array, Float

from tallmc.bounds import affine, jet
from tallmc.bounds.affine import Affine
from tallmc.bounds.interval import Interval, around_zero, outward, plus, up
from tallmc.bounds.jet import Jet
from tallmc.bounds.unary import softplus

_MOST_PAIRS = 16  # terms up to which all differences are worked out; beyond, they go by way of a middle term


def log_sum_exp(terms: Affine | Jet) -> Jet:
    """Over the last axis.

    Args:
        terms: What is exponentiated and added up.
    """
    return _of_affine(terms) if isinstance(terms, Affine) else _of_jets(terms)


def log_add_exp(a: Affine | Jet, b: Affine | Jet) -> Jet:
    """Of two numbers of one shape."""
    if isinstance(a, Affine) and isinstance(b, Affine):
        return jet.add(a.jet, jet.compose(softplus, affine.add(b, affine.negate(a)).jet))
    first, second = (x.jet if isinstance(x, Affine) else x for x in (a, b))
    together = partial(jnp.stack, axis=-1)
    both = Jet(*(Interval(*map(together, zip(x, y, strict=True))) for x, y in zip(first, second, strict=True)))
    difference = jet.add(second, jet.negate(first))
    return jet.tighter(_of_jets(both), jet.add(first, jet.compose(softplus, difference)))


def _of_affine(terms: Affine) -> Jet:
    count = terms.shape[-1]
    if count > _MOST_PAIRS:
        return _of_jets(terms.jet, affine.add(terms, affine.negate(_middle(terms))).slope.size)
    pairs = affine.add(_spread(terms, -1), affine.negate(_spread(terms, -2)))
    lengths = pairs.slope.size * (1 - jnp.eye(count))
    # Term k weighs 1 / sum over j of exp(a_j - a_k); `pairs[k, j]` is a_k - a_j.
    heaviest = _up_to_one(1 / jnp.sum(jnp.exp(-pairs.value.high), axis=-1))
    return _assembled(terms.jet, lengths, heaviest)


def _of_jets(terms: Jet, from_middle: Array | None = None) -> Jet:
    """Of numbers of which no more is known than their jets; two of them move apart no faster than both together."""
    count = terms.shape[-1]
    lengths = _both(terms.slope.size)
    if from_middle is not None:
        lengths = jnp.minimum(lengths, _both(from_middle))
    lengths = lengths * (1 - jnp.eye(count))
    low, high = terms.value
    least = low[..., None, :] - high[..., :, None]  # of a_j - a_k, in row k
    least = jnp.where(jnp.eye(count) > 0, 0.0, least)
    heaviest = _up_to_one(1 / jnp.sum(jnp.exp(least), axis=-1))
    return _assembled(terms, lengths, heaviest)


def _assembled(terms: Jet, lengths: Float[Array, "*n k k"], heaviest: Float[Array, "*n k"]) -> Jet:
    """From how fast any two terms move apart, and the largest weight of each."""

    def expected(x: Interval) -> Interval:
        """A mean lies between the least and the largest, and is of no more than its terms' sizes."""
        size = up(jnp.sum(heaviest * x.size, axis=-1))
        return Interval(jnp.maximum(jnp.min(x.low, axis=-1), -size), jnp.minimum(jnp.max(x.high, axis=-1), size))

    low, high = _log_of_sum(terms.value.low), _log_of_sum(terms.value.high)
    range_ = jnp.max(lengths, axis=(-2, -1))
    together = heaviest[..., :, None] * heaviest[..., None, :]
    variance = up(jnp.minimum(range_**2 / 4, jnp.sum(together * lengths**2, axis=(-2, -1)) / 2))
    # From the mean a term is no further than on average from the others.
    away = jnp.minimum(jnp.max(lengths, axis=-1), jnp.sum(heaviest[..., None, :] * lengths, axis=-1))
    cumulant = jnp.minimum(range_**3 / (6 * math.sqrt(3)), jnp.sum(heaviest * away**3, axis=-1))
    cumulant = up(jnp.minimum(cumulant, jnp.max(away, axis=-1) * variance))
    spread = jnp.max(terms.bend.high, axis=-1) - jnp.min(terms.bend.low, axis=-1)
    bend = plus(expected(terms.bend), Interval(jnp.zeros_like(variance), variance / 2))
    twist = plus(expected(terms.twist), around_zero(up(range_ * spread / 4 + cumulant / 6)))
    value = outward(low, high, jnp.max(terms.value.size, axis=-1) + math.log(terms.shape[-1]))
    return Jet(value, expected(terms.slope), bend, twist)


def _both(each: Array) -> Array:
    return up(each[..., :, None] + each[..., None, :])


def _log_of_sum(x: Array) -> Array:
    largest = jnp.max(x, axis=-1)
    return largest + jnp.log(jnp.sum(jnp.exp(x - largest[..., None]), axis=-1))


def _up_to_one(weight: Array) -> Array:
    return jnp.minimum(up(weight), 1.0)


def _spread(terms: Affine, axis: int) -> Affine:
    """With a new axis among those of the number."""
    place = len(terms.shape) + 1 + axis
    return affine.mapped(partial(jnp.expand_dims, axis=place), terms)


def _middle(terms: Affine) -> Affine:
    return affine.mapped(lambda x: jnp.broadcast_to(jnp.mean(x, axis=-1, keepdims=True), x.shape), terms)
