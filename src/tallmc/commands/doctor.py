"""`tallmc doctor`: what is installed here, and does it give right answers?"""

import contextlib
import io
import math
import os
import platform
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Real
from rich.console import Console
from rich.markup import escape

from tallmc.acceptance import AcceptanceRule, Exact, ExactBarker, MHMinibatch
from tallmc.metropolis import MetropolisHastings
from tallmc.models import logistic_regression
from tallmc.posterior import Model, Posterior
from tallmc.proposals import Move, Proposal, RandomWalk
from tallmc.run import Driver, Run, Together
from tallmc.run.drivers import pick_driver
from tallmc.setup import sample

RULES: dict[str, Callable[[], AcceptanceRule]] = {
    "Exact": Exact,
    "ExactBarker": ExactBarker,
    "MHMinibatch": MHMinibatch,
}
_PACKAGES = ("tallmc", "jax", "jaxlib", "equinox", "numpy", "scipy", "arviz-base", "arviz-stats", "arviz-plots")
_MOST_ERRORS = 4.0  # a sound installation exceeds this many standard errors once in 16,000 comparisons
_NUM_ROWS = 20_000


class Finding(NamedTuple):
    """One self-test: did it pass, and the figure it rests on."""

    ok: bool
    name: str
    figure: str


def run_doctor(console: Console) -> bool:
    """Prints what is installed and the findings. Returns whether all is well."""
    for name, value in _environment().items():
        console.print(f"{name:<18} {value}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"\nSelf-test (up to {_MOST_ERRORS:.0f} standard errors are ok):")
    all_ok = True
    for finding in _findings():
        mark = "[green]ok    [/green]" if finding.ok else "[bold red]FAILED[/bold red]"
        console.print(f"{mark} {escape(f'{finding.name}: {finding.figure}')}", highlight=False, soft_wrap=True)
        all_ok &= finding.ok
    return all_ok


def _environment() -> dict[str, str]:
    values = {"python": f"{platform.python_version()} on {platform.system()} {platform.machine()}"}
    for name in _PACKAGES:
        try:
            values[name] = version(name)
        except PackageNotFoundError:
            values[name] = "not installed"
    matmul = jax.config.jax_default_matmul_precision or "left to the device"  # pyright: ignore[reportAttributeAccessIssue]
    values["devices"] = ", ".join(str(device) for device in jax.devices())
    values["cpu cores"] = str(os.cpu_count())
    values["x64"] = "on" if jax.config.jax_enable_x64 else "off (float32)"  # pyright: ignore[reportAttributeAccessIssue]
    values["matmul precision"] = f"{matmul}; tallmc asks for 'highest' inside its own loops"
    return values


def _findings() -> Iterator[Finding]:
    for name, make in RULES.items():
        yield acceptance_frequency(name, make())
    run, findings = normal_mean(pick_driver())
    yield from findings
    yield from chosen_by_itself()
    if jax.default_backend() == "cpu":  # chains one by one would take minutes elsewhere
        yield same_draws(run, normal_mean(Together())[0])


class _Toggle(Proposal):
    """Always proposes the other of the positions 0 and 1."""

    def propose(self, key: Array, position: PyTree, model: Model) -> Move:
        """No choice, so no randomness."""
        del key, model
        return Move(1 - position, jnp.zeros((), position.dtype))


def _weigh(position: Real[Array, ""], row: Real[Array, ""]) -> Real[Array, ""]:
    """Makes the rows themselves the log ratios of position 1 against position 0."""
    return position * row


def acceptance_frequency(name: str, rule: AcceptanceRule) -> Finding:
    """How often a rule moves a chain between two positions, against the formula it declares."""
    rows = np.random.default_rng(1).normal(size=_NUM_ROWS)
    # They add up to 1, and their noise makes a minibatch test read a few hundred of them.
    rows = 1 / _NUM_ROWS + (rows - rows.mean()) * 7e-4
    log_ratio = float(rows.sum())
    posterior = Posterior(_weigh, rows.astype(jnp.result_type(float)))
    run = sample(posterior, MetropolisHastings(_Toggle(), rule), init=0.0, num_samples=2500, num_warmup=0, rng_key=1)
    before = np.concatenate([np.zeros((run.num_chains, 1)), run.samples[:, :-1]], axis=1)
    texts, worst = [], 0.0
    for start, ratio in ((0, log_ratio), (1, -log_ratio)):
        accepted = run.stats["accepted"][before == start]
        chance = float(rule.promise.formula.probability(ratio))
        # A chance of one leaves no room for noise, but floating-point ties need not count as failures.
        error = math.sqrt(max(chance * (1 - chance), 1e-6) / accepted.size)
        worst = max(worst, abs(accepted.mean() - chance) / error)
        texts.append(f"{accepted.mean():.4f} (formula {chance:.4f})")
    figure = f"{' and '.join(texts)}, {worst:.1f} standard errors, {run.stats['rows'].mean():,.0f} rows a test"
    return Finding(worst <= _MOST_ERRORS, f"acceptance frequency of {name}", figure)


def _log_normal(mean: Real[Array, ""], row: Real[Array, ""]) -> Real[Array, ""]:
    return -0.5 * (row - mean) ** 2


def _log_prior(mean: Real[Array, ""]) -> Real[Array, ""]:
    return -0.5 * mean**2


def normal_mean(driver: Driver) -> tuple[Run, list[Finding]]:
    """Mean and sd of a conjugate normal posterior, against their closed form."""
    rows = np.random.default_rng(2).normal(0.5, 1.0, 5000)
    temperature = 100.0
    precision = len(rows) / temperature + 1
    mean, sd = float(rows.sum()) / temperature / precision, precision**-0.5
    posterior = Posterior(_log_normal, rows.astype(jnp.result_type(float)), _log_prior, temperature)
    kernel = MetropolisHastings(RandomWalk(2 * sd), MHMinibatch())
    run = sample(posterior, kernel, init=mean, num_samples=2500, num_warmup=500, rng_key=3, driver=driver)
    return run, _against(run, mean, sd)


def chosen_by_itself() -> list[Finding]:
    """Mean and sd of a logistic regression on a constant, sampled by `tm.sample(posterior)`, against quadrature."""
    y = (np.random.default_rng(4).random(_NUM_ROWS) < 0.3).astype(np.float32)
    with contextlib.redirect_stdout(io.StringIO()):
        run = sample(logistic_regression(np.ones((len(y), 1), np.float32), y), num_samples=2500, num_warmup=500)
    grid = np.linspace(-1.2, -0.5, 20_001)  # some twenty standard deviations on either side
    log_density = float(y.sum()) * grid - len(y) * np.logaddexp(0, grid) - grid**2 / 2
    weights = np.exp(log_density - log_density.max())
    mean = np.average(grid, weights=weights)
    return _against(run, float(mean), float(np.sqrt(np.average((grid - mean) ** 2, weights=weights))))


def _against(run: Run, mean: float, sd: float) -> list[Finding]:
    line, findings = run.summary().table.iloc[0], []
    rule = type(run.kernel.rule).__name__  # pyright: ignore[reportAttributeAccessIssue]
    for statistic, expected, error in (("mean", mean, "mcse_mean"), ("sd", sd, "mcse_sd")):
        errors = abs(line[statistic] - expected) / line[error]
        figure = f"{line[statistic]:.4f} (exactly {expected:.4f}), {errors:.1f} Monte Carlo errors"
        findings.append(Finding(bool(errors <= _MOST_ERRORS), f"posterior {statistic} with {rule}", figure))
    return findings


def same_draws(first: Run, second: Run) -> Finding:
    """The chains are the same, bit for bit, whether they are moved one by one or together."""
    differing = int((np.asarray(first.samples) != np.asarray(second.samples)).sum())
    figure = f"{differing} of {np.asarray(first.samples).size:,} draws differ"
    return Finding(differing == 0, "chains one by one and together, bit for bit", figure)
