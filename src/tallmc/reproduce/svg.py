"""Pictures as SVG, written by hand: no plotting library is needed, and they read in light and dark."""

import dataclasses
import enum
import html
import itertools
import math
from collections.abc import Sequence

_WIDTH, _HEIGHT = 560.0, 320.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 12.0, 34.0, 46.0
_STYLE = (
    ".tallmc-plot{--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#b07d00;--c5:#56b4e9;"
    "--ink:#1f2328;--soft:#57606a;--line:#d8dee4;font:12px system-ui,sans-serif;fill:var(--ink)}"
    "@media (prefers-color-scheme:dark){.tallmc-plot{--c0:#4ba3e3;--c1:#ff8a4c;--c2:#2ec79a;--c4:#e6b422;"
    "--ink:#e6edf3;--soft:#9da7b1;--line:#373e47}}"
    "@media print{.tallmc-plot{--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c4:#b07d00;--ink:#1f2328;--soft:#57606a;"
    "--line:#d8dee4}}"
)
_NUM_COLOURS = 6


class Mark(enum.Enum):
    """How a series is drawn."""

    LINE = "line"
    DASHED = "dashed line"
    POINTS = "points"
    BARS = "bars"


@dataclasses.dataclass(frozen=True)
class Series:
    """Points of one colour.

    Args:
        name: For the legend; empty: none.
        x: Places.
        y: Heights.
        mark: How it is drawn.
        colour: Number of its colour, from 0 on.
    """

    name: str
    x: Sequence[float | int]
    y: Sequence[float | int]
    mark: Mark = Mark.LINE
    colour: int = 0


