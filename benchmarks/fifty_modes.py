"""Fifty modes in fifty dimensions (Li and Wong, 2017, section 5.3), by ladders that swap and that jump.

Rows are drawn from the mean of normals at (2, 0, ..., 0); the posterior of the centres, under a flat prior, has a mode
for each centre that may be the one at 2, and all weigh the same. `python -m benchmarks fifty_modes 10 10000` has ten of
them, and 10,000 rows.
"""

import time
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chi2

import tallmc as tm
from tallmc.compose.equi_energy import InRings
from tallmc.feed import Needs
from tallmc.whole_metropolis import WholeMetropolis

TAKES_ARGUMENTS = True
COLUMNS = (
    "design",
    "chains x scans",
    "modes visited",
    "distance to uniform",
    "by chance",
    "p",
    "share of t1 > 1",
    "independent modes",
    "passes over the rows",
    "passes for each",
    "seconds",
)
HOTTEST = 100.0  # as the paper's: there is no valley left
# Temperature below which a test at a rung's own speed needs about all rows anyway, so that it may as well be exact.
EXACT_BELOW = 6.0


def log_likelihood(centres, row):
    """Of one row, but for what does not depend on the centres; term by term, which compilers make wide vectors of."""
    return jnp.log(sum(jnp.exp(row * centre - centre**2 / 2) for centre in centres))


def generate(num_modes: int, num_rows: int, seed: int = 0) -> np.ndarray:
    """Rows: one centre at 2, the others at 0."""
    generator = np.random.default_rng(seed)
    return generator.normal(2.0 * (generator.integers(0, num_modes, num_rows) == 0)).astype(np.float32)


class Printed(tm.EnergyRings):
    """Negative control: energies are estimated from one batch of rows, and kept, as the paper has it.

    The candidate's energy is what was estimated when it was put into its ring. The truncation of energies is left out.
    """

    batch: ClassVar[int] = 1000

    @property
    def needs(self) -> Needs:
        """A batch."""
        return Needs(self.batch)

    def observe(self, state: InRings, memory: Any, model: Any, window: Any) -> tuple[InRings, Any]:
        """Estimates the energies."""
        rows = window.read(window.feed.start(state.key))

        def energy(position):
            values = rows.map(lambda some: model.log_likelihoods(position, some) - state.facing.level)
            return model.num_rows * jnp.sum(values) / rows.count

        found = jax.vmap(energy)(state.facing.positions)
        return InRings(state.facing, state.key, state.jumps, state.cooling, state.edges, found, rows.count), True


def visits(samples: np.ndarray) -> np.ndarray:
    """Which centre is the one at 2."""
    return np.argmax(np.asarray(samples), axis=-1)


def independent(seen: np.ndarray, num_modes: int) -> float:
    """Independent draws of a mode that all chains together are worth, by how much the chains differ."""
    shares = np.stack([(seen == mode).mean(axis=1) for mode in range(num_modes)], axis=-1)
    spread = float(np.sum(shares.var(axis=0, ddof=1)))
    # Chains that all stay where they began do not differ, and are worth less than one draw each.
    return len(shares) * (1 - 1 / num_modes) / spread if spread > 0 else 1.0


def judged(name: str, run: tm.Run, num_modes: int, seconds: float) -> tuple[str, ...]:
    """A line of the table."""
    seen, num_rows = visits(run.samples), run.posterior.num_rows
    shares = np.bincount(seen.ravel(), minlength=num_modes) / seen.size
    count = independent(seen, num_modes)
    statistic = count * num_modes * np.sum((shares - 1 / num_modes) ** 2)
    by_chance = np.sqrt(num_modes * (1 - 1 / num_modes) / (2 * np.pi * max(count, num_modes)))
    read = run.stats["evaluations"] if "evaluations" in run.stats else 2 * run.stats["rows"]
    passes = float(np.sum(read, dtype=float)) / num_rows
    return (
        name,
        f"{run.num_chains} x {run.num_draws:,}",
        f"{np.sum(shares > 0)} of {num_modes}",
        f"{np.abs(shares - 1 / num_modes).sum() / 2:.3f}",
        f"{by_chance:.3f}",
        f"{chi2.sf(statistic, num_modes - 1):.2g}",
        f"{np.mean(np.asarray(run.samples)[..., 0] > 1):.3f}",
        f"{count:,.0f}",
        f"{passes:,.0f}",
        f"{passes / count:,.1f}",
        f"{seconds:.0f}",
    )


