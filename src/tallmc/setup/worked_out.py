"""Bounds that nobody gave: worked out from the likelihood's own program, if it has a rule for all that is in there."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from tallmc.bounds import FromProgram, NotCoveredError, why_not_covered
from tallmc.control_variates import Controlled
from tallmc.numerics.flat import Unflatten, flatten
from tallmc.posterior import Posterior


def with_worked_out_bounds(posterior: Posterior, position: PyTree) -> tuple[Posterior, NotCoveredError | None]:
    """The posterior with bounds that expansions work out where they are made; or the operation that forbids it.

    One that has bounds already keeps them.

    Args:
        posterior: Of unconstrained numbers.
        position: For its shapes.
    """
    if posterior.bounds is not None:
        return posterior, None
    flat, unravel = flatten(position)
    if not np.issubdtype(flat.dtype, np.floating):
        return posterior, NotCoveredError(f"positions of {flat.dtype.name}")
    trouble = _trouble(posterior.log_likelihood, unravel, flat.size, posterior.rows.like)
    return (posterior, trouble) if trouble is not None else (_with(posterior, FromProgram()), None)


def without_worked_out_bounds(posterior: Posterior) -> Posterior:
    """The posterior as it was given: for expansions that only lead to others."""
    return _with(posterior, None) if isinstance(posterior.bounds, FromProgram) else posterior


def bounded_like(posterior: Posterior, controlled: Controlled) -> Posterior:
    """The posterior with the bounds that an expansion of it was made with."""
    bounds = controlled.model.plain.bounds
    return posterior if posterior.bounds is bounds else _with(posterior, bounds)


def _trouble(likelihood: Callable, unravel: Unflatten, size: int, like: PyTree) -> NotCoveredError | None:
    """Reads a function once for many calls; one that is changed behind its name is read anew where bounds are made."""
    leaves, structure = jax.tree.flatten(like)
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    try:
        return _remembered(likelihood, unravel, size, structure, shapes)
    except TypeError:  # a likelihood with arrays in it has no hash
        return why_not_covered(likelihood, unravel, size, like)


@functools.lru_cache(maxsize=25)
def _remembered(
    likelihood: Callable, unravel: Unflatten, size: int, structure: Any, shapes: tuple
) -> NotCoveredError | None:
    like = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*shape) for shape in shapes])
    found = why_not_covered(likelihood, unravel, size, like)
    # Anew, without the frames that it was raised in.
    return None if found is None else NotCoveredError(found.operation, found.line)


def _with(posterior: Posterior, bounds: FromProgram | None) -> Posterior:
    # With the very same rows, for they may be on an accelerator already.
    heat = posterior.temperature if posterior.schedule is None else posterior.schedule
    return Posterior(posterior.log_likelihood, posterior.rows, posterior.log_prior, heat, bounds, start=posterior.start)
