"""Reports of runs. What writes them stands above this room, and makes itself known when it is loaded."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Writer = Callable[..., Path]
_writers: list[Writer] = []


def written_by(writer: Writer) -> Writer:
    """Makes a function the one that `Run.report` calls."""
    _writers[:] = [writer]
    return writer


def write(run: Any, path: str | os.PathLike[str], title: str) -> Path:
    """See `Run.report`."""
    target = Path(path)
    if target.suffix not in (".html", ".htm"):
        raise ValueError(f"a report is a page, so its path must end in .html, not {target.suffix or target.name!r}")
    if not target.parent.is_dir():
        raise ValueError(f"there is no folder {target.parent}; make it first")
    return _writers[0]({"run": run}, target, title)
