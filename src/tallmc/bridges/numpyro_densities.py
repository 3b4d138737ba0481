"""Log densities of NumPyro's sites, in a form of which bounds can be worked out."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array
from numpyro.distributions.util import is_identically_one


def log_prob_of(site: Any, extra: float = 1.0) -> Array:
    """Log density of a site, elementwise, as NumPyro's own `log_density` adds it up.

    Args:
        site: Of a trace.
        extra: What its scale is to be divided by.
    """
    scale = 1.0 if site["scale"] is None else site["scale"] / extra
    log_prob = _log_prob(site["fn"], site["value"], site["intermediates"])
    return log_prob if is_identically_one(scale) else scale * log_prob


def _log_prob(distribution: Any, value: Any, intermediates: Any) -> Array:
    if intermediates:
        return distribution.log_prob(value, intermediates)
    plain = distribution
    while type(plain) is dist.ExpandedDistribution:
        plain = plain.base_dist
    if type(plain) is not dist.BernoulliLogits:
        return distribution.log_prob(value)
    return jnp.broadcast_to(_bernoulli(plain.logits, value), jnp.broadcast_shapes(distribution.shape(), value.shape))


def _bernoulli(logits: Any, value: Array) -> Array:
    """Of a yes or no. NumPyro writes it with abs and max, whose kinks cancel: bounds cannot know. Here are none."""
    possible = (value == 0) | (value == 1)
    return jnp.where(possible, -jax.nn.softplus((1 - 2 * value) * logits), -jnp.inf)
