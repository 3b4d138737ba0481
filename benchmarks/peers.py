"""Other people's samplers on logistic regression at temperature 1: NumPyro, BlackJAX, PyMHSS, and MH-SS by hand.

Every peer has the signature `peer(problem, seconds, seed) -> PeerResult` and samples for about so many seconds with one
chain. All are handed the mode and the Laplace covariance of the posterior, which is more than their documentation asks
for: they start at the mode or near it, and their steps are scaled by that covariance. Compilation, warm-up and the
search for good settings are timed apart. `python -m benchmarks.peers` tries all of them on few rows.
"""

import argparse
import contextlib
import importlib
import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import tallmc as tm
from benchmarks import mhss_reference
from benchmarks.timed_loop import Loop

NUTS_WARMUP = 100  # adapts the step size; the scales are known
HMCECS_WARMUP = 300
HMCECS_GRID = ((30, 30), (100, 10), (100, 100), (300, 100))  # rows of an estimate, parts that they are renewed in
SGLD_BATCH = 100
SGLD_GRID = (0.3, 0.1, 0.03, 0.01)  # step sizes, in posterior variances
GOOD_BIAS = 0.05  # the largest mean error of the standard deviations that lets a setting of a grid win
PYMHSS_BYTES = 8e9  # of memory that it may take


class PeerMissing(RuntimeError):
    """A peer cannot run here; the message says what to do."""


@dataclass(frozen=True)
class Problem:
    """Rows, the mode of their posterior under a standard normal prior, and a root of its Laplace covariance."""

    X: np.ndarray
    y: np.ndarray
    mode: np.ndarray
    root: np.ndarray  # Cholesky factor of the inverse negative Hessian at the mode

    @property
    def covariance(self) -> np.ndarray:
        """Of the Laplace approximation."""
        return self.root @ self.root.T


@dataclass(frozen=True)
class PeerResult:
    """What a peer drew and what it cost.

    Attributes:
        name: The peer.
        draws: (chain, draw, coefficient).
        seconds_sampling: Of the draws alone.
        seconds_setup: Of everything before: compilation, warm-up, settings that were tried.
        rows_read: By the draws, if it can be known.
        note: The settings.
    """

    name: str
    draws: np.ndarray
    seconds_sampling: float
    seconds_setup: float
    rows_read: int | None
    note: str


def make_problem(X: np.ndarray, y: np.ndarray) -> Problem:
    """Finds the mode and the curvature there."""
    mode = np.asarray(tm.optimise.logistic(X, y, prior_precision=1.0).position, np.float64)
    chance = 1 / (1 + np.exp(-X @ mode.astype(X.dtype)))
    precision = ((X.T * (chance * (1 - chance))) @ X).astype(np.float64) + np.eye(len(mode))
    return Problem(X, y, mode, np.linalg.cholesky(np.linalg.inv(precision)))


def min_ess(draws: np.ndarray) -> float:
    """Bulk effective sample size of the worst coordinate of draws (chain, draw, coordinate)."""
    from arviz_stats.base import array_stats

    return float(np.min(array_stats.ess(np.asarray(draws, np.float64), chain_axis=0, draw_axis=1, method="bulk")))


def accuracy(draws: np.ndarray, exact_mean: np.ndarray, exact_sd: np.ndarray) -> tuple[float, float]:
    """Largest error of a mean, in standard deviations, and largest relative error of a standard deviation."""
    flat = np.asarray(draws, np.float64).reshape(-1, draws.shape[-1])
    mean_error = np.abs(flat.mean(axis=0) - exact_mean) / exact_sd
    return float(np.max(mean_error)), float(np.max(np.abs(flat.std(axis=0, ddof=1) / exact_sd - 1)))


def load(name: str, hint: str = "pip install 'tallmc[bench]'"):
    """Imports a package that only this comparison needs."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise PeerMissing(f"{name.split('.')[0]} cannot be imported ({error}); get it with: {hint}") from error


# ----------------------------------------------------------------------------------------------------------------------
# Grids of settings


def _trial(problem: Problem, draws: np.ndarray, _: float, seconds: float) -> tuple[float, float]:
    """Mean relative error of the standard deviations, by Laplace's, and effective draws a second."""
    sd = np.sqrt(np.diag(problem.covariance))
    return float(np.mean(draws.std(axis=0) / sd) - 1), min_ess(draws[None]) / seconds


def _best(trials: dict):
    """The setting with most effective draws a second of those that are right, or else the one that is least wrong."""
    good = {setting: rate for setting, (bias, rate) in trials.items() if abs(bias) <= GOOD_BIAS}
    return max(good, key=good.__getitem__) if good else min(trials, key=lambda setting: abs(trials[setting][0]))


