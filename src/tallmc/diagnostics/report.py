"""One file that shows what a run found, whether to believe it, and what it cost."""

import html
import os
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tallmc.console.progress import few
from tallmc.diagnostics import plots
from tallmc.diagnostics.page import legend, page, tile, wide
from tallmc.diagnostics.panels import MOST_CHAINS, density_panel, rank_panel, rows_panel
from tallmc.run.reports import written_by
from tallmc.run.result import Run
from tallmc.run.summary import timing_text
from tallmc.run.tree import attributes

# Gradients of all rows that NUTS takes for a draw: a tree of depth three, as measured on logistic regressions of 20
# columns whose covariance it was handed (docs/benchmarks.md, "Flat in N"). Without that, and elsewhere, it takes more.
NUTS_GRADIENTS = 7

_ESTIMATES = """Each line is one coordinate. <b>mean</b> and <b>sd</b> describe the posterior, <b>5 %</b> and
<b>95 %</b> bound its central 90 %. <b>ESS</b> is the number of independent draws that would be worth as much as these,
for the centre (bulk) and for the quantiles (tail); a few hundred is comfortable. <b>R-hat</b> compares the chains with
each other and should be below 1.01. <b>MCSE</b> is the Monte Carlo error of the mean and of the sd: how much another
seed would change them."""
_COSTS = """A <i>test</i> decides whether a chain moves to its proposed position. The test of textbooks (Exact) reads
every row; the others read only as many as the decision needs, and where little is left to decide that may be none.
Costs are those of the draws kept; each row read costs two evaluations of its likelihood, at the current and at the
proposed position."""
_NUTS = f"""The comparison with NUTS is an assumption, not a measurement: a draw of NUTS takes {NUTS_GRADIENTS}
gradients of all rows (a tree of depth three), which is what it needs where the posterior is close to normal and its
covariance is known; harder posteriors take more. A draw of NUTS may also be worth more or less than one here, so look
at the effective draws as well."""
_MARGINALS = """Estimated density of each coordinate, all runs on the same axes. Runs that sample the same posterior
should lie on top of each other, up to Monte Carlo error: a run with few effective draws gives a rougher curve."""
_ROWS = """How many tests read how many rows; both axes are logarithmic (but for zero), and heights allow for the
width of the bars. Most tests are easy and need few rows. A hard one may need many more, and the tail shows how often. A
mass at the dotted line is tests that had to read everything."""
_LADDERS = """Rungs of a ladder sample the posterior at rising temperatures. Left, how often neighbours exchange states
when that is tried; a pair that hardly ever does cuts off what is above it. Right, the rungs on which states were, one
scan after the other; or, where rungs jump between states of about equal energy, how often each was in which energy
ring. Between modes the draws cross by states that come down from the hottest rung."""
_RANKS = """The draws of all chains are ranked together, and each chain has a line of bars that says where its own
draws rank. Chains that agree have ranks that are uniform: bars end near the dashed line, and nineteen of twenty within
the grey band. A chain that leans to one side, piles up in the middle, or does so at the ends samples something else
than the others, or has not seen enough yet."""
_ABOUT = """With the same rows, seed and versions the same call makes the same draws."""

