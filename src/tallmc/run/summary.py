"""A run in one table and a few lines."""

import dataclasses
import html
from typing import TYPE_CHECKING

import numpy as np

from tallmc.console.progress import few

if TYPE_CHECKING:
    import pandas


@dataclasses.dataclass(frozen=True)
class Summary:
    """A table of estimates, and what they cost.

    Args:
        table: One line a coordinate, from arviz-stats.
        costs: One number a name.
        notes: What a reader must not miss.
        audit: What became of decisions that were checked on all rows; empty if none were.
        parts: What each part of a kernel made of kernels did; empty for others.
        timing: Seconds of the call, by phase.
    """

    table: "pandas.DataFrame"
    costs: dict[str, float]
    notes: tuple[str, ...]
    audit: str = ""
    parts: tuple[str, ...] = ()
    timing: dict[str, float] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        costs = self.costs
        lines = [
            _readable(self.table),
            "",
            f"accepted        {costs['acceptance']:.3f}",
            f"rows per step   mean {few(costs['rows_mean'])}, median {costs['rows_median']:,.0f}, "
            f"95 % {costs['rows_95']:,.0f}, max {costs['rows_max']:,.0f}; "
            f"{100 * costs['share_of_rows']:.3g} % of all rows on average",
            f"all rows used   in {100 * costs['used_all_rows']:.3g} % of the tests",
            f"likelihood evaluations per effective sample (worst coordinate)   {costs['evaluations_per_ess']:,.0f}",
        ]
        if "gradients_mean" in costs:
            few_or_many = f"mean {few(costs['gradients_mean'])}, max {costs['gradients_max']:,.0f}"
            lines.insert(4, f"gradients       {few_or_many} a step, each of all rows")
        if "error_mean" in costs:
            lines.append(f"estimated error of the acceptance probability   {costs['error_mean']:.1e} on average")
        lines += self.parts
        if self.timing:
            lines.append(f"time            {timing_text(self.timing)}")
        if self.audit:
            lines.append(self.audit)
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def table_html(self) -> str:
        """The table alone."""
        return _renamed(self.table).to_html(float_format="{:.4g}".format)

    def _repr_html_(self) -> str:
        return f"{self.table_html()}<pre>{html.escape(str(self).split(chr(10) * 2, 1)[1])}</pre>"


def _readable(table: "pandas.DataFrame") -> str:
    return _renamed(table).to_string(float_format="{:.4g}".format)


def _renamed(table: "pandas.DataFrame") -> "pandas.DataFrame":
    renamed = table.rename(columns={"eti90_lb": "5%", "eti90_ub": "95%"})
    for name in ("ess_bulk", "ess_tail"):
        if name in renamed:
            renamed[name] = [f"{value:,.0f}" for value in renamed[name]]
    return renamed


def timing_text(timing: dict[str, float]) -> str:
    """The whole call, and the phases that took a hundredth of it or more, the longest first.

    Example:
        >>> timing_text({"mode": 0.5, "compiling": 2.0, "audit": 0.001, "total": 2.6})
        '2.6 s: compiling 2, mode 0.5'
    """
    total = timing["total"]
    phases = sorted(((spent, name) for name, spent in timing.items() if name != "total"), reverse=True)
    named = [f"{name} {spent:.2g}" for spent, name in phases if spent >= 0.01 * total]
    return f"{total:.2g} s: {', '.join(named)}" if named else f"{total:.2g} s"


def costs_of(stats: dict[str, np.ndarray], num_rows: int, setup_rows: int, fewest: float) -> dict[str, float]:
    """What draws cost.

    Args:
        stats: Of all of them.
        num_rows: Rows of data.
        setup_rows: Rows read outside the tests.
        fewest: Effective draws of the worst coordinate.
    """
    rows = stats["rows"]
    # Two likelihoods a row, at the current position and at the proposed one; or as many as there were gradients.
    gradients = stats.get("gradients", np.zeros(1, int))
    followed = gradients[gradients > 0]
    evaluations = np.sum(stats.get("evaluations", np.where(gradients > 0, gradients, 2) * rows.astype(float)))
    costs = {
        "acceptance": float(stats["accepted"].mean()),
        "rows_mean": float(rows.mean()),
        "rows_median": float(np.median(rows)),
        "rows_95": float(np.quantile(rows, 0.95)),
        "rows_max": float(rows.max()),
        "share_of_rows": float(rows.mean() / num_rows),
        "used_all_rows": float(stats["used_all_rows"].mean()),
        "evaluations_per_ess": (float(evaluations) + setup_rows) / fewest,
        "nonfinite": float(stats["nonfinite"].sum()),
    }
    if followed.size:
        costs |= {"gradients_mean": float(followed.mean()), "gradients_max": float(followed.max())}
    if "error" in stats:
        costs["error_mean"] = float(np.nanmean(stats["error"]))
    return costs
