"""Optimisation by tests of an update's direction: what the printed test lets through, and loss by rows read."""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

import tallmc as tm
from tallmc.reproduce import prepared
from tallmc.reproduce.kind import Bench, Figure, Kind, Measured
from tallmc.reproduce.svg import Mark, Series, plot
from tallmc.reproduce.wrong_directions import share_of_wrong_directions

_TESTS = {"as printed": tm.optimise.Printed, "split halves": tm.optimise.SplitHalves}


def loss(X: np.ndarray, y: np.ndarray, position: np.ndarray) -> float:
    """Mean negative log likelihood of a logistic regression."""
    predictor = (X @ position.astype(X.dtype)).astype(np.float64)
    return float(np.mean(np.logaddexp(0, predictor) - y * predictor))


@dataclasses.dataclass(frozen=True)
class Optimiser(Kind):
    """Figures 2 and 3 of Korattikara et al., Sequential tests for large-scale learning.

    Args:
        epsilon: Of the tests.
        tests: Updates whose direction is looked at.
        dimensions: Columns of the generated regressions.
        digit_rows: Of 3 against the rest.
        flight_rows: Of the median regression.
        descent_rows: That stochastic gradients read, at each point of their curve.
        constants: Of the steps of stochastic gradients: c1 (c2 + t)^-c3.
        seed: Of orders and rows.
    """

    epsilon: float
    tests: int
    dimensions: list[int]
    digit_rows: int
    flight_rows: int
    descent_rows: list[int]
    constants: list[float]
    seed: int

    @property
    def data_files(self) -> tuple[str, ...]:
        """All digits, and flights in the place of the Million Song data."""
        return "mnist.npz", "nycflights13.npz"

    @property
    def parts(self) -> tuple[str, ...]:
        """Wrong directions, and two regressions."""
        wrong = (f"wrong directions, {name}, d = {d}" for name in _TESTS for d in self.dimensions)
        return (*wrong, "3 against the rest", "median regression")

    def measure(self, part: str, bench: Bench) -> Measured:
        """One part."""
        if part == "3 against the rest":
            return self._digits(bench)
        if part == "median regression":
            return self._flights(bench)
        _, test, columns = part.split(", ")
        X, y, _ = tm.models.generate_logistic(200_000, int(columns.removeprefix("d = ")), self.seed)
        wrong, early = share_of_wrong_directions(
            tm.optimise.Logistic(X, y), _TESTS[test], self.tests, 1.0, epsilon=self.epsilon, first_rows=200
        )
        error = float(np.sqrt(max(wrong * (1 - wrong), 1 / self.tests) / self.tests))
        figures = {f"{part}": Figure(100 * wrong, 100 * error), f"{part}, before all rows": Figure(100 * early)}
        return Measured(figures)

    def _digits(self, bench: Bench) -> Measured:
        X, y, other, truth = prepared.pairs(bench.data.load("mnist.npz"), 3)
        X, y = X[: self.digit_rows], y[: self.digit_rows]
        X, other = prepared.principal(X, other, 50)
        options = {"epsilon": self.epsilon, "first_rows": len(X) // 1000}
        final, ours = _path(X, y, other, truth, **options)
        _, batch = _path(X, y, other, truth, first_rows=len(X))
        descent = [
            (float(rows), loss(other, truth, position))
            for rows, position in zip(self.descent_rows, self._descend(X, y), strict=True)
        ]
        best, enough = loss(other, truth, final.position), 0.02
        figures = {
            "passes, 3 against the rest": Figure(float(final.passes)),
            "rows to within 2 % of the least loss, tests over batch": Figure(
                _rows_to(ours, best + enough * best) / _rows_to(batch, best + enough * best)
            ),
            "test error, 3 against the rest": Figure(100 * float(np.mean((other @ final.position > 0) != truth))),
            "loss of SGD over ours": Figure(descent[-1][1] / best),
        }
        curves = {"sequential tests": ours, "all rows": batch, "SGD": descent}
        return Measured(figures, curves)

    def _descend(self, X: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        """One row a step, as in the paper; positions after so many rows."""
        generator = np.random.default_rng(self.seed)
        first, second, third = self.constants
        position, found, X = np.zeros(X.shape[1]), [], X.astype(float)
        order = generator.integers(len(X), size=max(self.descent_rows))
        for number, row in enumerate(order, 1):
            pull = y[row] - 1 / (1 + np.exp(-np.clip(X[row] @ position, -500, 500)))
            position = position + first * (second + number) ** -third * pull * X[row]
            if number in self.descent_rows:
                found.append(position)
        return found

    def _flights(self, bench: Bench) -> Measured:
        X, y = prepared.flights(bench.data.load("nycflights13.npz"))
        chosen = np.random.default_rng(self.seed).permutation(len(y))[: self.flight_rows]
        X, y = X[chosen], y[chosen]
        ours = tm.optimise.least_absolute_deviation(X, y, epsilon=self.epsilon, first_rows=max(100, len(y) // 1000))
        batch = tm.optimise.least_absolute_deviation(X, y, first_rows=len(y))
        sums = [float(np.abs(y - X @ found.position).sum()) for found in (ours, batch)]
        figures = {
            "median regression, sum of residuals over batch": Figure(sums[0] / sums[1]),
            "median regression, rows over batch": Figure(float(ours.rows_read) / float(batch.rows_read)),
        }
        note = "Median regression is on 2013's flights from New York: the Million Song data cannot be had here."
        return Measured(figures, notes=(note,))

    def pictures(self, found: Mapping[str, Measured]) -> dict[str, str]:
        """Figure 3: loss by rows read."""
        title = "Figure 3: test loss by rows read, 3 against the rest"
        series = [
            Series(name, [rows for rows, _ in points], [value for _, value in points], Mark.LINE, colour)
            for colour, (name, points) in enumerate(found["3 against the rest"].curves.items())
        ]
        return {title: plot(title, series, "rows read", "test loss", log_x=True, log_y=True)}


def _path(X: np.ndarray, y: np.ndarray, other: np.ndarray, truth: np.ndarray, **options: Any) -> tuple[Any, list]:
    """The optimum, and (rows read, test loss) after each iteration on the way to it."""
    final = tm.optimise.logistic(X, y, **options)
    points = []
    for count in range(1, len(final.rows_per_iteration)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            step = tm.optimise.logistic(X, y, max_iterations=count, **options)
        points.append((float(step.rows_read), loss(other, truth, step.position)))
    return final, points


def _rows_to(points: list[tuple[float, float]], wanted: float) -> float:
    """Rows that were read when the loss first was as small as that; infinitely many if it never was."""
    return next((rows for rows, value in points if value <= wanted), float("inf"))
