"""What the optimiser needs to know of a problem. Read this first.

All sums are of a *loss*, a negative log density, so that the optimiser goes down. `score` is minus the gradient of the
loss, and an update is `curvature^-1 score`.
"""

import abc
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from tallmc.optimise.halved_rows import HalvedRows, Halves


class Sums(NamedTuple):
    """Sums over some rows, in float64.

    Args:
        num_rows: How many rows.
        loss: Sum of their losses.
        score: Minus the gradient of that sum.
        curvature: Its second derivative, or what stands for it; None if it was not asked for.
    """

    num_rows: int
    loss: float
    score: np.ndarray
    curvature: np.ndarray | None

    def __add__(self, other: "Sums") -> "Sums":  # pyright: ignore[reportIncompatibleMethodOverride]
        curvature = None if self.curvature is None or other.curvature is None else self.curvature + other.curvature
        return Sums(self.num_rows + other.num_rows, self.loss + other.loss, self.score + other.score, curvature)

    def scaled(self, factor: float) -> "Sums":
        """Loss, score and curvature times `factor`, as if rows were that many times as many; `num_rows` stays."""
        curvature = None if self.curvature is None else factor * self.curvature
        return Sums(self.num_rows, factor * self.loss, factor * self.score, curvature)

    @property
    def finite(self) -> bool:
        """Whether loss, score and curvature hold no NaN and no infinity."""
        parts = (self.loss, self.score, 0 if self.curvature is None else self.curvature)
        return all(bool(np.all(np.isfinite(part))) for part in parts)


class Problem(abc.ABC):
    """A sum of losses over rows, plus a prior that needs no rows."""

    convex: ClassVar[bool] = True
    """Whether the curvature can only fail to be positive definite if the problem is degenerate."""
    settles: ClassVar[bool] = True
    """Whether the curvature changes little near the optimum, so that it need not be worked out in every pass."""
    ends_with_curvature: ClassVar[bool] = False
    """Whether the curvature at the optimum is wanted too: the last pass then works it out, others may do without."""
    largest_look: ClassVar[float] = 0.25
    """Share of the rows beyond which all of them cost less than more tests."""
    names_rows: ClassVar[bool] = False
    """Whether the problem gives each row's equation, as the test printed in the paper wants."""

    parallel: ClassVar[bool] = False
    """Whether `sums` may run in several threads at once, and gains from it."""

    dimension: int
    data: PyTree

    @property
    def num_rows(self) -> int:
        """How many rows the data has, along the first axis of its arrays."""
        return len(jax.tree.leaves(self.data)[0])

    @abc.abstractmethod
    def sums(self, position: np.ndarray, rows: PyTree, *, curvature: bool) -> Sums:
        """Sums over a block of rows at a position, without the prior."""

    @abc.abstractmethod
    def influence_sums(
        self, position: np.ndarray, rows: PyTree, along: np.ndarray, step: np.ndarray
    ) -> tuple[float, float]:
        """Of each row's part in an update's error, the inner product of `along` and `score - curvature step`: the sum
        over a block of rows, and the sum of squares."""

    def halves(self, largest: int, seed: int) -> "Halves":
        """Where the search gets blocks of rows from.

        Args:
            largest: Most rows that tests will look at.
            seed: Of their random order.
        """
        return HalvedRows(self.data, self.num_rows, largest, seed)

    def prior(self, position: np.ndarray) -> Sums:
        """What needs no rows, as if it were a sum over none."""
        return Sums(0, 0.0, np.zeros_like(position), np.zeros((self.dimension, self.dimension)))

    def start(self, rows: PyTree) -> np.ndarray:
        """Where to begin if nobody says; may look at a few rows."""
        del rows
        return np.zeros(self.dimension)

    def dispersion(self, mean_loss: float) -> float:
        """The loss that a squared standard deviation stands for; 1 if the loss is a negative log likelihood."""
        del mean_loss
        return 1.0

    def separates(self, loss: float) -> bool:
        """Whether a loss this small over all rows proves that there is no finite optimum."""
        del loss
        return False

    def finest(self) -> float:
        """Relative rounding error of one row's arithmetic."""
        kinds = [leaf.dtype for leaf in jax.tree.leaves(self.data) if np.dtype(leaf.dtype).kind == "f"]
        return float(max((np.finfo(kind).eps for kind in kinds), default=np.finfo(np.float64).eps))


