"""Effective draws a second at temperature 1: against other samplers, and against itself on more and fewer rows."""

import time

import numpy as np

import tallmc as tm
from benchmarks import peers, reference

COLUMNS = (
    "sampler",
    "effective draws/s",
    "tallmc is faster by",
    "same, for squares",
    "rows per effective draw",
    "largest error of a mean (sds)",
    "largest error of a sd",
    "set-up",
)
COLUMNS_OF_DATA = 20
DRAWS = 400_000
REPEATS = 3
SECONDS = {1_000_000: 30.0, 100_000: 15.0}
SLOW = {"numpyro_nuts": 2.0, "blackjax_nuts": 2.0}  # times as long, for few draws have a poor estimate of their number
NOT_AT_A_MILLION = ("numpyro_hmcecs", "blackjax_sgld", "pymhss")  # they are asked for at 10^5 rows


def run() -> list[tuple[str, ...]]:
    """First against the others, then from 10^4 to 10^7 rows."""
    table = []
    for num_rows in (1_000_000, 100_000):
        X, y, _ = tm.models.generate_logistic(num_rows, COLUMNS_OF_DATA)
        exact = reference.moments(tm.models.logistic_regression(X, y))
        table.append((f"{num_rows:,} rows, {COLUMNS_OF_DATA} columns (reference good to {exact.error:.1e})", *[""] * 7))
        line, ours, squares = _ours(X, y, exact)
        table.append(line)
        problem = peers.make_problem(X, y)
        for peer in peers.PEERS:
            if num_rows == 1_000_000 and peer.__name__ in NOT_AT_A_MILLION:
                continue
            try:
                seconds = SECONDS[num_rows] * SLOW.get(peer.__name__, 1.0)
                table.append(_theirs(peer(problem, seconds, 0), exact, ours, squares))
            except peers.PeerMissing as missing:
                table.append((peer.__name__, str(missing), *[""] * 6))
            print(table[-1], flush=True)
    for num_rows in (10_000, 100_000, 1_000_000, 10_000_000):
        X, y, _ = tm.models.generate_logistic(num_rows, COLUMNS_OF_DATA)
        exact = reference.moments(tm.models.logistic_regression(X, y), 1000 if num_rows > 10**6 else 2000)
        line, _, squares = _ours(X, y, exact)
        table.append((f"{num_rows:,} rows: {line[0]} (squares: {squares:,.0f})", *line[1:]))
        print(table[-1], flush=True)
    return table


def _ours(X: np.ndarray, y: np.ndarray, exact: reference.Moments) -> tuple[tuple[str, ...], float, float]:
    """`tm.sample(posterior)`, then its kernel for longer, with the beta it found; the fastest of a few repetitions."""
    posterior = tm.models.logistic_regression(X, y)
    started = time.perf_counter()
    first = tm.sample(posterior, num_chains=2, progress=False)
    setup = time.perf_counter() - started
    mode, beta = first.kernel.proposal.mean, float(first.step_size[0])
    proposal = tm.CrankNicolson(mode, first.kernel.proposal.cholesky, beta)
    kernel = tm.MetropolisHastings(proposal, first.kernel.rule)
    options = {"init": mode, "control_variate": tm.Taylor(2, at=mode), "num_chains": 2, "progress": False}
    runs = [tm.sample(posterior, kernel, num_samples=DRAWS, num_warmup=0, rng_key=k, **options) for k in range(REPEATS)]
    best = min(runs[1:], key=lambda run: run.seconds)
    rate, squares = (peers.min_ess(values) / best.seconds for values in _centred(best.samples))
    mean_error, sd_error = peers.accuracy(best.samples, exact.mean, exact.sd)
    rows = 2 * DRAWS * best.stats["rows"].mean() / (rate * best.seconds)
    line = (
        f"tallmc, {type(kernel.rule).__name__}, beta {beta:.2g}, accepts {best.stats['accepted'].mean():.3f}, "
        f"{best.stats['rows'].mean():.2g} rows a step",
        f"{rate:,.0f}",
        "",
        "",
        f"{rows:.2g}",
        f"{mean_error:.3f}",
        f"{100 * sd_error:.2g} %",
        f"{setup:.0f} s with compilation, first draws and audit; {first.setup_rows / len(y):.1f} passes",
    )
    return line, rate, squares


def _theirs(result: peers.PeerResult, exact: reference.Moments, ours: float, squares: float) -> tuple[str, ...]:
    rate, rate_squares = (peers.min_ess(values) / result.seconds_sampling for values in _centred(result.draws))
    mean_error, sd_error = peers.accuracy(result.draws, exact.mean, exact.sd)
    rows = "" if result.rows_read is None else f"{result.rows_read / (rate * result.seconds_sampling):,.0f}"
    return (
        f"{result.name} ({result.note.split(';')[0]}, {result.draws.shape[1]:,} draws)",
        f"{rate:,.1f}",
        f"{ours / rate:,.0f} x",
        f"{squares / rate_squares:,.0f} x",
        rows,
        f"{mean_error:.3f}",
        f"{100 * sd_error:.2g} %",
        f"{result.seconds_setup:.0f} s",
    )


def _centred(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The draws, and their squared distances from the mean: trajectories that swing across make means look too good."""
    draws = np.asarray(draws, float)
    return draws, (draws - draws.mean(axis=(0, 1))) ** 2