def few_rows(temperature: float, num_rows: int, step: float) -> tm.Kernel:
    """A rung that reads about as many rows as a test at its temperature needs."""
    walk = tm.RandomWalk(step * np.sqrt(temperature))
    return tm.MetropolisHastings(walk, tm.MHMinibatch(int(np.clip(num_rows / temperature, 100, 5000))))


def designs(posterior: tm.Posterior, truth: np.ndarray, moves: int) -> Iterator[tuple[str, tm.Kernel]]:
    """Kernels by name: no ladder at all, ladders that swap and that jump, and what is printed."""
    num_modes, num_rows = len(truth), posterior.num_rows
    count = int(np.ceil(np.sqrt(num_modes / 2) * 0.9 * np.log(HOTTEST) / 1.2)) + 2
    heats = np.geomspace(1.0, HOTTEST, count)
    levels = levels_of(heats, posterior, truth)
    step = 2.4 / np.sqrt(num_modes) / np.sqrt(num_rows / num_modes)
    exact = WholeMetropolis(tm.RandomWalk(step), float(np.log(num_modes)))
    few = [exact if heat < EXACT_BELOW else few_rows(heat, num_rows, step) for heat in heats]
    mint = [tm.MetropolisHastings(tm.RandomWalk(step * np.sqrt(heat)), _mint(heat, num_rows)) for heat in heats[1:]]
    yield "one temperature", exact
    yield "swaps, exact", tm.Ladder(heats, exact, moves=moves)
    yield "jumps, exact", tm.Ladder(heats, exact, tm.EnergyRings(levels), moves)
    yield "swaps, few rows", tm.Ladder(heats, few, tm.MHMinibatch(min(1000, num_rows // 10)), moves)
    yield "jumps, few rows", tm.Ladder(heats, few, tm.EnergyRings(levels, probability=0.5), moves)
    yield "printed", tm.Ladder(heats, [exact, *mint], Printed(levels), moves)  # pyright: ignore[reportCallIssue]


def _mint(temperature: float, num_rows: int) -> tm.Mint:
    """The paper's rungs: T = N^(1 - lambda) and lambda = 0.995 tau."""
    exponent = 1 - np.log(temperature) / np.log(num_rows)
    return tm.Mint(min(num_rows, int(np.ceil(num_rows ** (exponent / 0.995)))), float(exponent) * (1 - 1e-6))


def levels_of(heats: np.ndarray, posterior: tm.Posterior, truth: np.ndarray) -> np.ndarray:
    """Halfway between the mean energies of neighbouring rungs, on a logarithmic scale of temperature.

    For each unit of temperature an energy is about a quarter of the number of centres above the lowest: all centres
    but one are where the likelihood is flat to second order. That is measured: each rung is at home in a ring.
    """
    rows, share = np.asarray(posterior.data, float), len(truth) / 4
    values = -np.log(np.exp(rows[:, None] * truth - truth**2 / 2).sum(axis=1)).sum()
    return values - share + share * np.sqrt(heats[1:] * heats[:-1])


def run(arguments: list[str] | None = None) -> Iterator[tuple[str, ...]]:
    """One line a design. Numbers of modes, rows, chains, scans and moves may be given, and after them names."""
    words = arguments or []
    given, wanted = [int(word) for word in words if word.isdigit()], [word for word in words if not word.isdigit()]
    num_modes, num_rows, num_chains, num_scans, moves = (*given, *(50, 100_000, 8, 200, 10)[len(given) :])
    posterior = tm.Posterior(log_likelihood, generate(num_modes, num_rows))
    start = np.zeros(num_modes, np.float32)
    start[0] = 2.0
    options = {"init": start, "num_samples": num_scans, "num_warmup": num_scans, "num_chains": num_chains}
    for name, kernel in designs(posterior, start, moves):
        if wanted and name.replace(", ", "-").replace(" ", "-") not in wanted:
            continue
        clock = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = tm.sample(posterior, kernel, progress=False, **options)
        yield judged(name, found, num_modes, time.perf_counter() - clock)
        if found.exchanges is not None:
            print(found.exchanges, flush=True)
