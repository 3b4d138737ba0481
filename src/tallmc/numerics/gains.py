"""How strongly warm-up listens."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Int


def tuning_gain(transition: Int[Array, "..."], num_warmup: Any) -> Array:
    """Robbins-Monro gains while warm-up lasts, and nothing once it is over.

    An exponent between 1/2 and 1 makes the step size converge; 0.6 forgets a bad start soon. At a factor of 3 the first
    rejections halve a step that is far too long.

    Args:
        transition: Those made before this one.
        num_warmup: Those of warm-up.
    """
    gain = 3.0 * (transition + 1).astype(jnp.result_type(float)) ** -0.6
    return jnp.where(transition < num_warmup, gain, 0.0)
