"""`tm.equi_energy`: a ladder whose rungs jump between states of equal energy."""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from tallmc.compose import EnergyRings, Ladder
from tallmc.console.progress import say
from tallmc.control_variates import Taylor
from tallmc.kernel import Kernel
from tallmc.numerics.keys import as_key, folded_on_host
from tallmc.posterior import Posterior
from tallmc.run.drivers import Driver
from tallmc.run.result import Run
from tallmc.setup.sample import sample
from tallmc.setup.tempering import described, ladder_for, look

# Of the pilot run, as shares of the warm-up of the run itself: its own warm-up, in which temperatures are placed, and
# its draws, of which only medians of energies are taken. Judgements.
_PILOT_WARMUP, _PILOT_DRAWS, _FEWEST_SCANS = 0.5, 0.25, 50
# Of scans, those with jumps where energies cost a look at all rows: Kou, Zhou and Wong's choice, and Li and Wong's.
_SELDOM = 0.1


def equi_energy(
    posterior: Posterior,
    ladder: Ladder | Sequence[float] | Sequence[int] | np.ndarray | None = None,
    *,
    levels: Sequence[float] | np.ndarray | None = None,
    slots: int = 2,
    init: PyTree = None,
    num_samples: int = 1000,
    num_warmup: int = 1000,
    num_chains: int = 4,
    rng_key: int | Array = 0,
    control_variate: Taylor | None = None,
    progress: bool = True,
    driver: Driver | None = None,
) -> Run:
    """Draws from a posterior with several modes, by a ladder whose rungs jump to states of about the same energy.

    The equi-energy sampler of Kou, Zhou & Wong (2006), and of Li & Wong (2017) with minibatches, made exact: see
    `tm.EnergyRings`. Draws are those of the coldest rung, at the posterior's own temperature. `run.exchanges` says how
    often rungs jumped, which energies they had, and how states travelled.

    Args:
        posterior: What to draw from.
        ladder: Temperatures, increasing from 1; or a `tm.Ladder` with kernels of your own, and with
            `swaps=tm.EnergyRings(...)` if its rings are to be yours too. If left out, a pilot run of parallel tempering
            places the temperatures.
        levels: Energies between rings, minus the log likelihood of all rows. If left out, the pilot run places one
            between the median energies of any two neighbouring rungs.
        slots: States that are kept of each ring of a rung; see `tm.EnergyRings`.
        init: Where to start, as for `tm.sample`; at a mode, which is searched for, if left out.
        num_samples: Draws to keep of each chain; each comes of one scan of the whole ladder.
        num_warmup: Scans before those, which tune steps and fill the stores.
        num_chains: Independent ladders, each with stores of its own.
        rng_key: Int or JAX key.
        control_variate: As for `tm.sample`; of use where the modes are near each other.
        progress: Whether to show a progress bar, if output is a terminal.
        driver: How chains are scheduled; picked by device if left out.

    Example:
        >>> import jax.numpy as jnp, tallmc as tm
        >>> rows = 1 + jnp.linspace(-2.0, 2.0, 400)
        >>> posterior = tm.Posterior(lambda root, row: -0.5 * (row - root**2) ** 2, rows, lambda root: -0.5 * root**2)
        >>> run = tm.equi_energy(posterior, init=1.0, num_samples=500, num_warmup=500, progress=False)
        >>> bool(0.3 < (run.samples > 0).mean() < 0.7)
        True
    """
    if not isinstance(posterior, Posterior):
        raise ValueError(f"posterior must be a tm.Posterior, not {type(posterior).__name__}")
    if isinstance(ladder, Kernel) and not isinstance(ladder, Ladder):
        raise ValueError("ladder must be a tm.Ladder or temperatures; tm.Ladder([1, 3, 10], kernel) has rungs of one")
    ready = isinstance(ladder, Ladder) and isinstance(ladder.exchange, EnergyRings)
    if ready and levels is not None:
        raise ValueError("the ladder has energy rings of its own; leave levels out")
    if levels is not None:
        EnergyRings(levels, slots)  # whatever is wrong with them, say so before the pilot run
    options: dict[str, Any] = {
        "num_warmup": num_warmup,
        "num_chains": num_chains,
        "control_variate": control_variate,
        "progress": progress,
        "driver": driver,
    }
    if isinstance(ladder, Ladder) and ready:
        return sample(posterior, ladder, init=init, num_samples=num_samples, rng_key=rng_key, **options)
    pilot = _pilot(posterior, ladder, init, options, rng_key)
    heights = levels_between(pilot.energies) if levels is None else np.asarray(levels, float)
    often = 1.0 if pilot.ladder.knows_energies else _SELDOM
    rungs = pilot.ladder.exchanging(EnergyRings(heights, slots, often))
    choices = (*pilot.choices, _described(heights, slots, given=levels is not None))
    say(choices[-1], show=progress)
    run = sample(posterior, rungs, init=pilot.ends, num_samples=num_samples, rng_key=rng_key, **options)
    return dataclasses.replace(run, choices=choices + run.choices, setup_rows=run.setup_rows + pilot.rows_read)


