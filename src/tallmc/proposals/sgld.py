"""Langevin steps along the gradient of a minibatch, whose way back is weighed by the same rows."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree, Real

from tallmc.control_variates import ExpandedModel
from tallmc.feed import Needs, Window
from tallmc.numerics.arithmetic import matvec, ordered_sum, rounded
from tallmc.numerics.flat import as_device_array, num_coordinates
from tallmc.posterior import Model
from tallmc.proposals.contract import Move, Proposal
from tallmc.proposals.factors import check_factor
from tallmc.proposals.tuning import TowardsAcceptance, Tuning


class SGLD(Proposal):
    r"""A normal step that drifts along the gradient of a few rows (Welling and Teh, 2011), for any rule to correct.

    The step is `step_size / 2 * C C^T slope + sqrt(step_size) * C noise`, where the slope is that of the prior and of
    `batch_size` rows, scaled to all of them. Chosen among all such steps, it is a draw from a mixture with a component
    for each set of rows. Detailed balance holds if it holds for every component, so the density of the way back is
    worked out from the same rows (Korattikara et al., 2014, eq. 22 of the longer version); the test then reads rows of
    its own. With `control_variate=tm.Taylor()` the slope is that of prior and expansion and of what the rows add to it.

    The noise of the slope moves the log ratio by about the square root of `step_size` times its length. Without an
    expansion that keeps steps short at temperature 1: they explore about `batch_size / rows` as fast as `MALA`'s.

    Args:
        step_size: The variance of the noise, alpha in the papers; `MALA`'s step is its square root. Warm-up tunes it.
        batch_size: Rows of the gradient.
        cholesky: Lower Cholesky factor C of a matrix like the posterior's covariance; None: the identity.

    Example:
        >>> import tallmc as tm
        >>> rows = np.linspace(-2.0, 2.0, 10_000, dtype=np.float32)
        >>> posterior = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, rows, temperature=1000.0)
        >>> kernel = tm.MetropolisHastings(tm.SGLD(0.05, 100), tm.MHMinibatch())
        >>> run = tm.sample(posterior, kernel, init=0.0, num_samples=200, num_warmup=100)
        >>> bool(np.all(run.stats["proposal_rows"] == 100) and np.all(run.stats["rows"] > 100))
        True
    """

    step_size: Real[Array, ""]
    batch_size: int = eqx.field(static=True)
    cholesky: Real[Array, "d d"] | None

    def __init__(self, step_size: float, batch_size: int, cholesky: Array | np.ndarray | None = None):
        if not (np.isfinite(step_size) and step_size > 0):
            raise ValueError(f"step_size must be positive, got {step_size}; it is the variance of a step's noise")
        if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer) or batch_size < 1:
            raise ValueError(f"batch_size must be a whole number of at least 1, got {batch_size!r}")
        dtype = jnp.result_type(float)
        self.step_size, self.batch_size, self.cholesky = as_device_array(step_size, dtype), int(batch_size), None
        if cholesky is not None:
            factor = np.asarray(cholesky, float)
            check_factor("SGLD's cholesky", factor)
            self.cholesky = as_device_array(factor, dtype)

    @property
    def needs(self) -> Needs:
        """The rows of its gradient, each once."""
        return Needs(self.batch_size)

    def propose(self, key: Array, position: PyTree, model: Model, window: Window | None = None) -> Move:
        """Draws a step, and weighs it against the step back from the same rows."""
        assert window is not None
        flat, unravel = ravel_pytree(position)
        variance = self.step_size.astype(flat.dtype)
        noise = rounded(jax.random.normal(key, flat.shape, flat.dtype))

        def drift(at: Array) -> Array:
            return rounded(variance / 2 * self._turned(minibatch_slope(model, unravel, at, window), transposed=True))

        ahead = drift(flat)
        moved = ahead + rounded(jnp.sqrt(variance) * noise)
        proposed = flat + self._turned(moved)
        back = drift(proposed)
        # Of two squared lengths the difference, as a product of difference and sum, so that digits are kept.
        ratio = -ordered_sum(rounded((ahead + back) * (2 * moved - ahead + back))) / (2 * variance)
        return Move(unravel(proposed), ratio)

    def rescaled(self, step_size: Real[Array, ""]) -> "SGLD":
        """The same proposal with steps `step_size` times as long: their variance is as its square."""
        return eqx.tree_at(lambda p: p.step_size, self, self.step_size * step_size * step_size)

    def tuning(self, target_acceptance: float) -> Tuning:
        """As for `MALA`: at .574 where a random walk is best at .234; in proportion for other rules."""
        return TowardsAcceptance(min(0.574 * target_acceptance / 0.234, 0.8))

    def check(self, position: PyTree, model: Model) -> None:
        """A factor that fits, and numbers that have a gradient."""
        del model
        size = num_coordinates(position)
        if self.cholesky is not None and len(self.cholesky) != size:
            raise ValueError(f"SGLD's cholesky is for {len(self.cholesky)} coordinates but a position has {size}")
        for path, leaf in jax.tree.leaves_with_path(position):
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise ValueError(
                    f"SGLD follows a gradient, and init{jax.tree_util.keystr(path)} holds {leaf.dtype}, which has "
                    "none; move such coordinates by tm.RandomWalk, or sum them out of the likelihood"
                )

    def _turned(self, vector: Real[Array, " d"], *, transposed: bool = False) -> Real[Array, " d"]:
        if self.cholesky is None:
            return vector
        factor = self.cholesky.astype(vector.dtype)
        return rounded(matvec(factor.T if transposed else factor, vector))


def minibatch_slope(model: Model, unravel: Any, flat: Real[Array, " d"], window: Window) -> Real[Array, " d"]:
    """The gradient of the log density as a few rows have it: what is known, and what these say times rows / batch."""
    position = unravel(flat)

    def of_row(at: Array, row: PyTree) -> Array:
        # Against here, which is a constant: with an expansion a row says only what that leaves of it.
        return model.log_ratios(position, unravel(at), jax.tree.map(lambda leaf: leaf[None], row))[0]

    each = jax.vmap(jax.grad(of_row), (None, 0))(flat, window.rows)
    each = rounded(jnp.where(window.valid[:, None], each, 0))
    total = jax.vmap(ordered_sum, 1)(each)
    scaled = rounded(total * (model.num_rows / window.count.astype(flat.dtype)))
    if isinstance(model, ExpandedModel):
        return model.drift(position) + scaled
    return jax.grad(lambda at: jnp.asarray(model.log_prior(unravel(at)), flat.dtype))(flat) + scaled
