"""A search under way: where it is, what it has read, and how it takes back a step that went too far."""

import concurrent.futures
import dataclasses
import functools
import operator
import os
from collections.abc import Iterable

import numpy as np
from jaxtyping import PyTree

from tallmc.optimise.acceleration import Anderson
from tallmc.optimise.contract import Problem, Sums
from tallmc.optimise.direction_test import DirectionTest
from tallmc.optimise.result import FullPass
from tallmc.optimise.update_kind import UpdateKind
from tallmc.posterior.checks import check_data

_MOST_HALVINGS = 40
_GROUP = 4
_THREADS = min(8, os.cpu_count() or 1)


@dataclasses.dataclass(frozen=True)
class Options:
    """How to search; `tm.optimise.irls` explains each."""

    test: DirectionTest
    update: UpdateKind
    first_rows: int
    row_increment: int | None
    tolerance: float
    max_iterations: int
    seed: int


class Search:
    """One optimisation under way, until `reason` is set.

    Args:
        problem: What to optimise.
        options: How.
        init: Where to start; the problem's own start if left out.
    """

    def __init__(self, problem: Problem, options: Options, init: np.ndarray | None):
        self.problem, self.options, self.update = problem, options, options.update
        largest = int(problem.largest_look * problem.num_rows)
        self.rows = problem.halves(largest, options.seed)
        self.size = self.first_size  # rows in each half; 0 when the tests are over
        self.reason: str | None = None
        self.converged = self.interrupted = False
        self.objective: list[float] = []
        self.rows_per_iteration: list[int] = []
        self.num_tests = 0
        self.score = np.full(problem.dimension, np.nan)
        self.curvature = self.first_curvature = np.zeros((problem.dimension, problem.dimension))
        self.curvature_rows = 0
        self.distance = self.best_distance = np.inf
        self.full_pass: FullPass | None = None  # the last one over all rows that had a curvature
        self.contraction = 0.0  # of the distance, by the last pass
        self.passes_without_progress = 0
        # Where the last step started, and the loss there on the rows that made it.
        self.before: tuple[np.ndarray, float] | None = None
        self.acceleration = Anderson()
        self._plain: np.ndarray | None = None
        self._halvings = 0
        self.position = self._start() if init is None else init.astype(np.float64)

    @property
    def first_size(self) -> int:
        """Rows in each half at the first look; 0 if there are too few rows for tests."""
        size = (self.options.first_rows + 1) // 2
        return size if 2 * size <= self.rows.largest else 0

    def _start(self) -> np.ndarray:
        blocks = self.rows.look(0, 0, self.size) if self.size else self.rows.everything()
        return self.problem.start(next(iter(blocks)))

    def sum(self, blocks: Iterable[PyTree], *, curvature: bool = True) -> Sums:
        """Adds up blocks where the search is, in float64 and in their order. `overshot` judges what overflows."""
        waiting = list(blocks)
        groups = [waiting[first : first + _GROUP] for first in range(0, len(waiting), _GROUP)]
        if not (curvature and self.problem.parallel and len(groups) > 1):
            return _add(self._sum_group(group, curvature=curvature) for group in groups)
        # Groups are added in their order, so that the number of threads changes no digit.
        with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
            return _add(pool.map(lambda group: self._sum_group(group, curvature=curvature), groups))

    def _sum_group(self, blocks: Iterable[PyTree], *, curvature: bool) -> Sums:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return _add(self.problem.sums(self.position, block, curvature=curvature) for block in blocks)

    def learn(self, sums: Sums) -> None:
        """Takes over score and curvature from these sums; where they have no curvature the old one stays in use."""
        self.score = sums.score
        if sums.curvature is not None:
            if self.curvature_rows == 0:
                self.first_curvature = sums.curvature
            self.curvature, self.curvature_rows = sums.curvature, self.rows_per_iteration[-1]

    def step(self, loss: float, step: np.ndarray, plain: np.ndarray | None = None) -> None:
        """Moves on; `loss` is the one before the step on the rows that made it, `plain` what to try if it fails."""
        self.before, self._plain = (self.position, loss), plain
        self.position = self.position + step

    def record(self, loss: float, rows: int) -> None:
        """Adds an iteration to the trace that the result shows: its loss, and the rows it used."""
        self.objective.append(float(loss))
        self.rows_per_iteration.append(int(rows))

    def overshot(self, sums: Sums) -> bool:
        """Takes back half of the last step if the loss rose on the rows that made it."""
        if self.before is None:
            if not sums.finite:
                self._refuse()
            return self.reason is not None
        position, loss = self.before
        if sums.finite and sums.loss <= loss + 2 * self.problem.finest() * abs(loss):
            self._halvings = 0
            return False
        if not sums.finite and self._halvings == 0:
            check_data(self.problem.data)
        if self._plain is not None:
            self.position, self._plain = position + self._plain, None
            self.acceleration.forget()
            return True
        self._halvings += 1
        self.position = 0.5 * (self.position + position)
        if self._halvings > _MOST_HALVINGS:
            self.position, self.before = position, None
            self.reason = "no step along the update lowers the loss"
        return True

    def _refuse(self) -> None:
        check_data(self.problem.data)
        if not self.rows_per_iteration or self.rows_per_iteration[0] == self.problem.num_rows:
            raise ValueError("the loss is not finite at the start; pass another init, or scale columns to about 1")
        self.reason = "the loss overflowed after an update"


def _add(parts: Iterable[Sums]) -> Sums:
    return functools.reduce(operator.add, parts)
