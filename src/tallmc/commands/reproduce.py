"""`tallmc reproduce`: the experiments of the papers, run again and put beside what was printed."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tallmc.reproduce import Experiment, Result, experiment_named, experiments, reproduce
from tallmc.reproduce.folder import DataFolder
from tallmc.reproduce.page import write_page

_STYLES = {(True, True): "green", (False, True): "yellow", (False, False): "bold red"}


@dataclasses.dataclass(frozen=True)
class ReproduceSettings:
    """What `tallmc reproduce` is asked.

    Args:
        names: Experiments; none, and not `all_of_them`: print the list.
        all_of_them: Run every one.
        quick: The small sizes.
        again: Measure again what an earlier run kept.
        data: Folder of public data; None: the one that TALLMC_DATA names.
        out: Folder for numbers, draws and pictures.
        report: Where to write a page of what was run; None: nowhere.
    """

    names: Sequence[str] = ()
    all_of_them: bool = False
    quick: bool = False
    again: bool = False
    data: Path | None = None
    out: Path = Path("tallmc-reproduced")
    report: Path | None = None


def run_reproduce(settings: ReproduceSettings, console: Console) -> bool:
    """The command `tallmc reproduce`; whether every line holds or differs for a reason that is known."""
    chosen = _chosen(settings)
    _check_report(settings, chosen)
    if not chosen:
        _print_list(console)
        return True

    def say(text: str) -> None:
        console.print(text, style="dim", markup=False, highlight=False)

    data = DataFolder.of(settings.data, say)
    results = []
    for one in chosen:
        console.print(f"[bold]{escape(one.name)}[/bold]: {escape(one.title)} ({escape(one.paper)})", highlight=False)
        result = reproduce(one, settings.out, data, quick=settings.quick, again=settings.again, say=say)
        _print_result(result, console)
        results.append(result)
    if settings.report is not None:
        path = write_page(results, settings.report)
        console.print(f"Report: {path}", markup=False, soft_wrap=True)
    return all(result.understood for result in results)


def _chosen(settings: ReproduceSettings) -> list[Experiment]:
    if settings.all_of_them and settings.names:
        raise ValueError("name experiments or pass --all, not both")
    if settings.all_of_them:
        return list(experiments().values())
    return [experiment_named(name) for name in settings.names]


def _check_report(settings: ReproduceSettings, chosen: Sequence[Experiment]) -> None:
    """Finds out before the work, not after it, whether the page can be written."""
    if settings.out.exists() and not settings.out.is_dir():
        raise ValueError(f"cannot write into {settings.out}; name a folder by --out")
    if settings.report is None:
        return
    if not chosen:
        raise ValueError("--report needs an experiment, or --all")
    if not settings.report.parent.is_dir() or settings.report.is_dir():
        raise ValueError(f"cannot write the report to {settings.report}; name a file in a directory that exists")


def _print_list(out: Console) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("name", "what", "paper", "where"):
        table.add_column(heading, no_wrap=heading == "name")
    for one in experiments().values():
        table.add_row(*(escape(text) for text in (one.name, one.title, one.paper, one.place)))
    out.print(table)
    out.print("\ntallmc reproduce NAME runs one, with --quick in a small size; --all runs every one.", highlight=False)


def _print_result(result: Result, out: Console) -> None:
    table = Table()
    table.add_column("figure")
    for heading in ("paper", "ours", "tolerance"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for line in result.lines:
        style = _STYLES[line.holds, line.understood]
        cells = (line.label, line.paper, line.ours, line.tolerance)
        table.add_row(*(escape(text) for text in cells), f"[{style}]{line.verdict}[/{style}]")
    out.print(table)
    reasons: dict[str, list[str]] = {}
    for line in result.lines:
        if line.reason:
            reasons.setdefault(line.reason, []).append(line.label)
    for reason, labels in reasons.items():
        which = labels[0] if len(labels) == 1 else f"{labels[0]} and {len(labels) - 1} more"
        out.print(f"differs: {which}: {reason}", markup=False, highlight=False)
    for note in result.notes:
        out.print(note, markup=False, highlight=False)
    out.print(f"{result.count}; {result.duration}.\n", markup=False, highlight=False)
