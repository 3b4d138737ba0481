"""Langevin dynamics that nothing corrects, and the same corrected by every kind of test.

`python -m benchmarks pitfall` draws 10^5 times with each test, on three data sets; `tallmc reproduce sgld-pitfall` puts
the same beside the paper.
"""

from collections.abc import Iterator

import numpy as np

import tallmc as tm
from tallmc.reproduce.pitfall import NUM_ROWS, RULES, Figures, measure, posterior, truth

__all__ = ["NUM_ROWS", "RULES", "Figures", "measure", "posterior", "run", "truth"]

COLUMNS = (
    "test",
    "total variation to the posterior, three data sets",
    "rows of a test",
    "share of all rows",
    "accepted",
    "audit of the last run",
)
DATA_SEEDS = (0, 1, 2)
PUBLISHED = {
    "AlwaysAccept()": "0.29 to 0.44",
    "Exact()": "0.012",
    "AustereMH(0.1, 500)": "0.010 to 0.037; 14.0 to 14.7 % of the rows",
    "AustereMH(0.5, 500)": "0.012 to 0.015; 5 % of the rows",
}


def run() -> Iterator[tuple[str, ...]]:
    """One line a test."""
    for name, rule in RULES.items():
        found = [measure(posterior(seed), rule) for seed in DATA_SEEDS]
        published = f" (wanted: {PUBLISHED[name]})" if name in PUBLISHED else ""
        rows = np.mean([one.rows for one in found])
        yield (
            f"`{name}`",
            ", ".join(f"{one.distance:.3f}" for one in found) + published,
            f"{rows:,.0f}",
            f"{100 * rows / NUM_ROWS:.3g} %",
            f"{np.mean([one.accepted for one in found]):.3f}",
            str(tm.audit(found[-1].run)),
        )
