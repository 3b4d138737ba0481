"""Gibbs sampling of the dense field of Korattikara et al. (2014, supplement F.1): errors, factors read, speed.

Speeds are ratios of processor seconds, each the best of several turns that alternate, on one thread.
"""

import time
from collections.abc import Iterator

import numba
import numpy as np

import tallmc as tm
from tallmc.reproduce.gibbs_field import BATCH, DEGREE, DRIVER, enumerated_field, moments, quiet, updates_of
from tallmc.run.drive import drive

EPSILONS = (0.01, 0.05, 0.1, 0.2)
PUBLISHED = {0.01: 0.701, 0.05: 0.525, 0.1: 0.403, 0.2: 0.254}
NUM_UPDATES, NUM_SITES = 50_000, 20
SWEEPS, TURNS = 200, 5


def run() -> Iterator[tuple[str, str, str]]:
    scopes, log_tables = tm.models.generate_dense_field(100)
    field = tm.models.random_field(scopes, log_tables)
    exact = quiet(field, tm.ExactBarker(), num_samples=40, num_warmup=500, num_chains=4, thinning=50)
    starts = exact.samples.reshape(-1, 100)
    yield from conditional_errors(field, starts[-1])
    yield from shares(field, starts)
    yield from speeds(field, scopes, log_tables, starts[-1])
    yield from small_field()


def conditional_errors(field: tm.Posterior, values: np.ndarray) -> Iterator[tuple[str, str, str]]:
    """Many updates of each of some variables, all others as an exact chain left them."""
    log_odds, spread = moments(field, values)
    for epsilon in (0.01, 0.05):
        expected = tm.design.conditional_error(log_odds, spread, BATCH / DEGREE, epsilon)
        error, read, standard = np.zeros(NUM_SITES), np.zeros(NUM_SITES), np.zeros(NUM_SITES)
        for site in range(NUM_SITES):
            taken, read[site] = updates_of(field, values, site, epsilon, NUM_UPDATES)
            chance = 1 / (1 + np.exp(-log_odds[site]))
            error[site] = taken - chance
            standard[site] = np.sqrt(chance * (1 - chance) / NUM_UPDATES)
        hardest = np.abs(tm.design.conditional_error(np.linspace(-10, 10, 401), 1.97, BATCH / DEGREE, epsilon).error)
        within = np.max(np.abs(error - expected.error[:NUM_SITES]) / standard)
        name = f"epsilon {epsilon}: "
        yield (
            f"{name}largest error of a conditional, {NUM_SITES} variables",
            f"{np.max(np.abs(error)):.4f} ± {np.max(standard):.4f}",
            f"at most {hardest.max():.4f}, the design's",
        )
        yield f"{name}distance from the design's errors, standard errors at most", f"{within:.1f}", "below 4"
        design = float(np.mean(expected.data_fraction[:NUM_SITES]))
        yield f"{name}share of factors read by these", f"{read.mean():.3f}", f"{design:.3f} by the design"


def shares(field: tm.Posterior, starts: np.ndarray) -> Iterator[tuple[str, str, str]]:
    """Factors read, where an exact chain was (a sweep from each of its draws) and where the chain itself goes."""
    for epsilon in EPSILONS:
        rule, wanted = tm.AustereMH(epsilon, BATCH), PUBLISHED[epsilon]
        first = quiet(field, rule, num_samples=1, num_chains=len(starts), init=starts)
        own = quiet(field, rule, num_samples=200, num_warmup=500, num_chains=4)
        where = f"{first.stats['rows'].mean() / (100 * DEGREE):.3f} and {own.stats['rows'].mean() / (100 * DEGREE):.3f}"
        label = f"epsilon {epsilon}: share of factors read, at draws of an exact chain and at its own"
        yield label, where, f"{wanted} ± 5 %"


def speeds(
    field: tm.Posterior, scopes: np.ndarray, log_tables: np.ndarray, start: np.ndarray
) -> Iterator[tuple[str, str, str]]:
    """Processor time of an update."""
    rules = {"exact": tm.ExactBarker(), **{f"epsilon {e}": tm.AustereMH(e, BATCH) for e in EPSILONS}}
    runs = {name: quiet(field, rule, num_samples=20, init=start) for name, rule in rules.items()}
    stage = runs["exact"].feed.arrange(field.rows, runs["exact"].shuffle_seed)
    factors = np.stack([np.flatnonzero(np.any(scopes == site, axis=1)) for site in range(100)])
    own = start.astype(np.int64)
    textbook_sweeps(own, 1, factors, scopes, log_tables, 0)
    spent = {name: [] for name in ("textbook", *runs)}
    for turn in range(TURNS):
        for name in spent:
            began = time.process_time()
            if name == "textbook":
                textbook_sweeps(own, SWEEPS, factors, scopes, log_tables, turn)
            else:
                drive(DRIVER, runs[name].session, stage, SWEEPS, show=False)
            spent[name].append(time.process_time() - began)
    best = {name: min(seconds) / (SWEEPS * 100) for name, seconds in spent.items()}
    yield "updates/s, exact Gibbs written plainly (Numba)", f"{1 / best['textbook']:,.0f}", ""
    yield "updates/s, tm.gibbs with ExactBarker()", f"{1 / best['exact']:,.0f}", ""
    for epsilon in EPSILONS:
        seconds = best[f"epsilon {epsilon}"]
        over = f"{best['textbook'] / seconds:.1f} x and {best['exact'] / seconds:.2f} x these"
        yield f"updates/s, AustereMH({epsilon}, 500)", f"{1 / seconds:,.0f}: {over}", "2 x exact" * (epsilon == 0.05)


@numba.njit(fastmath=False)
def textbook_sweeps(
    values: np.ndarray, count: int, factors: np.ndarray, scopes: np.ndarray, tables: np.ndarray, seed: int
) -> None:
    """Exact Gibbs as one would write it: for each factor of a variable, its table for both values of the variable."""
    np.random.seed(seed)  # noqa: NPY002
    for _ in range(count):
        for site in np.random.permutation(len(values)):  # noqa: NPY002
            log_odds = 0.0
            for factor in factors[site]:
                first, second, third = scopes[factor]
                values[site] = 1
                log_odds += tables[factor, values[first], values[second], values[third]]
                values[site] = 0
                log_odds -= tables[factor, values[first], values[second], values[third]]
            values[site] = np.random.random() < 1 / (1 + np.exp(-log_odds))  # noqa: NPY002


def small_field() -> Iterator[tuple[str, str, str]]:
    """Ten variables, 4,000 factors: all assignments can be counted."""
    field, expected = enumerated_field()
    for rule in (tm.ExactBarker(), tm.AustereMH(0.01, 100), tm.AustereMH(0.1, 100)):
        run = quiet(field, rule, num_samples=50_000, num_warmup=100, num_chains=4)
        states = run.samples @ (1 << np.arange(9, -1, -1))
        found = np.stack([np.bincount(chain, minlength=1024) / len(chain) for chain in states])
        distance = 0.5 * np.abs(found - expected).sum(axis=1)
        name = "ExactBarker()" if isinstance(rule, tm.ExactBarker) else f"AustereMH({rule.epsilon}, 100)"
        share = run.stats["rows"].mean() / run.session.model.num_rows
        yield (
            f"10 variables: total variation after 50,000 sweeps, {name}, which reads {100 * share:.0f} %",
            f"{distance.mean():.4f} ± {np.std(distance, ddof=1) / 2:.4f}",
            "as exact Gibbs at 0.01",
        )
