"""What a person at a terminal sees of a search."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import rich.console

Update = Callable[[int, int, float], None]


@contextlib.contextmanager
def progress_line(num_rows: int, *, show: bool, console: "rich.console.Console | None" = None) -> Iterator[Update]:
    """Gives a function `update(iterations, rows, distance)`; the bar is the share of rows in use.

    Nothing is drawn if `show` is false.
    """
    if not show:
        yield lambda iterations, rows, distance: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns: tuple[Any, ...] = (
        TextColumn("optimising"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} rows"),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console or Console(stderr=True)) as progress:
        task = progress.add_task("", total=num_rows, note="")

        def update(iterations: int, rows: int, distance: float) -> None:
            note = f"iteration {iterations}"
            if np.isfinite(distance):
                note += f"  {distance:.1g} standard deviations to go"
            progress.update(task, completed=rows, note=note)

        yield update
