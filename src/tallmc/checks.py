"""Finds bad input before anything is compiled, and says how to mend it."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify
from jaxtyping import Array, PyTree

from tallmc.kernel import Kernel
from tallmc.posterior import Posterior

_ROWS_TO_TRY = 1000


def check_counts(num_samples: int, num_warmup: int, num_chains: int) -> None:
    """Whole numbers in range."""
    for name, value, least in (
        ("num_samples", num_samples, 1),
        ("num_warmup", num_warmup, 0),
        ("num_chains", num_chains, 1),
    ):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def check_data(data: PyTree) -> None:
    """Every number in the data is finite."""
    for path, leaf in jax.tree.leaves_with_path(data):
        if jnp.issubdtype(leaf.dtype, jnp.inexact) and not _all_finite(leaf):
            row = int(np.argmin(np.isfinite(np.asarray(leaf)).reshape(len(leaf), -1).all(axis=1)))
            name = jax.tree_util.keystr(path).lstrip(".") or "the data"
            raise ValueError(f"{name} holds NaN or infinity, first in row {row}; drop or fill such rows first")


def _all_finite(leaf: Array | np.ndarray) -> bool:
    return bool(jnp.isfinite(leaf).all() if isinstance(leaf, jax.Array) else np.isfinite(leaf).all())


def one_position_per_chain(posterior: Posterior, init: PyTree, num_chains: int) -> PyTree:
    """The start of every chain, stacked. `init` is one position for all, or has a leading chain axis.

    What tells them apart is the likelihood: it takes one position and gives a scalar.
    """
    if init is None:
        raise ValueError("init is missing; pass a position to start from, such as init=jnp.zeros(num_coordinates)")
    init = jax.tree.map(_as_array, init)
    for path, leaf in jax.tree.leaves_with_path(init):
        if not bool(jnp.isfinite(leaf).all()):
            name = jax.tree_util.keystr(path) or "init"
            raise ValueError(f"{name} holds NaN or infinity; start from finite numbers")
    problem = _trouble_with(posterior, init)
    if problem is None:
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_chains, *leaf.shape)), init)
    if all(leaf.ndim and leaf.shape[0] == num_chains for leaf in jax.tree.leaves(init)):
        first = jax.tree.map(lambda leaf: leaf[0], init)
        if _trouble_with(posterior, first) is None:
            return init
    raise ValueError(problem)


def _as_array(leaf: object) -> Array:
    array = jnp.asarray(leaf)
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(jnp.result_type(float))


def _trouble_with(posterior: Posterior, position: PyTree) -> str | None:
    """Why this cannot be a position, or None. Only shapes are worked out; nothing runs."""
    row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], jnp.asarray(leaf[:0]).dtype), posterior.data)
    for name, function, arguments in (
        ("log_likelihood(position, row)", posterior.log_likelihood, (position, row)),
        ("log_prior(position)", posterior.log_prior, (position,)),
    ):
        try:
            result = jax.eval_shape(function, *arguments)
        except Exception as error:  # whatever the caller's own function raises
            return f"{name} failed on one position and one row: {type(error).__name__}: {error}"
        leaves = jax.tree.leaves(result)
        if len(leaves) != 1 or leaves[0].shape != ():
            shape = [leaf.shape for leaf in leaves]
            return (
                f"{name} must return one number (a scalar), but its shape is {shape[0] if len(shape) == 1 else shape}; "
                "write it for one row, the library adds the rows up. A leading axis of init must be num_chains long"
            )
    return None


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
    rows = jax.tree.map(lambda leaf: jnp.asarray(leaf[indices]), posterior.data)
    values = np.asarray(jax.vmap(lambda position: posterior.log_likelihoods(position, rows))(positions))
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
    checked = checkify.checkify(posterior.log_likelihoods, errors=checkify.index_checks)
    error = checked(position, rows)[0].get()
    if error is not None:
        shapes = ", ".join(str(leaf.shape) for leaf in jax.tree.leaves(position))
        raise ValueError(
            f"log_likelihood looks beyond the end of an array: {error.strip()} Positions have shape {shapes}; pass an "
            "init with as many numbers as the likelihood takes, or mend the index"
        )


def check_is_kernel(kernel: object) -> None:
    """It is one."""
    if not isinstance(kernel, Kernel):
        name = type(kernel).__name__
        raise ValueError(f"kernel must be a Kernel such as tm.MetropolisHastings(proposal, rule), not {name}")


def check_kernel(kernel: Kernel, positions: PyTree, posterior: Posterior) -> None:
    """The kernel can move such positions."""
    kernel.check(jax.tree.map(lambda leaf: leaf[0], positions), posterior)
