"""Posteriors of unusual shape: several modes, edges, heavy tails, spikes, bends; few rows; one row that is all data."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.range.case import Case, case, columns, normal, rows, zeros


def two_groups(num_rows, seed):
    generator = np.random.default_rng(seed)
    high = generator.random(num_rows) < 0.5
    return rows(y=np.where(high, 1.5, -1.5) + generator.normal(size=num_rows))


def either(y, low, high, sd):
    return jnp.logaddexp(normal(y, low, sd), normal(y, high, sd))


@case
def mixture_ordered():
    """Means that cannot change places: the second is the first and a positive gap."""

    def log_likelihood(position, row):
        high = position["low"] + jnp.exp(position["log_gap"])
        return either(row["y"], position["low"], high, jnp.exp(position["log_sd"]))

    def log_prior(position):
        return -0.5 * sum(jnp.sum((leaf / 3) ** 2) for leaf in position.values())

    init = {"low": np.float32(-1), "log_gap": zeros(), "log_sd": zeros()}
    return Case(log_likelihood, two_groups(1000, 1), init, log_prior)


@case
def mixture_free():
    """Means that may change places: two modes that weigh the same."""
    init = np.array([-1, 1], np.float32)
    return Case(
        lambda position, row: either(row["y"], position[0], position[1], 1.0),
        two_groups(500, 2),
        init,
        lambda position: -0.5 * jnp.sum((position / 3) ** 2),
        modes=(init, -init),
    )


@case
def sign_unknown():
    """Rows know the square of a parameter."""
    generator = np.random.default_rng(3)
    return Case(
        lambda position, row: normal(row, position**2, 1.0),
        np.asarray(1.0 + generator.normal(size=100), np.float32),
        np.float32(0.7),
        lambda position: -0.5 * position**2,
        modes=(np.float32(1), np.float32(-1)),
    )


@case
def bend():
    """Rows know the sum of one parameter and the square of another."""
    generator = np.random.default_rng(4)
    return Case(
        lambda position, row: normal(row, position[0] + position[1] ** 2, 2.0),
        np.asarray(1.0 + 2 * generator.normal(size=100), np.float32),
        np.array([0.0, 0.5], np.float32),
        lambda position: -0.5 * jnp.sum(position**2),
        modes=(np.array([0.0, 1.0]), np.array([0.0, -1.0])),
    )


@case
def uniform_upper_end():
    """Rows from 0 to theta: the density jumps to nothing below the largest row."""
    y = np.asarray(3 * np.random.default_rng(5).random(50), np.float32)
    return Case(
        lambda position, row: jnp.where(row < position, -jnp.log(position), -jnp.inf),
        y,
        np.float32(4),
        lambda position: jnp.where(position > 0, -0.1 * position, -jnp.inf),
    )


@case
def uniform_upper_end_by_hand():
    """The same without the jump: theta is the largest row and a positive rest."""
    y = np.asarray(3 * np.random.default_rng(5).random(50), np.float32)
    most = float(y.max())

    def log_likelihood(position, row):
        del row
        return -jnp.log(most + jnp.exp(position))

    return Case(log_likelihood, y, np.float32(-1), lambda position: -0.1 * jnp.exp(position) + position)


@case
def truncated_prior():
    """A slope that must not be negative, and whose rows would rather have it so."""
    generator, x = columns(400, 2, 6)
    y = x @ np.array([0.5, -0.02]) + generator.normal(size=400)
    return Case(
        lambda position, row: normal(row["y"], row["x"] @ position, 1.0),
        rows(x=x, y=y),
        np.array([0.0, 0.1], np.float32),
        lambda position: jnp.where(position[1] > 0, -0.5 * jnp.sum(position**2), -jnp.inf),
    )


def dirichlet(counts, how_many):
    """Means and standard deviations of the first shares."""
    mean = np.array(counts)[:how_many] / sum(counts)
    return mean, np.sqrt(mean * (1 - mean) / (sum(counts) + 1))


@case
def chance_by_hand():
    """A few Bernoulli rows; the chance is the logistic of the position, with its Jacobian and a Beta(1/2, 1/2)."""

    def log_prior(position):
        return 0.5 * (jax.nn.log_sigmoid(position) + jax.nn.log_sigmoid(-position))

    return Case(
        lambda position, row: row * position - jnp.logaddexp(0.0, position),
        np.array([1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0], np.float32),
        zeros(),
        log_prior,
        look=jax.nn.sigmoid,
        truth=dirichlet([2.5, 10.5], 1),
    )


@case
def shares_by_hand():
    """Shares of four kinds by softmax, with a Dirichlet prior and its Jacobian."""
    kind = np.repeat(np.arange(4), [5, 20, 40, 135]).astype(np.int32)

    def shares(position):
        return jax.nn.softmax(jnp.concatenate([position, jnp.zeros(1, position.dtype)]))

    return Case(
        lambda position, row: jnp.log(shares(position))[row],
        kind,
        zeros(3),
        lambda position: jnp.sum(jnp.log(shares(position))),  # Dirichlet(1, 1, 1, 1) and the Jacobian
        look=shares,
        truth=dirichlet([6.0, 21.0, 41.0, 136.0], 4),
    )


def in_twenty_dimensions(prior_of_last, sd_of_last, seed, look):
    """Nineteen coordinates that 1,000 rows know, and one that none does; all is known in closed form."""
    generator, x = columns(1000, 19, seed)
    y = x @ np.full(19, 0.2) + generator.normal(size=1000)

    def log_prior(position):
        return -0.5 * jnp.sum(position[:19] ** 2) + prior_of_last(position[19])

    data = rows(x=x, y=y)
    covariance = np.linalg.inv(np.eye(19) + data["x"].T.astype(float) @ data["x"])
    mean = covariance @ data["x"].T.astype(float) @ data["y"]
    return Case(
        lambda position, row: normal(row["y"], row["x"] @ position[:19], 1.0),
        data,
        zeros(20),
        log_prior,
        look,
        truth=(np.append(mean, 0.0), np.append(np.sqrt(np.diag(covariance)), sd_of_last)),
    )


@case
def cauchy_in_one_of_twenty():
    """Its mean does not exist; that of its angle does."""
    return in_twenty_dimensions(
        lambda last: -jnp.log1p(last**2),
        np.pi / np.sqrt(12),
        7,
        lambda position: position.at[19].set(jnp.arctan(position[19])),
    )


@case
def spike_in_one_of_twenty():
    """Half of its mass is a hundred times as narrow as the other half."""
    return in_twenty_dimensions(
        lambda last: jnp.logaddexp(normal(last, 0.0, 0.01), normal(last, 0.0, 1.0)),
        np.sqrt((1 + 1e-4) / 2),
        8,
        lambda position: position,
    )


@case
def funnel():
    """Neal's: a log scale N(0, 9), and four numbers of that scale. One row that says nothing."""

    def log_prior(position):
        scale = position["log_variance"] / 2
        return (
            normal(position["log_variance"], 0.0, 3.0)
            - 4 * scale
            - 0.5 * jnp.sum((position["x"] * jnp.exp(-scale)) ** 2)
        )

    return Case(
        lambda position, row: row * position["log_variance"],
        zeros(1),
        {"log_variance": zeros(), "x": zeros(4) + 0.5},
        log_prior,
        look=lambda position: position["log_variance"],
        truth=(np.zeros(1), np.full(1, 3.0)),
    )


