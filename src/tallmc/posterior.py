"""What is sampled: a likelihood for one row, a prior, and many rows."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Real


def _flat_prior(position: PyTree) -> float:
    """The improper flat prior."""
    del position
    return 0.0


class Posterior(eqx.Module):
    """A posterior over many rows: `log_prior(position) + sum_i log_likelihood(position, row_i) / temperature`.

    Args:
        log_likelihood: `log_likelihood(position, row) -> scalar` for *one* row. The library batches it, scales it by
            the number of rows and counts how often it is called.
        data: Pytree of arrays with one common first axis, a row being one index along it.
        log_prior: `log_prior(position) -> scalar`; flat if left out. Minus infinity marks a position outside the
            support.
        temperature: Divides the log likelihood. Changing it never recompiles anything.
        bounds: Bounds on the change of a row's log likelihood, for the rules that need them.

    Example:
        >>> import jax.numpy as jnp
        >>> posterior = Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, jnp.arange(5.0))
        >>> posterior.num_rows
        5
    """

    log_likelihood: Callable[[PyTree, PyTree], Real[Array, ""]]
    data: PyTree
    log_prior: Callable[[PyTree], Real[Array, ""]]
    temperature: Real[Array, ""]
    bounds: Any
    num_rows: int = eqx.field(static=True)

    def __init__(
        self,
        log_likelihood: Callable[[PyTree, PyTree], Any],
        data: PyTree,
        log_prior: Callable[[PyTree], Any] = _flat_prior,
        temperature: float | Array = 1.0,
        bounds: Any = None,
    ):
        _check_functions(log_likelihood, data, log_prior)
        self.num_rows = _num_rows(data)
        self.log_likelihood = log_likelihood
        self.data = data
        self.log_prior = log_prior
        self.temperature = _check_temperature(temperature)
        self.bounds = bounds

    @property
    def expanded(self) -> bool:
        """Whether rows say only what a Taylor expansion leaves of them."""
        return False

    def at_temperature(self, temperature: float | Array) -> "Posterior":
        """The same posterior at another temperature."""
        return eqx.tree_at(lambda p: p.temperature, self, _check_temperature(temperature))

    def log_likelihoods(self, position: PyTree, rows: PyTree) -> Real[Array, " rows"]:
        """Log likelihood of each of a batch of rows, before temperature."""
        return jax.vmap(self.log_likelihood, in_axes=(None, 0))(position, rows)

    def log_ratios(self, position: PyTree, proposed: PyTree, rows: PyTree) -> Real[Array, " rows"]:
        """Each row's evidence for `proposed` against `position`, tempered."""
        change = self.log_likelihoods(proposed, rows) - self.log_likelihoods(position, rows)
        return change / self.temperature.astype(change.dtype)

    def between(self, position: PyTree, proposed: PyTree) -> PyTree:
        """What `offset` and bounds both have to work out about a move; None if they share nothing."""
        del position, proposed

    def offset(self, position: PyTree, proposed: PyTree, between: PyTree = None) -> Real[Array, ""]:
        """The part of the log density ratio that needs no data: that of the prior."""
        del between
        return jnp.asarray(self.log_prior(proposed) - self.log_prior(position))

    def log_density(self, position: PyTree, rows: PyTree) -> Real[Array, ""]:
        """Unnormalised log density if `rows` were all the data there is."""
        total = jnp.sum(self.log_likelihoods(position, rows))
        return self.log_prior(position) + total / self.temperature.astype(total.dtype)


def _check_temperature(temperature: float | Array) -> Array:
    if not (np.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature must be a positive number, got {temperature}")
    return jnp.asarray(temperature, jnp.result_type(float))


def _check_functions(log_likelihood: Any, data: PyTree, log_prior: Any) -> None:
    if not callable(log_likelihood):
        swapped = "the arguments may be swapped, " if callable(data) else ""
        raise ValueError(
            f"log_likelihood must be a function of a position and a row, not {type(log_likelihood).__name__}; "
            f"{swapped}pass tm.Posterior(log_likelihood, data)"
        )
    if not callable(log_prior):
        raise ValueError(
            f"log_prior must be a function of the position, not {type(log_prior).__name__}; leave it out if it is flat"
        )


def _num_rows(data: PyTree) -> int:
    leaves = jax.tree.leaves(data)
    if not leaves:
        raise ValueError("data holds no arrays; pass an array or a pytree of arrays with one row per first index")
    lengths = set()
    for path, leaf in jax.tree.leaves_with_path(data):
        name = "data" + jax.tree_util.keystr(path)
        if not isinstance(leaf, np.ndarray | jax.Array) or leaf.ndim == 0:
            raise ValueError(
                f"{name} must be an array with one row per first index, not {type(leaf).__name__}; "
                "convert lists and data frames with numpy.asarray, sparse matrices with their .toarray()"
            )
        if not (jnp.issubdtype(leaf.dtype, jnp.number) or jnp.issubdtype(leaf.dtype, jnp.bool)):
            raise ValueError(
                f"{name} holds {leaf.dtype}, not numbers; convert it with .astype(float), or labels to their numbers "
                "with numpy.unique(labels, return_inverse=True)[1]"
            )
        lengths.add(leaf.shape[0])
    if len(lengths) > 1:
        shapes = {jax.tree_util.keystr(path): leaf.shape for path, leaf in jax.tree.leaves_with_path(data)}
        raise ValueError(f"columns have different lengths: {shapes}; give every array the same first axis")
    (num_rows,) = lengths
    if num_rows == 0:
        raise ValueError("data has zero rows; a posterior needs at least one")
    return int(num_rows)
