"""Likelihoods as users write them: what bounds are worked out for from their programs, and what is refused."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.stats as st
import numpy as np
from jax.scipy.special import gammaln

COLUMNS, CLASSES, GROUPS = 3, 4, 5


class Case(NamedTuple):
    """A likelihood and the numbers that its positions have."""

    log_likelihood: Callable[..., Any]
    size: int
    centre: float = 0.2  # of every coordinate
    width: float = 0.03  # of a coordinate: that of a posterior of a few thousand rows


def rows(count, seed=0):
    """One table for all: each likelihood takes from it what it needs."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, COLUMNS))
    x[:, 0] = 1
    return {
        "x": x,
        "y": generator.normal(size=count),
        "count": generator.poisson(2.0, count).astype(float),
        "binary": generator.integers(0, 2, count).astype(float),
        "positive": generator.exponential(size=count) + 0.05,
        "share": generator.beta(2, 2, count) * 0.96 + 0.02,
        "class": generator.integers(0, CLASSES, count).astype(np.int32),
        "group": generator.integers(0, GROUPS, count).astype(np.int32),
        "censored": generator.integers(0, 2, count).astype(bool),
    }


def logistic(p, row):
    z = row["x"] @ p
    return row["binary"] * z - jax.nn.softplus(z)


def logistic_by_hand(p, row):
    z = row["x"] @ p
    return row["binary"] * z - jnp.log(1 + jnp.exp(z))


def bernoulli_of_chances(p, row):
    chance = jax.nn.sigmoid(row["x"] @ p)
    return row["binary"] * jnp.log(chance) + (1 - row["binary"]) * jnp.log1p(-chance)


def probit(p, row):
    return st.norm.logcdf((2 * row["binary"] - 1) * (row["x"] @ p))


def complementary_log_log(p, row):
    rate = jnp.exp(row["x"] @ p)
    return jnp.where(row["binary"] > 0, jnp.log(-jnp.expm1(-rate)), -rate)


def poisson(p, row):
    return st.poisson.logpmf(row["count"], jnp.exp(row["x"] @ p))


def negative_binomial(p, row):
    mean, size, y = jnp.exp(row["x"] @ p[:-1]), jnp.exp(p[-1]), row["count"]
    total = gammaln(y + size) - gammaln(size)
    return total + size * jnp.log(size / (size + mean)) + y * jnp.log(mean / (size + mean))


def weibull_censored(p, row):
    shape, z = jnp.exp(p[-1]), row["x"] @ p[:-1]
    hazard = (row["positive"] / jnp.exp(z)) ** shape
    return jnp.where(row["censored"], 0.0, jnp.log(shape) - z + (shape - 1) * (jnp.log(row["positive"]) - z)) - hazard


def ordinal(p, row):
    cuts = p[0] + jnp.cumsum(jnp.exp(p[1:CLASSES])) - 2.0
    below = jnp.concatenate([jnp.zeros(1), jax.nn.sigmoid(cuts[:-1] - row["x"] @ p[CLASSES:]), jnp.ones(1)])
    return jnp.log(below[row["class"] % (CLASSES - 1) + 1] - below[row["class"] % (CLASSES - 1)])


def student(p, row):
    return st.t.logpdf(row["y"], 4.0, row["x"] @ p[:-1], jnp.exp(p[-1]))


def student_of_any_degree(p, row):
    return st.t.logpdf(row["y"], 2 + jnp.exp(p[-2]), row["x"] @ p[:-2], jnp.exp(p[-1]))


def gaussian(p, row):
    return st.norm.logpdf(row["y"], row["x"] @ p[:-1], jnp.exp(p[-1]))


def heteroscedastic(p, row):
    mean, log_scale = row["x"] @ p[:COLUMNS], row["x"] @ p[COLUMNS:]
    return -0.5 * ((row["y"] - mean) * jnp.exp(-log_scale)) ** 2 - log_scale


def softmax(p, row):
    return jax.nn.log_softmax(p.reshape(CLASSES, COLUMNS) @ row["x"])[row["class"]]


def softmax_of_chances(p, row):
    return jnp.log(jax.nn.softmax(p.reshape(CLASSES, COLUMNS) @ row["x"])[row["class"]])


def softmax_with_a_reference(p, row):
    scores = jnp.concatenate([jnp.zeros(1), p.reshape(CLASSES - 1, COLUMNS) @ row["x"]])
    return scores[row["class"]] - jax.scipy.special.logsumexp(scores)


def softmax_by_hand(p, row):
    scores = p.reshape(CLASSES, COLUMNS) @ row["x"]
    return scores[row["class"]] - jnp.log(jnp.sum(jnp.exp(scores)))


def gamma(p, row):
    shape, mean = jnp.exp(p[-1]), jnp.exp(row["x"] @ p[:-1])
    return st.gamma.logpdf(row["positive"], shape, scale=mean / shape)


