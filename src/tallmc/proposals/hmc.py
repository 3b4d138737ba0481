"""Hamiltonian Monte Carlo: long trajectories, mostly without rows."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, PyTree

from tallmc.control_variates import ExpandedModel
from tallmc.feed import Drawn, Needs
from tallmc.numerics.arithmetic import rounded
from tallmc.numerics.flat import as_device_array, num_coordinates
from tallmc.posterior import Model
from tallmc.proposals.contract import Move, Proposal
from tallmc.proposals.factors import check_factor
from tallmc.proposals.trajectory import Slope, jittered, leapfrog
from tallmc.proposals.trajectory_tuning import TowardsSmoothness, Trajectory
from tallmc.proposals.tuning import Tuning
from tallmc.window_adaptation import Schedule

# Share of trajectories that their own energy error lets pass. Where it costs no rows a step is cheap, and a rejection
# costs the rows of a test; where every step reads all rows it is the best share of plain HMC (Beskos et al., 2013).
_CHEAP, _DEAR = 0.85, 0.65


class HMC(Proposal):
    """Follows the slope of the log density along a trajectory, and proposes its end (Duane et al., 1987; Neal, 2011).

    With `control_variate=tm.Taylor(2)` the slope is that of the prior and of the expansion, which needs no rows: a
    trajectory may be as long as it likes, and only its end is tested, by rows that say what the expansion misses. Works
    under every rule. Without a control variate each leapfrog step takes the gradient of all rows.

    Warm-up tunes the length of the steps by the error that they make in prior and expansion, the mass matrix if none is
    given, and how many steps a trajectory has. Each trajectory has between half of `num_steps` and half as many again.

    Args:
        step_size: Time of a leapfrog step; warm-up tunes it.
        num_steps: Leapfrog steps of a trajectory, on average; warm-up tries from a quarter to four times as many.
        mass: Masses of the coordinates, or the mass matrix: something like the inverse of the posterior's variances, or
            of its covariance. None: learned in warm-up.
        cholesky: In place of `mass`: lower Cholesky factor of something like the posterior's covariance.
        dense_mass: Whether warm-up learns a whole matrix. Worth it if coordinates are strongly correlated and there are
            at most some hundreds; not for those whose mass is given.

    Example:
        >>> import tallmc as tm
        >>> X, y, _ = tm.models.generate_logistic(num_rows=20_000, num_columns=3)
        >>> posterior = tm.models.logistic_regression(X, y)
        >>> mode = tm.optimise.mode(posterior).position
        >>> run = tm.sample(posterior, tm.MetropolisHastings(tm.HMC(), tm.MHSS()), init=mode,
        ...                 control_variate=tm.Taylor(at=mode), num_samples=200, num_warmup=400)
        >>> bool(run.stats["accepted"].mean() > 0.5), bool(run.stats["rows"].mean() < 100)
        (True, True)
    """

    real_only: ClassVar[bool] = True
    trajectory: Trajectory
    schedule: Schedule
    learns_mass: bool = eqx.field(static=True)
    dense_mass: bool = eqx.field(static=True)
    reads_rows: bool = eqx.field(static=True)

    def __init__(
        self,
        step_size: float = 0.1,
        num_steps: int = 20,
        mass: ArrayLike | Sequence[float] | None = None,
        *,
        cholesky: ArrayLike | None = None,
        dense_mass: bool = False,
    ):
        if not (np.isfinite(step_size) and step_size > 0):
            raise ValueError(f"step_size must be positive, got {step_size}")
        if isinstance(num_steps, bool) or not isinstance(num_steps, int | np.integer) or num_steps < 1:
            raise ValueError(f"num_steps must be a whole number of at least 1, got {num_steps!r}")
        if mass is not None and cholesky is not None:
            raise ValueError("pass mass or cholesky, not both: a covariance stands for the inverse of a mass matrix")
        given = mass is not None or cholesky is not None
        if given and dense_mass:
            raise ValueError("dense_mass says how to learn a mass matrix, but one is given; leave one of them out")
        factor = _factor_of(mass) if cholesky is None else _checked(np.asarray(cholesky, float))
        dtype = jnp.result_type(float)
        self.trajectory = Trajectory(
            as_device_array(step_size, dtype), as_device_array(factor, dtype), as_device_array(num_steps, jnp.int32)
        )
        self.schedule = Schedule.of(0)
        self.learns_mass, self.dense_mass, self.reads_rows = not given, dense_mass, False

    step_size = property(lambda self: self.trajectory.step_size, doc="Time of a leapfrog step.")
    num_steps = property(lambda self: self.trajectory.num_steps, doc="Steps of a trajectory, on average.")

    @property
    def needs(self) -> Needs | None:
        """All rows for its gradients, if there is no expansion to take them from."""
        return Needs(2**30, (Drawn.ALL_AT_ONCE,), every_row=True) if self.reads_rows else None

    def prepared_for(self, model: Model, num_warmup: int) -> "HMC":
        """With the schedule of such a warm-up, and gradients of all rows if the model has no expansion."""
        prepared = eqx.tree_at(lambda hmc: hmc.schedule, self, Schedule.of(num_warmup))
        return _replaced(prepared, reads_rows=not _has_slope(model))

    def propose(self, key: Array, position: PyTree, model: Model, window: Any = None) -> Move:
        """Draws a velocity, follows the trajectory, and compares the velocities at both ends."""
        flat, unravel = ravel_pytree(position)
        trajectory = jax.tree.map(
            lambda leaf: leaf.astype(flat.dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, self.trajectory
        )
        key_velocity, key_steps = jax.random.split(key)
        velocity = rounded(jax.random.normal(key_velocity, flat.shape, flat.dtype))
        num_steps = jittered(key_steps, trajectory.num_steps)
        slope = _slope(model, unravel, flat.dtype, window)
        end, final = leapfrog(slope, trajectory.factor, flat, velocity, trajectory.step_size, num_steps)
        # A trajectory that flew off is no proposal.
        finite = jnp.all(jnp.isfinite(end)) & jnp.all(jnp.isfinite(final))
        kinetic = jnp.sum((velocity - final) * (velocity + final)) / 2
        return Move(unravel(jnp.where(finite, end, flat)), jnp.where(finite, kinetic, -jnp.inf))

    @property
    def dear(self) -> bool:
        """Every leapfrog step takes a gradient."""
        return True

    def rescaled(self, step_size: Trajectory) -> "HMC":
        """The same proposal with the trajectory that tuning has found."""
        return eqx.tree_at(lambda hmc: hmc.trajectory, self, step_size)

    def tuning(self, target_acceptance: float) -> Tuning:
        """By the trajectory's own error in energy; with gradients of all rows, by the share of accepted proposals."""
        by_decisions = min(_DEAR * target_acceptance / 0.234, 0.8)
        return TowardsSmoothness(
            self.trajectory,
            self.schedule,
            learns_mass=self.learns_mass,
            dense=self.dense_mass,
            target=by_decisions if self.reads_rows else _CHEAP,
            by_energy=not self.reads_rows,
        )

    def check(self, position: PyTree, model: Model) -> None:
        """A mass that fits, and numbers that have a gradient."""
        size, factor = num_coordinates(position), self.trajectory.factor
        if factor.ndim and len(factor) != size:
            raise ValueError(f"HMC's mass is for {len(factor)} coordinates but a position has {size}")
        for path, leaf in jax.tree.leaves_with_path(position):
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise ValueError(
                    f"HMC follows a gradient, and init{jax.tree_util.keystr(path)} holds {leaf.dtype}, which has none; "
                    "move such coordinates by tm.RandomWalk, or sum them out of the likelihood"
                )
        if isinstance(model, ExpandedModel) and not _has_slope(model):
            raise ValueError("HMC follows the slope of an expansion of order 2; pass control_variate=tm.Taylor(2)")


