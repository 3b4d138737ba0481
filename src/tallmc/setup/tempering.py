"""`tm.parallel_tempering`: ladders of temperatures, placed by hand or in warm-up."""

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from tallmc.compose import Ladder
from tallmc.console.progress import say
from tallmc.control_variates import Taylor, covariance_factor
from tallmc.kernel import Kernel
from tallmc.numerics.flat import flatten
from tallmc.numerics.keys import as_key
from tallmc.optimise.mode import default_start
from tallmc.posterior import Posterior, checks
from tallmc.posterior.derivatives import derivative_trouble
from tallmc.posterior.unconstrained_start import unconstrained_start
from tallmc.run.drivers import Driver, pick_driver
from tallmc.run.result import Run
from tallmc.setup.keeping import PathLike, keeping
from tallmc.setup.modes import find_mode
from tallmc.setup.rungs import first_temperatures, ladder_of, level_at
from tallmc.setup.sample import Earlier, check_counts, sample, sampled
from tallmc.whole_metropolis import WholeMetropolis

_FAR_OUT = (1e2, 1e4, 1e6)  # posterior widths from the mode at which a prior must have fallen to pass for proper
_DIRECTIONS = 8  # besides those of the coordinates, in which it is looked at


def parallel_tempering(
    posterior: Posterior,
    ladder: Ladder | Sequence[float] | Sequence[int] | np.ndarray | None = None,
    *,
    init: PyTree = None,
    num_samples: int = 1000,
    num_warmup: int = 1000,
    num_chains: int = 4,
    rng_key: int | Array = 0,
    control_variate: Taylor | None = None,
    store: PathLike | None = None,
    resume: bool = False,
    progress: bool = True,
    driver: Driver | None = None,
) -> Run:
    """Draws from a posterior with several modes, by a ladder of rungs at rising temperatures that swap states.

    Only the likelihood is tempered, not the prior (Syed et al., 2022). Draws are those of the coldest rung, at the
    posterior's own temperature; `run.exchanges` says how states travelled and, if the ladder reaches up to the prior,
    gives the log evidence.

    Args:
        posterior: What to draw from.
        ladder: A `tm.Ladder`, with kernels and swaps of your own; or temperatures, increasing from 1. If left out, they
            are placed in warm-up, from 1 up to infinity if the prior seems proper, else up to the number of rows.
        init: Where to start, as for `tm.sample`; at a mode, which is searched for, if left out.
        num_samples: Draws to keep of each chain; each comes of one scan of the whole ladder.
        num_warmup: Scans before those, which place the rungs and tune their steps.
        num_chains: Independent ladders.
        rng_key: Int or JAX key.
        control_variate: As for `tm.sample`; of use where the modes are near each other.
        store: A folder to keep the run in while it goes on, as for `tm.sample`.
        resume: Whether to go on with the run in `store`, likewise.
        progress: Whether to show a progress bar, if output is a terminal.
        driver: How chains are scheduled; picked by device if left out.

    Example:
        >>> import jax.numpy as jnp, tallmc as tm
        >>> rows = 1 + jnp.linspace(-2.0, 2.0, 400)
        >>> posterior = tm.Posterior(lambda root, row: -0.5 * (row - root**2) ** 2, rows, lambda root: -0.5 * root**2)
        >>> run = tm.parallel_tempering(posterior, init=1.0, num_samples=500, num_warmup=500, progress=False)
        >>> bool(0.3 < (run.samples > 0).mean() < 0.7)
        True
    """
    if not isinstance(posterior, Posterior):
        raise ValueError(f"posterior must be a tm.Posterior, not {type(posterior).__name__}")
    if isinstance(ladder, Kernel) and not isinstance(ladder, Ladder):
        raise ValueError("ladder must be a tm.Ladder or temperatures; tm.Ladder([1, 3, 10], kernel) has rungs of one")
    settings: dict[str, Any] = {
        "num_warmup": num_warmup,
        "num_chains": num_chains,
        "control_variate": control_variate,
    }
    others: dict[str, Any] = {"num_samples": num_samples, "rng_key": rng_key, "progress": progress, "driver": driver}
    if isinstance(ladder, Ladder):
        return sample(posterior, ladder, init=init, store=store, resume=resume, **settings, **others)
    check_counts(num_samples, num_warmup, num_chains)
    others["driver"] = driver or pick_driver()
    facts = {**settings, "init": init, "rng_key": as_key(rng_key), "driver": type(others["driver"])}
    given = None if ladder is None else np.asarray(ladder, float)
    with keeping(store, "tm.parallel_tempering", posterior, resume=resume, ladder=given, **facts) as keeper:
        if keeper is not None and keeper.stored is not None:
            # The rungs that set-up made are in the store; whoever brings a kernel brings functions of its own.
            return sampled(
                posterior, kernel=keeper.stored.setup.decode("kernel"), init=None, store=keeper, **settings, **others
            )
        rungs, start, earlier = _rungs(posterior, given, init, num_chains, progress=progress)
        return sampled(posterior, kernel=rungs, init=start, store=keeper, earlier=earlier, **settings, **others)


