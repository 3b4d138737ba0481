"""Finds positions and data that cannot be sampled before anything is compiled, and says how to mend them."""

import os
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify
from jaxtyping import Array, PyTree

from tallmc.numerics.flat import as_device_array, as_position, as_real
from tallmc.numerics.programs import program
from tallmc.posterior.linear_predictor import LinearPredictor, SelectedPredictor, is_selection
from tallmc.posterior.model import Model
from tallmc.posterior.posterior import Posterior
from tallmc.posterior.rows import Rows

_ROWS_TO_TRY = 1000
_ROWS_AT_A_TIME = 65_536
_ROWS_APART = 20
_LOOKUPS = ("gather", "dynamic_slice", "dynamic_update_slice", "scatter")
_NEEDS_A_NUMBER = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
)


def check_rows(rows: Rows) -> None:
    """Raises `ValueError` unless all numbers in the rows are finite. Those checked when stored are not read again."""
    if not rows.known_finite:
        check_data(rows.all())


def check_data(data: PyTree) -> None:
    """Raises `ValueError` unless every number in the data is finite."""
    for path, leaf in jax.tree.leaves_with_path(data):
        if jnp.issubdtype(leaf.dtype, jnp.inexact) and (row := _first_bad_row(np.asarray(leaf))) is not None:
            name = jax.tree_util.keystr(path).lstrip(".") or "the data"
            raise ValueError(f"{name} holds NaN or infinity, first in row {row}; drop or fill such rows first")


def _first_bad_row(leaf: np.ndarray) -> int | None:
    """The first row with a number that is not finite, or None."""

    def look(start: int) -> int | None:
        block = leaf[start : start + _ROWS_AT_A_TIME]
        # What is not finite makes a sum that is not; adding up is several times as fast as asking every number.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.sum(block)):
                return None
        bad = ~np.isfinite(block).reshape(len(block), -1).all(axis=1)
        return start + int(np.argmax(bad)) if bad.any() else None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(look, range(0, len(leaf), _ROWS_AT_A_TIME))
        return next((row for row in found if row is not None), None)


def one_position_per_chain(
    posterior: Posterior, init: PyTree, num_chains: int, name: str = "init", *, real_only: bool = False
) -> PyTree:
    """The start of every chain, stacked. `init` is one position for all, or has a leading chain axis.

    What tells them apart is the likelihood: it takes one position and gives a scalar. `name` is the caller's.
    Arrays keep their kind; with `real_only` whole numbers become real.
    """
    if init is None:
        raise ValueError("init is missing; pass a position to start from, such as init=jnp.zeros(num_coordinates)")
    init = jax.tree.map_with_path(lambda path, leaf: _as_array(name + jax.tree_util.keystr(path), leaf), init)
    if real_only:
        init = jax.tree.map(as_real, init)
    trouble = trouble_with(posterior, init, name)
    if trouble is None:
        _refuse_two_readings(posterior, init, num_chains, name)
        return jax.tree.map(lambda leaf: np.broadcast_to(leaf, (num_chains, *leaf.shape)), init)
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


def _as_array(name: str, leaf: object) -> np.ndarray:
    try:
        array = as_position(leaf)
        if not _is_number(array):
            raise TypeError(f"{array.dtype} is no kind of number")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, not {leaf!r}; pass an array such as jnp.zeros(3)") from error
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} holds NaN or infinity; start from finite numbers")
    return array


def _is_number(array: np.ndarray) -> bool:
    return jnp.issubdtype(array.dtype, jnp.number) or jnp.issubdtype(array.dtype, jnp.bool)


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
    if isinstance(posterior.log_likelihood, SelectedPredictor):
        num_columns = posterior.rows.like["x"].shape[0]
        if not is_selection(position) or position["beta"].shape != (num_columns,):
            what = f"{name} is no selection of {num_columns} columns"
            return Trouble(what, f'pass {{"beta": {num_columns} numbers, "gamma": {num_columns} truth values}}')
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
    indices, rows = rows_to_try(posterior.rows)
    model = posterior.model
    priors, values = (np.asarray(part) for part in _densities(model.log_prior, model.log_likelihood, positions, rows))
    for chain, prior in enumerate(priors):
        if not np.isfinite(prior):
            raise ValueError(
                f"chain {chain} starts outside the prior's support (log_prior is {prior}); choose another init"
            )
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        chain, row = bad[0]
        raise ValueError(
            f"log_likelihood is {values[chain, row]} at the start of chain {chain} for row {indices[row]}; "
            "choose another init or mend the likelihood"
        )
    _check_indices(posterior, jax.tree.map(lambda leaf: leaf[0], positions), rows)
    return float(np.sqrt(np.mean(np.square(values, dtype=float)))), values.size


def log_priors(posterior: Posterior, positions: PyTree) -> np.ndarray:
    """The log prior of each of several positions, by the program of `check_start`."""
    model = posterior.model
    return np.asarray(_densities(model.log_prior, model.log_likelihood, positions, rows_to_try(posterior.rows)[1])[0])


def log_likelihoods_of(model: Model, positions: PyTree, rows: PyTree) -> np.ndarray:
    """What each row says of each of several positions, by the program of `check_start`.

    Args:
        model: With the likelihood.
        positions: With a leading axis.
        rows: Some rows, such as `rows_to_try` gives; as many as there, and nothing is compiled.
    """
    return np.asarray(_densities(model.log_prior, model.log_likelihood, positions, rows)[1])


def rows_to_try(rows: Rows) -> tuple[np.ndarray, PyTree]:
    """Numbers of some rows, always the same, and these rows."""
    count = min(_ROWS_TO_TRY, rows.num_rows)
    indices = np.sort(np.random.default_rng(0).choice(rows.num_rows, count, replace=False, shuffle=False))
    return indices, rows.take(indices)


@program
def _densities(log_prior: Callable, log_likelihood: Callable, positions: PyTree, rows: PyTree) -> tuple[Array, Array]:
    """Of each position: log prior, and log likelihood of each row."""

    def of_one(position: PyTree) -> tuple[Array, Array]:
        return jnp.asarray(log_prior(position)), jax.vmap(log_likelihood, in_axes=(None, 0))(position, rows)

    return jax.lax.map(of_one, positions)


def _check_indices(posterior: Posterior, position: PyTree, rows: PyTree) -> None:
    """JAX takes an index that is too large for the last one, and says nothing."""
    position, rows = jax.tree.map(as_device_array, (position, rows))
    steps = str(jax.make_jaxpr(posterior.model.log_likelihoods)(position, rows))
    if not any(operation in steps for operation in _LOOKUPS):
        return
    checked = jax.jit(checkify.checkify(posterior.model.log_likelihoods, errors=checkify.index_checks))
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
