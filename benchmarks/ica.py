"""Independent components of two recordings and two normal sources, as in Korattikara et al. (2014), section 6.2.

    python -m benchmarks ica               1,950,000 rows
    python -m benchmarks ica 195000        every tenth of them, and ten times as many draws by the exact test

The first run is exact and reads few rows; it begins at the mode. All others start at its last draws, so none has a
warm-up, and their steps are fixed: those of the exact test and of AustereMH are the same.
"""

from collections.abc import Iterator

import numpy as np

import tallmc as tm
from benchmarks import datasets
from tallmc.diagnostics.moves import move_moments, moves_of
from tallmc.reproduce.ica import Problem, posed, sampled
from tallmc.run.mixing import mixing

TAKES_ARGUMENTS = True
COLUMNS = (
    "rule",
    "step",
    "draws",
    "accepted",
    "rows a step",
    "share of rows",
    "mean Amari distance",
    "its sd",
    "effective draws of it",
    "squared jump a step",
    "squared jump a million rows",
    "steps/s",
)
ALL_ROWS, NUM_CHAINS, NUM_MOVES = 1_950_000, 2, 100
MANY = 10_000  # draws of each chain, where a step reads few rows
EXACT_STEPS = 300  # of each chain, at 1,950,000 rows
HALF = 0.55  # of the angles' standard deviations: about half of the steps are accepted, as in the paper
LONG = 0.97  # 2.38 over the square root of the six angles: steps at which a random walk explores fastest
SHORT = 0.018  # at which MHMinibatch reads less than a hundredth of the rows
LOOKS = 200  # of AustereMH at most


def run(arguments: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """One line a rule."""
    if not datasets.available("audio_ica.npz"):
        yield ("skipped: audio_ica.npz is not in the data folder", *[""] * (len(COLUMNS) - 1))
        return
    num_rows = int(arguments[0]) if arguments else ALL_ROWS
    problem, steps, window = prepared(num_rows), EXACT_STEPS * ALL_ROWS // num_rows, num_rows // LOOKS
    reference = sampled(problem, tm.MHSS(batch_size=64), LONG, MANY, expanded=True)
    yield figures("MHSS(batch_size=64), Taylor", LONG, problem, reference)
    problem = problem._replace(starts=reference.samples[:, -1])
    minibatch = sampled(problem, tm.MHMinibatch(100), LONG, MANY, expanded=True)
    yield figures("MHMinibatch(100), Taylor", LONG, problem, minibatch)
    austere = sampled(problem, tm.AustereMH(0.05, window), HALF, 5 * steps)
    yield figures(f"AustereMH(0.05, {window:,})", HALF, problem, austere)
    yield designed(problem, austere, num_rows)
    yield figures("Exact()", HALF, problem, sampled(problem, tm.Exact(), HALF, steps))
    # Windows of 1,000 rows: from 100 of so many, float32 would decide, which is refused.
    yield figures("MHMinibatch(1000)", SHORT, problem, sampled(problem, tm.MHMinibatch(1000), SHORT, 10 * steps))


def prepared(num_rows: int) -> Problem:
    """Whitened mixtures, and the mode that is nearest to the truth."""
    return posed(*datasets.recordings(num_rows), NUM_CHAINS)


def figures(name: str, step: float, problem: Problem, done: tm.Run) -> tuple[str, ...]:
    """A line of the table. Jumps are in posterior standard deviations of the angles, summed over the six."""
    distance = tm.amari_distance(done.samples, problem.true_W)
    effective = float(mixing(distance[:, :, None]).ess_bulk[0])
    rows, jump = done.stats["rows"].mean(), squared_jump(problem, done.samples)
    return (
        name,
        f"{step:g}",
        f"{distance.size:,}",
        f"{done.stats['accepted'].mean():.3f}",
        f"{rows:,.0f}",
        f"{100 * rows / problem.posterior.num_rows:.3g} %",
        f"{distance.mean():.5f} +- {distance.std() / np.sqrt(effective):.5f}",
        f"{distance.std():.5f}",
        f"{effective:,.0f}",
        f"{jump:.3g}",
        f"{1e6 * jump / rows:.3g}",
        f"{distance.size / done.seconds:,.1f}",
    )


def squared_jump(problem: Problem, samples: np.ndarray) -> float:
    """Angles between successive draws, over their standard deviations: squared, summed over planes, averaged."""
    draws = np.asarray(samples, float)
    turned = draws[:, 1:] @ np.swapaxes(draws[:, :-1], -1, -2)
    above = np.triu_indices(draws.shape[-1], 1)
    angles = (turned - np.swapaxes(turned, -1, -2))[..., *above] / 2  # the skew part, for small angles
    return float(np.mean(np.sum((angles / problem.mode.angles[above]) ** 2, axis=-1)))


def designed(problem: Problem, austere: tm.Run, num_rows: int) -> tuple[str, ...]:
    """What the dynamic programme foresees for moves of the run."""
    moments = move_moments(austere.session.model, problem.posterior.rows, moves_of(austere, NUM_MOVES))
    rule = austere.kernel.rule
    foreseen = tm.design.acceptance_error(
        moments.log_ratio, moments.spread, rule.batch_size / num_rows, rule.epsilon, rule.boundary
    )
    share, error = np.mean(foreseen.data_fraction), np.std(foreseen.data_fraction) / np.sqrt(len(moments.spread))
    used = austere.stats["rows"].mean() / num_rows
    accepted = np.mean(np.minimum(1, np.exp(moments.log_ratio)) + foreseen.error)
    return (
        f"design of it, {len(moments.spread)} moves",
        f"{HALF:g}",
        "",
        f"{accepted:.3f}",
        f"{share * num_rows:,.0f}",
        f"{100 * share:.3g} % +- {100 * error:.2g} (used / foreseen {used / share:.3f})",
        f"mean error of the acceptance probability {np.mean(foreseen.error):+.3f}",
        *[""] * 5,
    )
