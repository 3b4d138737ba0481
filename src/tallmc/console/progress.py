"""The progress bar, silence where nobody is looking, and Ctrl-C."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from tallmc.console.displays import Display, display
from tallmc.numerics.watch import watched

if TYPE_CHECKING:  # else where something is drawn: rich takes a tenth of a second to load
    import rich.console


def few(rows: float) -> str:
    """A mean number of rows, with two digits where it is small."""
    return f"{rows:,.0f}" if rows >= 100 else f"{rows:.2g}"


def say(what: str, *, show: bool) -> None:
    """Tells the user what was chosen or done; `progress=False` keeps it quiet."""
    if show:
        print(f"tallmc: {what}.")


@contextlib.contextmanager
def working(what: str, *, show: bool) -> Iterator[None]:
    """Says what takes a while and how far it is, for as long as it does: a bar, or lines in a log."""
    if not show:
        yield
        return
    place = display(what, None, stays=False)
    try:
        with watched(lambda parts, of: place.show(what, parts, of, "")):
            yield
    finally:
        place.close()


class Bar:
    """How far chains are.

    Args:
        place: Where it is shown; None for nowhere.
        total: Transitions of each chain.
        num_warmup: Of which are warm-up.
    """

    def __init__(self, place: Display | None, total: int, num_warmup: int):
        self.place, self.total, self.num_warmup = place, total, num_warmup

    def due(self) -> bool:
        """Whether a call now would show anything."""
        return self.place is not None and self.place.due()

    def __call__(self, finished: int, stats: dict[str, np.ndarray]) -> None:
        """Shows how many transitions are finished, and what recent ones were like."""
        if self.place is None:
            return
        phase, note = ("warm-up ", "") if finished <= self.num_warmup else ("sampling", "")
        if stats:
            note = f"accepted {stats['accepted'].mean():.2f}  rows/step {few(stats['rows'].mean())}"
        self.place.show(phase, finished, self.total, note)


@contextlib.contextmanager
def progress_bar(
    total: int, num_warmup: int, *, show: bool, console: "rich.console.Console | None" = None
) -> Iterator[Bar]:
    """Gives a `Bar` to call between blocks: one at a terminal or in a notebook, or else lines in a log.

    Nothing is drawn if `show` is false.
    """
    place = display("", total, stays=True, console=console) if show else None
    try:
        yield Bar(place, total, num_warmup)
    finally:
        if place is not None:
            place.close()


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
