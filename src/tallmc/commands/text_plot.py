"""Draws a curve as text, for commands that print to a terminal."""

import math
from collections.abc import Sequence

import numpy as np
from rich.text import Text

WIDTH, HEIGHT = 44, 9  # in characters
_MOST_DECADES = 6
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])  # of a braille character


def text_plot(
    title: str,
    x: np.ndarray,
    y: np.ndarray,
    marks: Sequence[tuple[float, float, str]] = (),
    *,
    log: bool = False,
    plain: bool = False,
) -> Text:
    """Draws a curve with braille characters, which have 2 by 4 dots each.

    Args:
        title: Printed above.
        x: Evenly spaced.
        y: One value for each of `x`.
        marks: Points and the characters that they get.
        log: Whether the vertical axis is logarithmic; else it goes from 0 to 1.
        plain: Do with ASCII characters.

    Returns:
        Lines of equal length.
    """
    low, high = decades(y) if log else (0.0, 1.0)

    def line_of(value: float) -> int:
        """Lines of dots from the top."""
        height = math.log10(max(value, 1e-300)) if log else value
        return round((high - height) / (high - low) * (4 * HEIGHT - 1))

    dots = np.zeros((4 * HEIGHT, 2 * WIDTH), bool)
    before = None
    for column, value in enumerate(np.interp(np.linspace(x[0], x[-1], 2 * WIDTH), x, y)):
        line = line_of(float(value))
        # Fills up steep pieces; what is below the axis is cut off.
        first, last = sorted((line, line if before is None else before + (line > before) - (line < before)))
        dots[first : last + 1, column] = True
        before = line
    cells = np.einsum("lick,ik->lc", dots.reshape(HEIGHT, 4, WIDTH, 2), _DOTS)
    characters = [["*" if plain and cell else chr(0x2800 + cell) if cell else " " for cell in line] for line in cells]
    for place, value, symbol in marks:
        column = round((min(place, x[-1]) - x[0]) / (x[-1] - x[0]) * (WIDTH - 1))
        if line_of(value) < 4 * HEIGHT:
            characters[line_of(value) // 4][column] = symbol
    return _framed(title, characters, (low, high), (x[0], x[-1]), log=log, plain=plain)


def decades(y: np.ndarray) -> tuple[float, float]:
    """Powers of ten around all values, or the upper ones if there are many."""
    high = math.ceil(math.log10(np.max(y)))
    low = math.floor(math.log10(max(np.min(y), 1e-300)))
    return float(min(max(low, high - _MOST_DECADES), high - 1)), float(high)


def _framed(
    title: str,
    characters: list[list[str]],
    vertical: tuple[float, float],
    horizontal: tuple[float, float],
    *,
    log: bool,
    plain: bool,
) -> Text:
    """Adds title, axes and their labels."""
    low, high = vertical
    labels = {0: high, HEIGHT // 2: (low + high) / 2, HEIGHT - 1: low}
    side, corner, bottom = "|+-" if plain else "│└─"
    lines = [f"{'':7}{title}"]
    for i, line in enumerate(characters):
        label = f"{10 ** labels[i] if log else labels[i]:.1g}" if i in labels else ""
        lines.append(f"{label:>6} {side}{''.join(line)}")
    start, end = horizontal
    middle = f"{(start + end) / 2:.3g}".center(WIDTH - 8)
    lines += [f"{'':7}{corner}{bottom * WIDTH}", f"{'':8}{f'{start:.3g}':<4}{middle}{f'{end:.3g}':>4}"]
    return Text("\n".join(line.ljust(WIDTH + 8) for line in lines), no_wrap=True)
