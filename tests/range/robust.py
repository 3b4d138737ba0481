"""Regressions with heavy tails, kinks, or priors that shrink."""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from tests.range.case import Case, case, columns, normal, priors, ready, rows, zeros


def noisy_rows(num_rows, coefficients, noise, seed):
    generator, x = columns(num_rows, len(coefficients), seed)
    return rows(x=x, y=x @ np.array(coefficients) + noise(generator, num_rows))


def student(z, log_freedom):
    freedom = jnp.exp(log_freedom)
    ratio = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * log_freedom
    return ratio - (freedom + 1) / 2 * jnp.log1p(z**2 / freedom)


@case
def student_t_regression():
    data = noisy_rows(2000, [1.0, 0.5, -0.5], lambda g, n: 0.5 * g.standard_t(4, n), 1)

    def log_likelihood(position, row):
        z = (row["y"] - row["x"] @ position["b"]) / jnp.exp(position["log_sd"])
        return student(z, position["log_freedom"]) - position["log_sd"]

    def log_prior(position):
        known = priors(b=2.0, log_sd=1.0)(position)
        return known - 0.5 * ((position["log_freedom"] - 1.5) / 0.7) ** 2

    return Case(log_likelihood, data, {"b": zeros(3), "log_sd": zeros(), "log_freedom": np.float32(1.5)}, log_prior)


@case
def robust_ready():
    data = noisy_rows(2000, [1.0, 0.5, -0.5], lambda g, n: 0.5 * g.standard_t(4, n), 2)

    def log_likelihood(position, row):
        return -2.5 * jnp.log1p(((row["y"] - row["x"] @ position) / 0.5) ** 2 / 4)

    return Case(
        log_likelihood,
        data,
        zeros(3),
        lambda position: -0.5 * jnp.sum(position**2),
        ready=ready("robust_regression", 0.5, 4.0),
    )


@case
def quantile_regression():
    """The 0.9 quantile: a kink at every row."""
    data = noisy_rows(2000, [1.0, 0.5, -0.5], lambda g, n: g.normal(size=n), 3)

    def log_likelihood(position, row):
        error = row["y"] - row["x"] @ position["b"]
        loss = error * jnp.where(error > 0, 0.9, -0.1)
        return -loss / jnp.exp(position["log_scale"]) - position["log_scale"]

    return Case(log_likelihood, data, {"b": zeros(3), "log_scale": zeros()}, priors(b=3.0, log_scale=2.0))


@case
def laplace_noise():
    data = noisy_rows(1000, [1.0, 0.5], lambda g, n: g.laplace(scale=0.7, size=n), 4)

    def log_likelihood(position, row):
        error = jnp.abs(row["y"] - row["x"] @ position["b"])
        return -error / jnp.exp(position["log_scale"]) - position["log_scale"]

    return Case(log_likelihood, data, {"b": zeros(2), "log_scale": zeros()}, priors(b=3.0, log_scale=2.0))


def sparse_rows(num_rows, num_columns, seed):
    coefficients = np.zeros(num_columns)
    coefficients[:4] = 1.0, 0.8, -0.6, 0.4
    return noisy_rows(num_rows, coefficients, lambda g, n: g.normal(size=n), seed)


def linear(position, row):
    return normal(row["y"], row["x"] @ position["b"], jnp.exp(position["log_sd"]))


@case
def lasso():
    """Laplace priors: kinks where a coefficient is zero."""

    def log_prior(position):
        return -10 * jnp.sum(jnp.abs(position["b"])) - 0.5 * position["log_sd"] ** 2

    return Case(linear, sparse_rows(500, 20, 5), {"b": zeros(20), "log_sd": zeros()}, log_prior)


@case
def horseshoe():
    """Coefficients z exp(local + whole), half-Cauchy scales, and a slab of width 2."""

    def scales(position):
        squares = jnp.exp(2 * (position["local"] + position["whole"]))
        return jnp.sqrt(squares / (1 + squares / 4))

    def log_likelihood(position, row):
        return normal(row["y"], row["x"] @ (position["z"] * scales(position)), jnp.exp(position["log_sd"]))

    def log_prior(position):
        local, whole = position["local"], position["whole"]
        half_cauchy = jnp.sum(local - jnp.log1p(jnp.exp(2 * local)))
        far = whole - jnp.log(0.1)
        half_cauchy = half_cauchy + far - jnp.log1p(jnp.exp(2 * far))
        return half_cauchy - 0.5 * jnp.sum(position["z"] ** 2) - 0.5 * position["log_sd"] ** 2

    def look(position):
        return {"b": position["z"] * scales(position), "log_sd": position["log_sd"]}

    init = {"z": zeros(20) + 0.1, "local": zeros(20), "whole": np.float32(-1), "log_sd": zeros()}
    return Case(log_likelihood, sparse_rows(200, 20, 6), init, log_prior, look)
