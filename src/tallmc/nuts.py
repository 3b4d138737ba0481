"""NUTS on all rows: BlackJAX's, as one more way to move."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.custom_batching
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc import window_adaptation
from tallmc.feed import Drawn, Needs
from tallmc.kernel import Info, Kernel
from tallmc.numerics.flat import as_device_array, flattened
from tallmc.posterior import Model
from tallmc.posterior.whole_rows import WholeRows
from tallmc.window_adaptation import Adapted, Schedule

# Log density, less the level of all rows, at which the level is taken anew: in float32 it is then known to 6e-5.
_FAR = 1000.0
# Share of trajectories that may diverge without a warning: one in a thousand moves no mean or width by what matters.
# A judgement.
_RARELY = 1e-3
_MOST_LOOKS = 3  # at the start of a transition, to find the level: from nothing it takes two


class Height(eqx.Module):
    """The log density at a flat position, less a constant.

    Args:
        value: Less `level` for each row.
        slope: Its gradient.
        level: See `WholeRows.log_density`.
        known: Whether value and slope belong to the position.
    """

    value: Real[Array, ""]
    slope: Real[Array, " d"]
    level: Real[Array, ""]
    known: Bool[Array, ""]


class AtRest(eqx.Module):
    """A position, the log density there, and what warm-up has learned."""

    position: PyTree
    height: Height
    adapted: Adapted


class Moved(eqx.Module):
    """Where a trajectory led, and what is told of it."""

    flat: Real[Array, " d"]
    height: Height
    gradients: Int[Array, ""]
    depth: Int[Array, ""]
    acceptance: Real[Array, ""]
    divergent: Bool[Array, ""]
    learned: Adapted


class OnTheWay(eqx.Module):
    """A chain in a transition: what it needs to begin, and once it has seen the rows, where it came to."""

    rest: AtRest
    key: Array
    end: Moved
    rows: Int[Array, ""]


class NUTS(Kernel[AtRest, OnTheWay]):
    """The No-U-Turn sampler on all rows (Hoffman and Gelman, 2014), with Stan's window adaptation; both are BlackJAX's.

    Every transition follows the gradient of the log density along a trajectory that ends where it turns back, and
    every gradient reads all rows. No decision rests on a part of the rows, so there is nothing to audit.

    Statistics of each transition: `gradients` (of all rows, one for each step of the trajectory), `tree_depth` (times
    that the trajectory was doubled), `acceptance` (mean chance to accept along it), and `divergent` (whether it ended
    because its energy had changed by 1,000 or more). `rows` counts each row once.

    Args:
        target_acceptance: Mean chance to accept at which warm-up aims with the step size. Towards 1 steps are shorter.
        max_tree_depth: Doublings of a trajectory at most; it then has 2^max_tree_depth steps.
        dense_mass: Whether warm-up learns all covariances of the coordinates, not only their variances. Worth it if
            coordinates are strongly correlated and there are at most some hundreds.
        step_size: The first that warm-up tries. Without warm-up, that of the run.
        schedule: What warm-up learns when; set-up fills this in.

    Example:
        >>> import jax.numpy as jnp, tallmc as tm
        >>> rows = jnp.linspace(-2.0, 2.0, 1000)
        >>> posterior = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, rows)
        >>> run = tm.sample(posterior, tm.NUTS(), init=0.0, num_samples=500, num_warmup=500)
        >>> run.stats["gradients"].shape
        (4, 500)
    """

    target_acceptance: Real[Array, ""]
    step_size_at_first: Real[Array, ""]
    schedule: Schedule
    max_tree_depth: int = eqx.field(static=True)
    dense_mass: bool = eqx.field(static=True)

    def __init__(
        self,
        target_acceptance: float = 0.8,
        max_tree_depth: int = 10,
        dense_mass: bool = False,
        step_size: float = 1.0,
        schedule: Schedule | None = None,
    ):
        self.target_acceptance = as_device_array(target_acceptance, jnp.result_type(float))
        self.step_size_at_first = as_device_array(step_size, jnp.result_type(float))
        self.max_tree_depth, self.dense_mass = max_tree_depth, dense_mass
        self.schedule = Schedule.of(0) if schedule is None else schedule

    @property
    def needs(self) -> Needs:
        """All rows in every round."""
        return Needs(2**30, (Drawn.ALL_AT_ONCE,), every_row=True)

    def prepared_for(self, model: Model, num_warmup: int) -> "NUTS":
        """The same kernel with the schedule of such a warm-up."""
        del model
        return eqx.tree_at(lambda kernel: kernel.schedule, self, Schedule.of(num_warmup))

    def init(self, position: PyTree) -> AtRest:
        """A chain that has not looked at any row yet."""
        flat, _ = flattened(position, jnp.result_type(float))
        zero = jnp.zeros((), flat.dtype)
        height = Height(zero, jnp.zeros_like(flat), zero, jnp.bool_(False))
        adapted = window_adaptation.begin(flat.size, self.step_size_at_first, dense=self.dense_mass)
        return AtRest(position, height, adapted)

    def begin(self, key: Array, rest: AtRest, model: Model, time: Int[Array, ""]) -> OnTheWay:
        """Waits for the rows."""
        del model, time
        flat, _ = flattened(rest.position, jnp.result_type(float))
        none, still = jnp.int32(0), jnp.zeros((), flat.dtype)
        end = Moved(flat, rest.height, none, none, still, jnp.bool_(False), rest.adapted)
        return OnTheWay(rest, key, end, jnp.int32(0))

    def observe(self, state: OnTheWay, model: Model, window: WholeRows) -> tuple[OnTheWay, Bool[Array, ""]]:
        """The whole transition, in one round."""
        end = _one_by_one(NUTS._transition)(self, state, model, window)
        return dataclasses.replace(state, end=end, rows=jnp.int32(window.num_rows)), jnp.bool_(True)

    def _transition(self, state: OnTheWay, model: Model, window: WholeRows) -> Moved:
        rest = state.rest
        flat, unflatten = flattened(rest.position, jnp.result_type(float))

        def density(level: Array) -> Callable[[Array], Array]:
            of_position = window.log_density(model, level)
            return lambda at: of_position(unflatten(at))

        height = _looked_up(rest.height, flat, density, model)
        end = self._follow(state.key, flat, height, rest.adapted, density(height.level))

        def learn() -> Adapted:
            return window_adaptation.learn(
                rest.adapted, self.schedule, self.target_acceptance, end.flat, end.acceptance
            )

        # Here and not in `settle`: there chains that are moved together are side by side, which rounds otherwise.
        learned = jax.lax.cond(rest.adapted.unfinished(self.schedule), learn, lambda: rest.adapted)
        return dataclasses.replace(end, learned=learned)

    def _follow(self, key: Array, flat: Array, height: Height, adapted: Adapted, density: Callable) -> Moved:
        """BlackJAX's transition."""
        from blackjax.mcmc import hmc, nuts

        kernel: Any = nuts.build_kernel()  # its annotations speak of Python's numbers, and these are arrays
        state: Any = hmc.HMCState
        with window_adaptation.promoting():
            start, step_size = state(flat, height.value, height.slope), adapted.step_size(self.schedule)
            found, info = kernel(key, start, density, step_size, adapted.inverse_mass, self.max_tree_depth)
        return Moved(
            found.position,
            Height(found.logdensity, found.logdensity_grad, height.level, jnp.bool_(True)),
            jnp.asarray(info.num_integration_steps, jnp.int32),
            jnp.asarray(info.num_trajectory_expansions, jnp.int32),
            info.acceptance_rate,
            jnp.asarray(info.is_divergent),
            adapted,
        )

    def settle(self, state: OnTheWay, gain: Real[Array, ""]) -> tuple[AtRest, Info]:
        """Takes the place that the trajectory led to; in warm-up, learns from it."""
        rest, end = state.rest, state.end
        old, unflatten = flattened(rest.position, end.flat.dtype)

        adapted = rest.adapted.once(end.learned, self.schedule, warming=gain > 0)
        stats = {
            "gradients": end.gradients,
            "tree_depth": end.depth,
            "acceptance": end.acceptance,
            "divergent": end.divergent,
        }
        info = Info(jnp.any(end.flat != old), state.rows, jnp.bool_(False), stats)
        return AtRest(unflatten(end.flat), end.height, adapted), info

    def abandon(self, state: OnTheWay) -> AtRest:
        """The chain where it was."""
        return state.rest

    def position(self, rest: AtRest) -> PyTree:
        """Where the chain is at rest."""
        return rest.position

    def moved(self, rest: AtRest, position: PyTree) -> AtRest:
        """The chain elsewhere, with what it has learned. What the log density is there remains to be seen."""
        height = eqx.tree_at(lambda height: height.known, rest.height, jnp.bool_(False))
        return AtRest(position, height, rest.adapted)

    def notes(self, stats: dict[str, np.ndarray], model: Model) -> list[str]:
        """Speaks of trajectories that were cut short."""
        del model
        cut = stats["tree_depth"] >= self.max_tree_depth
        if not np.any(cut):
            return []
        return [
            f"{np.sum(cut):,} of {cut.size:,} trajectories were as long as max_tree_depth={self.max_tree_depth} "
            "allows: draws are right, but follow each other closely. Give coordinates like scales, or raise that"
        ]

    def warnings(self, stats: dict[str, np.ndarray]) -> list[str]:
        """Divergences: where the posterior bends more sharply than the steps can follow, draws are missing."""
        count, size = int(np.sum(stats["divergent"])), stats["divergent"].size
        if count <= _RARELY * size:
            return []
        return [
            f"{count:,} of {size:,} trajectories diverged: there the posterior bends more sharply than steps of this "
            "length can follow, and draws are missing. Raise target_acceptance (0.95, 0.99), or write the model so "
            "that its scales do not depend on each other (effects as mean + scale * standard normal)"
        ]

    def check(self, position: PyTree, model: Model, drawn: Drawn) -> None:
        """It moves real numbers, by all rows, at one temperature."""
        if model.cooling is not None:
            raise ValueError(
                "NUTS keeps log densities from one transition to the next, and this posterior's temperature changes; "
                "use tm.MetropolisHastings, or sample at one temperature after another"
            )
        if drawn is not Drawn.ALL_AT_ONCE:
            raise ValueError("NUTS reads all rows at once; leave feed out")
        for path, leaf in jax.tree.leaves_with_path(position):
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise ValueError(
                    f"NUTS follows a gradient, and init{jax.tree_util.keystr(path)} holds {leaf.dtype}, which has "
                    "none; move such coordinates by tm.MetropolisHastings, or sum them out of the likelihood"
                )

    def step_size(self, rest: AtRest) -> Real[Array, ""]:
        """That of the trajectories after warm-up."""
        return rest.adapted.step_size(self.schedule)


