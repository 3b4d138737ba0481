"""A posterior whose rows say less: each row's log ratio less its Taylor expansion, whose sum is known."""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Int, PyTree, Real

from tallmc.control_variates.remainder import remainder
from tallmc.control_variates.remainder_bounds import RemainderBounds, WhitenedStep, whitened_step
from tallmc.numerics.arithmetic import matvec, rounded, row_products
from tallmc.numerics.flat import as_device_array
from tallmc.numerics.schedule import Schedule
from tallmc.posterior import KnownChange, Model, PlainModel
from tallmc.posterior.block_sums import first_of
from tallmc.posterior.linear_predictor import LinearPredictor
from tallmc.posterior.predictors import predictors_of


class Expansion(eqx.Module):
    """The Taylor polynomial of the log likelihood of all rows, before temperature.

    Its quadratic part is a sum of squares of whitened coordinates, `whiten @ (position - centre)`, which are of about
    one standard deviation each: nothing cancels, however the columns are scaled.

    Args:
        centre: Where it was made, flat.
        gradient: There, summed over all rows.
        whiten: From distances to whitened coordinates.
        curvature: Second derivative along each of them; None if the expansion is of order 1.
    """

    centre: Real[Array, " d"]
    gradient: Real[Array, " d"]
    whiten: Real[Array, "d d"]
    curvature: Real[Array, " d"] | None

    @property
    def order(self) -> int:
        """Highest power of the distance that the polynomial has: 1 without curvature, 2 with it."""
        return 1 if self.curvature is None else 2

    @classmethod
    def of(
        cls, order: int, centre: np.ndarray, gradient: np.ndarray, hessian: np.ndarray, precision: np.ndarray
    ) -> "Expansion":
        """From float64 sums over all rows.

        Args:
            order: 1 or 2.
            centre: Where.
            gradient: Of the log likelihood.
            hessian: Of the log likelihood.
            precision: Minus that of the log density; its inverse is what whitens, if it has one.
        """
        stretch = covariance_factor(precision)
        if stretch is None:
            curvature, vectors = np.linalg.eigh(hessian)
            scale = np.sqrt(np.where(curvature == 0, 1, np.abs(curvature)))
            whiten, curvature = (vectors * scale).T, np.sign(curvature)
        else:
            curvature, rotation = np.linalg.eigh(stretch.T @ hessian @ stretch)
            whiten = rotation.T @ np.linalg.inv(stretch)
        parts = (as_device_array(part, centre.dtype) for part in (centre, gradient, whiten, curvature))
        point, slope, whiten_, curvature_ = parts
        return cls(point, slope, whiten_, curvature_ if order == 2 else None)

    def step(self, old: Real[Array, " d"], new: Real[Array, " d"]) -> WhitenedStep:
        """A move between two flat positions in whitened coordinates."""
        return whitened_step(self.whiten, self.centre, old, new)

    def change(self, old: Real[Array, " d"], new: Real[Array, " d"], step: WhitenedStep) -> Real[Array, ""]:
        """Of the polynomial between two flat positions; `step` is that move in whitened coordinates."""
        linear = self.gradient * (new - old)
        if self.curvature is None:
            return jnp.sum(linear)
        # The difference of two squares, as a product of difference and sum.
        return jnp.sum(linear + self.curvature * step.difference * step.total / 2)

    def slope(self, flat: Real[Array, " d"]) -> Real[Array, " d"]:
        """Gradient of the polynomial at a flat position, before temperature; a proposal can follow it without rows."""
        if self.curvature is None:
            return self.gradient
        along = rounded(self.curvature * matvec(self.whiten, flat - self.centre))
        return self.gradient + rounded(matvec(self.whiten.T, along))


def covariance_factor(precision: Real[np.ndarray, "d d"]) -> Real[np.ndarray, "d d"] | None:
    """Lower Cholesky factor of the inverse; None if the matrix is not positive definite, or hardly.

    Example:
        >>> import numpy as np
        >>> covariance_factor(np.diag([4.0, 1.0])).tolist()
        [[0.5, 0.0], [0.0, 1.0]]
    """
    scale = np.sqrt(np.abs(np.diag(precision)))
    if not np.all(scale > 0):
        return None
    # Correlations instead of covariances, so that badly scaled columns are no trouble.
    values, vectors = np.linalg.eigh(precision / np.outer(scale, scale))
    if not values[0] > len(values) * np.finfo(float).eps * values[-1]:
        return None
    upper = np.linalg.qr(((vectors / np.sqrt(values)) / scale[:, None]).T)[1]
    return upper.T * np.sign(np.diag(upper))


