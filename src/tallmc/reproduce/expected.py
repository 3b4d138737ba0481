"""The paper's figure beside ours: whether it holds, and if not, why."""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from tallmc.reproduce.kind import Figure

_TOLERANCES = ("digits", "relative", "absolute", "factor", "at_most", "at_least", "between")


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """How near two figures must be to be called the same.

    Args:
        name: One of `digits` (the same when rounded as printed), `relative`, `absolute`, `factor` (apart by this factor
            at most), `at_most`, `at_least`, or `between`.
        value: What goes with it.
        allowance: Our standard errors that are allowed for on top; 0: none.
    """

    name: str
    value: Any
    allowance: float = 0.0

    @classmethod
    def read(cls, table: Mapping[str, Any], where: str) -> "Tolerance":
        """From a table of `experiment.toml` such as `{relative = 0.1, standard_errors = 2}`."""
        names = [name for name in table if name != "standard_errors"]
        if len(names) != 1 or names[0] not in _TOLERANCES:
            raise ValueError(f"{where}: a tolerance needs one of {', '.join(_TOLERANCES)}, got {dict(table)}")
        return cls(names[0], table[names[0]], float(table.get("standard_errors", 0.0)))

    def holds(self, ours: Figure, wanted: str) -> bool:
        """Whether our figure is as near to the wanted one, as printed, as this asks."""
        if not math.isfinite(ours.value):
            return False
        slack = self.allowance * (ours.error or 0.0)
        low, high = self._range(wanted)
        return low - slack <= ours.value <= high + slack

    def _range(self, wanted: str) -> tuple[float, float]:
        if self.name == "at_most":
            return -math.inf, float(self.value)
        if self.name == "at_least":
            return float(self.value), math.inf
        if self.name == "between":
            low, high = self.value
            return float(low), float(high)
        centre = number_of(wanted)
        if self.name == "factor":
            return tuple(sorted((centre / self.value, centre * self.value)))  # pyright: ignore
        reach = {
            "digits": lambda: half_a_digit(wanted),
            "relative": lambda: abs(centre) * self.value,
            "absolute": lambda: float(self.value),
        }[self.name]()
        return centre - reach, centre + reach

    def __str__(self) -> str:
        shown = {
            "digits": lambda: "digits printed",
            "relative": lambda: f"± {100 * self.value:g} %",
            "absolute": lambda: f"± {self.value:g}",
            "factor": lambda: f"factor {self.value:g}",
            "at_most": lambda: f"at most {self.value:g}",
            "at_least": lambda: f"at least {self.value:g}",
            "between": lambda: f"{self.value[0]:g} to {self.value[1]:g}",
        }[self.name]()
        return shown + (f", or {self.allowance:g} standard errors more" if self.allowance else "")


@dataclasses.dataclass(frozen=True)
class Difference:
    """A difference that is understood: what comes out instead, and why.

    Args:
        value: What comes out, as text.
        tolerance: How near ours must be to that; if it is not, we do not understand the difference.
        because: The reason, in a sentence.
    """

    value: str
    tolerance: Tolerance
    because: str


@dataclasses.dataclass(frozen=True)
class Expected:
    """A figure of a paper.

    Args:
        figure: Name under which an experiment measures it.
        label: What it is, for the reader.
        paper: The figure, as printed.
        source: The sentence or table that it comes from.
        tolerance: How near ours must be.
        difference: What else may come out, and why.
        full_only: Left out of quick runs, because it needs the full size.
    """

    figure: str
    label: str
    paper: str
    source: str
    tolerance: Tolerance
    difference: Difference | None = None
    full_only: bool = False

    @classmethod
    def read(cls, table: Mapping[str, Any], where: str, *, quick: bool) -> "Expected":
        """From a table of `experiment.toml`; in quick runs what stands under `quick` goes before the rest."""
        table = {**table, **(table.get("quick", {}) if quick else {})}
        where = f"{where}, {table.get('figure', 'a figure without a name')}"
        missing = {"figure", "paper", "source", "tolerance"} - set(table)
        if missing:
            raise ValueError(f"{where}: {', '.join(sorted(missing))} is missing")
        difference = None
        if "differs" in table:
            known = table["differs"]
            difference = Difference(
                str(known["value"]), Tolerance.read(known["tolerance"], where), " ".join(known["because"].split())
            )
        return cls(
            table["figure"],
            table.get("label", table["figure"]),
            str(table["paper"]),
            " ".join(table["source"].split()),
            Tolerance.read(table["tolerance"], where),
            difference,
            table.get("full_only", False),
        )


