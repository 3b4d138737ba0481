"""Regressions whose likelihood is smooth, with rows enough."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.scipy.stats import norm

from tests.range.case import Case, case, columns, normal, priors, ready, rows, zeros


def standard_normal(position):
    return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(position))


def linear(position, row):
    return normal(row["y"], row["x"] @ position["b"], jnp.exp(position["log_sd"]))


def linear_rows(num_rows, coefficients, sd, seed):
    generator, x = columns(num_rows, len(coefficients), seed)
    return rows(x=x, y=x @ np.array(coefficients) + sd * generator.normal(size=num_rows))


@case
def linear_unknown_noise():
    data = linear_rows(20_000, [1.0, 0.5, -0.5, 0.2], 0.7, 1)
    return Case(linear, data, {"b": zeros(4), "log_sd": zeros()})


@case
def linear_ten_rows():
    data = linear_rows(10, [1.0, 0.5, -0.5], 0.7, 2)
    return Case(linear, data, {"b": zeros(3), "log_sd": zeros()}, priors(b=2.0, log_sd=1.0))


@case
def linear_ready():
    data = linear_rows(5000, [1.0, 0.5, -0.5, 0.2], 0.7, 3)
    x, y = data["x"].astype(float), data["y"].astype(float)
    covariance = np.linalg.inv(np.eye(4) + x.T @ x / 0.49)
    return Case(
        lambda position, row: normal(row["y"], row["x"] @ position, 0.7),
        data,
        zeros(4),
        standard_normal,
        ready=ready("linear_regression", 0.7),
        truth=(covariance @ x.T @ y / 0.49, np.sqrt(np.diag(covariance))),
    )


@case
def year_uncentred():
    """Columns 1 and the year as it is: the two coefficients are all but collinear."""
    generator = np.random.default_rng(4)
    year = generator.integers(1990, 2021, 2000)
    x = np.column_stack([np.ones(2000), year])
    return Case(
        linear,
        rows(x=x, y=0.03 * (year - 2000) + 0.5 * generator.normal(size=2000)),
        {"b": zeros(2), "log_sd": zeros()},
    )


@case
def bad_scaling():
    """Columns of sizes 1, 10,000 and 0.0001."""
    generator, x = columns(2000, 3, 5)
    y = x @ np.array([1.0, 0.5, -0.5]) + 0.7 * generator.normal(size=2000)
    return Case(linear, rows(x=x * np.array([1, 1e4, 1e-4]), y=y), {"b": zeros(3), "log_sd": zeros()})


def logistic(position, row):
    z = row["x"] @ position
    return row["y"] * z - jnp.logaddexp(0.0, z)


def logistic_rows(num_rows, coefficients, seed):
    generator, x = columns(num_rows, len(coefficients), seed)
    return rows(x=x, y=generator.random(num_rows) < 1 / (1 + np.exp(-x @ np.array(coefficients))))


TEN = [0.5, -0.5, 0.3, 0.2, -0.2, 0.1, 0.0, 0.4, -0.1, 0.3]


@case
def logistic_own():
    return Case(logistic, logistic_rows(20_000, TEN, 6), zeros(10), standard_normal)


@case
def logistic_ready():
    return logistic_own()._replace(ready=ready("logistic_regression"), same_as="logistic_own")


@case
def logistic_many_rows():
    return Case(logistic, logistic_rows(100_000, TEN, 7), zeros(10), standard_normal)


@case
def logistic_fifty_columns():
    return Case(logistic, logistic_rows(2000, [0.2] * 50, 8), zeros(50), standard_normal)


@case
def logistic_rare_events():
    """One row of a thousand is a case."""
    return Case(logistic, logistic_rows(100_000, [-7.5, 1.0, 0.5], 9), zeros(3), lambda b: -0.5 * jnp.sum((b / 5) ** 2))


@case
def logistic_separated():
    """A line separates the outcomes; only the prior keeps the slopes finite."""
    _, x = columns(50, 3, 10)
    return Case(logistic, rows(x=x, y=x[:, 1] > 0.1), zeros(3), lambda b: -0.5 * jnp.sum((b / 2.5) ** 2))


@case
def logistic_collinear():
    """The last two columns are equal but for a hundredth, and have a prior."""
    data = logistic_rows(1000, [0.5, -0.5, 0.3, 0.2, 0.1], 11)
    data["x"][:, 4] = data["x"][:, 3] + 0.01 * data["x"][:, 4]
    return Case(logistic, data, zeros(5), standard_normal)


@case
def probit_own():
    generator, x = columns(2000, 4, 12)
    y = x @ np.array([0.5, -0.5, 0.3, 0.2]) + generator.normal(size=2000) > 0

    def log_likelihood(position, row):
        return norm.logcdf((2 * row["y"] - 1) * (row["x"] @ position))

    return Case(log_likelihood, rows(x=x, y=y), zeros(4), standard_normal)


@case
def probit_ready():
    return probit_own()._replace(ready=ready("probit_regression"), same_as="probit_own")


def poisson(position, row):
    z = row["x"] @ position
    return row["y"] * z - jnp.exp(z)


def count_rows(num_rows, coefficients, seed):
    generator, x = columns(num_rows, len(coefficients), seed)
    return generator, x, np.exp(x @ np.array(coefficients))


@case
def poisson_own():
    generator, x, mean = count_rows(5000, [1.0, 0.3, -0.3, 0.1], 13)
    return Case(poisson, rows(x=x, y=generator.poisson(mean).astype(float)), zeros(4), standard_normal)


@case
def poisson_ready():
    def with_log_link(data):
        import tallmc as tm

        return tm.models.poisson_regression(data["x"], data["y"], link=tm.models.LogLink())

    return poisson_own()._replace(ready=with_log_link, same_as="poisson_own")


def negative_binomial(position, row):
    log_mean, log_size = row["x"] @ position["b"], position["log_size"]
    size, both = jnp.exp(log_size), jnp.logaddexp(log_size, log_mean)
    return gammaln(row["y"] + size) - gammaln(size) + size * (log_size - both) + row["y"] * (log_mean - both)


@case
def negative_binomial_regression():
    generator, x, mean = count_rows(5000, [1.0, 0.3, -0.3, 0.1], 14)
    data = rows(x=x, y=generator.poisson(generator.gamma(2.0, mean / 2.0)).astype(float))
    return Case(negative_binomial, data, {"b": zeros(4), "log_size": zeros()}, standard_normal)


@case
def negative_binomial_nearly_poisson():
    """A size near 3,000: differences of large log gammas."""
    generator, x, mean = count_rows(2000, [2.0, 0.3], 15)

    def log_prior(position):
        return -0.5 * jnp.sum(position["b"] ** 2) - 0.5 * (position["log_size"] - 8) ** 2

    data = rows(x=x, y=generator.poisson(mean).astype(float))
    return Case(negative_binomial, data, {"b": zeros(2), "log_size": np.float32(8)}, log_prior)


@case
def zero_inflated_poisson():
    generator, x, mean = count_rows(5000, [0.7, 0.3, -0.2], 16)
    y = np.where(generator.random(5000) < 0.3, 0, generator.poisson(mean))

    def log_likelihood(position, row):
        z, log_odds = row["x"] @ position["b"], position["log_odds"]
        there = row["y"] * z - jnp.exp(z) - gammaln(row["y"] + 1) + jax.nn.log_sigmoid(-log_odds)
        return jnp.where(row["y"] > 0, there, jnp.logaddexp(there, jax.nn.log_sigmoid(log_odds)))

    data = rows(x=x, y=y.astype(float))
    return Case(log_likelihood, data, {"b": zeros(3), "log_odds": zeros()}, standard_normal)


@case
def ordinal():
    """Three outcomes: a first cut, and the log of the gap to the second."""
    generator, x = columns(5000, 3, 17, intercept=False)
    hidden = x @ np.array([0.8, -0.5, 0.3]) + generator.logistic(size=5000)

    def log_likelihood(position, row):
        z = row["x"] @ position["b"]
        second = position["first"] + jnp.exp(position["log_gap"])
        below = jax.nn.sigmoid(position["first"] - z), jax.nn.sigmoid(second - z)
        return jnp.log(jnp.stack([below[0], below[1] - below[0], 1 - below[1]])[row["y"]])

    init = {"b": zeros(3), "first": zeros(), "log_gap": zeros()}
    return Case(log_likelihood, rows(x=x, y=np.digitize(hidden, [-0.5, 1.0])), init, standard_normal)


@case
def multinomial():
    """Three classes; the first one's coefficients are zero."""
    generator, x = columns(5000, 4, 18)
    true = np.array([[0.0] * 4, [0.5, 0.3, -0.2, 0.1], [-0.5, 0.2, 0.4, -0.3]])
    y = np.argmax(x @ true.T + generator.gumbel(size=(5000, 3)), axis=1)

    def log_likelihood(position, row):
        z = jnp.concatenate([jnp.zeros(1, row["x"].dtype), position @ row["x"]])
        return jax.nn.log_softmax(z)[row["y"]]

    return Case(log_likelihood, rows(x=x, y=y), zeros(2, 4), standard_normal)


