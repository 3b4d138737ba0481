"""Where progress is shown: a bar at a terminal, one in a notebook, or a line now and then in a log."""

import abc
import html
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # else where something is drawn: rich takes a tenth of a second to load
    import rich.console

# Seconds between lines of a log. What takes less than that leaves none.
EVERY = 5.0
_NOTEBOOK_EVERY = 0.25  # seconds: browsers are slow, and outputs of a notebook are kept


class Display(abc.ABC):
    """Shows how far a piece of work is."""

    def due(self) -> bool:
        """Whether something would be shown now, so that nobody works out what it says in vain."""
        return True

    @abc.abstractmethod
    def show(self, what: str, done: int, total: int | None, note: str) -> None:
        """Tells how far it is.

        Args:
            what: Is done, in a word or two.
            done: Parts of the work.
            total: Of the parts; None if it is not known.
            note: What else there is to say.
        """

    def close(self) -> None:
        """Leaves no more than a reader wants to see afterwards."""
        return


class LogLines(Display):
    """A line every few seconds, as batch jobs and logs want them.

    Args:
        every: Seconds from one to the next; the first comes so long after the first call.
        clock: Tells the time in seconds.
        write: Takes a line; standard error if left out.

    Example:
        >>> times = iter([0.0, 3.0, 6.0])
        >>> lines = LogLines(clock=lambda: next(times), write=print)
        >>> for done in (0, 300, 600):
        ...     lines.show("sampling", done, 1000, "accepted 0.98")
        tallmc: sampling 600 of 1,000 (60 %), accepted 0.98; 6 s, about 4 s to go
    """

    def __init__(
        self,
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[str], object] | None = None,
    ):
        self.every, self.clock = every, clock
        self.write = write or (lambda line: print(line, file=sys.stderr, flush=True))
        self._began: float | None = None
        self._last, self._at_first = 0.0, 0

    def due(self) -> bool:
        """Not more often than every few seconds; the first call only starts the clock."""
        if self._began is None:
            self._began = self._last = self.clock()
            return False
        return self.clock() - self._last >= self.every

    def show(self, what: str, done: int, total: int | None, note: str) -> None:
        """Writes a line, if it is time for one."""
        if self._began is None:
            self._began = self._last = self.clock()
            self._at_first = done
            return
        now = self.clock()
        if now - self._last < self.every:
            return
        self._last, spent = now, now - self._began
        far = f" {done:,.0f} of {total:,.0f} ({100 * done / total:.0f} %)" if total else ""
        moved = done - self._at_first
        left = f", about {spent * (total - done) / moved:,.0f} s to go" if total and moved > 0 and done < total else ""
        self.write(f"tallmc: {what}{far}{', ' + note if note else ''}; {spent:,.0f} s{left}")


class NotebookBar(Display):
    """A bar below a cell, which needs no widgets.

    Args:
        stays: Whether it is to be seen when the work is done.
        publish: `publish(bundle)` shows a bundle of HTML and text, and gives a function that replaces it by another.
    """

    def __init__(self, *, stays: bool, publish: Callable[[dict[str, str]], Callable[[dict[str, str]], object]]):
        self.stays, self._publish = stays, publish
        self._update: Callable[[dict[str, str]], object] | None = None
        self._began, self._shown = time.monotonic(), 0.0
        self._pending: dict[str, str] | None = None

    def show(self, what: str, done: int, total: int | None, note: str) -> None:
        """Draws the bar anew, though not more often than a browser can follow."""
        now = time.monotonic()
        far = f"{done:,.0f} of {total:,.0f}" if total else ""
        text = "  ".join(part for part in (what.strip(), far, note, f"{now - self._began:.0f} s") if part)
        limits = f"value='{done:.0f}' max='{total:.0f}'" if total else ""
        drawn = f"<progress {limits} style='width: 16em'></progress> <small>{html.escape(text)}</small>"
        self._pending = {"text/html": drawn, "text/plain": text}
        if self._update is None or now - self._shown > _NOTEBOOK_EVERY:
            self._flush(now)

    def close(self) -> None:
        """Shows the last state, or nothing any more."""
        if self.stays and self._pending is not None:
            self._flush(time.monotonic())
        elif self._update is not None:
            self._update({"text/html": "", "text/plain": ""})

    def _flush(self, now: float) -> None:
        assert self._pending is not None
        if self._update is None:
            self._update = self._publish(self._pending)
        else:
            self._update(self._pending)
        self._pending, self._shown = None, now


class TerminalBar(Display):
    """Rich's bar.

    Args:
        total: Parts of the work; None if they are not known.
        stays: Whether it is to be seen when the work is done.
        console: Where; standard error if left out.
    """

    def __init__(self, total: int | None, *, stays: bool, console: "rich.console.Console | None" = None):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns: tuple[Any, ...] = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[far]}"),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            *((TextColumn("left"), TimeRemainingColumn()) if stays else ()),
        )
        self._progress = Progress(*columns, console=console or Console(stderr=True), transient=not stays)
        self._progress.start()
        self._task = self._progress.add_task("compiling" if stays else "", total=total, note="", far="")

    def show(self, what: str, done: int, total: int | None, note: str) -> None:
        """Moves the bar."""
        far = f"{done:,} of {total:,}" if total else ""
        self._progress.update(self._task, completed=done, total=total, description=what, note=note, far=far)

    def close(self) -> None:
        """Stops drawing."""
        self._progress.stop()


def is_terminal() -> bool:
    """Whether errors go to a terminal."""
    from rich.console import Console

    return Console(stderr=True).is_terminal


def in_notebook() -> bool:
    """Whether this runs in a kernel of Jupyter, as notebooks of all kinds do, and not in a terminal's IPython."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def publish_in_notebook(bundle: dict[str, str]) -> Callable[[dict[str, str]], object]:
    """Shows HTML and text below the cell that runs, and gives a function that replaces them."""
    handle = sys.modules["IPython"].display.display(bundle, raw=True, display_id=True)
    return lambda other: handle.update(other, raw=True)


def display(what: str, total: int | None, *, stays: bool, console: "rich.console.Console | None" = None) -> Display:
    """The display that suits the place.

    Args:
        what: Is done, if that is known already.
        total: Parts of it, if that is known.
        stays: Whether a bar stays where it is when the work is done.
        console: A console to draw on in any case.
    """
    if console is None and in_notebook():
        return NotebookBar(stays=stays, publish=publish_in_notebook)
    if console is not None or is_terminal():
        bar = TerminalBar(total, stays=stays, console=console)
        if what:
            bar.show(what, 0, total, "")
        return bar
    return LogLines()
