"""A posterior as a user writes it: what `tm.sample` and NUTS are both given. Nothing here imports tallmc."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


def flat(position: Any) -> float:
    """The prior of those who give none."""
    del position
    return 0.0


class Case(NamedTuple):
    """A posterior.

    Args:
        log_likelihood: Of one row.
        data: The rows.
        init: Where the search for the mode begins, and NUTS.
        log_prior: Flat if left out.
        look: Of a position, what is compared: its mean must exist. The position itself if left out.
        ready: Makes the same posterior with a ready model; the density is still that of `log_likelihood`.
        modes: Starts of the reference, if it must visit several modes that weigh the same.
        truth: Means and standard deviations of what is looked at, where they are known in closed form.
        same_as: Another posterior that looks at the same numbers, and is easier for the reference.
    """

    log_likelihood: Callable[[Any, Any], Any]
    data: Any
    init: Any
    log_prior: Callable[[Any], Any] = flat
    look: Callable[[Any], Any] = lambda position: position
    ready: Callable[[Any], Any] | None = None
    modes: tuple[Any, ...] = ()
    truth: tuple[np.ndarray, np.ndarray] | None = None
    same_as: str = ""

    def posterior(self) -> Any:
        """For `tm.sample`."""
        import tallmc as tm

        if self.ready is not None:
            return self.ready(self.data)
        return tm.Posterior(self.log_likelihood, self.data, self.log_prior)

    def potential(self, data: Any) -> Callable[[Any], jax.Array]:
        """For NUTS: minus the log density, of these rows."""

        def minus_log_density(position: Any) -> jax.Array:
            rows = jax.vmap(self.log_likelihood, in_axes=(None, 0))(position, data)
            return -(jnp.sum(rows) + self.log_prior(position))

        return minus_log_density

    def looked_at(self, samples: Any) -> np.ndarray:
        """Draws with leading axes (chain, draw) as one array (chain, draw, coordinate)."""
        seen = jax.vmap(jax.vmap(self.look))(jax.tree.map(jnp.asarray, samples))
        leaves = [np.asarray(leaf, float) for leaf in jax.tree.leaves(seen)]
        return np.concatenate([leaf.reshape(*leaf.shape[:2], -1) for leaf in leaves], axis=-1)


CASES: dict[str, Callable[[], Case]] = {}


def case(build: Callable[[], Case]) -> Callable[[], Case]:
    """Enters a posterior under the name of its function."""
    assert build.__name__ not in CASES, f"there are two posteriors {build.__name__}"
    CASES[build.__name__] = build
    return build


def ready(name: str, *options: float) -> Callable[[Any], Any]:
    """Makes a ready regression of the columns x and y."""

    def build(data: Any) -> Any:
        import tallmc as tm

        return getattr(tm.models, name)(data["x"], data["y"], *options)

    return build


# Log densities, up to constants.


def normal(value: Any, mean: Any, sd: Any) -> Any:
    return -0.5 * ((value - mean) / sd) ** 2 - jnp.log(sd)


def priors(**scales: float) -> Callable[[Any], Any]:
    """Independent centred normals, one standard deviation a leaf of the position."""

    def log_prior(position: dict[str, Any]) -> Any:
        return sum(-0.5 * jnp.sum((position[name] / scale) ** 2) for name, scale in scales.items())

    return log_prior


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def columns(num_rows: int, num_columns: int, seed: int, *, intercept: bool = True) -> tuple[Any, np.ndarray]:
    """A generator and normal columns, the first of them ones."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((num_rows, num_columns), np.float32)
    if intercept:
        x[:, 0] = 1
    return generator, x


def rows(**arrays: Any) -> dict[str, np.ndarray]:
    """Columns in single precision; whole numbers stay whole."""
    return {
        name: np.asarray(array, np.int32 if np.issubdtype(np.asarray(array).dtype, np.integer) else np.float32)
        for name, array in arrays.items()
    }
