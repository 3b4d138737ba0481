"""What a person at a terminal sees of a search."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from tallmc.console.displays import display

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
    place = display("optimising", num_rows, stays=True, console=console)

    def update(iterations: int, rows: int, distance: float) -> None:
        note = f"rows, iteration {iterations}"
        if np.isfinite(distance):
            note += f"  {distance:.1g} standard deviations to go"
        place.show("optimising", rows, num_rows, note)

    try:
        yield update
    finally:
        place.close()
