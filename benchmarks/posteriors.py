"""Every rule with control variates on real and generated rows: what it costs, and how far it is from the truth.

`python -m benchmarks.posteriors a9a MHSubLhd` prints the lines of one posterior and one rule, and
`python -m benchmarks.posteriors a9a MHSubLhd 900` gives each line 900 seconds if it needs them.
"""

import statistics
import sys
from collections.abc import Callable

import jax
import numpy as np

import tallmc as tm
from benchmarks import datasets, peers, reference
from tallmc.control_variates import covariance_factor
from tallmc.numerics.keys import as_key
from tallmc.setup.automatic import look_around, window_size

COLUMNS = (
    "posterior",
    "rule",
    "accepted",
    "rows a step",
    "effective draws/s (and in all), of means or squares",
    "largest error of a mean (sds)",
    "largest error of a sd",
)
ENOUGH = 30_000  # effective draws, of means and of squares: a standard deviation is then known to 0.4 %
ON_CPU = jax.default_backend() == "cpu"
LIMIT = 400.0 if ON_CPU else 60.0  # seconds for each line, if there are not enough before
CHAINS, COUNTED = (2, 2) if ON_CPU else (512, 32)
MANY = 150 if ON_CPU else 2000  # draws of each chain of the reference, where rows are many
TRIAL, MOST = (400, 1_000_000) if ON_CPU else (100, 40_000)  # draws of each chain


def generated() -> tuple[np.ndarray, np.ndarray]:
    X, y, _ = tm.models.generate_logistic(1_000_000, 20)
    return X, y


# How to load each, from which file, and how to get at the truth.
POSTERIORS: dict[str, tuple[Callable, str | None, Callable[[tm.Posterior], reference.Moments]]] = {
    "generated, 10^6 x 20": (generated, None, reference.moments),
    "covertype, 581,012 x 54": (datasets.covertype, "covertype.npz", lambda p: reference.moments_of_chains(p, MANY)),
    "a9a, 32,561 x 124": (datasets.adult, "a9a.npz", lambda p: reference.moments_of_chains(p, 600)),
    "flights, 3,000,000 x 18": (datasets.delays, "flights3m.npz", lambda p: reference.moments(p, 1000)),
}


def rules(expected_rows: float) -> dict[str, tuple[tm.AcceptanceRule, int, type[tm.Feed] | None]]:
    """Each rule with the order of its expansion and its feed; windows of exact rules as wide as they need to be."""
    size = window_size(expected_rows)
    return {
        "MHSS(2)": (tm.MHSS(2, batch_size=size), 2, None),
        "MHSS(1)": (tm.MHSS(1, batch_size=64), 1, None),
        "TunaMH, Taylor(2)": (tm.TunaMH(batch_size=size), 2, None),
        "MHMinibatch, Taylor(2), weighted rows": (tm.MHMinibatch(), 2, tm.WeightedFeed),
        "AustereMH(.001), Taylor(2)": (tm.AustereMH(0.001, 2000), 2, None),
        "AustereMH(.001), Taylor(2), weighted rows": (tm.AustereMH(0.001, 500), 2, tm.WeightedFeed),
        "MHSubLhd, Taylor(2)": (tm.MHSubLhd(batch_size=1024), 2, None),
    }


def one(posterior, mode, factor, rule, order, feed, seconds: float) -> tm.Run:
    """As many draws as are enough or fit the time, after trials that say how many these are."""
    options = {"control_variate": tm.Taylor(order, at=mode), "num_chains": CHAINS, "progress": False, "feed": feed}
    kernel = tm.MetropolisHastings(tm.CrankNicolson(mode, factor, 1.0), rule)
    last = tm.sample(posterior, kernel, init=mode, num_samples=TRIAL, num_warmup=4 * TRIAL, **options)
    beta = statistics.mode(last.step_size.tolist())
    kernel = tm.MetropolisHastings(tm.CrankNicolson(mode, factor, beta), rule)

    def onwards(before: tm.Run, num_samples: int, key: int) -> tm.Run:
        start = before.samples[:, -1]
        return tm.sample(posterior, kernel, init=start, num_samples=num_samples, num_warmup=0, rng_key=key, **options)

    draws, limit = TRIAL, seconds / 10
    for key in (1, 2):  # the first shows the speed, the second how many draws count
        last = onwards(last, draws, key)
        wanted = MOST if key == 1 else 1.2 * draws * ENOUGH / max(effective(last.samples), 10)
        draws = int(np.clip(min(wanted, draws * limit / last.seconds), TRIAL, MOST))
        limit = seconds
    return onwards(last, draws, 3)


def effective(samples: np.ndarray) -> float:
    """Of means or of squares, whichever are fewer; none if a chain never moved. Of many chains some stand for all."""
    draws = np.asarray(samples[:COUNTED], float)
    if np.any(np.ptp(draws, axis=1) == 0):
        return 0.0
    least = min(peers.min_ess(draws), peers.min_ess((draws - draws.mean(axis=(0, 1))) ** 2))
    return least * len(samples) / len(draws)


def run(some_posteriors: str = "", some_rules: str = "", seconds: float | str = LIMIT) -> list[tuple[str, ...]]:
    """One line for each posterior and rule whose names begin so, in so many seconds each at most."""
    table = []
    for name, (load, file, truth) in POSTERIORS.items():
        if not name.startswith(some_posteriors):
            continue
        if file is not None and not datasets.available(file):
            table.append((name, f"{file} is not here", *[""] * 5))
            continue
        posterior = tm.models.logistic_regression(*load())
        found = tm.optimise.mode(posterior, progress=False)
        controlled = tm.Taylor(2).expand(posterior, found.position)
        factor = covariance_factor(controlled.precision)
        pilot = look_around(controlled.model, posterior.rows, found.position, factor, as_key(0))
        exact = truth(posterior)
        table.append((name, f"(reference good to {exact.error:.1e})", *[""] * 5))
        print(table[-1], flush=True)
        for rule_name, (rule, order, feed) in rules(pilot.rows_drawn).items():
            if not rule_name.startswith(some_rules):
                continue
            result = one(posterior, found.position, factor, rule, order, feed, float(seconds))
            mean_error, sd_error = peers.accuracy(result.samples, exact.mean, exact.sd)
            count = effective(result.samples)
            table.append(
                (
                    "",
                    f"{rule_name}, beta {float(result.kernel.proposal.beta):.2g}",
                    f"{result.stats['accepted'].mean():.3f}",
                    f"{result.stats['rows'].mean():,.1f}",
                    f"{count / result.seconds:,.0f} ({count:,.0f})",
                    f"{mean_error:.3f}",
                    f"{100 * sd_error:.2g} %",
                )
            )
            print(table[-1], flush=True)
    return table


if __name__ == "__main__":
    run(*sys.argv[1:])