@dataclasses.dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    log: bool
    first: float  # of the pixels
    last: float

    def __call__(self, value: float) -> float:
        low, high, value = (_flat(part, self.log) for part in (self.low, self.high, value))
        share = (value - low) / (high - low)
        return self.first + min(max(share, -0.05), 1.05) * (self.last - self.first)

    def ticks(self) -> list[float]:
        if not self.log:
            return _round_numbers(self.low, self.high)
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        if last - first < 1:
            return _round_numbers(self.low, self.high)
        step = max(1, (last - first + 5) // 6)
        return [10.0**power for power in range(first, last + 1, step)]


def plot(
    title: str,
    series: Sequence[Series],
    x: str,
    y: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    limits: tuple[float, float] | None = None,
) -> str:
    """A picture of several series on common axes.

    Args:
        title: Above it.
        series: What to draw; points that are not finite, or not positive on a logarithmic axis, are left out.
        x: Label of the horizontal axis.
        y: Label of the vertical axis.
        log_x: Whether the horizontal axis is logarithmic.
        log_y: Whether the vertical one is.
        limits: Of the vertical axis; None: what the points need.

    Returns:
        SVG text that stands alone.

    Example:
        >>> plot("a title", [Series("f", [0, 1, 2], [0, 1, 4])], "x", "f(x)").startswith("<svg")
        True
    """
    kept = [_drawable(one, log_x=log_x, log_y=log_y) for one in series]
    horizontal = _axis([value for one in kept for value in one.x], log_x, _LEFT, _WIDTH - _RIGHT)
    heights = list(limits or ()) or [value for one in kept for value in one.y]
    if any(one.mark is Mark.BARS for one in kept) and not log_y:
        heights.append(0.0)
    rows = _legend_rows(kept)
    top = _TOP + 16 * rows
    vertical = _axis(heights, log_y, _HEIGHT - _BOTTOM, top)
    body = [
        f"<text x='{_LEFT}' y='18' font-weight='600'>{html.escape(title)}</text>",
        *_grid(horizontal, vertical, x, y),
        *(_drawn(one, horizontal, vertical) for one in kept if one.x),
        *_legend(kept),
    ]
    return (
        f"<svg class='tallmc-plot' xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH:g} {_HEIGHT:g}' role='img' "
        f"aria-label='{html.escape(title, quote=True)}'><style>{_STYLE}</style>{''.join(body)}</svg>"
    )


def _drawable(one: Series, *, log_x: bool, log_y: bool) -> Series:
    pairs = [
        (float(a), float(b))
        for a, b in zip(one.x, one.y, strict=True)
        if math.isfinite(a) and math.isfinite(b) and (a > 0 or not log_x) and (b > 0 or not log_y)
    ]
    return dataclasses.replace(one, x=[a for a, _ in pairs], y=[b for _, b in pairs])


def _axis(values: Sequence[float], log: bool, first: float, last: float) -> _Axis:
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    if log:
        if high <= low * 1.01:
            low, high = low / 2, high * 2
        room = (high / low) ** 0.04
        return _Axis(low / room, high * room, True, first, last)
    if high - low <= 1e-12 * max(1.0, abs(high)):
        low, high = low - 0.5, high + 0.5
    room = 0.04 * (high - low)
    return _Axis(low - (room if low else 0), high + room, False, first, last)


def _flat(value: float, log: bool) -> float:
    return math.log10(max(value, 1e-300)) if log else value


def _round_numbers(low: float, high: float) -> list[float]:
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = next(step * factor for factor in (1, 2, 2.5, 5, 10) if (high - low) / (step * factor) <= 6)
    return [step * k for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _grid(horizontal: _Axis, vertical: _Axis, x: str, y: str) -> list[str]:
    bottom, top, right = vertical.first, vertical.last, _WIDTH - _RIGHT
    parts = []
    for tick in vertical.ticks():
        at = vertical(tick)
        parts.append(f"<path d='M{_LEFT} {at:.1f}H{right}' stroke='var(--line)' fill='none'/>")
        parts.append(_text(_LEFT - 6, at + 4, _number(tick), "end"))
    for tick in horizontal.ticks():
        at = horizontal(tick)
        parts.append(f"<path d='M{at:.1f} {bottom}v4' stroke='var(--soft)' fill='none'/>")
        parts.append(_text(at, bottom + 17, _number(tick), "middle"))
    parts.append(f"<path d='M{_LEFT} {top}V{bottom}H{right}' stroke='var(--soft)' fill='none'/>")
    parts.append(_text((_LEFT + right) / 2, _HEIGHT - 8, x, "middle"))
    middle = (top + bottom) / 2
    parts.append(f"<g transform='translate(14 {middle:.0f}) rotate(-90)'>{_text(0.0, 0.0, y, 'middle')}</g>")
    return parts


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' fill='var(--soft)'>{html.escape(text)}</text>"


def _number(value: float) -> str:
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        mantissa, _, exponent = f"{value:.2g}".partition("e")
        return f"{mantissa}e{int(exponent)}" if exponent else mantissa
    return f"{value:,.6g}"


def _drawn(one: Series, horizontal: _Axis, vertical: _Axis) -> str:
    colour = f"var(--c{one.colour % _NUM_COLOURS})"
    points = [(horizontal(a), vertical(b)) for a, b in zip(one.x, one.y, strict=True)]
    if one.mark is Mark.POINTS:
        return "".join(f"<circle cx='{a:.1f}' cy='{b:.1f}' r='3' fill='{colour}'/>" for a, b in points)
    if one.mark is Mark.BARS:
        width = 0.9 * min((b[0] - a[0] for a, b in itertools.pairwise(points)), default=20.0)
        return "".join(
            f"<path d='M{a - width / 2:.1f} {vertical.first}V{b:.1f}h{width:.1f}V{vertical.first}z' fill='{colour}' "
            "fill-opacity='.75'/>"
            for a, b in points
        )
    dashes = " stroke-dasharray='5 4'" if one.mark is Mark.DASHED else ""
    path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
    return f"<path d='{path}' stroke='{colour}' stroke-width='1.8' fill='none' stroke-linejoin='round'{dashes}/>"


def _places(series: Sequence[Series]) -> list[tuple[Series, float, int]]:
    """Each name with its place in the legend: pixels from the left, and the row."""
    placed, at, row = [], float(_LEFT), 0
    for one in series:
        if not one.name:
            continue
        width = 26 + 6.4 * len(one.name)
        if at + width > _WIDTH - _RIGHT and at > _LEFT:
            at, row = float(_LEFT), row + 1
        placed.append((one, at, row))
        at += width + 10
    return placed


def _legend_rows(series: Sequence[Series]) -> int:
    return max((row + 1 for *_, row in _places(series)), default=0)


def _legend(series: Sequence[Series]) -> list[str]:
    parts = []
    for one, at, row in _places(series):
        y, colour = 36.0 + 16 * row, f"var(--c{one.colour % _NUM_COLOURS})"
        dashes = " stroke-dasharray='5 4'" if one.mark is Mark.DASHED else ""
        if one.mark is Mark.POINTS:
            parts.append(f"<circle cx='{at + 9:.0f}' cy='{y - 4}' r='3' fill='{colour}'/>")
        else:
            parts.append(f"<path d='M{at:.0f} {y - 4}h18' stroke='{colour}' stroke-width='2.4'{dashes}/>")
        parts.append(_text(at + 23, y, one.name, "start"))
    return parts