@case
def gaussian_process():
    """Thirty points, which are one row: their likelihood is not a product."""
    generator = np.random.default_rng(9)
    x = np.sort(generator.uniform(0, 5, 30))
    y = np.sin(x) + 0.2 * generator.normal(size=30)

    def log_likelihood(position, row):
        length, size, noise = jnp.exp(position)
        near = jnp.exp(-0.5 * ((row["x"][:, None] - row["x"][None]) / length) ** 2)
        factor = jnp.linalg.cholesky(size**2 * near + noise**2 * jnp.eye(30, dtype=near.dtype))
        white = jax.scipy.linalg.solve_triangular(factor, row["y"], lower=True)
        return -0.5 * jnp.sum(white**2) - jnp.sum(jnp.log(jnp.diag(factor)))

    data = rows(x=x[None], y=y[None])
    return Case(log_likelihood, data, np.array([0, 0, -1], np.float32), lambda position: -0.5 * jnp.sum(position**2))


@case
def autoregression():
    """A series as rows (before, now); nothing says that it is stationary."""
    generator = np.random.default_rng(10)
    series = np.zeros(1001)
    for time in range(1000):
        series[time + 1] = 0.8 * series[time] + 0.5 * generator.normal()
    return Case(
        lambda position, row: normal(row["now"], position["phi"] * row["before"], jnp.exp(position["log_sd"])),
        rows(before=series[:-1], now=series[1:]),
        {"phi": zeros(), "log_sd": zeros()},
    )


