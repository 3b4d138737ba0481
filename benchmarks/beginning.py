"""What it costs to begin a test, where proposals follow gradients or read rows.

`Together` moves all chains in vectorised rounds. If each round worked out a new proposal for every chain, those still
in a test would pay for it too. `python -m benchmarks beginning` compares that with letting chains wait for each other,
and with one chain at a time. Tests read ten rows a round, so each takes nine rounds or more.
"""

import time
import warnings
from collections.abc import Iterator

import numpy as np

import tallmc as tm
from tallmc.control_variates import covariance_factor
from tallmc.proposals.contract import Proposal

COLUMNS = (
    "proposal",
    "rounds a test",
    "together, all chains propose in every round: microseconds of processor time a step",
    "together, chains wait for each other",
    "saved",
    "one chain at a time",
)
NUM_ROWS, NUM_COLUMNS, NUM_CHAINS, NUM_DRAWS, BATCH = 200_000, 50, 64, 400, 10


class Hasty(tm.MetropolisHastings):
    """Begins as if that cost nothing."""

    dear_to_begin = property(lambda self: False)


def proposals(factor: np.ndarray) -> dict[str, Proposal]:
    return {
        "`RandomWalk`": tm.RandomWalk(0.3 * factor),
        "`MALA`": tm.MALA(0.6, factor),
        "`HMC`, 10 leapfrog steps": tm.HMC(0.3, 10, cholesky=factor),
        "`SGLD`, 500 rows": tm.SGLD(0.36, 500, factor),
    }


def run() -> Iterator[tuple[str, ...]]:
    """One line a proposal."""
    X, y, _ = tm.models.generate_logistic(NUM_ROWS, NUM_COLUMNS)
    posterior = tm.models.logistic_regression(X, y)
    found = tm.optimise.mode(posterior, progress=False)
    factor = covariance_factor(np.asarray(found.hessian))
    assert factor is not None
    warnings.simplefilter("ignore", tm.ConvergenceWarning)  # a few draws of each chain, for their speed alone
    for name, proposal in proposals(factor).items():
        spent, rounds = {}, 0.0
        for kind, kernel, driver in (
            ("hasty", Hasty, tm.Together()),
            ("waits", tm.MetropolisHastings, tm.Together()),
            ("alone", tm.MetropolisHastings, tm.ChainByChain()),
        ):
            begun = tm.sample(
                posterior,
                kernel(proposal, tm.MHMinibatch(BATCH)),
                init=found.position,
                control_variate=tm.Taylor(2, at=found.position),
                num_samples=20,
                num_warmup=0,
                num_chains=NUM_CHAINS,
                driver=driver,
                progress=False,
            )
            started = time.process_time()
            longer = begun.extend(NUM_DRAWS, progress=False, driver=driver)
            spent[kind] = 1e6 * (time.process_time() - started) / (NUM_CHAINS * NUM_DRAWS)
            stats = longer.stats
            rounds = float((stats["rows"] - stats.get("proposal_rows", 0)).mean() / BATCH)
        yield (
            name,
            f"{rounds:.1f}",
            f"{spent['hasty']:.0f}",
            f"{spent['waits']:.0f}",
            f"{100 * (1 - spent['waits'] / spent['hasty']):.0f} %",
            f"{spent['alone']:.0f}",
        )
