"""How well normal noise plus a correction is logistic: the paper's own construction, and the best there is."""

import dataclasses
from collections.abc import Mapping

from tallmc.acceptance.correction import correction_law, ridge_correction
from tallmc.reproduce.kind import Bench, Figure, Kind, Measured
from tallmc.reproduce.svg import Mark, Series, plot


@dataclasses.dataclass(frozen=True)
class CorrectionLaws(Kind):
    """Table 3 of Seita et al. (2018), a cell a figure.

    Args:
        points: N of the paper, each a half of the table.
        sigmas: Standard deviations of the normal part.
        ridges: lambda of the paper.
        best_sigmas: At which the best law is worked out.
    """

    points: list[int]
    sigmas: list[float]
    ridges: list[float]
    best_sigmas: list[float]

    @property
    def parts(self) -> tuple[str, ...]:
        """A part for each half of the table, and the best laws."""
        return (*(f"N {count}" for count in self.points), "the best laws")

    def measure(self, part: str, bench: Bench) -> Measured:
        """Largest errors of the distribution function."""
        del bench
        if part == "the best laws":
            errors = [correction_law(sigma).max_error for sigma in self.best_sigmas]
            figures = {f"best, sigma {s:g}": Figure(e) for s, e in zip(self.best_sigmas, errors, strict=True)}
            return Measured(figures, {"sigma": self.best_sigmas, "error": errors})
        count = int(part.removeprefix("N "))
        cells = {(s, r): ridge_correction(s, count, r) for s in self.sigmas for r in self.ridges}
        figures = {f"{part}, sigma {s:g}, lambda {r:g}": Figure(cell.max_error) for (s, r), cell in cells.items()}
        drawn = {
            f"{part}, sigma {s:g}, lambda {r:g}, scaled to one": Figure(cell.renormalised_max_error)
            for (s, r), cell in cells.items()
        }
        least = [min(cells[s, r].renormalised_max_error for r in self.ridges) for s in self.sigmas]
        return Measured({**figures, **drawn}, {"sigma": self.sigmas, "error": least})

    def pictures(self, found: Mapping[str, Measured]) -> dict[str, str]:
        """Error against sigma."""
        series = [
            Series(
                name, curves["sigma"], curves["error"], Mark.POINTS if name != "the best laws" else Mark.LINE, colour
            )
            for colour, (name, curves) in enumerate((name, part.curves) for name, part in found.items())
        ]
        title = "Error of a correction law against sigma"
        names = {"the best laws": "the best law"}
        renamed = [
            dataclasses.replace(one, name=names.get(one.name, f"the paper's, {one.name}, best lambda"))
            for one in series
        ]
        return {title: plot(title, renamed, "sigma of the normal part", "largest error of the CDF", log_y=True)}