def _has_slope(model: Model) -> bool:
    return isinstance(model, ExpandedModel) and model.expansion.order == 2


def _slope(model: Model, unravel: Any, dtype: Any, window: Any) -> Slope:
    """The gradient to follow: of prior and expansion, or of all rows."""
    if window is None:
        assert isinstance(model, ExpandedModel)
        return lambda flat: model.drift(unravel(flat)).astype(dtype)
    density = window.log_density(model, jnp.zeros((), dtype))
    return lambda flat: ravel_pytree(jax.grad(density)(unravel(flat)))[0].astype(dtype)


def _factor_of(mass: ArrayLike | Sequence[float] | None) -> np.ndarray:
    if mass is None:
        return np.ones(())
    array = np.asarray(mass, float)
    if not np.all(np.isfinite(array)):
        raise ValueError("mass must be finite")
    if array.ndim < 2:
        if not np.all(array > 0):
            raise ValueError("mass must hold positive numbers; the inverse of each coordinate's variance is a good one")
        return np.asarray(array**-0.5)
    if array.ndim > 2 or array.shape[0] != array.shape[1]:
        raise ValueError(f"mass must be a number, a vector or a square matrix, but its shape is {array.shape}")
    try:
        upper = np.linalg.inv(np.linalg.cholesky(array))
    except np.linalg.LinAlgError as error:
        raise ValueError("mass must be positive definite; the inverse of a covariance is") from error
    return np.linalg.cholesky(upper.T @ upper)


def _checked(cholesky: np.ndarray) -> np.ndarray:
    check_factor("HMC's cholesky", cholesky)
    return cholesky


def _replaced(module: HMC, **fields: Any) -> HMC:
    """With other fields; `dataclasses.replace` would call the constructor, which takes other arguments."""
    new = object.__new__(type(module))
    for field in dataclasses.fields(module):
        object.__setattr__(new, field.name, fields.get(field.name, getattr(module, field.name)))
    return new
