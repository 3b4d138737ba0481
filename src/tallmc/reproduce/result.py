"""What came out of an experiment, as JSON: lines, numbers, seed, versions and the machine."""

import dataclasses
import json
import os
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tallmc.reproduce.expected import Line
from tallmc.reproduce.kind import Figure, Measured

_FORMAT = 1
_PACKAGES = ("tallmc", "jax", "jaxlib", "equinox", "blackjax", "numpy", "scipy")


@dataclasses.dataclass(frozen=True)
class Result:
    """An experiment that was run.

    Args:
        name: Of the experiment.
        quick: Whether it was the small size.
        lines: The paper's figures beside ours.
        parts: What each part measured.
        seconds: How long each part took, by the clock on the wall and on the processor.
        about: Settings (the seed among them), versions and the machine.
        pictures: SVG by title.
    """

    name: str
    quick: bool
    lines: tuple[Line, ...]
    parts: dict[str, Measured]
    seconds: dict[str, dict[str, float]]
    about: dict[str, Any]
    pictures: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def understood(self) -> bool:
        """Whether every line holds, or differs for a reason that is known."""
        return all(line.understood for line in self.lines)

    @property
    def notes(self) -> list[str]:
        """What the parts want to be said, each once."""
        return list(dict.fromkeys(note for part in self.parts.values() for note in part.notes))

    @property
    def count(self) -> str:
        """How many lines hold, in words."""
        holds = sum(line.holds for line in self.lines)
        text = f"{holds} of {len(self.lines)} lines hold"
        differ, unknown = len(self.lines) - holds, sum(not line.understood for line in self.lines)
        if differ:
            text += f", {differ} differ{'s' if differ == 1 else ''}"
            text += f" ({unknown} for a reason that we do not know)" if unknown else " for a known reason"
        return text

    @property
    def duration(self) -> str:
        """How long all parts took, in words."""
        wall, processor = (sum(spent[clock] for spent in self.seconds.values()) for clock in ("wall", "processor"))
        return f"{wall:,.0f} s ({processor:,.0f} s of processor time)"

    def write(self, path: Path) -> None:
        """Writes everything but the pictures."""
        lines = [{**dataclasses.asdict(line), "verdict": line.verdict} for line in self.lines]
        parts = {name: as_json(part) for name, part in self.parts.items()}
        table = {"format": _FORMAT, "experiment": self.name, "quick": self.quick, "lines": lines}
        write_json(path, {**table, **self.about, "seconds": self.seconds, "parts": parts})


def read_result(path: Path, pictures: dict[str, str] | None = None) -> Result:
    """A result that was written to a file."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        names = {field.name for field in dataclasses.fields(Line)}
        lines = tuple(Line(**{key: line[key] for key in names}) for line in table["lines"])
        parts = {name: measured_from(part) for name, part in table["parts"].items()}
        about = {key: table[key] for key in ("settings", "versions", "machine") if key in table}
        return Result(table["experiment"], table["quick"], lines, parts, table["seconds"], about, pictures or {})
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a result of tallmc reproduce: {error!r}") from error


def as_json(part: Measured) -> dict[str, Any]:
    """A part's numbers as what JSON knows."""
    figures = {name: dataclasses.asdict(figure) for name, figure in part.figures.items()}
    return {"figures": figures, "curves": dict(part.curves), "notes": list(part.notes)}


def measured_from(table: dict[str, Any]) -> Measured:
    """The inverse of `as_json`."""
    figures = {name: Figure(**figure) for name, figure in table["figures"].items()}
    return Measured(figures, table["curves"], tuple(table["notes"]))


def write_json(path: Path, table: dict[str, Any]) -> None:
    """All of the file or nothing, so that an interrupted run leaves no half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(table, file, indent=1, ensure_ascii=False, default=_plain)
        file.write("\n")
    Path(name).replace(path)
    path.chmod(0o644)


def _plain(value: Any) -> Any:
    if not isinstance(value, np.ndarray | np.generic):
        raise TypeError(f"{type(value).__name__} cannot be written as JSON")
    return value.tolist()


def versions() -> dict[str, str]:
    """Of Python and of what the figures depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def machine() -> dict[str, Any]:
    """How large the machine is; nothing that names it."""
    import jax

    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        cores = os.cpu_count()
    device = jax.devices()[0]
    return {
        "cpu_cores": cores,
        "system": platform.system(),
        "architecture": platform.machine(),
        "jax": device.device_kind,
    }
