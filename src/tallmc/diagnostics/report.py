"""One file that shows what a run found, whether to believe it, and what it cost."""

import html
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tallmc.console.progress import few
from tallmc.diagnostics import plots
from tallmc.run.reports import written_by
from tallmc.run.result import Run
from tallmc.run.summary import timing_text

_STYLE = """
:root { --ink: #1f2328; --soft: #57606a; --line: #d8dee4; --tint: #f6f8fa; --accent: #0072b2; }
body { margin: 0; background: #fff; color: var(--ink); line-height: 1.55;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 66rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
h1 { font-size: 1.9rem; margin: 0 0 .3rem; line-height: 1.2; }
h2 { font-size: 1.25rem; margin: 2.8rem 0 .4rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
p { max-width: 46rem; margin: .4rem 0 1rem; }
.lead, figcaption, footer { color: var(--soft); }
figure { margin: 1rem 0; } figure img { width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; margin: .4rem 0 1rem; }
th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; font-weight: 500; padding-left: .2rem; }
thead th { color: var(--soft); font-weight: 600; border-bottom: 2px solid var(--line); }
tbody tr:hover { background: var(--tint); }
.note { background: #fff8e6; border-left: 4px solid #e69f00; padding: .6rem .9rem; margin: .6rem 0; max-width: 44rem; }
footer { margin-top: 3rem; font-size: .85rem; }
@media print { h2 { break-after: avoid; } figure, table { break-inside: avoid; } }
"""

_ESTIMATES = """Each line is one coordinate. <b>mean</b> and <b>sd</b> describe the posterior, <b>5 %</b> and
<b>95 %</b> bound its central 90 %. <b>ESS</b> is the number of independent draws that would be worth as much as these,
for the centre (bulk) and for the quantiles (tail); a few hundred is comfortable. <b>R-hat</b> compares the chains with
each other and should be below 1.01. <b>MCSE</b> is the Monte Carlo error of the mean and of the sd: how much another
seed would change them."""
_COSTS = """A <i>test</i> decides whether a chain moves to its proposed position. The test of textbooks (Exact) reads
every row; the others read only as many as the decision needs, and where little is left to decide that may be none.
Costs are those of the draws kept; each row read costs two evaluations of its likelihood, at the current and at the
proposed position."""
_MARGINALS = """Estimated density of each coordinate, all runs on the same axes. Runs that sample the same posterior
should lie on top of each other, up to Monte Carlo error: a run with few effective draws gives a rougher curve."""
_ROWS = """How many tests read how many rows; both axes are logarithmic (but for zero), and heights allow for the
width of the bars. Most tests are easy and need few rows. A hard one may need many more, and the tail shows how often. A
mass at the dotted line is tests that had to read everything."""
_LADDERS = """Rungs of a ladder sample the posterior at rising temperatures. Left, how often neighbours exchange states
when that is tried; a pair that hardly ever does cuts off what is above it. Right, the rungs on which states were, one
scan after the other; or, where rungs jump between states of about equal energy, how often each was in which energy
ring. Between modes the draws cross by states that come down from the hottest rung."""
_TRACES = """Draws in the order in which they were made, one colour a chain, thinned to at most 1,000 points a chain.
Healthy chains look like noise around a common level. A chain that drifts, sticks, or stays apart from the others has
not converged."""

_COST_LINES: dict[str, Callable[[Run], str]] = {
    "test": lambda run: ", ".join(part.label for part in run.kernel.parts()),
    "chains, draws of each": lambda run: f"{run.num_chains}, {run.num_draws:,}",
    "proposals accepted": lambda run: f"{100 * run.summary().costs['acceptance']:.1f} %",
    "rows per test, mean": lambda run: few(run.summary().costs["rows_mean"]),
    "rows per test, median": lambda run: f"{run.summary().costs['rows_median']:,.0f}",
    "rows per test, 95 % quantile": lambda run: f"{run.summary().costs['rows_95']:,.0f}",
    "rows per test, most": lambda run: f"{run.summary().costs['rows_max']:,.0f}",
    "share of all rows read by a test": lambda run: f"{100 * run.summary().costs['share_of_rows']:.3g} %",
    "tests that read all rows": lambda run: f"{100 * run.summary().costs['used_all_rows']:.3g} %",
    "time of the call": lambda run: timing_text(run.timing) if run.timing else "not kept",
    "likelihood evaluations per effective draw": lambda run: f"{run.summary().costs['evaluations_per_ess']:,.0f}",
    "estimated error of an acceptance probability": lambda run: (
        f"{run.summary().costs['error_mean']:.1e}" if "error_mean" in run.summary().costs else "none"
    ),
    "seconds, compilation included": lambda run: f"{run.seconds:.1f}",
}
_HEADINGS = {
    "eti90_lb": "5 %",
    "eti90_ub": "95 %",
    "ess_bulk": "ESS bulk",
    "ess_tail": "ESS tail",
    "r_hat": "R-hat",
    "mcse_mean": "MCSE mean",
    "mcse_sd": "MCSE sd",
}