_COST_LINES: dict[str, Callable[[Run], str]] = {
    "test": lambda run: ", ".join(part.label for part in run.kernel.parts()),
    "chains, draws of each": lambda run: f"{run.num_chains}, {run.num_draws:,}",
    "proposals accepted": lambda run: f"{100 * run.summary().costs['acceptance']:.1f} %",
    "rows per test, mean": lambda run: few(run.summary().costs["rows_mean"]),
    "rows per test, median": lambda run: f"{run.summary().costs['rows_median']:,.0f}",
    "rows per test, 95 % quantile": lambda run: f"{run.summary().costs['rows_95']:,.0f}",
    "rows per test, most": lambda run: f"{run.summary().costs['rows_max']:,.0f}",
    "rows read per step, gradients included": lambda run: few(rows_a_step(run)),
    f"rows NUTS would read per step ({NUTS_GRADIENTS} gradients of all)": lambda run: f"{rows_of_nuts(run):,}",
    "share of all rows read by a test": lambda run: f"{100 * run.summary().costs['share_of_rows']:.3g} %",
    "tests that read all rows": lambda run: f"{100 * run.summary().costs['used_all_rows']:.3g} %",
    "likelihood evaluations per effective draw": lambda run: f"{run.summary().costs['evaluations_per_ess']:,.0f}",
    "estimated error of an acceptance probability": lambda run: (
        f"{run.summary().costs['error_mean']:.1e}" if "error_mean" in run.summary().costs else "none"
    ),
    "rows read for set-up": lambda run: f"{run.setup_rows:,}",
    "time of the call": lambda run: timing_text(run.timing) if run.timing else "not kept",
    "seconds of moving chains, compilation included": lambda run: f"{run.seconds:.1f}",
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
    """
    _check(runs)
    first = next(iter(runs.values()))
    posterior, num_coordinates = first.posterior, len(first.summary().table)
    of = f" Runs: {html.escape(', '.join(runs))}." if len(runs) > 1 else ""
    heat = float(posterior.temperature)
    lead = f"{posterior.num_rows:,} rows, temperature {heat:,g}, {num_coordinates} coordinates.{of}"
    top = f"<h1>{html.escape(title)}</h1><p class='lead'>{lead}</p>{_notes(runs)}{_tiles(runs)}{_choices(runs)}"
    estimates = "".join(_estimates(name, run, alone=len(runs) == 1) for name, run in runs.items())
    shown = _shown(num_coordinates)
    sections = [
        ("Estimates", f"<p>{_ESTIMATES}</p>{estimates}"),
        ("Marginal distributions", f"<p>{_MARGINALS} {shown}</p>{_marginals(runs)}"),
        ("Do the chains agree", f"<p>{_RANKS} {shown}</p>{_ranks(runs)}"),
        ("Rows read by each test", f"<p>{_ROWS}</p>{_rows(runs)}"),
        ("Cost", f"<p>{_COSTS}</p>{_costs(runs)}<p>{_NUTS}</p>"),
        ("Ladders", _ladders(runs)),
        ("How it was made", f"<p>{_ABOUT}</p>{_about(runs)}"),
    ]
    target = Path(path)
    target.write_text(page(title, top, [section for section in sections if section[1]]), encoding="utf-8")
    return target


def rows_a_step(run: Run) -> float:
    """Rows read by a step, on average; a gradient of all rows counts as all rows."""
    rows = run.stats["rows"].astype(float)
    return float(np.mean(rows * np.maximum(run.stats.get("gradients", 1), 1)))


def rows_of_nuts(run: Run) -> int:
    """What NUTS would read for a draw, if it took the gradients that it typically takes."""
    return NUTS_GRADIENTS * run.posterior.num_rows


def _check(runs: dict[str, Run]) -> None:
    if not runs:
        raise ValueError("there is no run to report; pass at least one, such as {'minibatch': run}")
    names = {name: list(plots.coordinates(run)) for name, run in runs.items()}
    if len({tuple(value) for value in names.values()}) > 1:
        raise ValueError(f"the runs have different coordinates: {names}; report runs of the same posterior together")


def _notes(runs: dict[str, Run]) -> str:
    """What speaks against the runs first, or that nothing does; then what there is to say besides."""
    against, besides = [], []
    for name, run in runs.items():
        parts = enumerate(run.kernel.parts())
        said = tuple(note for number, part in parts for note in part.notes(run.part_stats(number), run.session.model))
        for note in run.summary().notes:
            harmless = bool(said) and note.endswith(said) and note not in run.doubts
            (besides if harmless else against).append((name, note))
    good = "" if against else "<div class='note good'>Nothing is known against these draws.</div>"
    return _boxes(runs, against, "note") + good + _boxes(runs, besides, "note said")


def _boxes(runs: dict[str, Run], notes: list[tuple[str, str]], kind: str) -> str:
    named = len(runs) > 1
    return "".join(
        f"<div class='{kind}'>{f'<b>{html.escape(name)}</b>: ' if named else ''}{html.escape(note)}</div>"
        for name, note in notes
    )


def _tiles(runs: dict[str, Run]) -> str:
    """What to see first of each run."""
    told = ""
    for name, run in runs.items():
        table, theirs, ours = run.summary().table, rows_of_nuts(run), rows_a_step(run)
        tiles = [tile(f"{run.num_chains * run.num_draws:,}", f"draws, of {run.num_chains} chains")]
        if "ess_bulk" in table:
            tiles.append(tile(f"{table['ess_bulk'].min():,.0f}", "effective draws of the worst coordinate"))
            tiles.append(tile(f"{table['r_hat'].max():.3f}", "largest R-hat; below 1.01 is good"))
        tiles.append(tile(few(ours), f"rows read per step, of {run.posterior.num_rows:,}"))
        if "gradients" not in run.stats:
            told_of_nuts = f"{theirs:,} of NUTS, if {NUTS_GRADIENTS} gradients a draw"
            if ours > 0:
                tiles.append(tile(f"{_two_digits(theirs / ours)} x", f"fewer rows than the {told_of_nuts}"))
        if run.timing:
            tiles.append(tile(f"{run.timing['total']:.2g} s", "for the whole call"))
        heading = f"<p><b>{html.escape(name)}</b></p>" if len(runs) > 1 else ""
        told += f"{heading}<div class='tiles'>{''.join(tiles)}</div>"
    return told


def _two_digits(value: float) -> str:
    return f"{float(f'{value:.2g}'):,.0f}" if value >= 10 else f"{value:.2g}"


def _choices(runs: dict[str, Run]) -> str:
    """What a run chose for itself, and what its audit said."""
    lines = [
        (name, text) for name, run in runs.items() for text in ("; ".join(run.choices), str(run.audit or "")) if text
    ]
    named = len(runs) > 1
    return "".join(f"<p>{f'<b>{html.escape(a)}</b>: ' if named else ''}{html.escape(text)}.</p>" for a, text in lines)


def _estimates(name: str, run: Run, *, alone: bool) -> str:
    table = run.summary().table.rename(columns=_HEADINGS)
    whole: Any = {name: "{:,.0f}".format for name in ("ESS bulk", "ESS tail") if name in table}
    text = table.to_html(border=0, float_format="{:.4g}".format, formatters=whole)
    return f"{'' if alone else f'<h3>{html.escape(name)}</h3>'}{wide(text, f'Estimates of {name}')}"


def _marginals(runs: dict[str, Run]) -> str:
    draws = [plots.coordinates(run) for run in runs.values()]
    panels = "".join(density_panel(label, [named[label] for named in draws]) for label in draws[0])
    return f"{legend(list(runs)) if len(runs) > 1 else ''}<div class='panels'>{panels}</div>"


def _ranks(runs: dict[str, Run]) -> str:
    told = ""
    for name, run in runs.items():
        table, panels = run.summary().table, ""
        known = "ess_bulk" in table
        effective = table["ess_bulk"].to_numpy() if known else np.full(len(table), np.nan)
        for number, (label, draws) in enumerate(plots.coordinates(run).items()):
            note = f"R-hat {table['r_hat'].iloc[number]:.3f}" if known else ""
            panels += rank_panel(label, draws, float(effective[number]), note)
        more = f"<p>The first {MOST_CHAINS} of {run.num_chains} chains are shown.</p>"
        told += f"<h3>{html.escape(name)}</h3>" if len(runs) > 1 else ""
        told += f"{more if run.num_chains > MOST_CHAINS else ''}<div class='panels'>{panels}</div>"
    return told


def _rows(runs: dict[str, Run]) -> str:
    heights, edges, most = plots.row_counts(runs)
    names = legend(list(runs)) if len(runs) > 1 else ""
    return f"{names}<div class='alone'>{rows_panel(list(runs), heights, edges, most)}</div>"


def _costs(runs: dict[str, Run]) -> str:
    head = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in runs)
    lines = [
        f"<tr><th scope='row'>{label}</th>{''.join(f'<td>{html.escape(show(run))}</td>' for run in runs.values())}</tr>"
        for label, show in _COST_LINES.items()
    ]
    table = f"<table><thead><tr><td></td>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return wide(table, "Costs")


def _about(runs: dict[str, Run]) -> str:
    """Seed, versions and timing of each run."""
    told = ""
    for name, run in runs.items():
        known = attributes(run)
        lines = {
            "seed or key": known["rng_key"],
            "seed of the shuffle": known["shuffle_seed"],
            "transitions of warm-up": f"{known['num_warmup']:,} of each chain",
            "kernel": known["kernel"],
            "versions now": ", ".join(f"{part} {version(part)}" for part in ("tallmc", "jax", "jaxlib", "numpy")),
            "Python": f"{platform.python_version()} on {platform.system()}, {platform.machine()}",
        }
        cells = "".join(f"<tr><th scope='row'>{a}</th><td>{html.escape(str(b))}</td></tr>" for a, b in lines.items())
        told += f"<h3>{html.escape(name)}</h3>{_phases(run.timing)}"
        told += wide(f"<table class='about'><tbody>{cells}</tbody></table>", f"How {name} was made")
    return told


def _phases(timing: dict[str, float]) -> str:
    """A bar of the phases of a call, and its legend."""
    spent = [(name, seconds) for name, seconds in timing.items() if name != "total" and seconds > 0]
    if not spent:
        return ""
    bars = "".join(
        f"<i style='flex: {seconds:.4g} 0 0; background: var(--c{k % 6}); opacity: {1 - 0.4 * (k // 6)}'></i>"
        for k, (_, seconds) in enumerate(spent)
    )
    names = legend([f"{name} {seconds:.2g} s" for name, seconds in spent])
    return f"<p>The call took {timing['total']:.2g} s:</p><div class='times' aria-hidden='true'>{bars}</div>{names}"


def _ladders(runs: dict[str, Run]) -> str:
    """A picture, if it can be drawn, and a table for each ladder; nothing if there is none."""
    found = [(name, run) for name, run in runs.items() if run.exchanges is not None]
    shown = (f"{_ladder(name, run)}<pre tabindex='0'>{html.escape(str(run.exchanges))}</pre>" for name, run in found)
    return f"<p>{_LADDERS}</p>{''.join(shown)}" if found else ""


def _ladder(name: str, run: Run) -> str:
    try:
        png = plots.ladder_plot(run)
    except ImportError as error:
        return f"<p><b>Ladder: {html.escape(name)}</b>. There is no picture: {html.escape(str(error))}</p>"
    text = html.escape(f"Ladder: {name}", quote=True)
    return f"<figure><figcaption>{text}</figcaption><img alt='{text}' src='data:image/png;base64,{png}'></figure>"


def _shown(num_coordinates: int) -> str:
    most = plots.MOST_COORDINATES
    return f"The first {most} of {num_coordinates} coordinates are shown." if num_coordinates > most else ""
