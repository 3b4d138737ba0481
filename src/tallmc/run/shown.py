"""A run in words: one line at a prompt, a card in a notebook, and the notes of its summary."""

from typing import Any

from tallmc.console.cards import card
from tallmc.console.progress import few
from tallmc.posterior.labels import named
from tallmc.run.summary import timing_text

_MOST_VARIABLES = 4  # that a line names


def line_of(run: Any) -> str:
    """What it is, in one line."""
    rows = f"{few(run.stats['rows'].mean())} of {run.posterior.num_rows:,} rows a step"
    count = len(run.doubts)
    doubted = f"{count} doubt{'s' if count > 1 else ''}, see .doubts" if count else "no doubts"
    done = f"{run.num_chains} chains of {run.num_draws:,} draws of {_variables(run)}"
    return f"<Run: {done}; {_kernel(run)}, {rows}; {doubted}>"


def card_of(run: Any) -> str:
    """HTML: what speaks against it first, then what it found."""
    lines = [("draws", f"{run.num_chains} chains of {run.num_draws:,}"), ("of", _variables(run))]
    lines.append(("moved by", _kernel(run)))
    if run.timing:
        lines.append(("time", timing_text(run.timing)))
    if run.audit is not None:
        lines.append(("audit", str(run.audit)))
    return card("Run", lines, notes_of(run), run.summary().table_html())


def parts_of(run: Any) -> tuple[str, ...]:
    """What each part of a kernel made of kernels did, a line each."""
    if run.exchanges is not None:
        return tuple(str(run.exchanges).splitlines())
    parts, lines = run.kernel.parts(), []
    for number, part in enumerate(parts if len(parts) > 1 else ()):
        stats = run.part_stats(number)
        share, moved = stats["rows"].size / run.stats["rows"].size, stats["accepted"]
        done = f"accepted {moved.mean():.3f}, rows per step {few(stats['rows'].mean())}" if moved.size else "none"
        lines.append(f"part {number} ({part.label})   {100 * share:.0f} % of the steps: {done}")
    return tuple(lines)


def notes_of(run: Any) -> tuple[str, ...]:
    """What a reader of the summary must not miss."""
    notes = [f"stopped early: {run.num_draws} draws of each chain"] if run.interrupted else []
    if nonfinite := int(run.stats["nonfinite"].sum()):
        notes.append(f"{nonfinite} proposals were rejected because a row's log likelihood ratio was not finite")
    notes += run.doubts
    notes += () if run.exchanges is None else run.exchanges.warnings
    parts = run.kernel.parts()
    for number, part in enumerate(parts):
        stats = run.part_stats(number)
        said = part.notes(stats, run.session.model) + part.warnings(stats)
        notes += [f"part {number}: {note}" for note in said] if len(parts) > 1 else said
    return tuple(notes)


def _kernel(run: Any) -> str:
    return ", ".join(part.label for part in run.kernel.parts())


def _variables(run: Any) -> str:
    shapes = {name: leaf.shape[2:] for name, leaf in named(run.samples, run.posterior.labels).items()}
    told = [f"{name} ({' x '.join(map(str, shape))})" if shape else name for name, shape in shapes.items()]
    more = len(told) - _MOST_VARIABLES
    return ", ".join(told[:_MOST_VARIABLES]) + (f" and {more} more" if more > 0 else "")