def _tried(trials: dict) -> str:
    each = ", ".join(f"{setting}: {bias:+.1%} and {rate:,.0f}" for setting, (bias, rate) in trials.items())
    return f"mean error of sds and effective draws a second in trials: {each}"


# ----------------------------------------------------------------------------------------------------------------------
# NumPyro


def numpyro_model(X, y, subsample_size=None):
    """The posterior as one writes it in NumPyro; with a subsample size, as its HMCECS wants it."""
    numpyro, dist = load("numpyro"), load("numpyro.distributions")
    coefficients = numpyro.sample("coefficients", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0], subsample_size=subsample_size):
        x = numpyro.subsample(X, event_dim=1)
        response = numpyro.subsample(y, event_dim=0)
        numpyro.sample("y", dist.Bernoulli(logits=x @ coefficients), obs=response)


def _numpyro_inner(problem: Problem, model: Callable):
    """NUTS that knows the scales and adapts its step size."""
    covariance = {("coefficients",): jnp.asarray(problem.covariance, jnp.float32)}
    options = {"inverse_mass_matrix": covariance, "dense_mass": True, "adapt_mass_matrix": False}
    return load("numpyro.infer").NUTS(model, **options)


def _numpyro_loop(problem: Problem, kernel, num_warmup: int, seed: int, step: Callable) -> Loop:
    """The kernel at the mode, warmed up: NumPyro adapts for the first steps that a state makes."""
    data = jnp.asarray(problem.X), jnp.asarray(problem.y)
    start = {"coefficients": jnp.asarray(problem.mode, jnp.float32)}
    loop = Loop(step, kernel.init(jax.random.key(seed), num_warmup, start, data, {}), data, seed)
    loop.draw(num_warmup)
    return loop


def numpyro_nuts(problem: Problem, seconds: float, seed: int = 0) -> PeerResult:
    """NUTS of NumPyro, with a dense mass matrix."""
    started = time.perf_counter()
    kernel = _numpyro_inner(problem, numpyro_model)

    def step(_, state, data):
        state = kernel.sample(state, data, {})
        return state, state.z["coefficients"], state.num_steps

    loop = _numpyro_loop(problem, kernel, NUTS_WARMUP, seed, step)
    draws, gradients, spent = loop.draw_for(seconds)
    note = f"{gradients / len(draws):.1f} gradients a draw"
    return _result("NumPyro NUTS", draws, spent, started, gradients * len(problem.y), note)


def _hmcecs_loop(problem: Problem, subsample_size: int, num_blocks: int, seed: int) -> Loop:
    """HMCECS with a Taylor proxy of degree 2 at the mode. Work is in rows."""
    infer = load("numpyro.infer")
    reference = {"coefficients": jnp.asarray(problem.mode, jnp.float32)}
    inner = _numpyro_inner(problem, partial(numpyro_model, subsample_size=subsample_size))
    proxy = infer.HMCECS.taylor_proxy(reference, degree=2)
    kernel = infer.HMCECS(inner, num_blocks=num_blocks, proxy=proxy)

    def step(_, state, data):
        state = kernel.sample(state, data, {})
        # A block of new rows, the estimate with them (again with a gradient if they are kept), then the trajectory.
        rows = subsample_size // num_blocks + subsample_size * (state.hmc_state.num_steps + 2)
        return state, state.z["coefficients"], rows

    return _numpyro_loop(problem, kernel, HMCECS_WARMUP, seed, step)


def numpyro_hmcecs(problem: Problem, seconds: float, seed: int = 0) -> PeerResult:
    """HMC with energy-conserving subsampling, the setting of the grid that is best in a short trial."""
    started = time.perf_counter()
    load("numpyro")
    loops = {setting: _hmcecs_loop(problem, *setting, seed) for setting in HMCECS_GRID if setting[0] < len(problem.y)}
    trials = {setting: _trial(problem, *loop.draw_for(seconds / 8)) for setting, loop in loops.items()}
    best = _best(trials)
    draws, rows, spent = loops[best].draw_for(seconds)
    note = f"{best[0]} rows in {best[1]} blocks; {_tried(trials)}"
    return _result("NumPyro HMCECS", draws, spent, started, rows, note)


# ----------------------------------------------------------------------------------------------------------------------
# BlackJAX, in coordinates in which the posterior is nearly standard normal: coefficients = mode + root @ position


def _white_data(problem: Problem) -> dict[str, jax.Array]:
    """Rows, and what their linear predictors are at the mode."""
    columns = {"x": problem.X, "y": problem.y, "at_mode": problem.X @ problem.mode}
    return {name: jnp.asarray(column, jnp.float32) for name, column in columns.items()}


