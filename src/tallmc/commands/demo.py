"""`tallmc demo`: minibatch tests against exact ones, on the same rows and the same machine."""

import dataclasses
import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import gmean, norm

from tallmc.acceptance import Exact, MHMinibatch
from tallmc.commands.stopwatch import Stopwatch
from tallmc.diagnostics.plots import import_plotting
from tallmc.diagnostics.report import write_report
from tallmc.kernel import AcceptanceRule
from tallmc.metropolis import MetropolisHastings
from tallmc.models import generate_logistic, logistic_regression
from tallmc.posterior import Posterior
from tallmc.proposals import RandomWalk
from tallmc.run import Run, sample
from tallmc.run.drivers import pick_driver

_ROWS_WORTH = 50  # the default temperature makes all rows together worth as many
_PILOT_DRAWS = 20
_ROUGH = 200  # below so many effective samples, their number itself is known only roughly


@dataclasses.dataclass(frozen=True)
class DemoSettings:
    """What `tallmc demo` runs.

    Args:
        rows: Rows to generate.
        columns: Columns, the intercept included.
        temperature: Divides the log likelihood; if left out, all rows together are worth 50.
        draws: Draws of each minibatch chain, and the most of each exact chain.
        warmup: Draws before those, to tune the step size.
        chains: Chains of either run.
        exact_seconds: Time for the exact run.
        seed: Of rows and chains.
        report: Where to write the report; None: nowhere.
    """

    rows: int = 1_000_000
    columns: int = 10
    temperature: float | None = None
    draws: int = 20_000
    warmup: int = 1_000
    chains: int = 4
    exact_seconds: float = 25.0
    seed: int = 0
    report: Path | None = None


@dataclasses.dataclass(frozen=True)
class TimedRun:
    """A run and its clock."""

    run: Run
    stopwatch: Stopwatch

    @property
    def ess(self) -> float:
        """Effective samples of the median coefficient; the least of ten noisy estimates would be biased."""
        return float(np.median(self.run.summary().table["ess_bulk"]))

    @property
    def seconds(self) -> float:
        """Time the kept draws took, without compilation and warm-up."""
        return self.run.stats["rows"].size / self.stopwatch.steps_per_second


def run_demo(settings: DemoSettings, console: Console) -> None:
    """Samples twice, compares, prints and reports."""
    report = _writable_report(settings.report, console)
    X, y, coefficients = generate_logistic(settings.rows, settings.columns, settings.seed)
    temperature = settings.temperature
    if temperature is None:
        temperature = max(1.0, settings.rows / _ROWS_WORTH)
    posterior = logistic_regression(X, y, temperature=temperature)
    console.print(
        f"[bold]Logistic regression[/bold]: {settings.rows:,} rows, {settings.columns} columns, temperature "
        f"{temperature:,g} (a posterior as wide as that of {settings.rows / temperature:,.0f} rows)"
    )
    init = jnp.asarray(coefficients, jnp.result_type(float))
    # A row of a logistic regression holds about 0.2 units of information on each coefficient; the prior adds 1.
    scale = 2.38 / math.sqrt(settings.columns) / math.sqrt(0.2 * settings.rows / temperature + 1)

    console.print("Minibatch tests (MHMinibatch), step size tuned in warm-up ...")
    minibatch = _timed(posterior, MHMinibatch(), scale, init, settings, settings.draws, settings.warmup)
    console.print("Exact tests (Exact), on all rows, with the step size just found and no warm-up to pay for ...")
    scale *= float(gmean(np.asarray(minibatch.run.step_size)))
    exact = _timed(posterior, Exact(), scale, init, settings, _exact_draws(posterior, scale, init, settings), 0)

    _print_estimates(minibatch.run, exact.run, console)
    _print_costs(minibatch, exact, console)
    _print_verdict(minibatch, exact, console)
    if report is not None:
        title = f"Logistic regression on {settings.rows:,} rows: minibatch against exact tests"
        write_report({"minibatch": minibatch.run, "exact": exact.run}, report, title)
        console.print(f"Report: {report}", soft_wrap=True)


def _writable_report(path: Path | None, console: Console) -> Path | None:
    """Finds out before the work, not after it, whether a report can be written."""
    if path is None:
        return None
    try:
        import_plotting()
    except ImportError as error:
        console.print(f"No report will be written: {error}", markup=False)
        return None
    if not path.parent.is_dir() or path.is_dir():
        raise ValueError(f"cannot write the report to {path}; name a file in a directory that exists")
    return path


def _timed(
    posterior: Posterior,
    rule: AcceptanceRule,
    scale: float,
    init: jnp.ndarray,
    settings: DemoSettings,
    draws: int,
    warmup: int,
) -> TimedRun:
    stopwatch = Stopwatch(pick_driver())
    run = sample(
        posterior,
        MetropolisHastings(RandomWalk(scale), rule),
        init=init,
        num_samples=draws,
        num_warmup=warmup,
        num_chains=settings.chains,
        rng_key=settings.seed,
        driver=stopwatch,
    )
    return TimedRun(run, stopwatch)


