"""Thousands of chains on one GPU: the time that it moves them; fetching their draws is beside it."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import tallmc as tm
from benchmarks import mixture
from tallmc.control_variates import covariance_factor
from tallmc.numerics.keys import as_key
from tallmc.run.chain import Problem, start_chain
from tallmc.run.drive import drive
from tallmc.run.session import Session
from tallmc.run.timing import Timing
from tallmc.setup.start import feed_kinds, make_feed

NUM_CHAINS, NUM_DRAWS = 8192, 6000


def run() -> list[tuple[str, str, str]]:
    """Figure, measured, wanted."""
    if jax.default_backend() != "gpu":
        return [("8,192 chains on a GPU", "no GPU here", ">= 80 million chain-steps/s")]
    return [*_mixture(), *_regression()]


def _mixture(num_samples: int = 5000, batch_size: int = 256) -> list[tuple[str, str, str]]:
    posterior, kernel = mixture.posterior(), mixture.kernel(tm.MHMinibatch(batch_size))
    options = {"init": mixture.START}
    what = f"mixture, 10^6 rows: {NUM_CHAINS:,} chains, windows of {batch_size}, full float32"
    return _compare(what, posterior, kernel, num_samples, options, ">= 80 million")


def _regression(num_rows: int = 10_000_000, num_columns: int = 50) -> list[tuple[str, str, str]]:
    """Temperature 1, exact tests of what a Taylor expansion leaves over. Set up once for all kernels."""
    X, y, _ = tm.models.generate_logistic(num_rows, num_columns)
    posterior = tm.models.logistic_regression(X, y)
    found = tm.optimise.mode(posterior, progress=False)
    model = tm.Taylor(2).expand(posterior, found.position).model
    factor = covariance_factor(found.hessian)
    width = float(np.sqrt(np.mean(np.sum(factor**2, axis=1))))
    walk, crank = tm.RandomWalk(1.2 * width / np.sqrt(num_columns)), tm.CrankNicolson(found.position, factor, 1.0)
    stage, lines = None, []
    for proposal, size, wanted in ((walk, 4, ">= 100 million"), (crank, 16, "")):
        kernel = tm.MetropolisHastings(proposal, tm.MHSS(batch_size=size))
        feed = make_feed(kernel, feed_kinds(kernel, None), posterior.rows, model)
        stage = feed.arrange(posterior.rows, 0) if stage is None else stage
        problem = Problem(kernel.fed_by(feed), model, feed, stage, jnp.int32(0))
        rate, gpu = _moved(tm.Together(), problem, found.position, NUM_CHAINS, NUM_DRAWS)
        cpu_device = jax.local_devices(backend="cpu")[0]
        with jax.default_device(cpu_device):
            _, cpu = _moved(tm.ChainByChain(), jax.device_put(problem, cpu_device), found.position, 64, NUM_DRAWS)
        what = f"logistic regression, 10^7 x 50, MHSS({size} rows at a time), {type(proposal).__name__}"
        lines += [
            (f"{what}: chain-steps/s", f"{rate / 1e6:.0f} million (rows/step {gpu['rows'].mean():.2g})", wanted),
            (
                "acceptance rate against the CPU's",
                f"{gpu['accepted'].mean():.4f} against {cpu['accepted'].mean():.4f} ({_difference(gpu, cpu)})",
                "equal within error",
            ),
        ]
        print(lines[-2:], flush=True)
    return lines


def _moved(driver, problem, position, num_chains, num_samples) -> tuple[float, dict[str, np.ndarray]]:
    """Chain-steps a second of compiled chains, and their statistics."""
    positions = jnp.broadcast_to(jnp.asarray(np.asarray(position)), (num_chains, position.shape[0]))
    start = eqx.filter_jit(lambda p, keys, at: jax.vmap(lambda key, x: start_chain(p, key, x))(keys, at))
    seconds = []
    for seed in range(2):  # the first compiles
        chains = start(problem, jax.random.split(as_key(seed), num_chains), positions)
        session = Session(problem.kernel, problem.model, problem.feed, 0, 0, chains)
        timing = Timing()
        done = drive(driver, session, problem.stage, num_samples, timing, show=False)
        seconds.append(timing.seconds["sampling"])
    return num_chains * num_samples / seconds[-1], done.draws.stats


def _compare(what, posterior, kernel, num_samples, options, wanted) -> list[tuple[str, str, str]]:
    """Speed, and the acceptance rate against the CPU's."""
    options = options | {"num_warmup": 0, "progress": False}
    runs, walls = [], []
    for _ in range(3):
        started = time.perf_counter()
        runs.append(tm.sample(posterior, kernel, num_samples=num_samples, num_chains=NUM_CHAINS, **options))
        walls.append(time.perf_counter() - started)
    rate = NUM_CHAINS * num_samples / min(run.timing["sampling"] for run in runs[1:])
    whole = NUM_CHAINS * num_samples / min(walls[1:])
    rows, acceptance = runs[-1].stats["rows"].mean(), runs[-1].stats["accepted"].mean()
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        # As long as the chains on the GPU: all of them begin in the same place.
        cpu = tm.sample(posterior, kernel, num_samples=num_samples, num_chains=64, driver=tm.ChainByChain(), **options)
    return [
        (
            f"{what}: chain-steps/s",
            f"{rate / 1e6:.0f} million (rows/step {rows:.2g}; with data preparation, start and fetching the draws "
            f"{whole / 1e6:.0f} million)",
            wanted,
        ),
        (
            "acceptance rate against the CPU's",
            f"{acceptance:.4f} against {cpu.stats['accepted'].mean():.4f} ({_difference(runs[-1].stats, cpu.stats)})",
            "equal within error",
        ),
    ]


def _difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> str:
    """Of acceptance rates, in standard errors, from the spread between chains."""
    means = [stats["accepted"].mean(axis=1) for stats in (one, other)]
    error = np.sqrt(sum(chains.var(ddof=1) / len(chains) for chains in means))
    return f"{(means[0].mean() - means[1].mean()) / error:+.1f} standard errors"
