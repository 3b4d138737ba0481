"""`tallmc demo`: what `tm.sample` chooses against tests on all rows, on the same rows and the same machine."""

import dataclasses
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from tallmc.acceptance import Exact
from tallmc.commands.stopwatch import Stopwatch
from tallmc.diagnostics.report import write_report
from tallmc.kernel import Kernel
from tallmc.metropolis import MetropolisHastings
from tallmc.models import generate_logistic, logistic_regression
from tallmc.posterior import Posterior
from tallmc.run import Run
from tallmc.run.drivers import pick_driver
from tallmc.setup import sample

_PILOT_DRAWS = 20
_ROUGH = 200  # below so many effective samples, their number itself is known only roughly


@dataclasses.dataclass(frozen=True)
class DemoSettings:
    """What `tallmc demo` runs.

    Args:
        rows: Rows to generate.
        columns: Columns, the intercept included.
        temperature: Divides the log likelihood.
        draws: Draws of each chain, and the most of each chain that reads all rows.
        warmup: Draws before those, to tune the step size.
        chains: Chains of either run.
        exact_seconds: Time for the run that reads all rows.
        seed: Of rows and chains.
        report: Where to write the report; None: nowhere.
    """

    rows: int = 1_000_000
    columns: int = 10
    temperature: float = 1.0
    draws: int = 20_000
    warmup: int = 1_000
    chains: int = 4
    exact_seconds: float = 25.0
    seed: int = 0
    report: Path | None = None


@dataclasses.dataclass(frozen=True)
class TimedRun:
    """A run, its clock, and the seconds that the whole call took."""

    run: Run
    stopwatch: Stopwatch
    whole: float

    @property
    def ess(self) -> float:
        """Effective samples of the median coefficient; the least of ten noisy estimates would be biased."""
        return float(np.median(self.run.summary().table["ess_bulk"]))

    @property
    def seconds(self) -> float:
        """Time the kept draws took, without compilation and warm-up."""
        return self.run.stats["rows"].size / self.stopwatch.steps_per_second


def run_demo(settings: DemoSettings, console: Console) -> None:
    """The command `tallmc demo`: samples by `tm.sample` and by tests on all rows, prints both and writes a report."""
    report = _writable_report(settings.report)
    X, y, _ = generate_logistic(settings.rows, settings.columns, settings.seed)
    posterior = logistic_regression(X, y, temperature=settings.temperature)
    console.print(
        f"[bold]Logistic regression[/bold]: {settings.rows:,} rows, {settings.columns} columns, temperature "
        f"{settings.temperature:,g}"
    )
    console.print("tm.sample(posterior), which chooses for itself ...")
    chosen = _timed(posterior, None, settings, settings.draws, settings.warmup)
    console.print("The same proposals with tests on all rows (Exact), and no warm-up to pay for ...")
    kernel = _same_proposal(chosen.run)
    everything = _timed(posterior, kernel, settings, _affordable_draws(posterior, kernel, settings), 0)

    _print_estimates(chosen.run, everything.run, console)
    _print_costs(chosen, everything, console)
    _print_verdict(chosen, everything, console)
    if report is not None:
        title = f"Logistic regression on {settings.rows:,} rows: tm.sample against tests on all rows"
        write_report({"tm.sample": chosen.run, "all rows": everything.run}, report, title)
        console.print(f"Report: {report}", soft_wrap=True)


def _writable_report(path: Path | None) -> Path | None:
    """Finds out before the work, not after it, whether a report can be written."""
    if path is None:
        return None
    if not path.parent.is_dir() or path.is_dir():
        raise ValueError(f"cannot write the report to {path}; name a file in a directory that exists")
    return path


def _same_proposal(run: Run) -> MetropolisHastings:
    """The steps of a run, as warm-up tuned them in its first chain, tested on all rows."""
    kernel = run.kernel
    assert isinstance(kernel, MetropolisHastings)
    assert run.step_size is not None
    return MetropolisHastings(kernel.proposal.rescaled(jnp.asarray(run.step_size[0])), Exact())


def _timed(posterior: Posterior, kernel: Kernel | None, settings: DemoSettings, draws: int, warmup: int) -> TimedRun:
    stopwatch, started = Stopwatch(pick_driver()), time.perf_counter()
    run = sample(
        posterior,
        kernel,
        num_samples=draws,
        num_warmup=warmup,
        num_chains=settings.chains,
        rng_key=settings.seed,
        driver=stopwatch,
    )
    return TimedRun(run, stopwatch, time.perf_counter() - started)


def _affordable_draws(posterior: Posterior, kernel: Kernel, settings: DemoSettings) -> int:
    """As many draws as fit the time, judged by a short run."""
    pilot = _timed(posterior, kernel, settings, _PILOT_DRAWS, 0)
    affordable = int(settings.exact_seconds * pilot.stopwatch.steps_per_second / settings.chains)
    return min(settings.draws, max(_PILOT_DRAWS, affordable))


