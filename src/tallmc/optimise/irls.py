"""Iteratively reweighted least squares that reads only as many rows as a step needs."""

import warnings
from typing import Any

import numpy as np
from jaxtyping import PyTree

from tallmc.console.progress import stop_on_interrupt
from tallmc.numerics.threads import one_blas_thread
from tallmc.optimise.contract import Problem
from tallmc.optimise.direction_test import DirectionTest, SplitHalves
from tallmc.optimise.exact_update import exact_update
from tallmc.optimise.progress import progress_line
from tallmc.optimise.result import OptimiseResult
from tallmc.optimise.state import Options, Search
from tallmc.optimise.tested_update import tested_update
from tallmc.optimise.update_kind import NewtonStep, UpdateKind


def irls(
    problem: Problem,
    *,
    epsilon: float = 0.01,
    test: type[DirectionTest] = SplitHalves,
    update: UpdateKind | None = None,
    init: Any = None,
    first_rows: int | None = None,
    row_increment: int | None = None,
    tolerance: float = 1e-3,
    max_iterations: int = 200,
    seed: int = 0,
    progress: bool = True,
) -> OptimiseResult:
    """Iteratively reweighted least squares by sequential tests (Korattikara et al., section 2).

    Each update uses just enough rows to be confident that it points less than 90 degrees away from the update that
    all rows would make. Rows are carried over from iteration to iteration; once a quarter of them is not enough, all
    are used, and exact updates end the search.

    Args:
        problem: What to optimise: a `LeastSquares`, or any `Problem`.
        epsilon: Largest share of tested updates that may point more than 90 degrees away.
        test: `SplitHalves`, or `Printed` for the test as the paper has it.
        update: `GradientStep()` for tested steps along the gradient; Newton's if left out.
        init: Where to start; the problem knows a good place if left out.
        first_rows: Rows at the first test, N0 in the paper. A thousandth of all rows if left out, but at least 200,
            and 20 for each coordinate.
        row_increment: Rows added when a test fails, N_inc in the paper. If left out, they double, which needs fewer
            tests and so spends less of `epsilon` on each.
        tolerance: Distance from the optimum at which to stop, in standard deviations of the posterior.
        max_iterations: Most updates.
        seed: Of the random order of rows.
        progress: Whether to show progress, if output is a terminal.

    Returns:
        The optimum and what it took. If it did not converge there is a warning, and `reason` says why.

    Example:
        >>> import tallmc as tm
        >>> X, y, _ = tm.models.generate_logistic(num_rows=20_000, num_columns=3)
        >>> result = tm.optimise.irls(tm.optimise.Logistic(X, y))
        >>> result.converged, result.position.shape
        (True, (3,))
    """
    if not isinstance(problem, Problem):
        raise ValueError(f"problem must be a tm.optimise.Problem such as Logistic(X, y), not {type(problem).__name__}")
    if not (isinstance(test, type) and issubclass(test, DirectionTest)):
        raise ValueError("test must be a class such as tm.optimise.SplitHalves")
    direction_test = test(epsilon)
    direction_test.check(problem)
    if update is not None and not isinstance(update, UpdateKind):
        raise ValueError(f"update must be one such as tm.optimise.GradientStep(), not {type(update).__name__}")
    kind = NewtonStep() if update is None else update
    if test.newton_only and not isinstance(kind, NewtonStep):
        raise ValueError(
            f"{test.__name__} tests Newton's updates only; leave update out, or test=tm.optimise.SplitHalves"
        )
    if first_rows is None:
        first_rows = max(200, 20 * problem.dimension, -(-problem.num_rows // 1000))
    for name, value in (
        ("first_rows", first_rows),
        ("max_iterations", max_iterations),
        ("row_increment", row_increment),
    ):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1):
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    if not tolerance > 0:
        raise ValueError(f"tolerance must be above 0, got {tolerance}; 1e-3 is usual")
    options = Options(direction_test, kind, int(first_rows), row_increment, tolerance, max_iterations, seed)
    search = Search(problem, options, _as_start(init, problem))
    _run(search, show=progress)
    if not search.converged:
        warnings.warn(f"the optimiser did not converge: {search.reason}", RuntimeWarning, stacklevel=2)
    return _result(search)


def _as_start(init: Any, problem: Problem) -> np.ndarray | None:
    if init is None:
        return None
    start = np.asarray(init, np.float64)
    if start.shape != (problem.dimension,):
        raise ValueError(f"init has shape {start.shape}; it must be {(problem.dimension,)}, one number a coordinate")
    if not np.all(np.isfinite(start)):
        raise ValueError("init holds NaN or infinity; start from finite numbers")
    return start


def _run(search: Search, *, show: bool) -> None:
    most = search.options.max_iterations
    with (
        one_blas_thread(),
        progress_line(search.problem.num_rows, show=show) as update,
        stop_on_interrupt() as interrupted,
    ):
        while search.reason is None:
            # What overflows is found by the checks of the sums, and taken back.
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                (tested_update if search.size else exact_update)(search)
            update(len(search.rows_per_iteration), search.rows_per_iteration[-1], search.distance)
            search.interrupted = interrupted()
            if search.reason is None and search.interrupted:
                search.reason = "interrupted"
            elif search.reason is None and len(search.rows_per_iteration) >= most:
                search.reason = f"max_iterations ({most}) reached; raise it or loosen tolerance"


def _result(search: Search) -> OptimiseResult:
    error = _measure_the_end(search)
    return OptimiseResult(
        position=search.position,
        objective=np.asarray(search.objective),
        rows_per_iteration=np.asarray(search.rows_per_iteration),
        gradient_norm=float(np.linalg.norm(search.score)),
        gradient_norm_error=error,
        distance=search.distance,
        hessian=search.curvature,
        converged=search.converged,
        reason=search.reason or "",
        rows_read=search.rows.rows_read,
        num_rows=search.problem.num_rows,
        num_tests=search.num_tests,
        interrupted=search.interrupted,
        full_pass=search.full_pass,
    )


def _measure_the_end(search: Search) -> float:
    """Makes `score` that of the position returned if a step was made since; returns the standard error of its norm."""
    if search.size == 0:
        if search.before is not None:
            sums = search.sum(search.rows.everything(), curvature=False)
            search.score = (sums + search.problem.prior(search.position)).score
        return 0.0
    problem, num_rows = search.problem, search.problem.num_rows
    blocks = [block for half in (0, 1) for block in search.rows.look(half, 0, search.size)]
    sums = search.sum(blocks, curvature=False)
    search.score = (sums.scaled(num_rows / sums.num_rows) + problem.prior(search.position)).score
    along = search.score / max(float(np.linalg.norm(search.score)), np.finfo(float).tiny)
    still = np.zeros_like(along)
    search.rows.rows_read += sums.num_rows
    parts = [problem.influence_sums(search.position, block, along, still) for block in blocks]
    total, squares = (sum(column) for column in zip(*parts, strict=True))
    variance = max(squares / sums.num_rows - (total / sums.num_rows) ** 2, 0.0)
    return float(num_rows * np.sqrt(variance * (1 - sums.num_rows / num_rows) / sums.num_rows))


def renamed(result: OptimiseResult, position: PyTree) -> OptimiseResult:
    """The same result with its position in another shape."""
    return OptimiseResult(**{**vars(result), "position": position})
