"""The page that a report is: its style in light, dark and print, and the parts that all of its sections use."""

import html
from collections.abc import Sequence

_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1f2328; --soft: #57606a; --line: #d8dee4; --tint: #f6f8fa;
  --link: #0759a4; --doubt: #fff4d6; --edge: #b07d00; --well: #e9f7ef; --good: #1a7f4b;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b8578f; --c4: #b07d00; --c5: #3d9cd6; }
@media (prefers-color-scheme: dark) { :root { --paper: #0f1419; --ink: #e6edf3; --soft: #9da7b1; --line: #30363d;
  --tint: #171d24; --link: #6cb6ff; --doubt: #33290f; --edge: #e6b422; --well: #10271b; --good: #4ac27d;
  --c0: #4ba3e3; --c1: #ff8a4c; --c2: #2ec79a; --c3: #e08cbb; --c4: #e6b422; --c5: #8fd0ff; } }
@media print { :root { color-scheme: light; --paper: #fff; --ink: #000; --soft: #444; --line: #ccc; --tint: #fff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.55; overflow-wrap: break-word;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2rem clamp(1rem, 4vw, 2rem) 4rem; }
h1 { font-size: clamp(1.5rem, 5vw, 2rem); margin: 0 0 .3rem; line-height: 1.2; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .4rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
p { max-width: 46rem; margin: .4rem 0 1rem; }
a { color: var(--link); }
.lead, figcaption, footer, .tile span, summary { color: var(--soft); }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; list-style: none; padding: 0; margin: 1.2rem 0; }
nav a { display: inline-block; padding: .25rem 0; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 1rem; top: .5rem; background: var(--paper); padding: .3rem .6rem; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; border-radius: 3px; }
.note { border-left: 4px solid var(--edge); background: var(--doubt); padding: .6rem .9rem; margin: .6rem 0;
  max-width: 46rem; }
.note.said { border-color: var(--line); background: var(--tint); }
.note.good { border-color: var(--good); background: var(--well); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .7rem; margin: 1rem 0; }
.tile { background: var(--tint); border: 1px solid var(--line); border-radius: 8px; padding: .6rem .9rem; }
.tile b { display: block; font-size: 1.4rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.tile span { font-size: .85rem; display: block; line-height: 1.35; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(17rem, 100%), 1fr)); gap: .8rem; }
.panel { width: 100%; height: auto; background: var(--tint); border: 1px solid var(--line); border-radius: 8px;
  font: 11px system-ui, sans-serif; }
.alone { max-width: 44rem; }
.panel text { fill: var(--soft); } .panel .label { fill: var(--ink); font-weight: 600; }
.panel .axis { stroke: var(--soft); fill: none; } .panel .grid { stroke: var(--line); fill: none; }
.panel .curve { stroke-width: 1.6; fill-opacity: .14; } .panel .area { fill-opacity: .14; }
.panel .band { fill: var(--soft); fill-opacity: .16; }
.panel .expected { stroke: var(--ink); stroke-dasharray: 3 3; stroke-opacity: .6; fill: none; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0; margin: .4rem 0; }
.legend i, .times i { display: inline-block; width: 1.1rem; height: .7rem; border-radius: 2px; margin-right: .4rem; }
.wide { overflow-x: auto; }
.wide figure, figure img { max-width: 100%; }
figure { margin: 1rem 0; }
figure img { height: auto; background: #fff; border-radius: 8px; padding: .4rem; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; margin: .4rem 0 1rem; }
th, td { padding: .3rem .65rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; font-weight: 500; padding-left: .2rem; position: sticky; left: 0;
  background: var(--paper); }
thead th { color: var(--soft); font-weight: 600; border-bottom: 2px solid var(--line); }
tbody tr:hover > * { background: var(--tint); }
.about td { text-align: left; white-space: normal; min-width: 10rem; }
.times { display: flex; height: .9rem; border-radius: 4px; overflow: hidden; max-width: 46rem; margin: .4rem 0; }
.times i { margin: 0; border-radius: 0; height: 100%; }
pre { overflow-x: auto; background: var(--tint); padding: .6rem .9rem; border-radius: 8px; }
footer { margin-top: 3rem; font-size: .85rem; }
@media (max-width: 34rem) { th, td { padding: .3rem .5rem; } th:first-child { min-width: 6.5rem; max-width: 40vw;
  white-space: normal; overflow-wrap: break-word; } }
@media print { nav, .skip { display: none; } h2 { break-after: avoid; } .panel, table { break-inside: avoid; } }
"""


def page(title: str, top: str, sections: Sequence[tuple[str, str]]) -> str:
    """A whole page, with links to its sections.

    Args:
        title: In the window's title bar.
        top: HTML above the links.
        sections: Heading and HTML of each.
    """
    links = "".join(f"<li><a href='#{_anchor(name)}'>{html.escape(name)}</a></li>" for name, _ in sections)
    body = "".join(
        f"<section aria-labelledby='{_anchor(name)}'><h2 id='{_anchor(name)}'>{html.escape(name)}</h2>{text}"
        "</section>\n"
        for name, text in sections
    )
    return (
        f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}</title>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta name='color-scheme' content='light dark'><link rel='icon' href='data:,'>"
        f"<style>{_STYLE}</style></head>\n<body><a class='skip' href='#{_anchor(sections[0][0])}'>Skip to "
        f"{html.escape(sections[0][0].lower())}</a><main>\n{top}\n<nav aria-label='Sections'><ul>{links}</ul></nav>\n"
        f"{body}</main></body></html>\n"
    )


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-")


def wide(table: str, label: str) -> str:
    """A table that a narrow screen scrolls sideways, also by the keyboard.

    Args:
        table: Its HTML.
        label: What it is.
    """
    return f"<div class='wide' role='region' tabindex='0' aria-label='{html.escape(label, quote=True)}'>{table}</div>"


def tile(figure: str, meaning: str) -> str:
    """A figure that is meant to be seen first.

    Args:
        figure: A number, in words.
        meaning: What it is.
    """
    return f"<div class='tile'><b>{html.escape(figure)}</b><span>{html.escape(meaning)}</span></div>"


def legend(names: Sequence[str]) -> str:
    """Names with the colours that panels give them, in order."""
    return "".join(
        f"<li><i style='background: var(--c{number % 6})'></i>{html.escape(name)}</li>"
        for number, name in enumerate(names)
    ).join(("<ul class='legend'>", "</ul>"))
