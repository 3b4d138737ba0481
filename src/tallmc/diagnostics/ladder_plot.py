"""A ladder of temperatures in a picture: how readily neighbours swap, and how states travel."""

from typing import Any

import numpy as np

from tallmc.run.exchanges import states_on_rungs
from tallmc.run.result import Run

_SCANS = 300  # of the first chain that are drawn
_INK, _SOFT, _ACCENT = "#1f2328", "#b8c0c8", "#d55e00"


def draw_ladder(run: Run, figure: Any) -> None:
    """Draws onto a figure of matplotlib's: left the rungs with their exchanges, right where states were, or in which
    energy rings the rungs.

    Args:
        run: Of a ladder.
        figure: Empty.

    Raises:
        ValueError: If the run is not a ladder's.
    """
    found = run.exchanges
    if found is None:
        raise ValueError("only runs of tm.parallel_tempering or tm.Ladder have a ladder to draw")
    left, right = figure.subplots(1, 2, width_ratios=(1, 2.6), sharey=True)
    rungs = np.arange(len(found.temperatures))
    for k, share in enumerate(found.acceptance):
        left.plot([0, 0], [k, k + 1], color=_INK, linewidth=0.5 + 8 * share, solid_capstyle="butt", alpha=0.35)
        what = "swap" if found.levels is None else "jump"
        left.text(0.12, k + 0.5, f"{100 * share:.0f} % {what}", va="center", fontsize=8, color=_INK)
    left.plot(0 * rungs, rungs, "o", color=_INK, markersize=7)
    left.set(xlim=(-0.3, 1), xticks=[], ylabel="temperature")
    left.set_yticks(rungs, [f"{heat:,.3g}" for heat in found.temperatures])
    if found.occupancy is None:
        _draw_paths(run, right)
    else:
        _draw_rings(found.occupancy, right)
    left.set_title("rungs and exchanges")


def _draw_paths(run: Run, axes: Any) -> None:
    """The rungs that states were on."""
    states = states_on_rungs(run.stats["swap_accepted"][:1, :_SCANS])[0]
    where = np.argsort(states, axis=1)  # of each state, its rung
    marked = int(np.argmax(np.abs(np.diff(where, axis=0)).sum(axis=0)))
    for state in range(where.shape[1]):
        mine = state == marked
        style = {"color": _ACCENT if mine else _SOFT, "linewidth": 1.4 if mine else 0.7, "zorder": 2 if mine else 1}
        axes.plot(where[:, state], **style)
    axes.set(xlabel="scan", title="where the states are; one of them is marked")


def _draw_rings(occupancy: np.ndarray, axes: Any) -> None:
    """How often each rung was in each energy ring."""
    axes.imshow(100 * occupancy, cmap="Oranges", vmin=0, vmax=100, aspect="auto", origin="lower")
    for (k, ring), share in np.ndenumerate(occupancy):
        axes.text(ring, k, f"{100 * share:.0f}", ha="center", va="center", fontsize=8, color=_INK)
    axes.set(xlabel="energy ring, from the lowest", xticks=range(occupancy.shape[1]), title="scans in each ring, %")
