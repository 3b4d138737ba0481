"""Pictures of a report as inline SVG: colours come from the page, so that they read in light and in dark.

Densities are ArviZ's. They are drawn here because one small picture for each coordinate
flows into as many columns as a screen has, and needs no plotting library.
"""

import html
import math
import warnings
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Shaped

NUM_COLOURS = 6
MOST_CHAINS = 8  # whose ranks are drawn: more bands would be too thin to read
_BINS = 20  # of ranks: of 1,000 draws some 50 each, so that chance is about an eighth of a bar
_POINTS = 128  # of a density; more cannot be told apart at the width of a panel
_WIDTH, _LEFT, _RIGHT = 280.0, 8.0, 272.0
_BAND = 26.0  # height of a chain's ranks


def density_panel(label: str, draws: Sequence[Shaped[np.ndarray, "_ _"]]) -> str:
    """Kernel densities of one coordinate in several runs.

    Args:
        label: The coordinate.
        draws: One array a run.
    """
    curves = [_density(values.ravel()) for values in draws]
    known = [curve for curve in curves if curve is not None]
    if not known:
        return _svg(label, 150.0, _text(_WIDTH / 2, 80.0, "a single value, or none that is finite", "middle"), label)
    low, high = min(x[0] for x, _ in known), max(x[-1] for x, _ in known)
    top = max(y.max() for _, y in known)
    body = _ticks(low, high, 122.0)
    for number, curve in enumerate(curves):
        if curve is None:
            continue
        across = _LEFT + (curve[0] - low) / (high - low) * (_RIGHT - _LEFT)
        down = 120 - 92 * curve[1] / top
        line = "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(across, down, strict=True))
        colour = f"var(--c{number % NUM_COLOURS})"
        body += f"<path d='M{across[0]:.1f} 120L{line}L{across[-1]:.1f} 120z' class='area' fill='{colour}'/>"
        body += f"<path d='M{line}' class='curve' stroke='{colour}' fill='none'/>"
    return _svg(f"Density of {label}", 142.0, body, label)


