"""Log likelihood of a block of rows with gradient and Hessian, in the form that is cheapest for the likelihood."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc.posterior.linear_predictor import LinearPredictor
from tallmc.posterior.predictors import Predictors, predictors_of

LogLikelihood = Callable[[PyTree, PyTree], Real[Array, ""]]
Unravel = Callable[[Array], PyTree]


def derivative_sums(
    likelihood: LogLikelihood,
    unravel: Unravel,
    flat: Real[Array, " d"],
    rows: PyTree,
    valid: Bool[Array, " rows"],
    *,
    curvature: bool | Bool[Array, ""],
) -> tuple[Array, ...]:
    """Value, gradient and, if asked for, Hessian, summed over the rows that count.

    Args:
        likelihood: Of one row.
        unravel: From a flat position to one that the likelihood takes.
        flat: The position.
        rows: A block of them.
        valid: Which of these count.
        curvature: Whether to work out the Hessian. If that is known only when the program runs, there always is one: of
            zeros, at no cost, where it is not wanted.
    """
    if isinstance(likelihood, LinearPredictor):
        return _of_linear_predictor(likelihood, flat, rows, valid, curvature=curvature)
    predictors = None if curvature is False else predictors_of(likelihood, unravel, flat, first_of(rows))
    if predictors is not None:
        return _of_predictors(predictors, flat, rows, valid, curvature=curvature)

    def total(position: Array) -> Array:
        values = jax.vmap(likelihood, in_axes=(None, 0))(unravel(position), rows)
        return jnp.sum(jnp.where(valid, values, 0))

    return *jax.value_and_grad(total)(flat), *_if_wanted(curvature, lambda: jax.hessian(total)(flat))


def first_of(rows: PyTree) -> PyTree:
    """The shapes of one row, from those of a block."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), rows)


def _if_wanted(curvature: bool | Array, hessian: Callable[[], Array]) -> tuple[Array, ...]:
    if isinstance(curvature, bool):
        return (hessian(),) if curvature else ()
    like = jax.eval_shape(hessian)
    return (jax.lax.cond(curvature, hessian, lambda: jnp.zeros(like.shape, like.dtype)),)


def _of_linear_predictor(
    likelihood: LinearPredictor, flat: Array, rows: PyTree, valid: Array, *, curvature: bool | Array
) -> tuple[Array, ...]:
    """In closed form: the Hessian is one matrix product instead of one gradient for each coordinate."""
    x, y = rows["x"].astype(flat.dtype), rows["y"].astype(flat.dtype)
    z = x @ flat
    along = jnp.ones_like(z)

    def slopes(z: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda z: likelihood.link(z, y), (z,), (along,))

    (values, first), (_, second) = jax.jvp(slopes, (z,), (along,))
    values, first, second = (jnp.where(valid, part, 0) for part in (values, first, second))
    hessian = _if_wanted(curvature, lambda: (x * second[:, None]).T @ x)
    return jnp.sum(values), first @ x, *hessian


def _of_predictors(
    predictors: Predictors, flat: Array, rows: PyTree, valid: Array, *, curvature: bool | Array
) -> tuple[Array, ...]:
    """By the chain rule: the predictors are linear, so their part of it is a matrix for each row.

    Coordinates that all rows look at share one matrix product. What each row picks out, such as its group's, is added
    to where it belongs.
    """

    def of_row(row: PyTree) -> tuple[Array, ...]:
        seen = predictors.seen(flat, row)
        design = jax.jacrev(predictors.of_seen)(seen, row)
        at = predictors.of_seen(seen, row)
        return *jax.value_and_grad(predictors.link)(at, row), at, design, predictors.numbers(flat, row)

    value, slope, at, design, numbers = jax.vmap(of_row)(rows)
    value, slope = jnp.where(valid, value, 0), jnp.where(valid[:, None], slope, 0)
    split, size = predictors.num_shared, predictors.num_coordinates
    everywhere = numbers[0, :split]  # the same for all rows
    everyone = slope.size  # predictors of all rows; no -1 in its place, for there may be no shared coordinate
    # As one matrix, whose products are read in the order of memory.
    shared = design[..., :split].reshape(everyone, split)
    gradient = jnp.zeros(size, flat.dtype).at[everywhere].add(slope.ravel() @ shared)
    for i in range(split, predictors.num_seen):
        gradient += _collected(numbers[:, i], jnp.einsum("bm,bm->b", design[..., i], slope)[:, None], size)[:, 0]

    def hessian() -> Array:
        bent = jnp.where(valid[:, None, None], jax.vmap(jax.hessian(predictors.link))(at, rows), 0)
        bent_design = jnp.einsum("bmn,bnq->bmq", bent, design)
        everyones = shared.T @ bent_design[..., :split].reshape(everyone, split)
        sums = jnp.zeros((size, size), flat.dtype).at[everywhere[:, None], everywhere].add(everyones)
        for i in range(split, predictors.num_seen):
            places, across = numbers[:, i], jnp.einsum("bm,bmq->bq", design[..., i], bent_design)
            beside = _collected(places, across[:, :split], size)
            sums = sums.at[:, everywhere].add(beside).at[everywhere].add(beside.T)
            for j in range(split, predictors.num_seen):
                sums += _collected_pairs(places, numbers[:, j], across[:, j], size)
        return sums

    return jnp.sum(value), gradient, *_if_wanted(curvature, hessian)


def _collected(places: Int[Array, " b"], values: Real[Array, "b c"], size: int) -> Real[Array, "size c"]:
    """Rows of values summed by place; on a GPU as a matrix product, so that the order of the sum is always the same."""
    if jax.default_backend() == "cpu":
        return jnp.zeros((size, values.shape[1]), values.dtype).at[places].add(values)
    return jax.nn.one_hot(places, size, dtype=values.dtype).T @ values


def _collected_pairs(
    rows: Int[Array, " b"], columns: Int[Array, " b"], values: Real[Array, " b"], size: int
) -> Real[Array, "size size"]:
    if jax.default_backend() == "cpu":
        return jnp.zeros((size, size), values.dtype).at[rows, columns].add(values)
    return _collected(rows, values[:, None] * jax.nn.one_hot(columns, size, dtype=values.dtype), size)
