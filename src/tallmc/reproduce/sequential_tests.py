"""Error and data use of sequential tests: the dynamic programme, and tests that are run."""

import dataclasses
from collections.abc import Mapping

import numpy as np
from scipy import stats

import tallmc as tm
from tallmc.reproduce.kind import Bench, Figure, Kind, Measured
from tallmc.reproduce.svg import Mark, Series, plot


@dataclasses.dataclass(frozen=True)
class SequentialTests(Kind):
    """Figures 1 and 10 to 12 of Korattikara et al. (2014), with figures that can be looked up.

    Args:
        epsilons: Errors allowed to one look.
        mu_stds: How clear cases are; 0 is the hardest.
        first_fraction: Share of the rows in a look.
        rows: Of the tests that are run.
        tests: How many are run of each kind.
        seed: Of their rows and orders.
    """

    epsilons: list[float]
    mu_stds: list[float]
    first_fraction: float
    rows: int
    tests: int
    seed: int

    @property
    def parts(self) -> tuple[str, ...]:
        """What is foretold, and what is run."""
        return "the dynamic programme", "tests that are run"

    def measure(self, part: str, bench: Bench) -> Measured:
        """One of the two."""
        del bench
        return self._foretold() if part == "the dynamic programme" else self._run()

    def _foretold(self) -> Measured:
        figures = {}
        for epsilon in self.epsilons:
            test = tm.design.sequential_test(np.array(self.mu_stds), self.first_fraction, epsilon)
            for mu_std, error, share in zip(
                self.mu_stds, np.asarray(test.error), np.asarray(test.data_fraction), strict=True
            ):
                figures[f"error, epsilon {epsilon:g}, mu_std {mu_std:g}"] = Figure(float(error))
                figures[f"share, epsilon {epsilon:g}, mu_std {mu_std:g}"] = Figure(float(share))
        for epsilon, batch in ((0.001, 50), (0.001, 500), (0.05, 50), (0.2, 500)):
            test = tm.design.sequential_test(0.0, batch / 13_000, epsilon)
            name = f"13,000 rows, epsilon {epsilon:g}, m {batch}"
            figures[f"error, {name}"] = Figure(float(test.error))
            figures[f"looks, {name}"] = Figure(float(test.data_fraction) * 13_000 / batch)
        moved = tm.design.acceptance_error(-1.0, 2.0, first_fraction=0.05, epsilon=0.05)
        figures["equation 6"] = Figure(float(moved.error))
        return Measured(figures)

    def _run(self) -> Measured:
        generator = np.random.default_rng(self.seed)
        curves, errors, shares = {}, [], []
        for epsilon in self.epsilons:
            found = [self._tested(generator, epsilon, mu_std) for mu_std in self.mu_stds]
            foretold = tm.design.sequential_test(np.array(self.mu_stds), self.first_fraction, epsilon)
            chance = np.asarray(foretold.error)
            # Of chances next to nothing a few wrong decisions in thousands are no evidence: half of one is allowed.
            standard = np.sqrt(chance * (1 - chance) / self.tests + (0.5 / self.tests) ** 2)
            errors += list(np.abs(np.array([wrong for wrong, _ in found]) - chance) / standard)
            shares += list(np.abs(np.array([share for _, share in found]) - np.asarray(foretold.data_fraction)))
            curves[f"{epsilon:g}"] = {"error": [wrong for wrong, _ in found], "share": [share for _, share in found]}
        figures = {
            "largest distance of an error, in standard errors": Figure(float(max(errors))),
            "largest distance of a share": Figure(float(max(shares))),
        }
        return Measured(figures, curves)

    def _tested(self, generator: np.random.Generator, epsilon: float, mu_std: float) -> tuple[float, float]:
        """Share of wrong decisions and of rows read, of t-tests without replacement as in the paper's Algorithm 1."""
        batch = round(self.first_fraction * self.rows)
        rows = generator.normal(size=self.rows)
        # In the hardest case the mean is on neither side, so deciding for the wrong one is deciding for a given one.
        rows = (rows - rows.mean()) / rows.std(ddof=1) + mu_std / np.sqrt(self.rows - 1)
        counts = np.arange(batch, self.rows + 1, batch)
        left = np.sqrt(np.maximum(1 - (counts - 1) / (self.rows - 1), 0))
        bounds = stats.t.isf(epsilon, counts - 1)
        wrong, read = 0.0, 0
        for _ in range(self.tests):
            drawn = generator.permutation(rows)
            means = np.cumsum(drawn)[counts - 1] / counts
            squares = np.cumsum(drawn**2)[counts - 1] / counts
            deviations = np.sqrt((squares - means**2) * counts / (counts - 1) / counts) * left
            sure = np.abs(means) > bounds * deviations
            sure[-1] = True  # all rows
            look = int(np.argmax(sure))
            early = look < len(counts) - 1
            wrong += (means[look] < 0) if mu_std else 0.5 * early
            read += counts[look]
        return float(wrong / self.tests), float(read / self.tests / self.rows)

    def pictures(self, found: Mapping[str, Measured]) -> dict[str, str]:
        """Curves of the programme, and points that were run."""
        places = np.linspace(0.0, max(self.mu_stds), 60)
        errors, shares = [], []
        for colour, epsilon in enumerate(self.epsilons):
            test = tm.design.sequential_test(places, self.first_fraction, epsilon)
            ran = found["tests that are run"].curves[f"{epsilon:g}"]
            for series, curve, points in (
                (errors, test.error, ran["error"]),
                (shares, test.data_fraction, ran["share"]),
            ):
                name = f"epsilon {epsilon:g}"
                series.append(Series(name, places.tolist(), np.asarray(curve).tolist(), Mark.LINE, colour))
                series.append(Series("", self.mu_stds, points, Mark.POINTS, colour))
        first, second = "Error of sequential tests: programme and tests", "Share of rows: programme and tests"
        return {
            first: plot(first, errors, "mu_std: how clear a case is", "chance of a wrong decision"),
            second: plot(second, shares, "mu_std: how clear a case is", "share of the rows read"),
        }