def mean_and_precision(num_rows, seed):
    """The log of the precision moves; its prior is Gamma(1, 1), the mean's N(0, 100)."""

    def log_likelihood(position, row):
        return (
            0.5 * position["log_precision"] - 0.5 * jnp.exp(position["log_precision"]) * (row - position["mean"]) ** 2
        )

    def log_prior(position):
        return position["log_precision"] - jnp.exp(position["log_precision"]) - 0.5 * (position["mean"] / 10) ** 2

    y = np.asarray(2 + 0.5 * np.random.default_rng(seed).normal(size=num_rows), np.float32)
    return Case(log_likelihood, y, {"mean": zeros(), "log_precision": zeros()}, log_prior)


@case
def mean_and_precision_few():
    return mean_and_precision(8, 11)


@case
def mean_and_precision_many():
    return mean_and_precision(100_000, 12)


@case
def change_point():
    """A mean that changes at an unknown time, within a tenth of a unit of it."""
    generator = np.random.default_rng(13)
    time = np.linspace(0, 10, 500)
    y = np.where(time < 6, 0.0, 1.0) + generator.normal(size=500)

    def log_likelihood(position, row):
        after = jax.nn.sigmoid((row["time"] - position["when"]) / 0.1)
        return normal(row["y"], position["before"] + position["jump"] * after, jnp.exp(position["log_sd"]))

    def log_prior(position):
        others = (position["before"], position["jump"], position["log_sd"])
        return normal(position["when"], 5.0, 3.0) - 0.5 * sum(other**2 for other in others)

    init = {"when": np.float32(5), "before": zeros(), "jump": np.float32(0.5), "log_sd": zeros()}
    return Case(log_likelihood, rows(time=time, y=y), init, log_prior)


@case
def exponential_decay():
    generator = np.random.default_rng(14)
    time = np.linspace(0, 5, 60)
    y = 2 * np.exp(-0.7 * time) + 0.3 + 0.15 * generator.normal(size=60)

    def log_likelihood(position, row):
        curve = jnp.exp(position["log_size"] - jnp.exp(position["log_rate"]) * row["time"]) + position["rest"]
        return normal(row["y"], curve, jnp.exp(position["log_sd"]))

    init = {"log_size": zeros(), "log_rate": zeros(), "rest": zeros(), "log_sd": zeros()}
    return Case(log_likelihood, rows(time=time, y=y), init, lambda p: -0.5 * sum(leaf**2 for leaf in p.values()))


@case
def cauchy_location():
    """Eight rows with very heavy tails, two of them far out."""
    y = np.array([-0.4, 0.1, 0.3, 0.9, 1.2, 1.4, 8.0, 9.0], np.float32)
    return Case(
        lambda position, row: -jnp.log1p((row - position) ** 2),
        y,
        zeros(),
        lambda position: -0.5 * (position / 10) ** 2,
    )


@case
def bernoulli_nearly_never():
    """500 rows, none of which is a case: the log odds run off to minus infinity but for the prior."""
    return Case(
        lambda position, row: row * position - jnp.logaddexp(0.0, position),
        zeros(500),
        zeros(),
        lambda position: -0.5 * (position / 5) ** 2,
    )
