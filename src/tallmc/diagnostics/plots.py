"""What a report draws: coordinates by name, rows that tests read, and the picture of a ladder."""

import base64
import contextlib
import io
import warnings
from typing import Any

import numpy as np

from tallmc.diagnostics.ladder_plot import draw_ladder
from tallmc.kernel_parts import rule_needs
from tallmc.numerics.flat import as_numbers
from tallmc.run.result import Run
from tallmc.run.tree import posterior_group

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MOST_COORDINATES = 12
_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa3ad",
    "axes.titlesize": 9,
    "xtick.color": "#57606a",
    "ytick.color": "#57606a",
    "legend.frameon": False,
}


def import_plotting() -> Any:
    """Gives the arviz-plots module, with its matplotlib backend loaded.

    Raises:
        ImportError: If the optional plotting libraries are missing.
    """
    with warnings.catch_warnings():
        # arviz-plots 0.8 uses parts of matplotlib that 3.11 deprecates, one of which has to be imported by hand.
        warnings.simplefilter("ignore")
        with contextlib.suppress(ImportError):
            import matplotlib.style.core  # noqa: F401
        try:
            import arviz_plots
            import arviz_plots.backend.matplotlib
        except ImportError as error:
            raise ImportError("this picture needs plotting libraries; run: pip install 'tallmc[plots]'") from error
    return arviz_plots


def coordinates(run: Run) -> dict[str, np.ndarray]:
    """The first coordinates of a position, named as in the summary; each is (chain, draw)."""
    named = {}
    for name, variable in posterior_group(run.thinned)["posterior"].dataset.data_vars.items():
        for index in np.ndindex(variable.shape[2:]):
            if len(named) == MOST_COORDINATES:
                return named
            places = [str(variable[axis].values[at]) for axis, at in zip(variable.dims[2:], index, strict=True)]
            label = f"{name}[{', '.join(places)}]" if index else str(name)
            named[label] = as_numbers(variable.values[(slice(None), slice(None), *index)])
    return named


def row_counts(runs: dict[str, Run]) -> tuple[list[np.ndarray], np.ndarray, int]:
    """How many tests read how many rows: for each run one number a bin, the edges of the bins, and all rows."""
    most = max(run.posterior.num_rows for run in runs.values())
    # A test that draws rows one by one may end within a window, or need none at all.
    step = min(most, *(_row_step(run) for run in runs.values()))
    # A step of several tests, such as that of a ladder, can read more rows than there are.
    edges = _row_bins(step, max(most, *(int(run.stats["rows"].max()) for run in runs.values())))
    # Bins grow with the number of rows; dividing by their width keeps the heights comparable.
    return [np.histogram(run.stats["rows"], edges)[0] / np.diff(edges) for run in runs.values()], edges, most


def ladder_plot(run: Run) -> str:
    """The rungs of a ladder with their swaps, and how states travelled."""
    import_plotting()
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(10, 3.6), layout="constrained")
        draw_ladder(run, figure)
        return _png(figure)


def _row_step(run: Run) -> int:
    """What the numbers of rows that tests read are multiples of."""
    smallest = min(rule_needs(part).batch_size for part in run.kernel.parts())
    return smallest if run.stats["rows"].min() >= smallest else 1


def _row_bins(step: int, num_rows: int) -> np.ndarray:
    """Edges half-way between multiples of a step, from zero on, dropped where a logarithmic axis would crowd them."""
    edges = [-0.5 * step, 0.5 * step]
    while edges[-1] <= num_rows:
        edges.append(edges[-1] + max(1, round(0.08 * edges[-1] / step)) * step)
    return np.asarray(edges)


def _png(figure: Any) -> str:
    """A figure as base64 text."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = io.BytesIO()
    figure.set_dpi(130)
    FigureCanvasAgg(figure).print_png(buffer)
    return base64.b64encode(buffer.getvalue()).decode()