def _exact_draws(posterior: Posterior, scale: float, init: jnp.ndarray, settings: DemoSettings) -> int:
    """As many draws as fit the time, judged by a short run."""
    pilot = _timed(posterior, Exact(), scale, init, settings, _PILOT_DRAWS, 0)
    affordable = int(settings.exact_seconds * pilot.stopwatch.steps_per_second / settings.chains)
    return min(settings.draws, max(_PILOT_DRAWS, affordable))


def _differences(first: Run, second: Run) -> tuple[np.ndarray, np.ndarray]:
    """Differences of the means and their Monte Carlo errors, in posterior standard deviations."""
    a, b = first.summary().table, second.summary().table
    sd = np.asarray(a["sd"], float)
    error = np.hypot(np.asarray(a["mcse_mean"], float), np.asarray(b["mcse_mean"], float))
    return (np.asarray(a["mean"], float) - np.asarray(b["mean"], float)) / sd, error / sd


def _print_estimates(minibatch: Run, exact: Run, console: Console) -> None:
    table = Table(title="Posterior of the coefficients", title_justify="left")
    table.add_column("")
    for name in ("minibatch", "exact"):
        for statistic in ("mean", "sd", "ESS"):
            table.add_column(f"{name}\n{statistic}", justify="right")
    table.add_column("difference of means\nin sd, ± its error", justify="right")
    a, b = minibatch.summary().table, exact.summary().table
    for i, (difference, error) in enumerate(zip(*_differences(minibatch, exact), strict=True)):
        numbers = [
            text
            for line in (a.iloc[i], b.iloc[i])
            for text in (f"{line['mean']:.3f}", f"{line['sd']:.3f}", f"{line['ess_bulk']:,.0f}")
        ]
        table.add_row(str(a.index[i]).replace("position", "coefficient "), *numbers, f"{difference:+.2f} ± {error:.2f}")
    console.print(table, markup=False)


def _print_costs(minibatch: TimedRun, exact: TimedRun, console: Console) -> None:
    table = Table(title="What it took", title_justify="left")
    table.add_column("")
    for heading in ("minibatch", "exact", "ratio"):
        table.add_column(heading, justify="right")
    both = (minibatch, exact)
    costs = [timed.run.summary().costs for timed in both]
    table.add_row("chains, draws of each", *(f"{timed.run.num_chains}, {timed.run.num_draws:,}" for timed in both))
    table.add_row("proposals accepted", *(f"{100 * cost['acceptance']:.0f} %" for cost in costs))
    table.add_row("seconds to compile (about)", *(f"{timed.stopwatch.compile_seconds:.1f}" for timed in both))
    table.add_row("seconds for these draws", *(f"{timed.seconds:.1f}" for timed in both))
    for label, numbers in (
        ("rows read by a step, mean", [cost["rows_mean"] for cost in costs]),
        ("rows read by these draws", [float(timed.run.stats["rows"].sum(dtype=float)) for timed in both]),
        ("steps a second", [timed.stopwatch.steps_per_second for timed in both]),
        ("effective samples (median)", [timed.ess for timed in both]),
        ("effective samples a second", [timed.ess / timed.seconds for timed in both]),
    ):
        ratio = numbers[0] / numbers[1]
        table.add_row(label, *(_short(number) for number in (*numbers, ratio)))
    console.print(table)


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _print_verdict(minibatch: TimedRun, exact: TimedRun, console: Console) -> None:
    steps = minibatch.stopwatch.steps_per_second / exact.stopwatch.steps_per_second
    effective = minibatch.ess / minibatch.seconds / (exact.ess / exact.seconds)
    console.print(
        f"[bold]Speed[/bold]: {_short(steps)} times as many steps a second, {_short(effective)} times as many "
        "effective samples a second (median coefficient); compilation and warm-up left out."
    )
    if exact.ess < _ROUGH:
        console.print(
            f"  The exact run had time for only {exact.ess:.0f} effective samples, a number that is itself a rough "
            "estimate: the first ratio is a measurement, the second an indication."
        )
    for name, timed in (("minibatch", minibatch), ("exact", exact)):
        for note in timed.run.summary().notes:
            console.print(f"  Note on the {name} run: {note}", markup=False)
    _print_agreement(minibatch.run, exact.run, console)


def _print_agreement(minibatch: Run, exact: Run, console: Console) -> None:
    differences, errors = _differences(minibatch, exact)
    worst = int(np.argmax(np.abs(differences) / errors))
    ratio = abs(differences[worst]) / errors[worst]
    usual = float(norm.ppf((1 + 0.95 ** (1 / len(errors))) / 2))
    agree = "the runs agree" if ratio <= usual else "more than chance usually gives; try another seed or more draws"
    console.print(
        f"[bold]Agreement[/bold]: the means differ by at most {ratio:.1f} Monte Carlo errors "
        f"({abs(differences[worst]):.2f} ± {errors[worst]:.2f} sd); chance alone keeps the largest of {len(errors)} "
        f"below {usual:.1f} in 95 of 100 runs: {agree}."
    )