def _density(values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    from arviz_stats.base.array import array_stats

    finite = values[np.isfinite(values)]
    if finite.size < 2 or np.ptp(finite) == 0:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # values that hardly differ have a density that is nothing but a spike
        x, y, _ = array_stats.kde(finite, grid_len=_POINTS)
    return (x, y) if np.all(np.isfinite(y)) and y.max() > 0 else None


def rank_panel(label: str, draws: Shaped[np.ndarray, "chain draw"], effective: float, note: str) -> str:
    """Histograms of the ranks of each chain's draws among those of all chains (Vehtari et al., 2021).

    Chains that sample the same distribution have ranks that are uniform: all bars end near the line.

    Args:
        label: The coordinate.
        draws: Of one run.
        effective: How many independent draws all chains are worth; the band that holds 95 % of bars follows from it.
        note: Beside the label.
    """
    from scipy.stats import rankdata  # which takes long to load

    num_chains, num_draws = draws.shape
    ranks = rankdata(draws, axis=None).reshape(draws.shape)
    shown = min(num_chains, MOST_CHAINS)
    each = max(min(effective / num_chains, num_draws), 1.0) if math.isfinite(effective) else 1.0
    spread = 1.96 * math.sqrt((_BINS - 1) / each)  # of a bar, in units of the expected height
    width, body = (_RIGHT - _LEFT) / _BINS, ""
    for chain in range(shown):
        bottom = 22 + (chain + 1) * (_BAND + 4)
        counts = np.histogram(ranks[chain], _BINS, (0.5, num_chains * num_draws + 0.5))[0]
        heights = np.minimum(counts * _BINS / num_draws / 2, 1) * _BAND
        low, high = (_BAND / 2 * min(max(1 + sign * spread, 0), 2) for sign in (-1, 1))
        body += f"<rect class='band' x='{_LEFT}' y='{bottom - high:.1f}' width='{_RIGHT - _LEFT}' "
        body += f"height='{high - low:.1f}'/>"
        bars = "".join(
            f"M{_LEFT + k * width + 1:.1f} {bottom:g}v{-height:.1f}h{width - 2:.1f}v{height:.1f}z"
            for k, height in enumerate(heights)
        )
        body += f"<path d='{bars}' fill='var(--c{chain % NUM_COLOURS})'/>"
        body += f"<path class='expected' d='M{_LEFT} {bottom - _BAND / 2:g}H{_RIGHT}'/>"
    return _svg(f"Ranks of {label} in each chain", 28 + shown * (_BAND + 4), body, label, note)


def rows_panel(
    names: Sequence[str], heights: Sequence[Float[np.ndarray, " bin"]], edges: Float[np.ndarray, " edge"], most: int
) -> str:
    """How many tests read how many rows, both on logarithmic axes; zero has a place on the left.

    Args:
        names: Of the runs.
        heights: Tests a row, for each run one number a bin.
        edges: Of the bins, the first below zero and the second above it.
        most: How many rows there are.
    """
    left, right, bottom, top = 44.0, 412.0, 180.0, 28.0
    positive = np.concatenate([values[values > 0] for values in heights])
    low, high = math.log10(positive.min()) - 0.3, math.log10(positive.max()) + 0.1
    first, last = math.log10(edges[1]), math.log10(max(edges[-1], most))
    zero = left + 26

    def across(rows: float) -> float:
        return zero + (math.log10(rows) - first) / (last - first) * (right - zero) if rows > edges[1] else zero

    def down(height: float) -> float:
        return bottom - (math.log10(height) - low) / (high - low) * (bottom - top) if height > 0 else bottom

    body = "".join(
        f"<path class='grid' d='M{left} {down(10.0**power):.1f}H{right}'/>"
        + _text(left - 5, down(10.0**power) + 4, _short(10.0**power), "end")
        for power in _powers(low, high)
    )
    for number, values in enumerate(heights):
        line = f"M{left} {bottom}"
        for start, end, height in zip(edges[:-1], edges[1:], values, strict=True):
            line += f"L{across(start) if start > 0 else left:.1f} {down(height):.1f}H{across(end):.1f}"
        colour = f"var(--c{number % NUM_COLOURS})"
        body += f"<path class='curve' d='{line}V{bottom}z' stroke='{colour}' fill='{colour}'/>"
    body += _text(left + 13, bottom + 15, "0", "middle")
    body += "".join(
        _text(across(10.0**power), bottom + 15, _short(10.0**power), "middle") for power in _powers(first, last)
    )
    body += f"<path class='expected' d='M{across(float(most)):.1f} {top}V{bottom}'/>"
    body += _text((left + right) / 2, bottom + 34, "rows read by one test; dotted: all rows", "middle")
    return _svg(f"Rows read by each test of {', '.join(names)}", 224.0, body, "tests a row", width=420.0)


def _powers(low: float, high: float) -> range:
    """Powers of ten on a logarithmic axis: at most five or so."""
    first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    return range(first, last + 1, max(1, math.ceil((last - first) / 5)))


def _short(value: float) -> str:
    """A power of ten in few letters.

    Example:
        >>> [_short(value) for value in (0.001, 1.0, 10_000.0, 1e7)]
        ['0.001', '1', '10k', '10M']
    """
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _ticks(low: float, high: float, y: float) -> str:
    """An axis with two or three round numbers."""
    step = 10.0 ** math.floor(math.log10((high - low) / 2))
    step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 4)
    digits = max(0, -math.floor(math.log10(step)))
    body = f"<path class='axis' d='M{_LEFT} {y}H{_RIGHT}'/>"
    for k in range(math.ceil(low / step), math.floor(high / step) + 1):
        x = _LEFT + (k * step - low) / (high - low) * (_RIGHT - _LEFT)
        if _LEFT + 12 < x < _RIGHT - 12:
            text = f"{k * step:,.{digits}f}" if 1e-4 < step < 1e6 else f"{k * step:.3g}"
            body += f"<path class='axis' d='M{x:.1f} {y}v4'/>" + _text(x, y + 16, text, "middle")
    return body


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'>{html.escape(text)}</text>"


def _svg(title: str, height: float, body: str, label: str, note: str = "", width: float = _WIDTH) -> str:
    told = html.escape(f"{title}. {note}" if note else title, quote=True)
    most = 26 if note else 42  # letters that fit
    short = label if len(label) <= most else f"{label[: most - 1]}…"
    head = f"<text class='label' x='{_LEFT}' y='15'>{html.escape(short)}<title>{html.escape(label)}</title></text>"
    head += _text(width - 8, 15.0, note, "end") if note else ""
    return f"<svg class='panel' viewBox='0 0 {width:g} {height:g}' role='img' aria-label='{told}'>{head}{body}</svg>"