@case
def heteroscedastic():
    """The log of the noise is linear in the columns too."""
    generator, x = columns(3000, 3, 19)
    y = x @ np.array([1.0, 0.5, -0.5]) + np.exp(x @ np.array([-0.3, 0.4, 0.0])) * generator.normal(size=3000)

    def log_likelihood(position, row):
        return normal(row["y"], row["x"] @ position["b"], jnp.exp(row["x"] @ position["g"]))

    return Case(log_likelihood, rows(x=x, y=y), {"b": zeros(3), "g": zeros(3)}, standard_normal)


@case
def beta_regression():
    generator, x = columns(1000, 3, 20)
    mean = 1 / (1 + np.exp(-x @ np.array([0.3, 0.5, -0.3])))
    y = np.clip(generator.beta(8 * mean, 8 * (1 - mean)), 1e-4, 1 - 1e-4)

    def log_likelihood(position, row):
        mean, size = jax.nn.sigmoid(row["x"] @ position["b"]), jnp.exp(position["log_size"])
        a, b = mean * size, (1 - mean) * size
        return gammaln(size) - gammaln(a) - gammaln(b) + (a - 1) * jnp.log(row["y"]) + (b - 1) * jnp.log1p(-row["y"])

    return Case(log_likelihood, rows(x=x, y=y), {"b": zeros(3), "log_size": zeros()}, priors(b=1.0, log_size=2.0))


