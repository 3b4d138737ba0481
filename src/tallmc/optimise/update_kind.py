"""What an update is, given sums over rows: Newton's step, or a step along the gradient."""

import abc
from typing import ClassVar

import numpy as np

from tallmc.optimise.contract import Problem, Sums
from tallmc.optimise.linear_algebra import update


class UpdateKind(abc.ABC):
    """Turns sums over rows, scaled to all of them, into an update; and says how a row's score gets into it."""

    spends_rows: ClassVar[bool]
    """Whether an update takes from its rows all that they can say, so that the next one needs others besides."""
    needs_curvature: bool
    """Whether the sums must hold the curvature."""

    @abc.abstractmethod
    def of(self, sums: Sums, problem: Problem) -> np.ndarray:
        """The update."""

    @abc.abstractmethod
    def along(self, sums: Sums, direction: np.ndarray, problem: Problem) -> np.ndarray:
        """With what each row's score is multiplied for its part in the inner product of the update and a direction."""

    @abc.abstractmethod
    def explained(self, step: np.ndarray) -> np.ndarray:
        """The step whose product with a row's curvature is taken from its score, when its part in the error is asked
        for."""

    @abc.abstractmethod
    def parameters(self, dimension: int) -> int:
        """How many numbers were fitted to the rows, for the degrees of freedom of a test."""

    def fitted(self, sums: Sums, problem: Problem) -> "UpdateKind":
        """The same, after a look at rows, which may settle what was left open."""
        del sums, problem
        return self

    def shortened(self) -> "UpdateKind":
        """The same, after a step that went too far."""
        return self

    def lengthened(self) -> "UpdateKind":
        """The same, after a step that did not."""
        return self


class NewtonStep(UpdateKind):
    """`curvature^-1 score`, the update of iteratively reweighted least squares."""

    spends_rows: ClassVar[bool] = True
    needs_curvature = True

    def of(self, sums: Sums, problem: Problem) -> np.ndarray:
        """Bent downhill where the problem is not convex."""
        return update(sums, problem.finest(), convex=problem.convex)

    def along(self, sums: Sums, direction: np.ndarray, problem: Problem) -> np.ndarray:
        """The curvature is symmetric: its inverse times the direction."""
        return self.of(sums._replace(score=direction), problem)

    def explained(self, step: np.ndarray) -> np.ndarray:
        """The step itself: rows differ in curvature too."""
        return step

    def parameters(self, dimension: int) -> int:
        """One a coordinate."""
        return dimension


class GradientStep(UpdateKind):
    """A step along the mean gradient, as in stochastic gradient descent (Korattikara et al., section 2).

    Tested as Newton's is: with `SplitHalves`, the share of steps that point more than 90 degrees away from the gradient
    of all rows stays below `epsilon`. A row costs as many operations as it has columns, not their square. A step does
    not exhaust its rows, so they are used until the test asks for more: what stochastic gradient descent does by
    a step size that has to fall, this does by rows that grow. Once a quarter of the rows is not enough, exact Newton
    steps end the search.

    Args:
        step_size: Of a step, times the mean gradient of a row. If left out, one over the largest eigenvalue of the
            curvature of a mean row at the start, which one look works out. A step that raises the loss of its rows is
            taken back in part, and the next are half as long.
        growth: Factor by which a step that lowers the loss of its rows makes the next one longer; 1: not at all. At 1.1
            it takes seven to make up for one that failed.

    Example:
        >>> import tallmc as tm
        >>> X, y, _ = tm.models.generate_logistic(num_rows=20_000, num_columns=3)
        >>> tm.optimise.logistic(X, y, update=tm.optimise.GradientStep()).converged
        True
    """

    spends_rows: ClassVar[bool] = False

    def __init__(self, step_size: float | None = None, growth: float = 1.1):
        if step_size is not None and not (np.isfinite(step_size) and step_size > 0):
            raise ValueError(f"step_size must be a positive number, got {step_size}; leave it out to be worked out")
        if not (np.isfinite(growth) and growth >= 1):
            raise ValueError(f"growth must be a factor of at least 1, got {growth}")
        self.step_size, self.growth = step_size, growth
        self.needs_curvature = step_size is None

    def of(self, sums: Sums, problem: Problem) -> np.ndarray:
        """Downhill, whatever the curvature."""
        fitted = self.fitted(sums, problem)
        assert fitted.step_size is not None
        return fitted.step_size / problem.num_rows * sums.score

    def along(self, sums: Sums, direction: np.ndarray, problem: Problem) -> np.ndarray:
        """The same multiple of the direction."""
        return self.of(sums._replace(score=direction), problem)

    def explained(self, step: np.ndarray) -> np.ndarray:
        """None: a gradient is a plain sum over rows."""
        return np.zeros_like(step)

    def parameters(self, dimension: int) -> int:
        """The mean along one direction."""
        del dimension
        return 1

    def fitted(self, sums: Sums, problem: Problem) -> "GradientStep":
        """With a step size, if it had none."""
        if self.step_size is not None:
            return self
        assert sums.curvature is not None
        largest = float(np.max(np.abs(np.linalg.eigvalsh(sums.curvature))))
        return GradientStep(problem.num_rows / max(largest, np.finfo(float).tiny), self.growth)

    def shortened(self) -> "GradientStep":
        """Steps half as long."""
        return self if self.step_size is None else GradientStep(self.step_size / 2, self.growth)

    def lengthened(self) -> "GradientStep":
        """Longer steps."""
        return self if self.step_size is None else GradientStep(self.step_size * self.growth, self.growth)