def _one_by_one(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Where chains are moved together on a CPU, one after another: none then waits for the longest trajectory of all,
    and each does the very arithmetic that it does alone. Elsewhere width is cheap, and they move side by side."""
    if jax.default_backend() != "cpu":
        return function

    def mapped(*args: Any) -> PyTree:
        arrays, static = eqx.partition(args, eqx.is_array)
        return jax.custom_batching.sequential_vmap(lambda some: function(*eqx.combine(some, static)))(arrays)

    return mapped


def _looked_up(height: Height, flat: Array, density: Callable[[Array], Callable], model: Model) -> Height:
    """The height of a position, with a level near the mean log likelihood of a row.

    It is known but for the first transition of a chain, or after another kernel has moved it.
    """
    finest = flat.dtype
    share = model.temperature.astype(finest) / model.num_rows

    def lacking(carry: tuple[Height, Array]) -> Bool[Array, ""]:
        height, looks = carry
        return (~height.known | (jnp.abs(height.value) > _FAR)) & (looks < _MOST_LOOKS)

    def look(carry: tuple[Height, Array]) -> tuple[Height, Array]:
        height, looks = carry
        shift = jnp.where(height.known & jnp.isfinite(height.value), height.value * share, 0)
        level = height.level + shift
        value, slope = jax.value_and_grad(density(level))(flat)
        return Height(value, slope, level, jnp.bool_(True)), looks + 1

    return jax.lax.while_loop(lacking, look, (height, jnp.int32(0)))[0]
