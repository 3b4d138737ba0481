"""How right: two million draws of the mixture against the posterior on a grid, beside exact Barker's."""

import numpy as np

import tallmc as tm
from benchmarks import mixture
from tallmc.reproduce.printed import PrintedMHMinibatch as Textbook

NUM_DRAWS, NUM_CHAINS = 2_000_000, 4


def distances(rule, posterior, truth, seeds) -> tuple[list[float], tm.Run]:
    """Total variation of each seed's two million draws, and the last run."""
    found = []
    for seed in seeds:
        run = tm.sample(
            posterior,
            mixture.kernel(rule),
            init=mixture.START,
            num_samples=NUM_DRAWS // NUM_CHAINS,
            num_warmup=0,
            num_chains=NUM_CHAINS,
            rng_key=seed,
            progress=False,
        )
        found.append(mixture.total_variation(run.samples, truth))
    return found, run


def run(seeds=(0, 1, 2, 3)) -> list[tuple[str, str, str]]:
    """Figure, measured, wanted."""
    full, binned = mixture.posterior(), mixture.binned_posterior()
    truth = mixture.grid_posterior(binned)
    barker, _ = distances(tm.ExactBarker(), binned, truth, seeds)
    table = [("exact Barker: total variation", _show(barker), "")]
    for name, rule, wanted in (
        ("MHMinibatch(50)", tm.MHMinibatch(50), "<= 1.3 x, <= 300 rows"),
        ("MHMinibatch(100)", tm.MHMinibatch(100), "<= 1.3 x, <= 300 rows"),
        ("MHMinibatch(50, sigma=1.4)", tm.MHMinibatch(50, sigma=1.4), ""),
        ("the algorithm as printed, 50", Textbook(50), "about 3 x"),
    ):
        found, last = distances(rule, full, truth, seeds)
        ratio = np.mean(found) / np.mean(barker)
        rows = last.stats["rows"].mean()
        table.append(
            (f"{name}: total variation", f"{_show(found)}, {ratio:.2f} x Barker's, {rows:.0f} rows/step", wanted)
        )
    return table


def _show(values: list[float]) -> str:
    return f"{np.mean(values):.4f} (" + ", ".join(f"{value:.4f}" for value in values) + ")"
