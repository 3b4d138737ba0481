"""How fast the engine moves chains, against a hand-written loop, a bare loop, itself on more rows, and many chains."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp

import tallmc as tm
from benchmarks import mixture, numba_reference
from tallmc.numerics.keys import as_key
from tallmc.run.chain import Problem, start_chain
from tallmc.run.native import native

BATCH_SIZE = 50
REPEATS = 5
AUSTERE_EPSILON = 0.142  # reads as many rows as MHMinibatch does here


def best_seconds(function) -> float:
    """Shortest of a few repetitions: the one that a shared machine disturbed least."""
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def steps_per_second(
    posterior, batch_size, num_chains=1, num_samples=400_000, driver=None, rule=None
) -> tuple[float, tm.Run]:
    """Total steps a second of compiled chains, and a run to look at."""
    kernel = mixture.kernel(rule or tm.MHMinibatch(batch_size))
    runs: list[tm.Run] = []

    def once():
        runs.append(
            tm.sample(
                posterior,
                kernel,
                init=mixture.START,
                num_samples=num_samples,
                num_warmup=0,
                num_chains=num_chains,
                progress=False,
                driver=driver,
            )
        )

    once()
    best = min((once(), runs[-1].seconds)[1] for _ in range(REPEATS))
    return num_chains * num_samples / best, runs[-1]


def bare_rows_per_second(posterior, batch_size, num_windows=200_000) -> float:
    """Rows a second of a compiled loop that reads the same windows and only evaluates the two likelihoods."""
    feed = tm.InMemoryFeed(posterior.num_rows, batch_size)
    kernel, stage = mixture.kernel(tm.MHMinibatch(batch_size)), feed.arrange(posterior.rows, 0)
    problem = Problem(kernel, posterior.model, feed, stage, jnp.int32(0))
    chain = start_chain(problem, as_key(0), jnp.asarray(mixture.START))

    def loop(problem, chain):
        def body(_, carry):
            cursor, total = carry
            window = problem.feed.read(problem.stage, cursor, chain.round)
            # The total must matter to the next window, or the compiler would drop it.
            moved = chain.state.proposed + total * 1e-30
            ratios = problem.model.log_ratios(chain.state.rest.position, moved, window.rows)
            return problem.feed.advance(cursor), total + jnp.sum(ratios)

        return jax.lax.fori_loop(0, num_windows, body, (chain.cursor, jnp.float32(0)))

    rates = []
    for compiled in (eqx.filter_jit(loop), native(loop)):
        jax.block_until_ready(compiled(problem, chain))
        seconds = best_seconds(lambda compiled=compiled: jax.block_until_ready(compiled(problem, chain)))
        rates.append(num_windows * batch_size / seconds)
    return max(rates)


def run() -> list[tuple[str, str, str]]:
    """Figure, measured, wanted."""
    million = mixture.posterior()
    ours, run_ = steps_per_second(million, BATCH_SIZE)
    rows, acceptance = run_.stats["rows"].mean(), run_.stats["accepted"].mean()
    numba_reference.run(million, mixture.PROPOSAL_SD, BATCH_SIZE, 100)
    figures: list[tuple[float, float]] = []
    numba_seconds = best_seconds(
        lambda: figures.append(numba_reference.run(million, mixture.PROPOSAL_SD, BATCH_SIZE, 20_000))
    )
    numba_rate = 20_000 / numba_seconds
    table = [
        (
            f"one chain, windows of {BATCH_SIZE}: steps/s against a Numba loop on random rows",
            f"{ours / numba_rate:.1f} x ({ours:,.0f} against {numba_rate:,.0f}; rows/step {rows:.0f} against "
            f"{figures[-1][1]:.0f}, acceptance {acceptance:.3f} against {figures[-1][0]:.3f})",
            ">= 3 x",
        )
    ]
    bare = bare_rows_per_second(million, BATCH_SIZE)
    table.append(
        (
            "rows/s against a bare loop of the two likelihoods on the same windows",
            f"{100 * ours * rows / bare:.0f} % ({ours * rows / 1e6:.0f} against {bare / 1e6:.0f} million)",
            ">= 60 %",
        )
    )
    austere, austere_run = steps_per_second(million, BATCH_SIZE, rule=tm.AustereMH(AUSTERE_EPSILON, BATCH_SIZE))
    austere_rows = austere_run.stats["rows"].mean()
    table.append(
        (
            f"AustereMH({AUSTERE_EPSILON}, {BATCH_SIZE}): steps/s against MHMinibatch's, at equal rows per step",
            f"{100 * austere / ours:.0f} % ({austere:,.0f} against {ours:,.0f}; rows/step {austere_rows:.0f} against "
            f"{rows:.0f})",
            ">= 70 %",
        )
    )
    few, few_run = steps_per_second(mixture.posterior(100_000), BATCH_SIZE)
    many, many_run = steps_per_second(mixture.posterior(10_000_000), BATCH_SIZE)
    table.append(
        (
            "steps/s at 10^7 rows against 10^5, same rows per step",
            f"{100 * many / few:.0f} % ({many:,.0f} against {few:,.0f}; rows/step {many_run.stats['rows'].mean():.0f} "
            f"against {few_run.stats['rows'].mean():.0f})",
            ">= 80 %",
        )
    )
    serial, _ = steps_per_second(million, BATCH_SIZE, 64, 10_000, tm.ChainByChain(num_threads=1))
    shared, _ = steps_per_second(million, BATCH_SIZE, 64, 10_000)
    table.append(
        (
            "64 chains: total steps/s against one after another in one thread",
            f"{shared / serial:.2f} x ({shared:,.0f} against {serial:,.0f})",
            ">= 1.5 x",
        )
    )
    table.append(("first call, compilation included", f"{_first_call_seconds():.1f} s", "< 10 s"))
    return table


def _first_call_seconds() -> float:
    """In this process, with every compiled function forgotten."""
    posterior = mixture.posterior(100_000)
    jax.clear_caches()
    started = time.perf_counter()
    kernel = mixture.kernel(tm.MHMinibatch(64, sigma=1.05))
    tm.sample(posterior, kernel, init=mixture.START, num_samples=100, num_warmup=100, progress=False)
    return time.perf_counter() - started
