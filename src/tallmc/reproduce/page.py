"""One page of all results: it needs no network, reads in light and dark and on a phone, and prints."""

import html
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tallmc.reproduce.expected import Line
from tallmc.reproduce.experiment import Experiment, experiments
from tallmc.reproduce.result import Result
from tallmc.reproduce.runner import slug

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #57606a; --line: #d8dee4; --tint: #f6f8fa; --paper: #fff;
  --good: #116329; --known: #7d4e00; --bad: #a40e26; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9da7b1; --line: #373e47; --tint: #161b22;
  --paper: #0d1117; --good: #56d364; --known: #e3b341; --bad: #ff7b72; } }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.55;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 66rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
h1 { font-size: 1.9rem; margin: 0 0 .3rem; line-height: 1.2; }
h2 { font-size: 1.25rem; margin: 2.8rem 0 .2rem; padding-top: 1rem; border-top: 1px solid var(--line); }
p, li { max-width: 46rem; } p { margin: .4rem 0 1rem; }
a { color: inherit; }
.soft, footer { color: var(--soft); }
figure { margin: 1rem 0; max-width: 42rem; } figure svg { width: 100%; height: auto; display: block; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem .35rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; border-bottom: 2px solid var(--line); }
.number { white-space: nowrap; }
.source, .reason { display: block; color: var(--soft); font-size: .92em; }
.holds { color: var(--good); } .known { color: var(--known); } .unknown { color: var(--bad); font-weight: 600; }
footer { margin-top: 3rem; font-size: .85rem; }
@media (max-width: 40rem) { main { padding: 1.2rem .9rem 3rem; } thead { display: none; }
  tr { display: block; padding: .6rem 0; border-bottom: 1px solid var(--line); }
  td { display: block; border: 0; padding: .1rem 0; white-space: normal; }
  td[data-name]::before { content: attr(data-name) ": "; color: var(--soft); } }
@media print { :root { --ink: #000; --soft: #444; --line: #bbb; --paper: #fff;
  --good: #000; --known: #000; --bad: #000; } main { max-width: none; padding: 0; }
  h2 { break-after: avoid; } figure, tr { break-inside: avoid; } }
"""
_LEAD = """Each line has a figure as the paper printed it, ours, and how near the two must be. <b>Holds</b> means that
ours is that near. <b>Differs</b> comes with the reason, and a reason counts only if it foretells our figure."""


def write_page(results: Sequence[Result], path: Path, title: str = "The papers' experiments, run again") -> Path:
    """Writes results as one HTML file.

    Args:
        results: In the order of the page.
        path: Where to write; an existing file is replaced.
        title: Heading.

    Returns:
        The path written to.
    """
    known = experiments()
    body = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{_LEAD}</p>",
        _contents(results, known),
        *(_section(result, known[result.name]) for result in results),
        f"<footer>Written by tallmc {html.escape(version('tallmc'))}.</footer>",
    ]
    path.write_text(
        f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}</title>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'><link rel='icon' href='data:,'>"
        f"<style>{_STYLE}</style></head>\n<body><main>\n{chr(10).join(body)}\n</main></body></html>\n",
        encoding="utf-8",
    )
    return path


def _contents(results: Sequence[Result], known: dict[str, Experiment]) -> str:
    titles = {result.name: html.escape(known[result.name].title) for result in results}
    lines = (
        f"<li><a href='#{slug(one.name)}'>{titles[one.name]}</a>: {html.escape(one.count)}</li>" for one in results
    )
    return f"<ul>{''.join(lines)}</ul>"


def _section(result: Result, about: Experiment) -> str:
    size = "quick" if result.quick else "full size"
    settings = ", ".join(f"{name} {value}" for name, value in result.about.get("settings", {}).items())
    machine = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in result.about.get("machine", {}).items())
    versions = ", ".join(f"{name} {value}" for name, value in result.about.get("versions", {}).items())
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in result.notes)
    pictures = "".join(f"<figure>{svg}</figure>" for svg in result.pictures.values())
    lines = "".join(_line(line) for line in result.lines)
    return (
        f"<h2 id='{slug(result.name)}'>{html.escape(about.title)}</h2>"
        f"<p class='soft'>{html.escape(about.paper)}, {html.escape(about.place)}. {html.escape(result.count)}; {size}, "
        f"{result.duration}.</p><p>{html.escape(about.summary)}</p>{notes}{pictures}"
        "<table><thead><tr><th>figure</th><th>paper</th><th>ours</th><th>tolerance</th><th></th></tr></thead>"
        f"<tbody>{lines}</tbody></table>"
        f"<p class='soft'><small>Settings: {html.escape(settings)}. {html.escape(versions)}. {html.escape(machine)}."
        "</small></p>"
    )


def _line(line: Line) -> str:
    kind = "holds" if line.holds else "known" if line.understood else "unknown"
    reason = f"<span class='reason'>{html.escape(line.reason)}</span>" if line.reason else ""
    cells = (("paper", line.paper), ("ours", line.ours), ("tolerance", line.tolerance))
    numbers = "".join(f"<td class='number' data-name='{name}'>{html.escape(text)}</td>" for name, text in cells)
    return (
        f"<tr><td>{html.escape(line.label)}<span class='source'>{html.escape(line.source)}</span></td>{numbers}"
        f"<td><span class='{kind}'>{line.verdict}</span>{reason}</td></tr>"
    )
