"""Every rule and proposal that the laws are checked on. A new one is one more line here."""

import jax.numpy as jnp
import numpy as np

import tallmc as tm

RULES = {
    "exact": lambda: tm.Exact(batch_size=256),
    "exact_barker": lambda: tm.ExactBarker(batch_size=256),
    "mh_minibatch": lambda: tm.MHMinibatch(batch_size=100),
    "mh_minibatch_small_windows": lambda: tm.MHMinibatch(batch_size=50),
    "mh_minibatch_wide": lambda: tm.MHMinibatch(batch_size=100, sigma=1.4),
    "mh_minibatch_max_error": lambda: tm.MHMinibatch(batch_size=100, max_error=1e-3),
}

PROPOSALS = {
    "random_walk": lambda: tm.RandomWalk(0.5),
    "random_walk_per_coordinate": lambda: tm.RandomWalk(np.array([0.5, 0.1])),
    "random_walk_cholesky": lambda: tm.RandomWalk(np.array([[0.5, 0.0], [0.3, 0.1]])),
}

FEEDS = {"in_memory": tm.InMemoryFeed, "indexed": tm.IndexedFeed}


def real(values: object) -> jnp.ndarray:
    """An array of the precision that the tests run at."""
    return jnp.asarray(values, jnp.result_type(float))
