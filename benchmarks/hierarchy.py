"""A centred hierarchy of a million rows in 500 groups, 503 parameters: the whole first call against NumPyro's NUTS.

`python -m benchmarks hierarchy` takes NUTS ten minutes on two cores; `--size 200` gives groups of 200 rows for a look.
"""

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.range_child import NUTS_CHAINS, NUTS_DRAWS, nuts_draws
from benchmarks.range_verdict import Estimates

COLUMNS = ("rows x parameters", "ours", "NUTS", "ratio", "worst mean (sd)", "widths")
TAKES_ARGUMENTS = True


def run(arguments: Sequence[str] = ()) -> Iterator[tuple[str, ...]]:
    """One line."""
    import jax

    import tallmc as tm

    parser = argparse.ArgumentParser(prog="python -m benchmarks hierarchy")
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--size", type=int, default=2000, help="rows of each")
    options = parser.parse_args(arguments)
    case = hierarchy(options.groups, options.size)
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        made = tm.sample(case.posterior(), init=case.init, progress=False)
    seconds = time.perf_counter() - started
    ours = Estimates.of(case.looked_at(jax.tree.map(np.asarray, made.samples)))
    rate = ours.ess.min() / seconds
    started = time.perf_counter()
    theirs = Estimates.of(case.looked_at(nuts_draws(case, NUTS_CHAINS, NUTS_DRAWS, NUTS_DRAWS, 0)))
    seconds_of_nuts = time.perf_counter() - started
    rate_of_nuts = theirs.ess.min() / seconds_of_nuts
    widths = ours.sd / theirs.sd
    doubts = "; ".join(str(one.message) for one in raised) or "none"
    yield (
        f"{options.groups * options.size:,} x {options.groups + 4}",
        f"{seconds:.1f} s, {ours.ess.min():,.0f} effective draws ({rate:.3g}/s), {made.stats['rows'].mean():.3g} rows "
        f"a step, {made.stats['accepted'].mean():.2f} accepted; doubts: {doubts}",
        f"{seconds_of_nuts:.0f} s, {theirs.ess.min():,.0f} effective draws ({rate_of_nuts:.3g}/s)",
        f"{rate / rate_of_nuts:.3g} x",
        f"{np.max(np.abs(ours.mean - theirs.mean) / theirs.sd):.3f}",
        f"{widths.mean():.3f} on average, {widths.min():.3f} to {widths.max():.3f}",
    )


def hierarchy(num_groups: int, size: int):
    """As `logistic_groups_centred` of the range, larger."""
    from tests.range.case import Case, rows
    from tests.range.hierarchies import bernoulli, centred, centred_prior, grouped, hyper_init

    generator, x, group, z = grouped(num_groups, size, 1)
    y = generator.random(len(z)) < 1 / (1 + np.exp(-z))
    return Case(
        lambda position, row: bernoulli(row["y"], centred(position, row)),
        rows(x=x, y=y, group=group),
        hyper_init(num_groups),
        centred_prior,
    )
