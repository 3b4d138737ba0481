"""A posterior whose rows say less: each row's log ratio less its Taylor expansion, whose sum is known."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree, Real

from tallmc.control_variates.remainder import remainder
from tallmc.linear_predictor import LinearPredictor
from tallmc.posterior import Posterior


class Expansion(eqx.Module):
    """The Taylor polynomial of the log likelihood of all rows, before temperature.

    The second derivative is kept as a signed square, `factor @ diag(signs) @ factor.T`: what enters a log ratio are
    then inner products of about one standard deviation each, and nothing cancels however the columns are scaled.

    Args:
        centre: Where it was made, flat.
        gradient: There, summed over all rows.
        factor: Of the second derivative; None if the expansion is of order 1.
        signs: Of the second derivative.
    """

    centre: Real[Array, " d"]
    gradient: Real[Array, " d"]
    factor: Real[Array, "d d"] | None
    signs: Real[Array, " d"] | None

    @property
    def order(self) -> int:
        """1 or 2."""
        return 1 if self.factor is None else 2

    @classmethod
    def of(cls, centre: Array, gradient: np.ndarray, hessian: np.ndarray | None) -> "Expansion":
        """From float64 sums over all rows."""
        slope = jnp.asarray(gradient, centre.dtype)
        if hessian is None:
            return cls(centre, slope, None, None)
        values, vectors = np.linalg.eigh(hessian)
        factor = vectors * np.sqrt(np.abs(values))
        return cls(centre, slope, jnp.asarray(factor, centre.dtype), jnp.asarray(np.sign(values), centre.dtype))

    def change(self, old: Real[Array, " d"], new: Real[Array, " d"]) -> Real[Array, ""]:
        """Of the polynomial between two flat positions."""
        change = jnp.sum(self.gradient * (new - old))
        if self.factor is None or self.signs is None:
            return change
        # The difference of two squares, as a product.
        across, along = (new - old) @ self.factor, (new - self.centre + (old - self.centre)) @ self.factor
        return change + jnp.sum(self.signs * across * along) / 2

    def slope(self, flat: Real[Array, " d"]) -> Real[Array, " d"]:
        """Gradient of the polynomial."""
        if self.factor is None or self.signs is None:
            return self.gradient
        return self.gradient + self.factor @ (self.signs * ((flat - self.centre) @ self.factor))


class ControlledPosterior(Posterior):
    """The same posterior, split into a polynomial that needs no data and what each row adds to it.

    Args:
        posterior: The posterior.
        expansion: Its expansion.
        bounds: Bounds on what is left of each row.
    """

    expansion: Expansion
    plain_bounds: PyTree

    def __init__(self, posterior: Posterior, expansion: Expansion, bounds: PyTree):
        for field in ("log_likelihood", "data", "log_prior", "temperature", "num_rows"):
            setattr(self, field, getattr(posterior, field))
        self.bounds, self.plain_bounds = bounds, posterior.bounds
        self.expansion = expansion

    def without_expansion(self) -> Posterior:
        """The posterior as it was."""
        return Posterior(self.log_likelihood, self.data, self.log_prior, self.temperature, self.plain_bounds)

    def offset(self, position: PyTree, proposed: PyTree) -> Real[Array, ""]:
        """Prior and polynomial."""
        change = self.expansion.change(ravel_pytree(position)[0], ravel_pytree(proposed)[0])
        return super().offset(position, proposed) + change / self.temperature.astype(change.dtype)

    def log_ratios(self, position: PyTree, proposed: PyTree, rows: PyTree) -> Real[Array, " rows"]:
        """What each row adds to the polynomial's log ratio, tempered."""
        likelihood, expansion = self.log_likelihood, self.expansion
        if isinstance(likelihood, LinearPredictor):
            change = _linear_residuals(likelihood, expansion, position, proposed, rows)
        else:
            change = _residuals(likelihood, expansion, position, proposed, rows)
        return change / self.temperature.astype(change.dtype)

    def drift(self, position: PyTree) -> Real[Array, " d"]:
        """Gradient of prior and polynomial: that of the log density, but for what the rows add."""
        flat, unravel = ravel_pytree(position)
        prior = jax.grad(lambda p: jnp.asarray(self.log_prior(unravel(p)), flat.dtype))(flat)
        return prior + self.expansion.slope(flat) / self.temperature.astype(flat.dtype)


def _linear_residuals(
    likelihood: LinearPredictor, expansion: Expansion, position: Array, proposed: Array, rows: PyTree
) -> Array:
    """In closed form: a function of three inner products."""
    centre = expansion.centre
    x, y = (jnp.asarray(rows[name], centre.dtype) for name in ("x", "y"))
    directions = jnp.stack([centre, position - centre, proposed - centre], axis=1)
    point, old, new = (x @ directions).T

    def left(step: Array) -> Array:
        return remainder(lambda z: likelihood.link(z, y), point, step, expansion.order)

    return left(new) - left(old)


def _residuals(likelihood: Callable, expansion: Expansion, position: PyTree, proposed: PyTree, rows: PyTree) -> Array:
    """By derivatives along the rays from the centre to both positions."""
    flat, unravel = ravel_pytree(position)
    rays = jnp.stack([flat - expansion.centre, ravel_pytree(proposed)[0] - expansion.centre])

    def of_one(row: PyTree, ray: Array) -> Array:
        zero = jnp.zeros((), ray.dtype)
        along = lambda t: likelihood(unravel(expansion.centre + t * ray), row)  # noqa: E731
        return remainder(along, zero, jnp.ones_like(zero), expansion.order)

    both = jax.vmap(jax.vmap(of_one, in_axes=(None, 0)), in_axes=(0, None))(rows, rays)
    return both[:, 1] - both[:, 0]
