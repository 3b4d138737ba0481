"""`tallmc sample`: from a file of rows to draws on disk and a report."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from tallmc import models
from tallmc.bridges.noise import noise_left
from tallmc.commands.model_names import ModelName
from tallmc.commands.table import Table, read_table
from tallmc.diagnostics.report import write_report
from tallmc.posterior import Posterior
from tallmc.run import Run
from tallmc.setup import sample


@dataclasses.dataclass(frozen=True)
class SampleSettings:
    """What `tallmc sample` is asked.

    Args:
        source: File of rows.
        model: Which regression.
        target: Column of outcomes.
        out: Where to write the run.
        columns: Columns to use; none means all but the target.
        intercept: Whether to add a column of ones.
        prior_precision: Of the coefficients.
        draws: Of each chain.
        warmup: Before those.
        chains: Independent chains.
        seed: Of the chains.
        report: Where to write the report; None: beside the run.
    """

    source: Path
    model: ModelName
    target: str
    out: Path
    columns: tuple[str, ...] = ()
    intercept: bool = True
    prior_precision: float = 1.0
    draws: int = 1000
    warmup: int = 1000
    chains: int = 4
    seed: int = 0
    report: Path | None = None


def run_sample(settings: SampleSettings, console: Console) -> None:
    """The command `tallmc sample`: reads, samples, saves, reports."""
    report = settings.report or settings.out.with_suffix(".html")
    _check_places(settings, report)
    table = read_table(settings.source, settings.target, settings.columns)
    _check_outcomes(settings.model, settings.target, table.y)
    if settings.intercept:
        ones = np.ones((len(table.X), 1), table.X.dtype)
        table = table._replace(X=np.hstack([ones, table.X]), names=("intercept", *table.names))
    console.print(
        f"{settings.model.value} regression of {settings.target} on {len(table.names)} columns, {len(table.y):,} rows",
        markup=False,
    )
    run = sample(
        _MODELS[settings.model](table, settings.prior_precision),
        num_samples=settings.draws,
        num_warmup=settings.warmup,
        num_chains=settings.chains,
        rng_key=settings.seed,
    )
    run.save(settings.out)
    _print(run, table.names, console)
    console.print(f"Run: {settings.out}", markup=False, soft_wrap=True)
    _report(run, report, settings, console)


def _linear(table: Table, precision: float) -> Posterior:
    return models.linear_regression(table.X, table.y, noise_left(table.X, table.y), precision)


def _robust(table: Table, precision: float) -> Posterior:
    scale = noise_left(table.X, table.y, robust=True)
    return models.robust_regression(table.X, table.y, scale, prior_precision=precision)


_MODELS: dict[ModelName, Callable[[Table, float], Posterior]] = {
    ModelName.LOGISTIC: lambda table, precision: models.logistic_regression(table.X, table.y, precision),
    ModelName.PROBIT: lambda table, precision: models.probit_regression(table.X, table.y, precision),
    ModelName.LINEAR: _linear,
    ModelName.ROBUST: _robust,
    ModelName.POISSON: lambda table, precision: models.poisson_regression(
        table.X, table.y, precision, link=models.LogLink()
    ),
}


def _check_places(settings: SampleSettings, report: Path) -> None:
    """Finds out before the work, not after it, whether its results can be written."""
    for what, path in (("the run", settings.out), ("the report", report)):
        if not path.parent.is_dir():
            raise ValueError(f"cannot write {what} to {path}; name a place in a directory that exists")
    if settings.out.is_file():
        raise ValueError(
            f"cannot write the run to {settings.out}, which is a file; a run is a folder, such as run.zarr"
        )
    if report.is_dir():
        raise ValueError(f"cannot write the report to {report}, which is a directory; name a file, such as run.html")


def _check_outcomes(model: ModelName, target: str, y: np.ndarray) -> None:
    """What the models themselves say of `y`, by the name that it has in the file."""
    if model in (ModelName.LOGISTIC, ModelName.PROBIT) and not np.isin(y, (0, 1)).all():
        raise ValueError(f"column {target!r} must hold only 0 and 1 (or true and false) for --model {model}; recode it")
    if model is ModelName.POISSON and not ((y >= 0) & (y == np.round(y))).all():
        raise ValueError(f"column {target!r} must hold counts, 0, 1, 2 and so on, for --model {model}")


def _print(run: Run, names: tuple[str, ...], console: Console) -> None:
    """The summary, with the names that the columns have in the file."""
    summary = run.summary()
    table: Any = summary.table.set_axis(list(names), axis=0)
    console.print(str(dataclasses.replace(summary, table=table)), markup=False, highlight=False, soft_wrap=True)


def _report(run: Run, path: Path, settings: SampleSettings, console: Console) -> None:
    title = f"{settings.model.value.capitalize()} regression of {settings.target}, {settings.source.name}"
    write_report({settings.target: run}, path, title)
    console.print(f"Report: {path}", markup=False, soft_wrap=True)
