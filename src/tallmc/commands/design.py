"""`tallmc design`: the sequential tests within an error, in a table and a picture, and the cheapest as Python."""

import dataclasses
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.columns import Columns
from rich.console import Console
from rich.table import Table

from tallmc.commands.text_plot import WIDTH, decades, text_plot
from tallmc.design import Candidate, average_candidates, cheapest, sequential_test, worst_case_candidates
from tallmc.diagnostics.moves import MoveMoments
from tallmc.diagnostics.plots import PALETTE

_BOUNDARY_NAMES = {0.5: "0.5 Pocock", 0.75: "0.75", 1.0: "1 O'Brien-Fleming"}
_CLEAR_CASES = (2.0, 5.0)
_REACH = 10.0  # of the pictures, in mu_std, or more if the moves of a trial run are clearer
_FURTHEST = 100.0
_WIDE = 100  # columns of a terminal


@dataclasses.dataclass(frozen=True)
class DesignSettings:
    """What `tallmc design` is asked.

    Args:
        max_error: Of a decision in the hardest case, or of the acceptance probability on average over moves.
        rows: Rows of the data.
        moves: File with moves of a trial run; None: the worst case.
        picture: Where to write a PNG; None: nowhere.
    """

    max_error: float
    rows: int
    moves: Path | None = None
    picture: Path | None = None


def run_design(settings: DesignSettings, console: Console) -> None:
    """The command `tallmc design`: finds the cheapest test within the error and prints it with its curves."""
    if settings.picture is not None:
        _check_picture(settings.picture)
    moves = None if settings.moves is None else read_moves(settings.moves)
    if moves is None:
        candidates = worst_case_candidates(settings.max_error, settings.rows)
    else:
        candidates = average_candidates(settings.max_error, settings.rows, moves)
    chosen = cheapest(candidates)

    _print_candidates(candidates, chosen, settings, moves, console)
    curves = _curves(chosen, settings.rows, moves)
    _print_curves(curves, console)
    line = python_line(chosen)
    if settings.picture is not None:
        _write_picture(curves, settings.picture, line)
        console.print(f"Picture: {settings.picture}", markup=False, soft_wrap=True)
    console.print("\nThe chosen rule, after `import tallmc as tm`:")
    console.print(line, markup=False, soft_wrap=True)


def python_line(chosen: Candidate) -> str:
    """The line of Python that builds the chosen rule, for the user to copy."""
    return (
        f"rule = tm.AustereMH(epsilon={chosen.epsilon!r}, batch_size={chosen.batch_size}, boundary={chosen.boundary!r})"
    )


def read_moves(path: Path) -> MoveMoments:
    """Reads `log_ratio` and `spread`, one entry a move, from a .npz or .csv file."""
    try:
        log_ratio, spread = (np.asarray(values, float) for values in _columns(path))
        if log_ratio.ndim != 1 or log_ratio.shape != spread.shape or not log_ratio.size:
            raise ValueError(f"the shapes are {log_ratio.shape} and {spread.shape}")
        if not (np.isfinite(log_ratio).all() and np.isfinite(spread).all() and (spread >= 0).all()):
            raise ValueError("some numbers are missing, infinite or negative spreads")
    except (ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"cannot take moves from {path}: {error}. A .npz or .csv file is needed with log_ratio and spread, one "
            "entry a move, as tm.design.trial_moments gives them"
        ) from error
    unknown = np.full_like(log_ratio, np.nan)
    return MoveMoments(log_ratio, spread, skewness=unknown, kurtosis=unknown)


def _columns(path: Path) -> list[Any]:
    names = ("log_ratio", "spread")
    if path.suffix == ".npz":
        with path.open("rb") as file, np.load(file) as arrays:
            found = {name: arrays[name] for name in names if name in arrays}
    elif path.suffix == ".csv":
        import pandas

        found = pandas.read_csv(path, skipinitialspace=True)
    else:
        raise ValueError(f"its name ends in {path.suffix!r}")
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"there is no {' and no '.join(missing)}")
    return [found[name] for name in names]


