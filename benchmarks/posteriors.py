"""Every rule with control variates on real and generated rows: what it costs, and how far it is from the truth."""

import time
from collections.abc import Callable

import numpy as np

import tallmc as tm
from benchmarks import datasets, peers, reference
from tallmc.control_variates import covariance_factor

COLUMNS = (
    "posterior",
    "rule",
    "accepted",
    "rows a step",
    "effective draws/s",
    "largest error of a mean (sds)",
    "largest error of a sd",
)
SECONDS = 20.0
LIMITS = 20_000, 400_000  # draws of each of two chains


def generated() -> tuple[np.ndarray, np.ndarray]:
    X, y, _ = tm.models.generate_logistic(1_000_000, 20)
    return X, y


POSTERIORS: dict[str, tuple[Callable, str | None]] = {
    "generated, 10^6 x 20": (generated, None),
    "covertype, 581,012 x 54": (datasets.covertype, "covertype.npz"),
    "a9a, 32,561 x 124": (datasets.adult, "a9a.npz"),
    "flights, 3,000,000 x 18": (datasets.delays, "flights3m.npz"),
}

RULES: dict[str, tuple[Callable, int]] = {
    "MHSS(2)": (lambda: tm.MHSS(2), 2),
    "MHSS(1)": (lambda: tm.MHSS(1, batch_size=64), 1),
    "TunaMH, Taylor(2)": (lambda: tm.TunaMH(batch_size=16), 2),
    "MHMinibatch, Taylor(2)": (lambda: tm.MHMinibatch(), 2),
    "AustereMH(.01), Taylor(2)": (lambda: tm.AustereMH(0.01, 100), 2),
    "MHSubLhd, Taylor(2)": (lambda: tm.MHSubLhd(batch_size=64), 2),
}


def one(posterior: tm.Posterior, mode: np.ndarray, factor: np.ndarray, rule: tm.AcceptanceRule, order: int) -> tm.Run:
    """As many draws as fit the time, after a trial that says how many these are."""
    kernel = tm.MetropolisHastings(tm.CrankNicolson(mode, factor, 1.0), rule)
    options = {"init": mode, "control_variate": tm.Taylor(order, at=mode), "num_chains": 2, "progress": False}
    trial = tm.sample(posterior, kernel, num_samples=500, num_warmup=800, **options)
    beta = float(np.median(trial.step_size))
    kernel = tm.MetropolisHastings(tm.CrankNicolson(mode, factor, beta), rule)
    started = time.perf_counter()
    tm.sample(posterior, kernel, num_samples=500, num_warmup=0, **options)
    # The second run is compiled; what it takes besides moving chains is what any run takes.
    again = tm.sample(posterior, kernel, num_samples=500, num_warmup=0, **options)
    del started
    draws = int(np.clip(500 * SECONDS / max(again.seconds, 1e-3), *LIMITS))
    return tm.sample(posterior, kernel, num_samples=draws, num_warmup=0, rng_key=1, **options)


def run() -> list[tuple[str, ...]]:
    """One line for each posterior and rule."""
    table = []
    for name, (load, file) in POSTERIORS.items():
        if file is not None and not datasets.available(file):
            table.append((name, f"{file} is not here", "", "", "", "", ""))
            continue
        posterior = tm.models.logistic_regression(*load())
        found = tm.optimise.mode(posterior, progress=False)
        factor = covariance_factor(tm.Taylor(2).expand(posterior, found.position).precision)
        exact = reference.moments(posterior)
        table.append((name, f"(reference good to {exact.error:.1e})", "", "", "", "", ""))
        for rule, (make, order) in RULES.items():
            result = one(posterior, found.position, factor, make(), order)
            mean_error, sd_error = peers.accuracy(result.samples, exact.mean, exact.sd)
            rate = peers.min_ess(result.samples) / result.seconds
            stats = result.stats
            table.append(
                (
                    "",
                    f"{rule}, beta {float(result.kernel.proposal.beta):.2g}",
                    f"{stats['accepted'].mean():.3f}",
                    f"{stats['rows'].mean():,.1f}",
                    f"{rate:,.0f}",
                    f"{mean_error:.3f}",
                    f"{100 * sd_error:.2g} %",
                )
            )
            print(table[-1], flush=True)
    return table
