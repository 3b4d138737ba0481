"""Is the arithmetic fine enough for the question?"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tallmc.kernel import Kernel, rule_needs
from tallmc.posterior import Model, Rows

_TOLERATED = 0.1  # against decisions whose own noise has a standard deviation of 1 or more


def rounding_noise(model: Model, decisive_rows: int, typical_log_likelihood: float, dtype: DTypeLike) -> float:
    """Standard deviation that rounding adds to an estimated log acceptance ratio.

    A row's log ratio is a small difference of two log likelihoods, each rounded to half a unit in the last place;
    the estimate multiplies the mean of `decisive_rows` such differences by the number of rows.

    Example:
        >>> import jax.numpy as jnp
        >>> from tallmc.posterior import Posterior
        >>> posterior = Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, jnp.zeros(10_000))
        >>> rounding_noise(posterior.model, 100, 2.0, jnp.float32) < 1e-3
        True
    """
    one_row = math.sqrt(2) * float(jnp.finfo(dtype).eps) / 2 * typical_log_likelihood
    return model.num_rows * one_row / math.sqrt(decisive_rows) / float(model.temperature)


def check_precision(model: Model, rows: Rows, kernel: Kernel, position: PyTree, typical_log_likelihood: float) -> float:
    """Refuses a run whose rounding noise is not small against the noise of its decisions."""
    if model.expanded:
        return 0.0  # what is left of an expansion is no small difference of large numbers
    dtype = jax.eval_shape(model.log_likelihood, position, rows.like).dtype
    fewest = min(rule_needs(part).rows_behind_a_decision(model.num_rows) for part in kernel.parts())
    noise = rounding_noise(model, fewest, typical_log_likelihood, dtype)
    if noise > _TOLERATED:
        finer = (
            'run in float64: call jax.config.update("jax_enable_x64", True) first and pass float64 data'
            if np.dtype(dtype).itemsize < 8
            else "write the likelihood so that large constant terms are left out"
        )
        raise ValueError(
            f"{np.dtype(dtype).name} is too coarse here: over {model.num_rows} rows with log likelihoods near "
            f"{typical_log_likelihood:.3g}, decided from {fewest}, rounding alone moves the log acceptance ratio by "
            f"{noise:.2g} (more than {_TOLERATED} is refused). To mend it, {finer}; or leave out of the "
            "likelihood whatever does not depend on the position; or raise the batch size or the temperature"
        )
    return noise