def beta(p, row):
    mean, precision = jax.nn.sigmoid(row["x"] @ p[:-1]), jnp.exp(p[-1])
    a, b = mean * precision, (1 - mean) * precision
    left, right = (a - 1) * jnp.log(row["share"]), (b - 1) * jnp.log1p(-row["share"])
    return left + right + gammaln(precision) - gammaln(a) - gammaln(b)


def zero_inflated(p, row):
    z, none, y = row["x"] @ p[:-1], p[-1], row["count"]
    counted = -jax.nn.softplus(none) + y * z - jnp.exp(z)
    return jnp.where(y == 0, jnp.logaddexp(jax.nn.log_sigmoid(none), counted), counted)


def groups(p, row):
    z = p[row["group"]] + row["x"] @ p[GROUPS:]
    return row["binary"] * z - jnp.logaddexp(0.0, z)


def ability(p, row):
    z = jnp.exp(p[0]) * (jnp.take(p[1 : GROUPS + 1], row["group"]) - p[GROUPS + 1 :][row["class"]])
    return -jax.nn.softplus((1 - 2 * row["binary"]) * z)


def mixture(p, row):
    one, other = st.norm.logpdf(row["y"], p[0], jnp.exp(p[1])), st.norm.logpdf(row["y"], p[2] + 1, 1.0)
    return jnp.logaddexp(jax.nn.log_sigmoid(p[3]) + one, jax.nn.log_sigmoid(-p[3]) + other)


def seasons(p, row):
    z = p[0] * jnp.sin(2.0 * row["y"] + p[1]) + p[2] * jnp.cos(row["y"] * (1.0 + p[3]))
    return -0.5 * (row["positive"] - z) ** 2


def small_network(p, row):
    hidden = jnp.tanh(p[: 2 * COLUMNS].reshape(2, COLUMNS) @ row["x"])
    return -0.5 * jnp.square(row["y"] - hidden @ p[2 * COLUMNS :])


def recursion(p, row):
    def step(level, x):
        level = jax.nn.sigmoid(p[0]) * level + p[1] * x
        return level, -0.5 * (row["y"] - level) ** 2

    level, terms = jax.lax.scan(step, p[2], row["x"])
    return jnp.sum(terms) - 0.1 * level**2


def radial(p, row):
    distance = jnp.linalg.norm(row["x"] - p + 2.0)
    return -0.5 * jnp.square(distance - row["positive"]) - jnp.sqrt(1 + jnp.dot(p, p))


def error_function(p, row):
    chance = 0.5 + 0.49 * jax.lax.erf(row["x"] @ p)
    return row["binary"] * jnp.log(chance) + (1 - row["binary"]) * jnp.log(0.5 + 0.49 * jax.lax.erfc(row["x"] @ p + 1))


def powers(p, row):
    base = 1.5 + jax.nn.sigmoid(row["x"] @ p)
    return base**-1.3 - base**3 / 10 + 2.0 ** (row["x"] @ p) - base ** row["positive"] / 5 + jax.lax.rsqrt(base)


CASES = {
    "logistic": Case(logistic, COLUMNS),
    "logistic by hand": Case(logistic_by_hand, COLUMNS),
    "Bernoulli of chances": Case(bernoulli_of_chances, COLUMNS),
    "probit": Case(probit, COLUMNS),
    "complementary log-log": Case(complementary_log_log, COLUMNS),
    "Poisson": Case(poisson, COLUMNS),
    "negative binomial": Case(negative_binomial, COLUMNS + 1, 0.5),
    "Weibull, censored": Case(weibull_censored, COLUMNS + 1),
    "ordinal": Case(ordinal, CLASSES + COLUMNS, width=0.01),
    "Student t": Case(student, COLUMNS + 1),
    "Student t of any degree": Case(student_of_any_degree, COLUMNS + 2),
    "Gaussian": Case(gaussian, COLUMNS + 1),
    "heteroscedastic": Case(heteroscedastic, 2 * COLUMNS),
    "softmax": Case(softmax, CLASSES * COLUMNS),
    "softmax of chances": Case(softmax_of_chances, CLASSES * COLUMNS),
    "softmax with a reference": Case(softmax_with_a_reference, (CLASSES - 1) * COLUMNS),
    "softmax by hand": Case(softmax_by_hand, CLASSES * COLUMNS),
    "gamma": Case(gamma, COLUMNS + 1),
    "beta": Case(beta, COLUMNS + 1, 0.6),
    "zero-inflated Poisson": Case(zero_inflated, COLUMNS + 1),
    "groups": Case(groups, GROUPS + COLUMNS),
    "ability": Case(ability, 1 + GROUPS + CLASSES),
    "mixture": Case(mixture, 4),
    "seasons": Case(seasons, 4),
    "small network": Case(small_network, 2 * COLUMNS + 2),
    "recursion": Case(recursion, 3),
    "radial": Case(radial, COLUMNS),
    "error function": Case(error_function, COLUMNS),
    "powers": Case(powers, COLUMNS),
}