class _Pilot(NamedTuple):
    """What a run of parallel tempering found: a ladder that has not run, energies of its rungs, and where it ended."""

    ladder: Ladder
    energies: Float[np.ndarray, "draws rungs"]
    ends: PyTree
    rows_read: int
    choices: tuple[str, ...]


def _pilot(posterior: Posterior, given: Any, init: PyTree, options: dict[str, Any], rng_key: int | Array) -> _Pilot:
    """A short run that swaps on all rows, so that energies are known."""
    choices, rows = (), 0
    if isinstance(given, Ladder):
        rungs = given.exchanging(None)
    else:
        found = look(posterior, init, options["num_chains"], progress=options["progress"])
        rungs = ladder_for(posterior, found, given)
        choices, rows = (*found.why, described(rungs, proper=found.proper, placed=given is None)), found.rows_read
        init = posterior.constrain(found.centre) if init is None else init
    lengths: dict[str, Any] = {
        "num_warmup": max(_FEWEST_SCANS, int(_PILOT_WARMUP * options["num_warmup"])),
        "num_samples": max(_FEWEST_SCANS, int(_PILOT_DRAWS * options["num_warmup"])),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is wrong with the run itself will be said of that
        run = sample(posterior, rungs, init=init, rng_key=folded_on_host(as_key(rng_key), 1), **(options | lengths))
    placed = run.session.kernel
    assert isinstance(placed, Ladder)
    energies = -run.stats["rung_energy"].astype(float)
    energies -= posterior.num_rows * run.stats["energy_level"].astype(float)[..., None]
    scans = run.num_chains * (lengths["num_warmup"] + lengths["num_samples"])
    rows += run.setup_rows + int(scans * run.stats["rows"].mean())
    ends = jax.tree.map(lambda leaf: leaf[:, -1], run.samples)
    ladder = rungs.exchanging(None, placed.temperatures)
    return _Pilot(ladder, energies.reshape(-1, ladder.num_rungs), ends, rows, choices)


def levels_between(energies: Float[np.ndarray, "draws rungs"]) -> Float[np.ndarray, " edges"]:
    """Halfway between the median energies of neighbouring rungs, so that each rung has a ring where it is at home.

    Args:
        energies: Of all rungs, from the coldest on.

    Example:
        >>> levels_between(np.array([[10.0, 12.0, 20.0], [10.0, 12.0, 20.0]])).tolist()
        [11.0, 16.0]
    """
    medians = np.maximum.accumulate(np.median(np.where(np.isfinite(energies), energies, np.inf), axis=0))
    halfway = (medians[1:] + medians[:-1]) / 2
    halfway = np.unique(halfway[np.isfinite(halfway)])
    return halfway if len(halfway) else np.array([np.max(energies[np.isfinite(energies)])])


def _described(levels: Float[np.ndarray, " edges"], slots: int, *, given: bool) -> str:
    where = "that were given" if given else "between the energies of its rungs in a pilot run of parallel tempering"
    said = ", ".join(f"{level:,.6g}" for level in levels)
    return f"rungs jump within {len(levels) + 1} energy rings, cut at {said} ({where}); each keeps {slots} states"
