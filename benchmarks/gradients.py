"""Proposals that follow a gradient, under MHMinibatch with an expansion: effective draws for each row read.

Logistic regression on a million generated rows with 100 columns, at temperature 1. All proposals have the shape of the
posterior, and warm-up tunes their steps. `python -m benchmarks gradients` prints the table.
"""

from collections.abc import Iterator

import numpy as np

import tallmc as tm
from benchmarks import peers, reference
from tallmc.control_variates import covariance_factor

COLUMNS = (
    "proposal, with `MHMinibatch(100)`",
    "accepted",
    "rows a step (to propose)",
    "effective draws (of squares)",
    "for 1,000 rows read",
    "against the random walk",
    "worst mean (sds)",
    "worst sd",
    "steps/s",
)
NUM_ROWS, NUM_COLUMNS, NUM_CHAINS = 1_000_000, 100, 2
SGLD_BATCH = 100


def proposals(factor: np.ndarray) -> dict[str, tuple[tm.Proposal, int]]:
    """Each with the draws of a chain; for those that are to be judged, as many as make 15,000 effective ones."""
    return {
        "`RandomWalk`": (tm.RandomWalk(2.4 / NUM_COLUMNS**0.5 * factor), 150_000),
        "`MALA`": (tm.MALA(0.6, factor), 150_000),
        "`HMC`": (tm.HMC(0.3, 8, cholesky=factor), 40_000),
        f"`SGLD`, {SGLD_BATCH} rows": (tm.SGLD(0.36, SGLD_BATCH, factor), 100_000),
    }


def judge(posterior: tm.Posterior) -> reference.Moments:
    """From draws with exact tests (`MHSS`); importance sampling is too coarse in so many dimensions."""
    result = tm.sample(posterior, num_samples=60_000, num_chains=NUM_CHAINS, progress=False)
    assert isinstance(result.kernel.parts()[0].rule, tm.MHSS), result.choices
    draws = np.asarray(result.samples, float)
    mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
    return reference.Moments(mean, sd, (2 * peers.min_ess((draws - mean) ** 2)) ** -0.5)


def run() -> Iterator[tuple[str, ...]]:
    """One line a proposal."""
    X, y, _ = tm.models.generate_logistic(NUM_ROWS, NUM_COLUMNS)
    posterior = tm.models.logistic_regression(X, y)
    found = tm.optimise.mode(posterior, progress=False)
    factor = covariance_factor(np.asarray(found.hessian))
    assert factor is not None
    exact = judge(posterior)
    yield (f"(reference good to {exact.error:.1e})", *[""] * (len(COLUMNS) - 1))
    walked = 0.0
    for name, (proposal, num_samples) in proposals(factor).items():
        result = tm.sample(
            posterior,
            tm.MetropolisHastings(proposal, tm.MHMinibatch(100)),
            init=found.position,
            control_variate=tm.Taylor(2, at=found.position),
            num_samples=num_samples,
            num_warmup=3000,
            num_chains=NUM_CHAINS,
            progress=False,
        )
        draws = np.asarray(result.samples, float)
        effective = peers.min_ess(draws), peers.min_ess((draws - draws.mean(axis=(0, 1))) ** 2)
        rows = float(result.stats["rows"].sum(dtype=float))
        rate = 1000 * min(effective) / rows
        walked = walked or rate
        mean_error, sd_error = peers.accuracy(draws, exact.mean, exact.sd)
        of_proposal = result.stats.get("proposal_rows", np.zeros(1)).mean()
        yield (
            name,
            f"{result.stats['accepted'].mean():.3f}",
            f"{result.stats['rows'].mean():,.0f} ({of_proposal:,.0f})",
            f"{effective[0]:,.0f} ({effective[1]:,.0f})",
            f"{rate:.3g}",
            f"{rate / walked:.1f} x",
            f"{mean_error:.3f}",
            f"{100 * sd_error:.2g} %",
            f"{draws.shape[0] * draws.shape[1] / result.seconds:,.0f}",
        )