@case
def gamma_regression():
    generator, x, mean = count_rows(2000, [0.5, 0.3, -0.2], 21)

    def log_likelihood(position, row):
        shape, z = jnp.exp(position["log_shape"]), row["x"] @ position["b"]
        density = shape * (position["log_shape"] - z) - gammaln(shape) + (shape - 1) * jnp.log(row["y"])
        return density - shape * row["y"] * jnp.exp(-z)

    data = rows(x=x, y=generator.gamma(3.0, mean / 3.0))
    return Case(log_likelihood, data, {"b": zeros(3), "log_shape": zeros()}, standard_normal)


@case
def weibull_censored():
    generator, x = columns(2000, 3, 22)
    time = np.exp(x @ np.array([1.0, 0.4, -0.3])) * generator.weibull(1.5, 2000)
    limit = generator.uniform(1.0, 6.0, 2000)

    def log_likelihood(position, row):
        shape = jnp.exp(position["log_shape"])
        log_ratio = jnp.log(row["time"]) - row["x"] @ position["b"]
        return row["died"] * (position["log_shape"] + shape * log_ratio) - jnp.exp(shape * log_ratio)

    data = rows(x=x, time=np.minimum(time, limit), died=time < limit)
    return Case(log_likelihood, data, {"b": zeros(3), "log_shape": zeros()}, standard_normal)


@case
def log_normal_censored():
    generator, x = columns(2000, 3, 23)
    log_time = x @ np.array([1.0, 0.4, -0.3]) + 0.8 * generator.normal(size=2000)
    limit = np.log(generator.uniform(1.0, 6.0, 2000))

    def log_likelihood(position, row):
        z = (row["log_time"] - row["x"] @ position["b"]) / jnp.exp(position["log_sd"])
        return jnp.where(row["died"] > 0, -0.5 * z**2 - position["log_sd"], norm.logcdf(-z))

    data = rows(x=x, log_time=np.minimum(log_time, limit), died=log_time < limit)
    return Case(log_likelihood, data, {"b": zeros(3), "log_sd": zeros()}, standard_normal)
