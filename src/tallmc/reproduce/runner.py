"""Runs an experiment part by part, and goes on where an earlier run stopped."""

import dataclasses
import hashlib
import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tallmc.reproduce.expected import compare
from tallmc.reproduce.experiment import Experiment
from tallmc.reproduce.folder import DataFolder
from tallmc.reproduce.kind import Bench, Figure, Kind, Measured
from tallmc.reproduce.result import Result, as_json, machine, measured_from, versions, write_json


def reproduce(
    experiment: Experiment,
    out: Path,
    data: DataFolder,
    *,
    quick: bool = False,
    again: bool = False,
    say: Callable[[str], None] = print,
) -> Result:
    """Measures what is not yet measured, compares with the paper, and writes numbers, draws and pictures.

    Args:
        experiment: What to run.
        out: Folder; the experiment gets one of its own in there.
        data: Where public data are.
        quick: The small size.
        again: Measure parts again that an earlier run kept.
        say: Tells the user what is being done.

    Returns:
        Lines, numbers and pictures.
    """
    kind = experiment.measured_by(quick=quick)
    for name in kind.data_files:
        data.find(name)  # trouble with data comes before the work
    folder = out / (experiment.name + ("-quick" if quick else ""))
    folder.mkdir(parents=True, exist_ok=True)
    settings = experiment.settings_of(quick=quick)
    bench = Bench(data, folder / "draws", say)
    parts, seconds = _measured(kind, bench, folder, _fingerprint(experiment, settings), again=again)
    about = {"settings": settings, "versions": versions(), "machine": machine()}
    figures = _all_figures(parts.values())
    lines = tuple(compare(one, figures.get(one.figure)) for one in experiment.figures(quick=quick))
    result = Result(experiment.name, quick, lines, parts, seconds, about, kind.pictures(parts))
    result.write(folder / "result.json")
    _write_pictures(result, folder / "pictures")
    return result


def _measured(
    kind: Kind, bench: Bench, folder: Path, fingerprint: str, *, again: bool
) -> tuple[dict[str, Measured], dict[str, dict[str, float]]]:
    parts, seconds = {}, {}
    for number, name in enumerate(kind.parts, 1):
        path = folder / "parts" / f"{slug(name)}.json"
        kept = None if again else _kept(path, fingerprint)
        if kept is None:
            bench.say(f"  part {number} of {len(kind.parts)}: {name}")
            began, busy = time.perf_counter(), time.process_time()
            # Through JSON and back, so that what is kept and what is shown are the same numbers.
            found = as_json(kind.measure(name, bench))
            spent = {"wall": time.perf_counter() - began, "processor": time.process_time() - busy}
            kept = {"fingerprint": fingerprint, "seconds": spent, "measured": found}
            write_json(path, kept)
            kept = json.loads(path.read_text(encoding="utf-8"))
        else:
            bench.say(f"  part {number} of {len(kind.parts)}: {name} (kept from an earlier run)")
        parts[name] = measured_from(kept["measured"])
        seconds[name] = {clock: round(spent, 2) for clock, spent in kept["seconds"].items()}
    return parts, seconds


def _kept(path: Path, fingerprint: str) -> dict[str, Any] | None:
    """What an earlier run of the same experiment at the same settings measured."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return kept if kept["fingerprint"] == fingerprint else None
    except (OSError, json.JSONDecodeError, KeyError, TypeError):
        return None


def _fingerprint(experiment: Experiment, settings: dict[str, Any]) -> str:
    """Changes with the kind, the settings and the version of the library."""
    text = json.dumps([experiment.kind, settings, versions()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _all_figures(parts: Sequence[Measured] | Any) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for part in parts:
        twice = set(found) & set(part.figures)
        if twice:
            raise RuntimeError(f"two parts measure {', '.join(sorted(twice))}")
        found.update(part.figures)
    return found


def _write_pictures(result: Result, folder: Path) -> None:
    for title, svg in result.pictures.items():
        folder.mkdir(exist_ok=True)
        (folder / f"{slug(title)}.svg").write_text(svg, encoding="utf-8")


def slug(title: str) -> str:
    """A file name for a title.

    Example:
        >>> slug("Figure 2: rows of a test")
        'figure-2-rows-of-a-test'
    """
    return re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-.")


def replace_settings(experiment: Experiment, **changed: Any) -> Experiment:
    """The same experiment with other settings, at both sizes; for tests and for readers who try things."""
    settings = {**experiment.settings, **changed}
    return dataclasses.replace(experiment, settings=settings, quick={**experiment.quick, **changed})