@dataclasses.dataclass(frozen=True)
class Line:
    """The paper's figure, ours, the tolerance, and whether it holds.

    Args:
        label: What it is.
        paper: As printed.
        ours: As text, with its standard error.
        tolerance: As text.
        holds: Whether ours is as near as that.
        understood: Whether a difference has a reason that our figure bears out.
        reason: Of a difference, in a sentence.
        source: Where the paper says it.
    """

    label: str
    paper: str
    ours: str
    tolerance: str
    holds: bool
    understood: bool
    reason: str
    source: str

    @property
    def verdict(self) -> str:
        """One word."""
        return "holds" if self.holds else "differs"


def compare(expected: Expected, ours: Figure | None) -> Line:
    """Puts our figure beside the paper's.

    Example:
        >>> known = Expected("x", "a mean", "182.3", "Table 1", Tolerance("relative", 0.1))
        >>> compare(known, Figure(170.0)).verdict
        'holds'
    """
    known = expected.difference
    holds = ours is not None and expected.tolerance.holds(ours, expected.paper)
    understood, reason = holds, ""
    if ours is None:
        reason = "it was not measured"
    elif not holds and known is not None and known.tolerance.holds(ours, known.value):
        understood, reason = True, known.because
    elif not holds:
        reason = "we do not know why" if known is None else f"we do not know why; {known.value} was to be expected"
    return Line(
        expected.label,
        expected.paper,
        "-" if ours is None else shown(ours, expected.paper),
        str(expected.tolerance),
        holds,
        understood,
        reason,
        expected.source,
    )


def number_of(text: str) -> float:
    """The first number of a figure as printed: of '182.3 ± 11.4' the 182.3.

    Example:
        >>> number_of("13,540.5 ± 1,521.4")
        13540.5
    """
    found = re.search(r"-?\d[\d,]*(\.\d+)?([eE][-+]?\d+)?", text)
    if found is None:
        raise ValueError(f"there is no number in {text!r}")
    return float(found[0].replace(",", ""))


def half_a_digit(text: str) -> float:
    """Half a unit of the last digit printed, and a little more for figures that end in a five.

    Example:
        >>> round(half_a_digit("2.6e-3"), 8)
        5.01e-05
    """
    found = re.search(r"-?\d[\d,]*(?:\.(\d+))?(?:[eE]([-+]?\d+))?", text)
    if found is None:
        raise ValueError(f"there is no number in {text!r}")
    return 0.501 * 10.0 ** (int(found[2] or 0) - len(found[1] or ""))


def shown(ours: Figure, like: str = "") -> str:
    """A figure as text, with its error, written with an exponent if the paper's is."""
    exponent = bool(re.search(r"\d[eE][-+]?\d", like))
    if exponent or (ours.value and abs(ours.value) < 1e-3):
        text = f"{ours.value:.2e}"
    elif abs(ours.value) >= 1000:
        text = f"{ours.value:,.0f}"
    else:
        text = f"{ours.value:.4g}"
    if ours.error is None or not math.isfinite(ours.error):
        return text
    return f"{text} ± {ours.error:,.2g}" if ours.error < 1000 else f"{text} ± {ours.error:,.0f}"
