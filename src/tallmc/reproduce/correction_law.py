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
        """A part for each column of the table, and the best laws."""
        return (*self._columns, "the best laws")

    @property
    def _columns(self) -> dict[str, tuple[int, float]]:
        return {f"N {count}, sigma {sigma:g}": (count, sigma) for count in self.points for sigma in self.sigmas}

    def measure(self, part: str, bench: Bench) -> Measured:
        """Largest errors of the distribution function."""
        del bench
        if part == "the best laws":
            errors = [correction_law(sigma).max_error for sigma in self.best_sigmas]
            figures = {f"best, sigma {s:g}": Figure(e) for s, e in zip(self.best_sigmas, errors, strict=True)}
            return Measured(figures, {"sigma": self.best_sigmas, "error": errors})
        count, sigma = self._columns[part]
        figures, drawn = {}, []
        for ridge in self.ridges:
            found = ridge_correction(sigma, count, ridge)
            figures[f"{part}, lambda {ridge:g}"] = Figure(found.max_error)
            figures[f"{part}, lambda {ridge:g}, scaled to one"] = Figure(found.renormalised_max_error)
            drawn.append(found.renormalised_max_error)
        return Measured(figures, {"sigma": [sigma], "error": [min(drawn)]})

    def pictures(self, found: Mapping[str, Measured]) -> dict[str, str]:
        """Error against sigma."""
        best = found["the best laws"].curves
        series = [Series("the best law", best["sigma"], best["error"])]
        for colour, count in enumerate(self.points, 1):
            columns = [found[part].curves for part, (points, _) in self._columns.items() if points == count]
            places, errors = ([column[name][0] for column in columns] for name in ("sigma", "error"))
            series.append(Series(f"the paper's, N {count}, its best lambda", places, errors, Mark.POINTS, colour))
        title = "Error of a correction law against sigma"
        return {title: plot(title, series, "sigma of the normal part", "largest error of the CDF", log_y=True)}