def _to_coefficients(problem: Problem, draws: np.ndarray) -> np.ndarray:
    return problem.mode + draws.astype(np.float64) @ problem.root.T


def _white_densities(problem: Problem) -> tuple[Callable, Callable]:
    """Log prior and log likelihood of one or many rows, less what they are at the mode: sums in float32 stay exact."""
    mode, root = (jnp.asarray(part, jnp.float32) for part in (problem.mode, problem.root))

    def log_prior(position):
        return -0.5 * jnp.sum((mode + root @ position) ** 2)

    def log_likelihood(position, rows):
        change = rows["x"] @ (root @ position)
        rise = jax.nn.softplus(rows["at_mode"] + change) - jax.nn.softplus(rows["at_mode"])
        return rows["y"] * change - rise

    return log_prior, log_likelihood


def _log_density(problem: Problem) -> Callable:
    """Of a position, given the data."""
    log_prior, log_likelihood = _white_densities(problem)
    return lambda data, position: log_prior(position) + jnp.sum(log_likelihood(position, data))


def blackjax_rwmh(problem: Problem, seconds: float, seed: int = 0) -> PeerResult:
    """Random-walk Metropolis on all rows, steps of 2.38 posterior standard deviations over the root of d."""
    started = time.perf_counter()
    blackjax = load("blackjax")
    density, data, num_columns = _log_density(problem), _white_data(problem), len(problem.mode)
    scale = jnp.full(num_columns, 2.38 / np.sqrt(num_columns), jnp.float32)

    def sampler(data):
        return blackjax.normal_random_walk(partial(density, data), scale)

    def step(key, state, data):
        state, info = sampler(data).step(key, state)
        return state, state.position, info.is_accepted

    loop = Loop(step, sampler(data).init(jnp.zeros(num_columns, jnp.float32)), data, seed)
    draws, accepted, spent = loop.draw_for(seconds)
    note = f"accepts {accepted / len(draws):.2f}"
    rows = len(draws) * len(problem.y)
    return _result("BlackJAX RWMH", _to_coefficients(problem, draws), spent, started, rows, note)


def blackjax_nuts(problem: Problem, seconds: float, seed: int = 0) -> PeerResult:
    """NUTS after BlackJAX's window adaptation."""
    started = time.perf_counter()
    blackjax = load("blackjax")
    density, data = _log_density(problem), _white_data(problem)

    @jax.jit
    def warm_up(key, position, data):
        adapted, _ = blackjax.window_adaptation(blackjax.nuts, partial(density, data)).run(key, position, NUTS_WARMUP)
        return adapted.state, adapted.parameters["step_size"], adapted.parameters["inverse_mass_matrix"]

    def step(key, state, data):
        rows, step_size, variances = data
        state, info = blackjax.nuts(partial(density, rows), step_size, variances).step(key, state)
        return state, state.position, info.num_integration_steps

    start = jnp.zeros(len(problem.mode), jnp.float32)
    state, step_size, variances = warm_up(jax.random.key(seed), start, data)
    draws, gradients, spent = Loop(step, state, (data, step_size, variances), seed).draw_for(seconds)
    note = f"{gradients / len(draws):.1f} gradients a draw, step size {float(step_size):.2f}"
    rows = gradients * len(problem.y)
    return _result("BlackJAX NUTS", _to_coefficients(problem, draws), spent, started, rows, note)


def _sgld_loop(problem: Problem, seed: int) -> Loop:
    """SGLD with control variates at the mode. Its data is the rows and the step size, its work rows."""
    blackjax, gradients = load("blackjax"), load("blackjax.sgmcmc.gradients")
    data, centre = _white_data(problem), jnp.zeros(len(problem.mode), jnp.float32)
    log_prior, log_likelihood = _white_densities(problem)
    plain = gradients.grad_estimator(log_prior, log_likelihood, len(problem.y))
    kernel = blackjax.sgld(gradients.control_variates(plain, centre, data))

    def step(key, position, data):
        rows, step_size = data
        key_rows, key_noise = jax.random.split(key)
        chosen = jax.random.randint(key_rows, (SGLD_BATCH,), 0, rows["y"].shape[0])
        batch = jax.tree.map(lambda column: column[chosen], rows)
        position = kernel.step(key_noise, position, batch, step_size)
        return position, position, SGLD_BATCH

    return Loop(step, kernel.init(centre), (data, jnp.float32(SGLD_GRID[0])), seed)