@written_by
def write_report(runs: dict[str, Run], path: str | os.PathLike[str], title: str = "Posterior report") -> Path:
    """Writes a self-contained HTML report of runs that sample the same posterior.

    Args:
        runs: One run a name. Their marginals are laid over each other, so that methods can be compared.
        path: Where to write; an existing file is replaced.
        title: Heading of the report.

    Returns:
        The path written to.

    Raises:
        ImportError: If the optional plotting libraries are missing.
    """
    _check(runs)
    plots.import_plotting()
    first = next(iter(runs.values()))
    posterior = first.posterior
    lead = f"{posterior.num_rows:,} rows, temperature {float(posterior.temperature):,g}, {len(first.summary().table)} "
    estimates = "".join(f"<h3>{html.escape(name)}</h3>{_estimates(run)}" for name, run in runs.items())
    traces = "".join(_image(plots.trace_plot(run), f"Traces: {name}") for name, run in runs.items())
    shown = _shown(len(first.summary().table))
    body = [
        f"<h1>{html.escape(title)}</h1><p class='lead'>{lead}coordinates. Runs: {html.escape(', '.join(runs))}.</p>",
        _notes(runs),
        _choices(runs),
        f"<h2>Estimates</h2><p>{_ESTIMATES}</p>{estimates}",
        f"<h2>Cost</h2><p>{_COSTS}</p>{_costs(runs)}",
        f"<h2>Marginal distributions</h2><p>{_MARGINALS} {shown}</p>{_image(plots.marginal_plot(runs))}",
        f"<h2>Rows read by each test</h2><p>{_ROWS}</p>{_image(plots.rows_plot(runs))}",
        _ladders(runs),
        f"<h2>Traces</h2><p>{_TRACES} {shown}</p>{traces}",
        f"<footer>Written by tallmc {html.escape(version('tallmc'))}.</footer>",
    ]
    target = Path(path)
    target.write_text(_page(title, "\n".join(body)), encoding="utf-8")
    return target


def _check(runs: dict[str, Run]) -> None:
    if not runs:
        raise ValueError("there is no run to report; pass at least one, such as {'minibatch': run}")
    names = {name: list(plots.coordinates(run)) for name, run in runs.items()}
    if len({tuple(value) for value in names.values()}) > 1:
        raise ValueError(f"the runs have different coordinates: {names}; report runs of the same posterior together")


def _page(title: str, body: str) -> str:
    return (
        f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}</title>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<style>{_STYLE}</style></head>\n<body><main>\n{body}\n</main></body></html>\n"
    )


def _notes(runs: dict[str, Run]) -> str:
    notes = [(name, note) for name, run in runs.items() for note in run.summary().notes]
    return "".join(f"<div class='note'><b>{html.escape(n)}</b>: {html.escape(note)}</div>" for n, note in notes)


def _choices(runs: dict[str, Run]) -> str:
    """What a run chose for itself, and what its audit said."""
    lines = [
        (name, text) for name, run in runs.items() for text in ("; ".join(run.choices), str(run.audit or "")) if text
    ]
    return "".join(f"<p><b>{html.escape(name)}</b>: {html.escape(text)}.</p>" for name, text in lines)


def _estimates(run: Run) -> str:
    table = run.summary().table.rename(columns=_HEADINGS)
    whole: Any = {name: "{:,.0f}".format for name in ("ESS bulk", "ESS tail") if name in table}
    return f"<div class='wide'>{table.to_html(border=0, float_format='{:.4g}'.format, formatters=whole)}</div>"


def _costs(runs: dict[str, Run]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in runs)
    lines = [
        f"<tr><td>{label}</td>{''.join(f'<td>{html.escape(show(run))}</td>' for run in runs.values())}</tr>"
        for label, show in _COST_LINES.items()
    ]
    return (
        f"<div class='wide'><table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _ladders(runs: dict[str, Run]) -> str:
    """A picture and a table for each ladder; nothing if there is none."""
    found = [(name, run) for name, run in runs.items() if run.exchanges is not None]
    shown = (
        f"{_image(plots.ladder_plot(run), f'Ladder: {name}')}<pre>{html.escape(str(run.exchanges))}</pre>"
        for name, run in found
    )
    return f"<h2>Ladders</h2><p>{_LADDERS}</p>{''.join(shown)}" if found else ""


def _shown(num_coordinates: int) -> str:
    most = plots.MOST_COORDINATES
    return f"The first {most} of {num_coordinates} coordinates are shown." if num_coordinates > most else ""


def _image(png: str, caption: str = "") -> str:
    text = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{text}<img alt='{html.escape(caption or 'plot')}' src='data:image/png;base64,{png}'></figure>"