class Equations(NamedTuple):
    """The least-squares equations `a u = b` that rows add, and the rows' losses (Korattikara et al., section 2.1).

    Args:
        a: One line a row.
        b: One number a row.
        loss: One number a row.
    """

    a: np.ndarray
    b: np.ndarray
    loss: np.ndarray


class LeastSquares(Problem):
    """A problem whose update is `(A'A)^-1 A'b`, with a line of A and an entry of b for each row.

    Write `equations` for a block of rows, and set `data` (a pytree of arrays with rows along the first axis),
    `dimension` and `prior_precision` (of a centred normal prior; one number or one a coordinate; 0 is flat).

    Example:
        >>> import numpy as np, tallmc as tm
        >>> class Mean(tm.optimise.LeastSquares):
        ...     dimension = 1
        ...     def __init__(self, y):
        ...         self.data = y
        ...     def equations(self, position, rows):
        ...         return tm.optimise.Equations(np.ones((len(rows), 1)), rows, 0.5 * (rows - position[0]) ** 2)
        >>> float(tm.optimise.irls(Mean(np.arange(5.0))).position[0])
        2.0
    """

    names_rows: ClassVar[bool] = True
    prior_precision: Any = 0.0

    @abc.abstractmethod
    def equations(self, position: np.ndarray, rows: PyTree) -> Equations:
        """The rows' equations, which may depend on the position, and their losses."""

    def residuals(self, position: np.ndarray, rows: PyTree) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The equations' left sides, what they leave unexplained at the position, and the losses."""
        a, b, loss = self.equations(position, rows)
        return a, b - a @ position.astype(a.dtype), loss

    def sums(self, position: np.ndarray, rows: PyTree, *, curvature: bool) -> Sums:
        """Normal equations of a block: one matrix product, not one update a row."""
        a, residual, loss = self.residuals(position, rows)
        total = float(np.sum(loss, dtype=np.float64))
        gram = (a.T @ a).astype(np.float64) if curvature else None
        return Sums(len(a), total, (residual @ a).astype(np.float64), gram)

    def influence_sums(
        self, position: np.ndarray, rows: PyTree, along: np.ndarray, step: np.ndarray
    ) -> tuple[float, float]:
        """Of what `influences` gives, in float64."""
        values = self.influences(position, rows, along, step).astype(np.float64)
        return float(np.sum(values)), float(values @ values)

    def influences(self, position: np.ndarray, rows: PyTree, along: np.ndarray, step: np.ndarray) -> np.ndarray:
        """For each row, the inner product of `along` and `score - curvature step`: its part in an update's error."""
        a, residual, _ = self.residuals(position, rows)
        projected = a @ np.stack([along, step], axis=1).astype(a.dtype)
        return projected[:, 0] * (residual - projected[:, 1])

    def unexplained(self, position: np.ndarray, rows: PyTree, step: np.ndarray) -> float:
        """Sum of squared residuals after a step, `e_n` in the paper's eq. 7c."""
        a, residual, _ = self.residuals(position, rows)
        return float(np.sum(np.square(residual - a @ step.astype(a.dtype)), dtype=np.float64))

    def prior(self, position: np.ndarray) -> Sums:
        """Loss, score and curvature of the centred normal prior with `prior_precision`."""
        precision = np.broadcast_to(np.asarray(self.prior_precision, np.float64), (self.dimension,))
        pull = precision * position
        return Sums(0, 0.5 * float(pull @ position), -pull, np.diag(precision))