def blackjax_sgld(problem: Problem, seconds: float, seed: int = 0) -> PeerResult:
    """Stochastic gradient Langevin dynamics with control variates, the step size of the grid that is best in a trial.

    There is no test of acceptance, so a large step is fast and wrong: a step of h posterior variances makes variances
    too large by about h / 2.
    """
    started = time.perf_counter()
    loop = _sgld_loop(problem, seed)
    rows, _ = loop.data

    def run(step_size, seconds):
        loop.data = rows, jnp.float32(step_size)
        draws, read, spent = loop.draw_for(seconds)
        return _to_coefficients(problem, draws), read, spent

    trials = {step_size: _trial(problem, *run(step_size, seconds / 4)) for step_size in SGLD_GRID}
    best = _best(trials)
    draws, read, spent = run(best, seconds)
    note = f"step {best}, batches of {SGLD_BATCH}; {_tried(trials)}"
    return _result("BlackJAX SGLD-CV", draws, spent, started, read, note)


# ----------------------------------------------------------------------------------------------------------------------
# MH-SS: our own NumPy, and the authors' package


def mhss(problem: Problem, seconds: float, seed: int = 0) -> PeerResult:
    """Metropolis-Hastings with scalable subsampling by hand."""
    started = time.perf_counter()
    target = mhss_reference.Target(problem.X, problem.y, problem.mode)
    chain = mhss_reference.sample(target, problem.covariance, seconds, seed)
    note = f"accepts {chain.accepted:.2f}, {chain.rows.mean():.1f} rows a step"
    return _result("MH-SS, NumPy", chain.draws, chain.seconds, started, chain.rows.sum(), note)


def pymhss(problem: Problem, seconds: float, seed: int = 0) -> PeerResult:
    """MH-SS of order 2 by its authors' package. It knows no prior, which matters little if rows are many."""
    started = time.perf_counter()
    package = load("PyMHSS", "pip install pymhss (with TensorFlow, 2 GB, so tallmc[bench] leaves it out)")
    rows, columns = problem.X.shape
    if 3 * 8 * rows * columns**2 > PYMHSS_BYTES:
        raise PeerMissing(f"PyMHSS would keep {rows:,} Hessians of {columns} by {columns} in memory")
    np.random.seed(seed)  # noqa: NPY002  the package draws from NumPy's global generator
    data = problem.y.astype(np.float64), problem.X.astype(np.float64), problem.covariance, problem.mode

    def run(count):
        options = {"model": "logistic", "implementation": "vectorised", "taylor_order": 2}
        with contextlib.redirect_stderr(io.StringIO()):
            return package.MH_SS(*data, nburn=0, npost=count, **options)

    count = 2 * int(np.clip(250 * seconds / run(500)["cpu_time"], 250, 500_000))  # it fails at odd numbers
    found = run(count)
    note = f"accepts {found['acc_rate']:.2f}, {found['BoverN'].mean() * rows:.1f} rows asked for a step, no prior"
    # The package counts rows before its first stage; those of moves that fail there are never read.
    return _result("PyMHSS", found["parameters"], found["cpu_time"], started, None, note)


def _result(name: str, draws: np.ndarray, spent: float, started: float, rows: float | None, note: str) -> PeerResult:
    """Of one chain that has just ended; what was not sampling was set-up."""
    setup = time.perf_counter() - started - spent
    return PeerResult(name, np.asarray(draws)[None], spent, setup, None if rows is None else int(rows), note)


PEERS = (numpyro_nuts, numpyro_hmcecs, blackjax_rwmh, blackjax_nuts, blackjax_sgld, mhss, pymhss)


def describe(result: PeerResult, exact_mean: np.ndarray, exact_sd: np.ndarray) -> str:
    """One line: effective draws, their price and their error."""
    size = min_ess(result.draws)
    mean_error, sd_error = accuracy(result.draws, exact_mean, exact_sd)
    rows = "" if result.rows_read is None else f"{result.rows_read / size:,.0f} rows each, "
    return (
        f"{result.name}: {size:,.0f} effective of {result.draws.shape[1]:,} draws in {result.seconds_sampling:.1f} s "
        f"({size / result.seconds_sampling:,.0f} a second), {rows}errors {mean_error:.3f} sds of a mean, "
        f"{sd_error:.1%} of a sd; set-up {result.seconds_setup:.1f} s; {result.note}"
    )


def main() -> None:
    """Tries every peer on generated rows; exact moments are taken from the Laplace approximation."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=main.__doc__)
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--columns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of sampling, for each peer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a part of the names of the functions to run")
    options = parser.parse_args()
    X, y, _ = tm.models.generate_logistic(options.rows, options.columns)
    problem = make_problem(X, y)
    for peer in PEERS:
        if options.only in peer.__name__:
            try:
                result = peer(problem, options.seconds, options.seed)
                print(describe(result, problem.mode, np.sqrt(np.diag(problem.covariance))), flush=True)
            except PeerMissing as missing:
                print(f"{peer.__name__}: left out. {missing}", flush=True)


if __name__ == "__main__":
    main()
