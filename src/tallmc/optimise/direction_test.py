"""Tests of an update's direction: is it within 90 degrees of the update that all rows would make?"""

import abc
import dataclasses
from typing import ClassVar

import numpy as np

from tallmc.optimise.contract import LeastSquares, Problem, Sums
from tallmc.optimise.halved_rows import Halves
from tallmc.optimise.linear_algebra import Degenerate, update
from tallmc.optimise.update_kind import NewtonStep, UpdateKind


@dataclasses.dataclass
class Look:
    """What a test may look at: the rows in use, in two halves.

    Args:
        problem: What is optimised.
        position: Where it is now.
        rows: Where rows come from.
        halves: Sums over each half, the prior left out.
        size: Rows in each half.
        kind: What an update is.
    """

    problem: Problem
    position: np.ndarray
    rows: Halves
    halves: tuple[Sums, Sums]
    size: int
    kind: UpdateKind = dataclasses.field(default_factory=NewtonStep)

    def scaled(self, sums: Sums) -> Sums:
        """What the sums say of all rows, prior included."""
        return sums.scaled(self.problem.num_rows / sums.num_rows) + self.problem.prior(self.position)

    @property
    def pooled(self) -> Sums:
        """Both halves, scaled to all rows, prior included."""
        return self.scaled(self.halves[0] + self.halves[1])

    def update(self, sums: Sums) -> np.ndarray:
        """The update that sums over some rows call for."""
        return self.kind.of(self.scaled(sums), self.problem)


class DirectionTest(abc.ABC):
    """Decides whether the rows in use are enough for an update.

    Args:
        epsilon: Largest share of updates that may point more than 90 degrees away from the full-data update.
    """

    carries_rows: ClassVar[bool]
    """Whether an iteration begins with the rows of the one before it."""
    newton_only: ClassVar[bool] = False
    """Whether it knows no other updates than Newton's."""

    def __init__(self, epsilon: float = 0.01):
        if not 0 < epsilon < 0.5:
            raise ValueError(f"epsilon must be between 0 and 0.5, got {epsilon}; 0.01 is usual")
        self.epsilon = float(epsilon)

    @abc.abstractmethod
    def accepts(self, look: Look, looks: int) -> bool:
        """Whether the update from these rows may be made; `looks` is how many tests the iteration may make in all."""

    def check(self, problem: Problem) -> None:
        """Raises `ValueError` if this test cannot judge such a problem."""
        del problem


class SplitHalves(DirectionTest):
    """Direction from one half of the rows, tested with the other half, both ways round.

    Half one alone gives an update `d1`. Half two, which `d1` knows nothing of, estimates the inner product of `d1` and
    the full-data update, with a standard error: a one-sided t-test. Then the halves change places. If both tests pass,
    both halves make the update. That update is their mean (to second order in the noise), so it can only point away
    if one of the two does. The error allowed, `epsilon`, is shared out evenly over the two tests and over all looks
    that the iteration may take.

    The standard error is that of the rows' influence on an update, so rows may differ in their noise. Rows that the
    direction came from are part of the full data and count as known; the rest get the finite-population correction.

    Args:
        epsilon: Largest share of updates that may point more than 90 degrees away from the full-data update.
    """

    carries_rows: ClassVar[bool] = True

    def accepts(self, look: Look, looks: int) -> bool:
        """Both halves confirm each other's direction."""
        try:
            updates = [look.update(half) for half in look.halves]
        except Degenerate:
            return False
        error = self.epsilon / (2 * looks)
        return all(self._confirms(look, other, updates[1 - other], updates[other], error) for other in (0, 1))

    def _confirms(self, look: Look, other: int, direction: np.ndarray, step: np.ndarray, error: float) -> bool:
        """Whether the half `other`, with its own update `step`, confirms a direction from the first half."""
        count, num_rows = look.halves[other].num_rows, look.problem.num_rows
        freedom = count - look.kind.parameters(look.problem.dimension)
        if freedom < 1:
            return False
        share = look.halves[1 - other].num_rows / num_rows
        estimate = share * direction @ direction + (1 - share) * direction @ step
        if not (np.isfinite(estimate) and estimate > 0):
            return False
        remaining = num_rows - look.halves[1 - other].num_rows
        variance = self._variance(look, other, direction, step) / freedom * (1 - count / remaining)
        import scipy.special

        threshold = -float(scipy.special.stdtrit(freedom, error))
        return bool(estimate > threshold * (1 - share) * np.sqrt(variance))

    def _variance(self, look: Look, other: int, direction: np.ndarray, step: np.ndarray) -> float:
        """Variance over rows of what each adds to the inner product."""
        scaled = look.scaled(look.halves[other])
        along, explained = look.kind.along(scaled, direction, look.problem), look.kind.explained(step)
        total = squares = 0.0
        for block in look.rows.look(other, 0, look.size):
            more, more_squares = look.problem.influence_sums(look.position, block, along, explained)
            total, squares = total + more, squares + more_squares
        count = look.halves[other].num_rows
        return look.problem.num_rows**2 * max(squares / count - (total / count) ** 2, 0.0)


class Printed(DirectionTest):
    """The test printed in Korattikara et al., Algorithm 1, for reproductions: it does **not** keep its promise.

    It takes the length of the estimated update, in its standard deviations along its own direction. Noise alone has
    a length of about sqrt(d) standard deviations, so beyond a few dimensions the test always passes. Every iteration
    starts again from the first rows, as printed.

    Args:
        epsilon: Nominal share of updates that point more than 90 degrees away from the full-data update.
    """

    carries_rows: ClassVar[bool] = False
    newton_only: ClassVar[bool] = True

    def check(self, problem: Problem) -> None:
        """Only problems that name each row's equation."""
        if not problem.names_rows:
            raise ValueError("tm.optimise.Printed needs a tm.optimise.LeastSquares problem; use SplitHalves instead")

    def accepts(self, look: Look, looks: int) -> bool:
        """Line 17 of the algorithm, in which every look may spend all of epsilon."""
        del looks
        problem, pooled = look.problem, look.pooled
        assert isinstance(problem, LeastSquares)
        try:
            step = update(pooled, problem.finest(), convex=True)
            along = update(pooled._replace(score=step), problem.finest(), convex=True)
        except Degenerate:
            return False
        import scipy.special

        count = 2 * look.size
        blocks = (block for half in (0, 1) for block in look.rows.look(half, 0, look.size))
        unexplained = sum(problem.unexplained(look.position, block, step) for block in blocks)
        correction = 1 - (count - 1) / (problem.num_rows - 1)
        # Eq. 7d with A'A of the rows in use, which is that of all rows times their share.
        variance = (step @ along) * (problem.num_rows / count) * unexplained / count * correction
        return bool(step @ step > -scipy.special.ndtri(self.epsilon) * np.sqrt(variance))
