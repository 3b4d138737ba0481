"""The figures of a report, as PNG images."""

import base64
import contextlib
import io
import math
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
_MOST_TRACE_POINTS = 1000
_COLUMNS = 3
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
            raise ImportError("a report needs plotting libraries; run: pip install 'tallmc[plots]'") from error
    return arviz_plots


def coordinates(run: Run) -> dict[str, np.ndarray]:
    """The first coordinates of a position, named as in the summary; each is (chain, draw)."""
    named = {}
    for name, variable in posterior_group(run)["posterior"].dataset.data_vars.items():
        for index in np.ndindex(variable.shape[2:]):
            if len(named) == MOST_COORDINATES:
                return named
            places = [str(variable[axis].values[at]) for axis, at in zip(variable.dims[2:], index, strict=True)]
            label = f"{name}[{', '.join(places)}]" if index else str(name)
            named[label] = as_numbers(variable.values[(slice(None), slice(None), *index)])
    return named


def trace_plot(run: Run) -> str:
    """Draws one after the other, a colour a chain."""
    plots = import_plotting()
    import arviz_base

    named = coordinates(run)
    step = math.ceil(run.num_draws / _MOST_TRACE_POINTS)
    thinned = arviz_base.from_dict({"posterior": named}).isel(draw=slice(None, None, step))
    with _pyplot() as close:
        collection = plots.plot_trace(
            thinned,
            visuals={"trace": {"width": 0.6, "alpha": 0.8}, "title": {"color": "black"}, "xlabel": False},
            color=_colours(run.num_chains),
            **_layout(len(named)),
        )
        return close(collection)


def marginal_plot(runs: dict[str, Run]) -> str:
    """Densities of the same coordinates in all runs."""
    plots = import_plotting()
    import arviz_base
    from matplotlib.lines import Line2D

    names = list(coordinates(next(iter(runs.values()))))
    collection, colours = None, _colours(len(runs))
    hidden = {"credible_interval": False, "point_estimate": False, "point_estimate_text": False}
    with _pyplot() as close, warnings.catch_warnings():
        # A truth value that never changes has no density to draw, and needs none.
        warnings.filterwarnings("ignore", "Your data appears to have a single value")
        for run, colour in zip(runs.values(), colours, strict=True):
            tree = arviz_base.from_dict({"posterior": coordinates(run)})
            visuals = {**hidden, "dist": {"color": colour, "width": 1.6}, "title": {"color": "black"}}
            if collection is None:
                collection = plots.plot_dist(tree, kind="kde", visuals=visuals, **_layout(len(names)))
            else:
                visuals["title"] = False
                plots.plot_dist(tree, kind="kde", visuals=visuals, plot_collection=collection)
        handles = [Line2D([], [], color=colour, label=name) for name, colour in zip(runs, colours, strict=True)]
        _figure(collection).legend(handles=handles, loc="outside upper center", ncols=len(runs))
        return close(collection)


def rows_plot(runs: dict[str, Run]) -> str:
    """How many tests read how many rows, on logarithmic axes."""
    import_plotting()
    import matplotlib
    from matplotlib.figure import Figure

    most = max(run.posterior.num_rows for run in runs.values())
    # A test that draws rows one by one may end within a window, or need none at all.
    step = min(most, *(_row_step(run) for run in runs.values()))
    edges = _row_bins(step, most)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(10, 3.4), layout="constrained")
        axes = figure.subplots()
        for (name, run), colour in zip(runs.items(), _colours(len(runs)), strict=True):
            # Bins grow with the number of rows; dividing by their width keeps the heights comparable.
            heights = np.histogram(run.stats["rows"], edges)[0] / np.diff(edges) * step
            axes.stairs(heights, edges, color=colour, alpha=0.35, fill=True, label=name)
            axes.stairs(heights, edges, color=colour, linewidth=1.2)
        axes.axvline(most, color="#57606a", linestyle=":", linewidth=1.2, label=f"all {most:,} rows")
        axes.set_xscale("symlog", linthresh=step)  # zero has a place on it
        unit = "row" if step == 1 else f"{step} rows"
        axes.set(yscale="log", xlabel="rows read by one test", ylabel=f"tests per {unit}", xlim=(edges[0], None))
        figure.legend(loc="outside upper center", ncols=len(runs) + 1)
        return _png(figure)


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


def _colours(count: int) -> list[str]:
    return [PALETTE[i % len(PALETTE)] for i in range(count)]


def _layout(count: int) -> dict[str, Any]:
    num_lines = math.ceil(count / _COLUMNS)
    figure = {"figsize": (10, 0.5 + 1.6 * num_lines), "figsize_units": "inches", "layout": "constrained"}
    return {"backend": "matplotlib", "col_wrap": _COLUMNS, "figure_kwargs": figure}


@contextlib.contextmanager
def _pyplot() -> Any:
    """Lets arviz-plots, which draws through pyplot, do so without showing or leaving anything behind."""
    import matplotlib
    from matplotlib import pyplot

    before = set(pyplot.get_fignums())
    with matplotlib.rc_context(_STYLE), pyplot.ioff():
        try:
            yield lambda collection: _png(_figure(collection))
        finally:
            for number in set(pyplot.get_fignums()) - before:
                pyplot.close(number)


def _figure(collection: Any) -> Any:
    return collection.viz["figure"].item()


def _png(figure: Any) -> str:
    """A figure as base64 text."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = io.BytesIO()
    figure.set_dpi(130)
    FigureCanvasAgg(figure).print_png(buffer)
    return base64.b64encode(buffer.getvalue()).decode()
