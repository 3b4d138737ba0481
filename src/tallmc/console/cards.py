"""Results as notebooks show them: a heading, what speaks against them, and a few lines."""

import html
from collections.abc import Iterable

# Colours that can be read on white and on black.
_DOUBT = "border-left: 4px solid #e69f00; padding: .2em .8em; margin: .3em 0"


def card(heading: str, lines: Iterable[tuple[str, str]], doubts: Iterable[str] = (), rest: str = "") -> str:
    """HTML of a result.

    Args:
        heading: What it is.
        lines: Names and what they stand for.
        doubts: What a reader must not miss.
        rest: Further HTML, as it is.

    Example:
        >>> card("A run", [("draws", "4 < 5")])
        '<b>A run</b><table><tr><td>draws</td><td style="text-align: left">4 &lt; 5</td></tr></table>'
    """
    warnings = "".join(f'<div style="{_DOUBT}">{html.escape(doubt)}</div>' for doubt in doubts)
    cells = "".join(
        f'<tr><td>{html.escape(name)}</td><td style="text-align: left">{html.escape(text)}</td></tr>'
        for name, text in lines
    )
    return f"<b>{html.escape(heading)}</b>{warnings}{f'<table>{cells}</table>' if cells else ''}{rest}"
