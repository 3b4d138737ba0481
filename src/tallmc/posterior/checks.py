"""Finds positions and data that cannot be sampled before anything is compiled, and says how to mend them."""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify
from jaxtyping import Array, PyTree

from tallmc.posterior.linear_predictor import LinearPredictor
from tallmc.posterior.posterior import Posterior

_ROWS_TO_TRY = 1000
_ROWS_APART = 20
_LOOKUPS = ("gather", "dynamic_slice", "dynamic_update_slice", "scatter")
_NEEDS_A_NUMBER = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
)


def check_data(data: PyTree) -> None:
    """Raises `ValueError` unless every number in the data is finite."""
    for path, leaf in jax.tree.leaves_with_path(data):
        if jnp.issubdtype(leaf.dtype, jnp.inexact) and not _all_finite(leaf):
            row = int(np.argmin(np.isfinite(np.asarray(leaf)).reshape(len(leaf), -1).all(axis=1)))
            name = jax.tree_util.keystr(path).lstrip(".") or "the data"
            raise ValueError(f"{name} holds NaN or infinity, first in row {row}; drop or fill such rows first")


def _all_finite(leaf: Array | np.ndarray) -> bool:
    return bool(jnp.isfinite(leaf).all() if isinstance(leaf, jax.Array) else np.isfinite(leaf).all())


def one_position_per_chain(posterior: Posterior, init: PyTree, num_chains: int, name: str = "init") -> PyTree:
    """The start of every chain, stacked. `init` is one position for all, or has a leading chain axis.

    What tells them apart is the likelihood: it takes one position and gives a scalar. `name` is the caller's.
    """
    if init is None:
        raise ValueError("init is missing; pass a position to start from, such as init=jnp.zeros(num_coordinates)")
    init = jax.tree.map_with_path(lambda path, leaf: _as_array(name + jax.tree_util.keystr(path), leaf), init)
    trouble = trouble_with(posterior, init, name)
    if trouble is None:
        _refuse_two_readings(posterior, init, num_chains, name)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_chains, *leaf.shape)), init)
    message = f"{trouble.what}; {trouble.fix}"
    lengths = {leaf.shape[0] if leaf.ndim else None for leaf in jax.tree.leaves(init)}
    if len(lengths) == 1 and (length := lengths.pop()) is not None:
        first = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), init)
        if trouble_with(posterior, first, name) is None:
            if length == num_chains:
                return init
            if num_chains > 1:
                message += f"; or make the leading axis of {name}, now {length} long, num_chains={num_chains} long"
    raise ValueError(message) from trouble.cause


def _refuse_two_readings(posterior: Posterior, init: PyTree, num_chains: int, name: str) -> None:
    """A likelihood that broadcasts takes a stack of positions for one large one."""
    leaves = jax.tree.leaves(init)
    if num_chains == 1 or any(leaf.ndim < 2 or leaf.shape[0] != num_chains for leaf in leaves):
        return
    first = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), init)
    if trouble_with(posterior, first, name) is None:
        raise ValueError(
            f"{name} can be read in two ways, as one position or as {num_chains}, one a chain, because log_likelihood "
            "takes either. Pass the position of one chain; or write the likelihood so that it takes positions of one "
            "shape only; or, if this is one position, choose another num_chains"
        )


def _as_array(name: str, leaf: object) -> Array:
    try:
        array = jnp.asarray(leaf)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, not {leaf!r}; pass an array such as jnp.zeros(3)") from error
    if not bool(jnp.isfinite(array).all()):
        raise ValueError(f"{name} holds NaN or infinity; start from finite numbers")
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(jnp.result_type(float))


class Trouble(NamedTuple):
    """Why something cannot be a position.

    Args:
        what: What is wrong.
        fix: What to do about it.
        cause: What the caller's own function raised, if it did.
    """

    what: str
    fix: str
    cause: Exception | None = None


def trouble_with(posterior: Posterior, position: PyTree, name: str = "init") -> Trouble | None:
    """Why this cannot be a position, or None. Only shapes are worked out; nothing runs.

    Raises:
        ValueError: If no other position would do either.
    """
    if isinstance(posterior.log_likelihood, LinearPredictor):
        trouble = _trouble_with_coefficients(position, posterior.rows.like["x"].shape[0], name)
        if trouble is not None:
            return trouble
    likelihood = _trouble_in(
        "log_likelihood",
        posterior.log_likelihood,
        "write it for one row, the library adds the rows up",
        position=position,
        row=posterior.rows.like,
    )
    return likelihood or _trouble_in(
        "log_prior", posterior.log_prior, "add up what it says of each coordinate with jnp.sum", position=position
    )


