"""What whole calls are measured on: generated rows, and likelihoods of five parameters as a user writes them.

Each likelihood is there twice, for `tm.Posterior` and for NumPyro, with the same names of parameters and the same
standard normal priors. Nothing here imports tallmc: a process that times NumPyro must not have its settings of JAX.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


def logistic_rows(num_rows: int, num_columns: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of `tm.models.generate_logistic`, number for number."""
    generator = np.random.default_rng(0)
    coefficients = (generator.normal(size=num_columns) / np.sqrt(num_columns)).astype(np.float32)
    X = generator.standard_normal((num_rows, num_columns), np.float32)
    X[:, 0] = 1
    chance = 1 / (1 + np.exp(-X @ coefficients))
    return X, (generator.random(num_rows, np.float32) < chance).astype(np.float32)


def logistic_log_likelihood(position, row):
    """Logistic regression by hand: no ready model, no bounds."""
    z = row["x"] @ position
    return row["y"] * z - jnp.logaddexp(0.0, z)


def standard_normal(position):
    """Log prior of all parameters."""
    return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(position))


def logistic_numpyro(x, y):
    """Logistic regression as one writes it in NumPyro."""
    import numpyro
    import numpyro.distributions as dist

    coefficients = numpyro.sample("coefficients", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ coefficients), obs=y)


class Own(NamedTuple):
    """A likelihood of a user's own.

    Args:
        generate: Columns, from a number of rows.
        log_likelihood: For `tm.Posterior`.
        init: Where the search for the mode begins.
        numpyro: The same model for NumPyro, of the same columns.
    """

    generate: Callable[[int], dict[str, np.ndarray]]
    log_likelihood: Callable[[Any, dict[str, jax.Array]], jax.Array]
    init: Any
    numpyro: Callable[..., None]


def _columns(num_rows: int, num_columns: int, *, intercept: bool) -> tuple[np.random.Generator, np.ndarray]:
    generator = np.random.default_rng(1)
    x = generator.standard_normal((num_rows, num_columns), np.float32)
    if intercept:
        x[:, 0] = 1
    return generator, x


# ----------------------------------------------------------------------------------------------------------------------
# Linear regression with unknown noise: a dict of four coefficients and a log scale


def _linear_rows(num_rows):
    generator, x = _columns(num_rows, 4, intercept=True)
    mean = x @ np.array([1.0, 0.5, -0.5, 0.2], np.float32)
    return {"x": x, "y": (mean + 0.7 * generator.normal(size=num_rows)).astype(np.float32)}


def _linear(position, row):
    error = (row["y"] - row["x"] @ position["coefficients"]) / jnp.exp(position["log_sd"])
    return -0.5 * error**2 - position["log_sd"]


def _linear_numpyro(x, y):
    import numpyro
    import numpyro.distributions as dist

    coefficients = numpyro.sample("coefficients", dist.Normal(0, 1).expand([4]).to_event(1))
    log_sd = numpyro.sample("log_sd", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ coefficients, jnp.exp(log_sd)), obs=y)


# ----------------------------------------------------------------------------------------------------------------------
# Negative binomial regression: one vector, four coefficients and then the log of the concentration


def _counts_rows(num_rows):
    generator, x = _columns(num_rows, 4, intercept=True)
    mean = np.exp(x @ np.array([1.0, 0.3, -0.3, 0.1], np.float32))
    return {"x": x, "y": generator.poisson(generator.gamma(2.0, mean / 2.0)).astype(np.float32)}


def _counts(position, row):
    log_mean, log_size = row["x"] @ position[:4], position[4]
    size, gammaln = jnp.exp(log_size), jax.scipy.special.gammaln
    both = jnp.logaddexp(log_size, log_mean)
    chosen = gammaln(row["y"] + size) - gammaln(size) - gammaln(row["y"] + 1)
    return chosen + size * (log_size - both) + row["y"] * (log_mean - both)


def _counts_numpyro(x, y):
    import numpyro
    import numpyro.distributions as dist

    position = numpyro.sample("position", dist.Normal(0, 1).expand([5]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(x @ position[:4]), jnp.exp(position[4])), obs=y)


# ----------------------------------------------------------------------------------------------------------------------
# Ordinal regression with three outcomes: a dict of three slopes, the first cut and the log of the gap to the second


def _grades_rows(num_rows):
    generator, x = _columns(num_rows, 3, intercept=False)
    hidden = x @ np.array([0.8, -0.5, 0.3], np.float32) + generator.logistic(size=num_rows)
    return {"x": x, "y": np.digitize(hidden, [-0.5, 1.0]).astype(np.int32)}


def _grades(position, row):
    z, first = row["x"] @ position["slopes"], position["first"]
    below = jax.nn.sigmoid(first - z), jax.nn.sigmoid(first + jnp.exp(position["log_gap"]) - z)
    chances = jnp.stack([below[0], below[1] - below[0], 1 - below[1]])
    return jnp.log(chances[row["y"]])


def _grades_numpyro(x, y):
    import numpyro
    import numpyro.distributions as dist

    slopes = numpyro.sample("slopes", dist.Normal(0, 1).expand([3]).to_event(1))
    first = numpyro.sample("first", dist.Normal(0, 1))
    log_gap = numpyro.sample("log_gap", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        cuts = jnp.stack([first, first + jnp.exp(log_gap)])
        numpyro.sample("y", dist.OrderedLogistic(x @ slopes, cuts), obs=y)


OWN = {
    "linear regression with unknown noise": Own(
        _linear_rows, _linear, {"coefficients": np.zeros(4, np.float32), "log_sd": np.float32(0)}, _linear_numpyro
    ),
    "negative binomial regression": Own(_counts_rows, _counts, np.zeros(5, np.float32), _counts_numpyro),
    "ordinal regression": Own(
        _grades_rows,
        _grades,
        {"slopes": np.zeros(3, np.float32), "first": np.float32(0), "log_gap": np.float32(0)},
        _grades_numpyro,
    ),
}


def as_matrix(samples: Any) -> np.ndarray:
    """Draws as (chain, draw, coordinate), parameters in the order of their names."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(samples)]
    return np.concatenate([leaf.reshape(*leaf.shape[:2], -1) for leaf in leaves], axis=-1)
