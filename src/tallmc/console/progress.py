"""The progress bar, silence where nobody is looking, and Ctrl-C."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tallmc.numerics.watch import watched

if TYPE_CHECKING:  # else where something is drawn: rich takes a tenth of a second to load
    import rich.console

Update = Callable[[int, dict[str, np.ndarray]], None]


def is_watched() -> bool:
    """Whether output goes to a terminal."""
    from rich.console import Console

    return Console(stderr=True).is_terminal


def few(rows: float) -> str:
    """A mean number of rows, with two digits where it is small."""
    return f"{rows:,.0f}" if rows >= 100 else f"{rows:.2g}"


def say(what: str, *, show: bool) -> None:
    """Tells the user what was chosen or done; `progress=False` keeps it quiet."""
    if show:
        print(f"tallmc: {what}.")


@contextlib.contextmanager
def working(what: str, *, show: bool) -> Iterator[None]:
    """Says what takes a while and how far it is, for as long as it does; nothing where nobody is looking."""
    if not (show and is_watched()):
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        with watched(lambda parts, of: progress.update(task, completed=parts, total=of)):
            yield


@contextlib.contextmanager
def progress_bar(
    total: int, num_warmup: int, *, show: bool, console: "rich.console.Console | None" = None
) -> Iterator[Update]:
    """Gives a function `update(finished, recent_stats)` to call between blocks.

    Nothing is drawn if `show` is false.
    """
    if not show:
        yield lambda finished, stats: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console or Console(stderr=True), transient=False) as progress:
        task = progress.add_task("compiling", total=total, note="")

        def update(finished: int, stats: dict[str, np.ndarray]) -> None:
            phase, note = ("warm-up ", "") if finished <= num_warmup else ("sampling", "")
            if stats:
                note = f"accepted {stats['accepted'].mean():.2f}  rows/step {few(stats['rows'].mean())}"
            progress.update(task, completed=finished, description=phase, note=note)

        yield update


@contextlib.contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Turns the first Ctrl-C into a flag, so that a block ends cleanly; a second one interrupts at once."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    pressed = threading.Event()
    previous = signal.getsignal(signal.SIGINT)

    def press(number: int, frame: object) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    signal.signal(signal.SIGINT, press)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, previous)