def _trouble_with_coefficients(position: PyTree, num_columns: int, name: str) -> Trouble | None:
    shape = getattr(position, "shape", None)
    if shape == (num_columns,):
        return None
    has = f"is a {type(position).__name__}" if shape is None else f"has shape {shape}"
    return Trouble(f"{name} {has}, but x has {num_columns} columns", f"pass {num_columns} numbers in one array")


def _trouble_in(name: str, function: Callable, add_up: str, **arguments: PyTree) -> Trouble | None:
    call = f"{name}({', '.join(arguments)})"
    try:
        result = jax.eval_shape(function, *arguments.values())
    except _NEEDS_A_NUMBER as error:
        raise ValueError(
            f"{call} uses a number before there is one ({type(error).__name__}); write it with jax.numpy: jnp.where "
            "instead of if, no float() or int(), and jnp. functions instead of np. or math. ones"
        ) from error
    except KeyError as error:
        there = ", ".join(part for part, _ in _parts(arguments))
        raise ValueError(f"{call} asks for {error}, but there is only {there}; mend the name") from error
    except Exception as error:  # whatever the caller's own function raises
        given = ", ".join(f"{part} of shape {shape}" for part, shape in _parts(arguments))
        what = f"{call} failed on one {' and one '.join(arguments)}: {type(error).__name__}: {error} (given {given})"
        return Trouble(what, f"pass an init of the shape that {name} takes, or mend {name}", error)
    shapes = [leaf.shape for leaf in jax.tree.leaves(result)]
    if shapes == [()]:
        return None
    return Trouble(
        f"{call} must return one number (a scalar), but its shape is {shapes[0] if len(shapes) == 1 else shapes}",
        add_up,
    )


def _parts(arguments: dict[str, PyTree]) -> list[tuple[str, tuple[int, ...]]]:
    """Every array that a function is given, by the name it has there, and its shape."""
    return [
        (name + jax.tree_util.keystr(path), leaf.shape)
        for name, argument in arguments.items()
        for path, leaf in jax.tree.leaves_with_path(argument)
    ]


def check_start(posterior: Posterior, positions: PyTree) -> tuple[float, int]:
    """Prior and likelihood are finite where the chains start.

    Returns:
        Root mean square log likelihood of the rows tried, and how many rows were read.
    """
    priors = np.asarray(jax.vmap(lambda position: jnp.asarray(posterior.log_prior(position)))(positions))
    for chain, prior in enumerate(priors):
        if not np.isfinite(prior):
            raise ValueError(
                f"chain {chain} starts outside the prior's support (log_prior is {prior}); choose another init"
            )
    count = min(_ROWS_TO_TRY, posterior.num_rows)
    indices = np.sort(np.random.default_rng(0).choice(posterior.num_rows, count, replace=False))
    rows = jax.tree.map(jnp.asarray, posterior.rows.take(indices))
    values = np.asarray(jax.vmap(lambda position: posterior.model.log_likelihoods(position, rows))(positions))
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        chain, row = bad[0]
        raise ValueError(
            f"log_likelihood is {values[chain, row]} at the start of chain {chain} for row {indices[row]}; "
            "choose another init or mend the likelihood"
        )
    _check_indices(posterior, jax.tree.map(lambda leaf: leaf[0], positions), rows)
    return float(np.sqrt(np.mean(np.square(values, dtype=float)))), values.size


def _check_indices(posterior: Posterior, position: PyTree, rows: PyTree) -> None:
    """JAX takes an index that is too large for the last one, and says nothing."""
    steps = str(jax.make_jaxpr(posterior.model.log_likelihoods)(position, rows))
    if not any(operation in steps for operation in _LOOKUPS):
        return
    checked = checkify.checkify(posterior.model.log_likelihoods, errors=checkify.index_checks)
    error = checked(position, rows)[0].get()
    if error is None:
        return
    shapes = ", ".join(str(leaf.shape) for leaf in jax.tree.leaves(position))
    what = f"log_likelihood looks beyond the end of an array: {error.strip()} Positions have shape {shapes}; "
    count = len(jax.tree.leaves(rows)[0])
    some = [jax.tree.map(lambda leaf, at=at: leaf[at : at + 1], rows) for at in range(min(_ROWS_APART, count))]
    if all(checked(position, row)[0].get() is not None for row in some):
        raise ValueError(f"{what}pass an init with as many numbers as the likelihood takes, or mend the index")
    # It may know: jnp.where(group < 3, effects[group], 0.0) throws away what it should not have read.
    warnings.warn(
        f"{what}JAX takes the last number instead, for some rows. Mend the index, unless such reads are thrown away",
        UserWarning,
        stacklevel=2,
    )
