"""Experiments as data: a folder each, with `experiment.toml`.

The folders lie inside the package, so that they come with an installed wheel; `experiments/` at the top of the
repository leads to them.
"""

import dataclasses
import importlib
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from tallmc.reproduce.expected import Expected
from tallmc.reproduce.kind import Kind

FOLDER = Path(__file__).with_name("experiments")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An experiment of a paper: what to run and what to expect.

    Args:
        name: Name on the command line, and of its folder.
        title: One line.
        paper: Authors and year.
        place: Section, tables and figures of the paper.
        summary: What it shows, in a few sentences.
        kind: Class that measures it, as `module.Class` of this room.
        settings: Of the full size.
        quick: What quick runs set otherwise.
        expected: The paper's figures, as tables.
        order: Place in the list.
    """

    name: str
    title: str
    paper: str
    place: str
    summary: str
    kind: str
    settings: dict[str, Any]
    quick: dict[str, Any]
    expected: tuple[dict[str, Any], ...]
    order: int

    def measured_by(self, *, quick: bool) -> Kind:
        """The object that measures it, at this size."""
        module, _, name = self.kind.rpartition(".")
        found = getattr(importlib.import_module(f"tallmc.reproduce.{module}"), name)
        try:
            return found(**self.settings_of(quick=quick))
        except TypeError as error:
            raise ValueError(f"the settings of {self.name} do not fit {name}: {error}") from error

    def settings_of(self, *, quick: bool) -> dict[str, Any]:
        """Settings of this size."""
        return {**self.settings, **(self.quick if quick else {})}

    def figures(self, *, quick: bool) -> list[Expected]:
        """What to expect at this size."""
        found = [Expected.read(table, self.name, quick=quick) for table in self.expected]
        return [one for one in found if not (quick and one.full_only)]


@cache
def experiments() -> dict[str, Experiment]:
    """All experiments by name, in the order of the list.

    Example:
        >>> "correction-law" in experiments()
        True
    """
    found = [_read(path) for path in FOLDER.glob("*/experiment.toml")]
    return {one.name: one for one in sorted(found, key=lambda one: (one.order, one.name))}


def experiment_named(name: str) -> Experiment:
    """The experiment of this name."""
    known = experiments()
    if name not in known:
        raise ValueError(f"there is no experiment {name!r}; there are {', '.join(known)}")
    return known[name]


def _read(path: Path) -> Experiment:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        return Experiment(
            path.parent.name.replace("_", "-"),
            table["title"],
            table["paper"],
            table["place"],
            " ".join(table["summary"].split()),
            table["kind"],
            table.get("settings", {}),
            table.get("quick", {}),
            tuple(table.get("expected", ())),
            int(table["order"]),
        )
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise ValueError(f"cannot read {path.parent.name}/{path.name}: {error!r}") from error
