"""Thousands of chains on one GPU."""

import time

import jax
import numpy as np

import tallmc as tm
from benchmarks import mixture

NUM_CHAINS, BATCH_SIZE, NUM_SAMPLES = 8192, 256, 5000


def run() -> list[tuple[str, str, str]]:
    """Figure, measured, wanted."""
    if jax.default_backend() != "gpu":
        return [("8,192 chains on a GPU", "no GPU here", ">= 80 million chain-steps/s")]
    posterior, kernel = mixture.posterior(), mixture.kernel(tm.MHMinibatch(BATCH_SIZE))
    settings = {"init": mixture.START, "num_warmup": 0, "num_chains": NUM_CHAINS, "progress": False}
    runs, walls = [], []
    for _ in range(3):
        started = time.perf_counter()
        runs.append(tm.sample(posterior, kernel, num_samples=NUM_SAMPLES, **settings))
        walls.append(time.perf_counter() - started)
    rate = NUM_CHAINS * NUM_SAMPLES / min(run.seconds for run in runs[1:])
    whole = NUM_CHAINS * NUM_SAMPLES / min(walls[1:])
    rows, acceptance = runs[-1].stats["rows"].mean(), runs[-1].stats["accepted"].mean()
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        cpu = tm.sample(
            posterior, kernel, num_samples=20_000, driver=tm.ChainByChain(), **(settings | {"num_chains": 8})
        )
    difference = _acceptance_difference(runs[-1], cpu)
    return [
        (
            f"{NUM_CHAINS:,} chains, windows of {BATCH_SIZE}, full float32: chain-steps/s",
            f"{rate / 1e6:.0f} million (rows/step {rows:.0f}, {rate * rows / 1e9:.1f} thousand million rows/s; with "
            f"data preparation, start and fetching the draws {whole / 1e6:.0f} million)",
            ">= 80 million",
        ),
        (
            "acceptance rate against the CPU's",
            f"{acceptance:.4f} against {cpu.stats['accepted'].mean():.4f} ({difference})",
            "equal within error",
        ),
    ]


def _acceptance_difference(one: tm.Run, other: tm.Run) -> str:
    """In standard errors, from the spread between chains."""
    means = [run.stats["accepted"].mean(axis=1) for run in (one, other)]
    error = np.sqrt(sum(chains.var(ddof=1) / len(chains) for chains in means))
    return f"{(means[0].mean() - means[1].mean()) / error:+.1f} standard errors"
