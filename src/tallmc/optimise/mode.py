"""The mode of any posterior, by Newton steps on as many rows as each needs."""

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tallmc.numerics.flat import as_device_array, flatten, require_reals
from tallmc.numerics.permutation import NUM_KEYS
from tallmc.optimise.contract import Problem, Sums
from tallmc.optimise.halved_rows import Halves
from tallmc.optimise.irls import irls, renamed
from tallmc.optimise.result import OptimiseResult
from tallmc.posterior import Posterior, checks
from tallmc.posterior.derivatives import require_derivatives
from tallmc.posterior.linear_predictor import LinearPredictor
from tallmc.posterior.passes import Span, influence_sums, likelihood_sums, prepare_sums, prior_derivatives
from tallmc.posterior.unconstrained_start import unconstrained_start


class OrderedRows(Halves):
    """Halves of an order that is worked out as rows are read: nothing is copied.

    Args:
        everything: All rows there are, or those that stand for all.
        largest: Most rows of both halves together.
        seed: Of the random order.
        shuffled: Whether rows lie in random order already; halves are then neighbours, from a random place on.
    """

    def __init__(self, everything: Span, largest: int, seed: int, shuffled: bool = False):
        super().__init__(everything.num_rows, largest)
        self._everything, self._shuffled, self._first = everything, shuffled, 0
        self._generator = np.random.default_rng(seed)
        self.shuffle()

    def shuffle(self) -> None:
        """Draws another order; a part of the rows that is in random order already stays as it is."""
        drawn = self._generator.integers(0, 2**32, NUM_KEYS, np.uint32)
        self._words = drawn if self._everything.order is None else self._everything.order
        if self._shuffled and self._everything.order is None:
            self._words, self._first = None, int(self._generator.integers(self.num_rows - self.largest + 1))

    def look(self, half: int, start: int, stop: int) -> Iterator[Span]:
        """The places of a half as one block."""
        self.rows_read += stop - start
        first = self._everything.start + self._first + half * (self.largest // 2)
        yield Span(first + start, first + stop, self._words)

    def everything(self) -> Iterator[Span]:
        """All rows, in their own order."""
        self.rows_read += self.num_rows
        yield self._everything


class NegativeLogDensity(Problem):
    """Minus the log density of a posterior, with derivatives by JAX. Its blocks of rows are `Span`s.

    Args:
        posterior: Any posterior.
        like: A position, for its structure.
        span: Rows that stand for all; if left out, all.
    """

    convex: ClassVar[bool] = False
    ends_with_curvature: ClassVar[bool] = True
    # Rows in random order, with their Hessian, take several times as long as in their own order for the gradient alone.
    # Measured at 10^6 rows: a search with 1/4 took 1.15 times as long, and 1/16 made one more pass.
    largest_look: ClassVar[float] = 1 / 8

    def __init__(self, posterior: Posterior, like: PyTree, span: Span | None = None):
        flat, self.unravel = flatten(like)
        self.dtype = flat.dtype
        self.dimension = len(flat)
        self.data = posterior.rows.all()
        self.rows = posterior.rows
        self.span = Span(0, posterior.num_rows) if span is None else span
        self.model = posterior.model
        self.beta = 1 / float(self.model.temperature)

    def prepare(self) -> None:
        """Compiles its sums, all at the same time."""
        prepare_sums(self.model, self.unravel, np.zeros(self.dimension, self.dtype), self.rows)

    @property
    def num_rows(self) -> int:
        """How many rows the sums are over."""
        return self.span.num_rows

    def halves(self, largest: int, seed: int) -> OrderedRows:
        """Places in an order of the rows, which stay where they are."""
        return OrderedRows(self.span, largest, seed, self.rows.in_random_order)

    def sums(self, position: np.ndarray, rows: Span, *, curvature: bool) -> Sums:
        """Loss, gradient and Hessian; each compiled block in the position's precision, their sum in float64."""
        value, slope, hessian = likelihood_sums(
            self.model, self.unravel, position.astype(self.dtype), self.rows, curvature=curvature, span=rows
        )
        beta = self.beta
        return Sums(rows.num_rows, -beta * value, beta * slope, None if hessian is None else -beta * hessian)

    def influence_sums(
        self, position: np.ndarray, rows: Span, along: np.ndarray, step: np.ndarray
    ) -> tuple[float, float]:
        """By directional derivatives, which cost about as much as the likelihood itself."""
        flat, ahead, moved = (vector.astype(self.dtype) for vector in (position, along, step))
        total, squares = influence_sums(self.model, self.unravel, flat, ahead, moved, self.rows, rows)
        return self.beta * total, self.beta**2 * squares

    def prior(self, position: np.ndarray) -> Sums:
        """The log prior and its derivatives."""
        value, slope, hessian = prior_derivatives(self.model, self.unravel, position.astype(self.dtype))
        return Sums(0, -value, slope, -hessian)

    def separates(self, loss: float) -> bool:
        """A row of a binary regression on the wrong side costs at least log 2; a prior keeps the optimum finite."""
        likelihood = self.model.log_likelihood
        if not (isinstance(likelihood, LinearPredictor) and likelihood.link.binary):
            return False
        flat = bool(np.all(self.prior(np.zeros(self.dimension)).curvature == 0))
        return flat and loss / self.beta < math.log(2)

    def finest(self) -> float:
        """Positions may be coarser than the data."""
        return max(super().finest(), float(np.finfo(self.dtype).eps))


def mode(posterior: Posterior, init: PyTree = None, *, epsilon: float = 0.01, **options: Any) -> OptimiseResult:
    """Finds a mode of a posterior: tested Newton steps on few rows, then exact ones on all.

    A step uses as many rows as it takes to be confident that it points less than 90 degrees away from the Newton step
    of all rows. Steps that do not raise the density of the rows in use are halved until they do. Where the log density
    is not concave, eigenvalues of its Hessian are made negative. Exact steps follow until the mode is nearer than
    `tolerance` posterior standard deviations.

    With `tm.transforms` it is the mode of the density of unconstrained numbers, on which chains move. `position` is
    that point on the natural scale, where the density need not be highest; `objective` and `hessian` are of the
    unconstrained numbers.

    Args:
        posterior: What to find the mode of; its prior and temperature are part of it.
        init: Where to start: one position. If left out, zeros, one for each column of the data's only matrix.
        epsilon: Largest share of tested steps that may point more than 90 degrees away.
        **options: As for `irls`, all but `test`.

    Returns:
        The mode, the Hessian of minus the log density there, and what it took.

    Example:
        >>> import tallmc as tm
        >>> X, y, _ = tm.models.generate_logistic(num_rows=20_000, num_columns=3)
        >>> result = tm.optimise.mode(tm.models.logistic_regression(X, y))
        >>> result.converged, result.distance < 1e-3
        (True, True)
    """
    if not isinstance(posterior, Posterior):
        raise ValueError(f"posterior must be a tm.Posterior, not {type(posterior).__name__}")
    checks.check_rows(posterior.rows)
    target = posterior.unconstrained
    start = default_start(target) if init is None else unconstrained_start(posterior, init, 1)
    positions = checks.one_position_per_chain(target, start, 1, real_only=True)
    require_reals("tm.optimise.mode", positions)
    checks.check_start(target, positions)
    first = jax.tree.map(lambda leaf: leaf[0], positions)
    require_derivatives(target, first, "tm.optimise.mode")
    found = search_mode(target, first, epsilon=epsilon, **options)
    return renamed(found, jax.tree.map(as_device_array, posterior.constrain(found.position)))


def search_mode(posterior: Posterior, start: PyTree, span: Span | None = None, **options: Any) -> OptimiseResult:
    """`mode` from a position that was checked already; with a span, that of the posterior of these rows alone."""
    problem = NegativeLogDensity(posterior, start, span)
    problem.prepare()
    result = irls(problem, init=flatten(start)[0].astype(np.float64), **options)
    return renamed(result, problem.unravel(result.position.astype(problem.dtype)))


def default_start(posterior: Posterior) -> PyTree:
    """The posterior's own; if it has none, zeros, one for each column of the only matrix in the data."""
    if posterior.start is not None:
        return posterior.start
    matrices = [leaf for leaf in jax.tree.leaves(posterior.rows.like) if len(leaf.shape) == 1]
    if len(matrices) != 1:
        raise ValueError("init is missing; pass a position to start from, such as init=jnp.zeros(num_coordinates)")
    num_columns = matrices[0].shape[0]
    start = np.zeros(num_columns, jnp.result_type(float))
    trouble = checks.trouble_with(posterior, start)
    if trouble is not None and trouble.cause is not None:
        raise ValueError(
            f"no init was given, so a vector of {num_columns} numbers was assumed, one for each column of the only "
            f"matrix in the data, but {trouble.what}; pass an init shaped like a position, such as "
            f'init={{"beta": jnp.zeros({num_columns})}}'
        ) from trouble.cause
    return start
