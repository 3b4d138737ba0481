"""`tallmc report`: a run on disk, in a table and a page."""

import importlib
import sys
from pathlib import Path

from rich.console import Console

from tallmc.diagnostics.report import write_report
from tallmc.run import load


def run_report(path: Path, output: Path, module: str | None, console: Console) -> None:
    """Prints a summary and writes a report.

    Args:
        path: Of the store.
        output: Of the report.
        module: To import first, or None.
        console: Where to print.
    """
    if not output.parent.is_dir():
        raise ValueError(f"there is no folder {output.parent} to write {output.name} to")
    if module is not None:
        sys.path.insert(0, "")
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ValueError(f"--module {module} cannot be imported: {error}") from error
    run = load(path)
    console.print(f"{run.num_draws:,} draws of each of {run.num_chains} chains\n", highlight=False)
    console.print(str(run.summary()), markup=False, highlight=False, soft_wrap=True)
    write_report({path.name: run}, output, title=f"Posterior of {path.name}")
    console.print(f"\nReport: {output}", markup=False, highlight=False, soft_wrap=True)