class ExpandedModel(Model):
    """A model split into a polynomial that needs no rows and what each row adds to it.

    Args:
        plain: The model as it was.
        expansion: The polynomial.
        bounds: On what is left of each row, or None.
    """

    plain: PlainModel
    expansion: Expansion
    bounds: RemainderBounds | None
    expanded: bool = eqx.field(static=True)

    def __init__(self, plain: PlainModel, expansion: Expansion, bounds: RemainderBounds | None):
        self.plain, self.expansion, self.bounds, self.expanded = plain, expansion, bounds, True

    log_likelihood = property(lambda self: self.plain.log_likelihood, doc="Of one row, whole.")  # pyright: ignore
    log_prior = property(lambda self: self.plain.log_prior, doc="Of a position.")  # pyright: ignore
    temperature = property(lambda self: self.plain.temperature, doc="What the log likelihood is divided by.")  # pyright: ignore
    num_rows = property(lambda self: self.plain.num_rows, doc="Rows of data.")  # pyright: ignore

    @property
    def cooling(self) -> Schedule | None:
        """The temperature as a function of time, if it changes."""
        return self.plain.cooling

    def at_time(self, time: Int[Array, ""]) -> "ExpandedModel":
        """The same at the temperature of this time: what rows say, the polynomial's part included, is all tempered."""
        if self.cooling is None:
            return self
        return ExpandedModel(self.plain.at_time(time), self.expansion, self.bounds)

    def heated(self, factor: Real[Array, ""]) -> "ExpandedModel":
        """The same split at another temperature, which divides both parts of it."""
        return eqx.tree_at(lambda model: model.plain, self, self.plain.heated(factor))

    def known_change(self, position: PyTree, proposed: PyTree, *, with_reach: bool = False) -> KnownChange:
        """Prior and polynomial; the reach is measured in the coordinates in which that is a sum of squares."""
        old, new = ravel_pytree(position)[0], ravel_pytree(proposed)[0]
        step = self.expansion.step(old, new)
        change = self.expansion.change(old, new, step)
        offset = self.log_prior_change(position, proposed) + rounded(change / self.temperature.astype(change.dtype))
        if not with_reach:
            return KnownChange(offset, None)
        assert self.bounds is not None
        return KnownChange(offset, self.bounds.reach_of_step(step))

    def log_ratios(self, position: PyTree, proposed: PyTree, rows: PyTree) -> Real[Array, " rows"]:
        """What each row adds to the polynomial's log ratio, tempered."""
        likelihood, expansion = self.log_likelihood, self.expansion
        if isinstance(likelihood, LinearPredictor):
            centre = expansion.centre
            x, y = (jnp.asarray(rows[name], centre.dtype) for name in ("x", "y"))
            point, old, new = (row_products(x, along) for along in (centre, position - centre, proposed - centre))
            change = _linear_residuals(likelihood, y, point, old, new, expansion.order)
        else:
            old, new = (jax.tree.map(lambda leaf: leaf[None], end) for end in (position, proposed))
            change = self._residual_changes(old, new, rows)[0]
        return rounded(change / self.temperature.astype(change.dtype))

    def log_ratios_of_moves(self, positions: PyTree, proposed: PyTree, rows: PyTree) -> Real[Array, "moves rows"]:
        """The same for several moves; for a linear predictor as one matrix product."""
        likelihood, expansion = self.log_likelihood, self.expansion
        if isinstance(likelihood, LinearPredictor):
            centre = expansion.centre
            x, y = (jnp.asarray(rows[name], centre.dtype) for name in ("x", "y"))
            seen = jnp.concatenate([centre[None], positions - centre[None], proposed - centre[None]]) @ x.T
            old, new = jnp.split(seen[1:], 2)
            change = jax.vmap(partial(_linear_residuals, likelihood, y, seen[0], order=expansion.order))(old, new)
        else:
            change = self._residual_changes(positions, proposed, rows)
        return rounded(change / self.temperature.astype(change.dtype))

    def _residual_changes(self, positions: PyTree, proposed: PyTree, rows: PyTree) -> Real[Array, "moves rows"]:
        centre, (_, unravel) = self.expansion.centre, ravel_pytree(jax.tree.map(lambda leaf: leaf[0], positions))
        # One end after the other: for the difference of two halves of one array no vector instructions are found.
        old, new = (jax.vmap(lambda p: ravel_pytree(p)[0])(ends) - centre[None] for ends in (positions, proposed))
        left = partial(_residuals, self.log_likelihood, self.expansion, unravel, rows=rows)
        return left(new) - left(old)

    def drift(self, position: PyTree) -> Real[Array, " d"]:
        """Gradient of prior and polynomial: that of the log density, but for what the rows add."""
        flat, unravel = ravel_pytree(position)
        prior = jax.grad(lambda p: jnp.asarray(self.log_prior(unravel(p)), flat.dtype))(flat)
        return prior + rounded(self.expansion.slope(flat) / self.temperature.astype(flat.dtype))


def _linear_residuals(likelihood: LinearPredictor, y: Array, point: Array, old: Array, new: Array, order: int) -> Array:
    """In closed form: a function of three inner products, with the centre and with both distances from it."""

    def left(step: Array) -> Array:
        return remainder(lambda z: likelihood.link(z, y), point, step, order)

    return left(new) - left(old)


def _residuals(
    likelihood: Callable, expansion: Expansion, unravel: Callable, rays: Real[Array, "k d"], rows: PyTree
) -> Real[Array, "k rows"]:
    """What the polynomial leaves of each row at the ends of rays from the centre, by derivatives along them."""
    centre = expansion.centre
    predictors = predictors_of(likelihood, unravel, centre, first_of(rows))

    def left(link: Callable, begin: Array, step: Array, row: PyTree) -> Array:
        zero = jnp.zeros((), step.dtype)
        return remainder(lambda t: link(begin + t * step, row), zero, jnp.ones_like(zero), expansion.order)

    if predictors is None:
        of_row = partial(left, lambda flat, row: likelihood(unravel(flat), row), centre)
        # One ray after the other: derivatives of matrix factorisations, dozens at once, were seen to bring threads of
        # XLA's to a standstill.
        return jax.lax.map(lambda ray: jax.vmap(of_row, (None, 0))(ray, rows), rays)
    # Predictors are linear, so their derivative along a ray is exactly how far they go. Rows are the last axis
    # everywhere: what is worked out element by element then runs along memory.
    begin = jax.vmap(predictors.at, (None, 0), -1)(centre, rows)
    pushed = lambda ray, row: jax.jvp(lambda p: predictors.at(p, row), (centre,), (ray,))[1]  # noqa: E731
    steps = jax.vmap(jax.vmap(pushed, (None, 0), -1), (0, None))(rays, rows)
    of_ray = jax.vmap(partial(left, predictors.link), (-1, -1, 0))
    return jax.vmap(of_ray, (None, 0, None))(begin, steps, rows)