def _rungs(
    posterior: Posterior, heats: np.ndarray | None, init: PyTree, num_chains: int, *, progress: bool
) -> tuple[Ladder, PyTree, Earlier]:
    """A ladder with kernels of its own, where its chains start, and what it took to find them."""
    found = look(posterior, init, num_chains, progress=progress)
    rungs = ladder_for(posterior, found, heats)
    choices = (*found.why, described(rungs, proper=found.proper, placed=heats is None))
    say("; ".join(choices), show=progress)
    return rungs, posterior.constrain(found.centre) if init is None else init, Earlier(choices, found.rows_read)


def ladder_for(posterior: Posterior, found: "Look", temperatures: Any) -> Ladder:
    """A ladder of exact rungs; if no temperatures are given, one that places them in warm-up."""
    size = flatten(found.centre)[0].size
    if temperatures is None:
        hottest = math.inf if found.proper else float(posterior.num_rows)
        heats = first_temperatures(size, hottest, posterior.num_rows)
    else:
        heats = np.asarray(temperatures, float)
    return ladder_of(heats, size, found.factor, found.level, adapts=temperatures is None)


class Look(NamedTuple):
    """What a search found: all positions are unconstrained."""

    centre: PyTree
    factor: Float[np.ndarray, "d d"] | None
    level: float
    proper: bool
    rows_read: int
    why: tuple[str, ...]


def look(given: Posterior, init: PyTree, num_chains: int, *, progress: bool) -> Look:
    """For a mode, its widths, and whether the prior can be a rung of its own."""
    posterior = given.unconstrained
    start = unconstrained_start(given, init, num_chains)
    start = default_start(posterior) if start is None else start
    positions = checks.one_position_per_chain(posterior, start, num_chains)
    checks.check_start(posterior, positions)
    first = jax.tree.map(lambda leaf: leaf[0], positions)
    if (trouble := derivative_trouble(posterior, first).some) is not None:
        level, rows = level_at(posterior, first)
        return Look(first, None, level, proper_prior(posterior, first, None), rows, (trouble,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # any place near a mode will do
        found = find_mode(posterior, first, progress=progress)
    factor = covariance_factor(np.asarray(found.hessian, float)) if found.converged else None
    proper = proper_prior(posterior, found.position, factor)
    level, rows = level_at(posterior, found.position)
    return Look(found.position, factor, level, proper, found.rows_read + rows, ())


def proper_prior(posterior: Posterior, centre: PyTree, factor: Float[np.ndarray, "d d"] | None) -> bool:
    """Whether the prior falls faster than the volume grows, far out in every direction that is tried.

    That is no proof. A prior that is flat along a coordinate, or a half of one, is found out.

    Args:
        posterior: On the unconstrained scale.
        centre: A position.
        factor: Of the covariance there: what counts as far.
    """
    flat, unravel = flatten(centre)
    size = flat.size
    generator = np.random.default_rng(0)
    lines = np.concatenate([np.eye(size), -np.eye(size), generator.normal(size=(_DIRECTIONS, size))])
    lines /= np.linalg.norm(lines, axis=1, keepdims=True)
    widths = np.ones(size) if factor is None else np.sqrt(np.sum(factor**2, axis=1))
    ends = np.stack([flat + distance * np.maximum(widths, 1e-3) * line for line in lines for distance in _FAR_OUT])
    each = [unravel(end.astype(flat.dtype)) for end in ends]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    heights = np.asarray(checks.log_priors(posterior, stacked), float).reshape(len(lines), len(_FAR_OUT))
    falls = heights[:, 0] - heights[:, -1]
    # A product of proper densities falls by one power along its axes, and by one for each coordinate elsewhere.
    powers = np.where(np.arange(len(lines)) < 2 * size, 1, size)
    enough = falls > powers * math.log(_FAR_OUT[-1] / _FAR_OUT[0])
    return bool(np.all(enough | np.isneginf(heights[:, -1])))


def described(ladder: Ladder, *, proper: bool, placed: bool) -> str:
    """The ladder in words."""
    heats, part = ladder.temperatures, ladder.parts()[0]
    top = (
        "up to the prior itself, which falls on all sides and so seems proper"
        if math.isinf(heats[-1])
        else f"up to temperature {heats[-1]:,.4g}"
    )
    reason = "" if proper or not placed else " (the prior does not fall on all sides, so it cannot be a rung)"
    where = " to begin with, placed in warm-up" if placed else ""
    step = "random walks and exact tests" if isinstance(part, WholeMetropolis) else "gradients of all rows (NUTS)"
    return f"a ladder of {ladder.num_rungs} rungs{where}, {top}{reason}, moved by {step}"