def _differences(first: Run, second: Run) -> tuple[np.ndarray, np.ndarray]:
    """Differences of the means and their Monte Carlo errors, in posterior standard deviations."""
    a, b = first.summary().table, second.summary().table
    sd = np.asarray(a["sd"], float)
    error = np.hypot(np.asarray(a["mcse_mean"], float), np.asarray(b["mcse_mean"], float))
    return (np.asarray(a["mean"], float) - np.asarray(b["mean"], float)) / sd, error / sd


def _print_estimates(chosen: Run, everything: Run, console: Console) -> None:
    table = Table(title="Posterior of the coefficients", title_justify="left")
    table.add_column("")
    for name in ("tm.sample", "all rows"):
        for statistic in ("mean", "sd", "ESS"):
            table.add_column(f"{name}\n{statistic}", justify="right")
    table.add_column("difference of means\nin sd, ± its error", justify="right")
    a, b = chosen.summary().table, everything.summary().table
    for i, (difference, error) in enumerate(zip(*_differences(chosen, everything), strict=True)):
        numbers = [
            text
            for line in (a.iloc[i], b.iloc[i])
            for text in (f"{line['mean']:.4f}", f"{line['sd']:.4f}", f"{line['ess_bulk']:,.0f}")
        ]
        table.add_row(str(a.index[i]).replace("position", "coefficient "), *numbers, f"{difference:+.2f} ± {error:.2f}")
    console.print(table, markup=False)


def _print_costs(chosen: TimedRun, everything: TimedRun, console: Console) -> None:
    table = Table(title="What it took", title_justify="left")
    table.add_column("")
    for heading in ("tm.sample", "all rows", "ratio"):
        table.add_column(heading, justify="right")
    both = (chosen, everything)
    costs = [timed.run.summary().costs for timed in both]
    table.add_row("chains, draws of each", *(f"{timed.run.num_chains}, {timed.run.num_draws:,}" for timed in both))
    table.add_row("proposals accepted", *(f"{100 * cost['acceptance']:.0f} %" for cost in costs))
    table.add_row("seconds to compile", *(f"{timed.run.timing['compiling']:.1f}" for timed in both))
    table.add_row("seconds for these draws", *(f"{timed.seconds:.2g}" for timed in both))
    table.add_row("seconds in all, with set-up and audit", *(f"{timed.whole:.0f}" for timed in both))
    table.add_row(
        "passes over the data to set up",
        *(f"{timed.run.setup_rows / timed.run.posterior.num_rows:.1f}" for timed in both),
    )
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


def _print_verdict(chosen: TimedRun, everything: TimedRun, console: Console) -> None:
    steps = chosen.stopwatch.steps_per_second / everything.stopwatch.steps_per_second
    effective = chosen.ess / chosen.seconds / (everything.ess / everything.seconds)
    whole = chosen.ess / chosen.whole / (everything.ess / everything.whole)
    console.print(
        f"[bold]Whole calls[/bold]: {_short(whole)} times as many effective samples a second (median coefficient), "
        "everything counted. The run on all rows was given its steps and has no warm-up and no audit."
    )
    console.print(
        f"[bold]Sampling alone[/bold]: {_short(steps)} times as many steps a second, {_short(effective)} times as many "
        "effective samples a second."
    )
    if everything.ess < _ROUGH:
        console.print(
            f"  The run on all rows had time for only {everything.ess:.0f} effective samples, a number that is itself "
            "a rough estimate: the first ratio is a measurement, the second an indication."
        )
    for name, timed in (("tm.sample", chosen), ("all rows", everything)):
        for note in timed.run.summary().notes:
            console.print(f"  Note on {name}: {note}", markup=False)
    _print_agreement(chosen.run, everything.run, console)


def _print_agreement(chosen: Run, everything: Run, console: Console) -> None:
    from scipy.stats import norm

    differences, errors = _differences(chosen, everything)
    worst = int(np.argmax(np.abs(differences) / errors))
    ratio = abs(differences[worst]) / errors[worst]
    usual = float(norm.ppf((1 + 0.999 ** (1 / len(errors))) / 2))
    agree = "the runs agree" if ratio <= usual else "more than chance gives; try another seed or more draws"
    console.print(
        f"[bold]Agreement[/bold]: the means differ by at most {ratio:.1f} Monte Carlo errors "
        f"({abs(differences[worst]):.2f} ± {errors[worst]:.2f} sd); chance alone keeps the largest of {len(errors)} "
        f"below {usual:.1f} in 999 of 1,000 runs: {agree}."
    )