def _check_picture(path: Path) -> None:
    """Finds out before the work, not after it, whether a picture can be written."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ValueError("a picture needs matplotlib; run: pip install 'tallmc[plots]'") from error
    if path.suffix != ".png" or not path.parent.is_dir() or path.is_dir():
        raise ValueError(f"cannot write the picture to {path}; name a .png file in a directory that exists")


def _print_candidates(
    candidates: Sequence[Candidate],
    chosen: Candidate,
    settings: DesignSettings,
    moves: MoveMoments | None,
    out: Console,
) -> None:
    limit = f"{settings.max_error:g}"
    if moves is None:
        case, promise = (
            "hardest case",
            f"even in the hardest case, a decision is wrong with probability {limit} at most",
        )
    else:
        case = "on average"
        promise = f"on average over {moves.spread.size:,} moves, acceptance probabilities are off by {limit} at most"
    out.print(f"{settings.rows:,} rows; {promise}.", highlight=False)
    out.print(
        "For every batch size and boundary the table has the largest epsilon with that property, and the share of the "
        "rows that a test is expected to read. mu_std says how clear a case is: by how many standard errors (standard "
        "deviation of a row / sqrt(rows)) the mean log ratio is away from the level that decides. 0 is the hardest "
        "case, 5 a rather clear one.",
        highlight=False,
    )
    # Frames would leave too little room for the digits on a narrow terminal.
    table = Table() if out.width >= _WIDE else Table(box=SIMPLE_HEAD, padding=0)
    table.add_column("")
    for heading in ("batch\nsize", "epsilon"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("boundary")
    below = case.replace(" ", "\n")
    for heading in (f"error,\n{below}", f"rows,\n{below}", f"share,\n{below}"):
        table.add_column(heading, justify="right", no_wrap=True)
    for mu_std in _CLEAR_CASES:
        table.add_column(f"share,\nmu_std\n{mu_std:g}", justify="right", no_wrap=True)
    for candidate in sorted(candidates, key=lambda candidate: (candidate.batch_size, candidate.boundary)):
        clear = _test(candidate, settings.rows, np.array(_CLEAR_CASES)).data_fraction
        table.add_row(
            "*" if candidate is chosen else "",
            f"{candidate.batch_size:,}",
            f"{candidate.epsilon:.3g}",
            _BOUNDARY_NAMES.get(candidate.boundary, f"{candidate.boundary:g}"),
            f"{candidate.error:.3g}",
            f"{candidate.data_fraction * settings.rows:,.0f}",
            *(f"{100 * share:.1f} %" for share in (candidate.data_fraction, *np.atleast_1d(clear))),
            style="bold green" if candidate is chosen else None,
        )
    out.print(table)
    out.print(f"* is chosen: it reads least ({case}), or hardly more than that with a smaller batch.", highlight=False)


@dataclasses.dataclass(frozen=True)
class _Mark:
    symbol: str
    name: str
    mu_std: float
    error: float
    share: float


@dataclasses.dataclass(frozen=True)
class _Curves:
    """Error and share of the rows of the chosen test as functions of mu_std, and the points to mark."""

    mu_std: np.ndarray
    error: np.ndarray
    share: np.ndarray
    marks: list[_Mark]


def _curves(chosen: Candidate, rows: int, moves: MoveMoments | None) -> _Curves:
    places = [("●", "hardest case", 0.0)]
    if moves is not None:
        places.append(("◆", "median of the moves", _median_mu_std(moves)))
    reach = float(np.clip(2 * places[-1][2], _REACH, _FURTHEST))
    mu_std = np.linspace(0.0, reach, 2 * WIDTH)
    test = _test(chosen, rows, mu_std)
    marks = []
    for symbol, name, place in places:
        at = _test(chosen, rows, place)
        marks.append(_Mark(symbol, name, place, float(at.error), float(at.data_fraction)))
    return _Curves(mu_std, np.asarray(test.error), np.asarray(test.data_fraction), marks)


def _test(candidate: Candidate, rows: int, mu_std: np.ndarray | float) -> Any:
    return sequential_test(mu_std, min(1.0, candidate.batch_size / rows), candidate.epsilon, candidate.boundary)


def _median_mu_std(moves: MoveMoments) -> float:
    """Over moves and over the uniform number in each Metropolis test."""
    uniform = (np.arange(100) + 0.5) / 100
    distance = np.abs(moves.log_ratio[:, None] - np.log(uniform))
    return float(np.median(distance / np.maximum(moves.spread, 1e-12)[:, None]))


def _print_curves(curves: _Curves, out: Console) -> None:
    plain = out.options.ascii_only
    marks = [dataclasses.replace(mark, symbol="ox"[i]) if plain else mark for i, mark in enumerate(curves.marks)]
    plots = [
        text_plot(
            "error against mu_std",
            curves.mu_std,
            curves.error,
            [(mark.mu_std, mark.error, mark.symbol) for mark in marks],
            log=bool(curves.error.any()),
            plain=plain,
        ),
        text_plot(
            "share of rows against mu_std",
            curves.mu_std,
            curves.share,
            [(mark.mu_std, mark.share, mark.symbol) for mark in marks],
            plain=plain,
        ),
    ]
    out.print()
    out.print(Columns(plots, padding=(0, 4)))
    for mark in marks:
        out.print(
            f"{mark.symbol} {mark.name}: mu_std {mark.mu_std:.3g}, error {mark.error:.3g}, "
            f"{100 * mark.share:.1f} % of the rows",
            highlight=False,
        )


def _write_picture(curves: _Curves, path: Path, title: str) -> None:
    """Both curves side by side, as PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.8), layout="constrained")
    figure.suptitle(title, fontsize=9, family="monospace")
    parts = (
        ("chance of a wrong decision", curves.error, [mark.error for mark in curves.marks]),
        ("expected share of rows read", curves.share, [mark.share for mark in curves.marks]),
    )
    for axes, (name, values, marked) in zip(figure.subplots(1, 2), parts, strict=True):
        axes.plot(curves.mu_std, values, color=PALETTE[0])
        for mark, value, colour in zip(curves.marks, marked, PALETTE[1:], strict=False):
            label = f"{mark.name}: {value:.3g}"
            axes.plot(
                min(mark.mu_std, curves.mu_std[-1]), value, "o", color=colour, label=label, clip_on=False, zorder=3
            )
        axes.set(xlabel="mu_std: how clear the case is", ylabel=name, xlim=(0, curves.mu_std[-1]))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    errors, shares = figure.axes
    shares.set_ylim(0, 1.05)
    if curves.error.any():
        low, high = decades(curves.error)
        errors.set(yscale="log", ylim=(10**low, 10**high))
    figure.savefig(path, dpi=130)
