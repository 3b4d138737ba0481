"""Groups, persons and items: many parameters, each of which few rows know."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.range.case import Case, case, columns, normal, rows, zeros


def bernoulli(y, z):
    return y * z - jnp.logaddexp(0.0, z)


def grouped(num_groups, size, seed, spread=0.8):
    generator, x = columns(num_groups * size, 2, seed, intercept=False)
    group = np.repeat(np.arange(num_groups), size)
    effect = 0.3 + spread * generator.normal(size=num_groups)
    return generator, x, group, effect[group] + x @ np.array([0.5, -0.5])


def hyper_prior(position):
    return -0.5 * position["mean"] ** 2 - 0.5 * position["log_spread"] ** 2 - 0.5 * jnp.sum(position["b"] ** 2)


def hyper_init(num_groups):
    return {"mean": zeros(), "log_spread": zeros(), "effect": zeros(num_groups), "b": zeros(2)}


def centred_prior(position):
    effects = jnp.sum(normal(position["effect"], position["mean"], jnp.exp(position["log_spread"])))
    return hyper_prior(position) + effects


def centred(position, row):
    return position["effect"][row["group"]] + row["x"] @ position["b"]


@case
def logistic_groups_centred():
    """100 groups of 200 rows."""
    generator, x, group, z = grouped(100, 200, 1)
    y = generator.random(len(z)) < 1 / (1 + np.exp(-z))
    return Case(
        lambda position, row: bernoulli(row["y"], centred(position, row)),
        rows(x=x, y=y, group=group),
        hyper_init(100),
        centred_prior,
    )


@case
def logistic_groups_non_centred():
    """200 groups of 10 rows."""
    generator, x, group, z = grouped(200, 10, 2)
    y = generator.random(len(z)) < 1 / (1 + np.exp(-z))

    def log_likelihood(position, row):
        effect = position["mean"] + jnp.exp(position["log_spread"]) * position["effect"][row["group"]]
        return bernoulli(row["y"], effect + row["x"] @ position["b"])

    def log_prior(position):
        return hyper_prior(position) - 0.5 * jnp.sum(position["effect"] ** 2)

    return Case(log_likelihood, rows(x=x, y=y, group=group), hyper_init(200), log_prior)


@case
def poisson_groups():
    """50 groups of 20 rows, centred."""
    generator, x, group, z = grouped(50, 20, 3, spread=0.5)

    def log_likelihood(position, row):
        z = centred(position, row)
        return row["y"] * z - jnp.exp(z)

    return Case(
        log_likelihood,
        rows(x=x, y=generator.poisson(np.exp(z)).astype(float), group=group),
        hyper_init(50),
        centred_prior,
    )


@case
def radon():
    """Houses in 85 counties, some of which have one house only; noise unknown."""
    generator, x, _, _ = grouped(85, 11, 4)
    group = np.concatenate([np.arange(85), generator.choice(85, 850, p=generator.dirichlet(np.ones(85)))])
    effect = 1.3 + 0.35 * generator.normal(size=85)
    y = effect[group] + x @ np.array([-0.6, 0.4]) + 0.75 * generator.normal(size=935)

    def log_likelihood(position, row):
        return normal(row["y"], centred(position, row), jnp.exp(position["log_sd"]))

    def log_prior(position):
        return centred_prior(position) - 0.5 * position["log_sd"] ** 2

    return Case(log_likelihood, rows(x=x, y=y, group=group), hyper_init(85) | {"log_sd": zeros()}, log_prior)


@case
def random_slopes():
    """50 groups of 30 rows, each with an intercept and a slope of its own."""
    generator, x = columns(1500, 2, 5)
    group = np.repeat(np.arange(50), 30)
    effect = np.array([0.3, 0.5]) + np.array([0.8, 0.4]) * generator.normal(size=(50, 2))
    z = np.sum(x * effect[group], axis=1)
    y = generator.random(1500) < 1 / (1 + np.exp(-z))

    def log_likelihood(position, row):
        return bernoulli(row["y"], row["x"] @ position["effect"][row["group"]])

    def log_prior(position):
        spread = jnp.exp(position["log_spread"])[None]
        effects = jnp.sum(normal(position["effect"], position["mean"][None], spread))
        return effects - 0.5 * jnp.sum(position["mean"] ** 2) - 0.5 * jnp.sum((position["log_spread"] + 0.5) ** 2)

    init = {"mean": zeros(2), "log_spread": zeros(2), "effect": zeros(50, 2)}
    return Case(log_likelihood, rows(x=x, y=y, group=group), init, log_prior)


@case
def rasch():
    """200 persons answer 40 questions: 240 parameters."""
    generator = np.random.default_rng(6)
    person, item = (part.ravel() for part in np.meshgrid(np.arange(200), np.arange(40), indexing="ij"))
    ability, difficulty = generator.normal(size=200), generator.normal(size=40)
    y = generator.random(8000) < 1 / (1 + np.exp(difficulty[item] - ability[person]))

    def log_likelihood(position, row):
        return bernoulli(row["y"], position["ability"][row["person"]] - position["difficulty"][row["item"]])

    def log_prior(position):
        return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(position))

    init = {"ability": zeros(200), "difficulty": zeros(40)}
    return Case(log_likelihood, rows(y=y, person=person, item=item), init, log_prior)


SCHOOLS = {
    "y": np.array([28, 8, -3, 7, -1, 1, 18, 12], np.float32),
    "sd": np.array([15, 10, 16, 11, 9, 11, 10, 18], np.float32),
    "school": np.arange(8, dtype=np.int32),
}


def schools_prior(position):
    """mean ~ N(0, 5), spread ~ half-Cauchy(5)."""
    ratio = jnp.exp(position["log_spread"]) / 5
    return -0.5 * (position["mean"] / 5) ** 2 + position["log_spread"] - jnp.log1p(ratio**2)


SCHOOLS_INIT = {"mean": zeros(), "log_spread": np.float32(1), "effect": zeros(8)}


@case
def eight_schools_centred():
    def log_likelihood(position, row):
        return normal(row["y"], position["effect"][row["school"]], row["sd"])

    def log_prior(position):
        effects = jnp.sum(normal(position["effect"], position["mean"], jnp.exp(position["log_spread"])))
        return schools_prior(position) + effects

    return Case(log_likelihood, SCHOOLS, SCHOOLS_INIT, log_prior, same_as="eight_schools_non_centred")


@case
def eight_schools_non_centred():
    def effects(position):
        return position["mean"] + jnp.exp(position["log_spread"]) * position["effect"]

    def log_likelihood(position, row):
        return normal(row["y"], effects(position)[row["school"]], row["sd"])

    def log_prior(position):
        return schools_prior(position) - 0.5 * jnp.sum(position["effect"] ** 2)

    def look(position):
        return position | {"effect": effects(position)}

    return Case(log_likelihood, SCHOOLS, SCHOOLS_INIT, log_prior, look)


@case
def overdispersed_plates():
    """21 plates of seeds, each with an effect of its own (Crowder, 1978, in kind)."""
    generator, x = columns(21, 3, 7)
    count = generator.integers(10, 80, 21)
    z = x @ np.array([-0.3, 0.5, -0.4]) + 0.4 * generator.normal(size=21)
    y = generator.binomial(count, 1 / (1 + np.exp(-z)))

    def log_likelihood(position, row):
        z = row["x"] @ position["b"] + jnp.exp(position["log_spread"]) * position["effect"][row["plate"]]
        return row["y"] * z - row["count"] * jnp.logaddexp(0.0, z)

    def log_prior(position):
        others = -0.5 * jnp.sum(position["b"] ** 2) - 0.5 * jnp.sum(position["effect"] ** 2)
        return others - 0.5 * (position["log_spread"] + 1) ** 2

    init = {"b": zeros(3), "log_spread": zeros(), "effect": zeros(21)}
    data = rows(x=x, y=y.astype(float), count=count.astype(float), plate=np.arange(21))
    return Case(log_likelihood, data, init, log_prior)
