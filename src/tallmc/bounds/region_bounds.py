"""Bounds that hold in a region: worked out from the likelihood's program there, one pass over the rows."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree, Real

from tallmc.bounds.of_row import Likelihood, derivative_bounds_of_row, why_not_covered
from tallmc.bounds.refusal import NotCoveredError
from tallmc.numerics.arithmetic import matvec
from tallmc.numerics.double_precision import as_double, double_precision
from tallmc.numerics.flat import Unflatten, as_device_array, flatten
from tallmc.numerics.memory import must_fit
from tallmc.numerics.programs import COMPILED_SOON, carried_over, program
from tallmc.posterior import Near, Place, Posterior, Rows, SmoothBounds, resident
from tallmc.posterior.operations import operations_on
from tallmc.posterior.predictors import predictors_of

# A normal in any number of dimensions is further than sqrt(d) + t from its mean with chance exp(-t^2 / 2) at most:
# 4e-6 for 5. A chain whose posterior is like that leaves the region less than once in 100,000 steps.
_BEYOND_THE_SPHERE = 5.0
# The bounds hold in a region that is wider by this, so that rounding of a distance does not matter.
_MARGIN = 1e-3
# Pieces into which ranges are cut: by how much finer each time (of one number, and of each of two), how fine at most,
# and what the sum of the bounds must fall to for that to go on. A judgement: rows drawn are in proportion to the sum.
_FINER_ONE, _FINER_TWO, _MOST_PIECES, _WORTHWHILE = 4, 2, {1: 64, 2: 4}, 0.85
# Rows that a test is to read, up to which coarse bounds do. Negative binomial, 100,000 rows: cut into sixteen the pass
# took 6.3 s, and a row of a test 1.6 microseconds, so that 100 rows a test cost the 8,000 tests of a usual run 1.3 s.
_FEW_ENOUGH = 100.0
# Numbers of a block of rows that are worked on at once: some megabytes.
_AT_ONCE, _MOST_ROWS, _FEWEST_ROWS = 2**22, 4096, 8


def usual_radius(num_coordinates: int) -> float:
    """Standard deviations within which a chain stays for 100,000 steps, nearly always.

    Example:
        >>> usual_radius(4)
        7.0
    """
    return math.sqrt(num_coordinates) + _BEYOND_THE_SPHERE


class FromProgram(SmoothBounds):
    """Bounds that are worked out where they are needed, from the likelihood's own program.

    Nothing holds everywhere: a Taylor expansion asks for bounds around its centre, and steps that lead out of the
    region in which they hold are decided on all rows.

    Example:
        >>> FromProgram().proven
        True
    """

    largest: Real[Array, ""]
    mean: Real[Array, ""]
    rank_one: bool = eqx.field(static=True)

    def __init__(self):
        self.largest = self.mean = as_device_array(np.inf, jnp.result_type(float))
        self.rank_one = False

    @property
    def proven(self) -> bool:
        """They follow from rules of arithmetic."""
        return True

    def derivative_bounds(self, order: int, rows: Rows, stretch: np.ndarray | None = None) -> np.ndarray | None:
        """None: nothing is known that holds everywhere."""
        del order, rows, stretch

    def near(self, place: Place) -> Near | None:
        """Reads all rows once; None if there is no rule for some operation of the likelihood."""
        likelihood, like = place.model.log_likelihood, place.rows.like
        radius = usual_radius(len(place.centre))
        region = _Region(place.centre.astype(float), np.asarray(place.stretch, float), radius * (1 + _MARGIN))
        try:
            (constants,) = _over_rows(likelihood, place.unravel, region, place.rows, (place.order,), _FEW_ENOUGH)
        except NotCoveredError:
            return None
        return Near(constants, radius, _num_predictors(likelihood, place.unravel, len(place.centre), like) == 1)


class RegionBounds(SmoothBounds):
    """Bounds on each row's derivatives within |whiten @ (position - centre)| <= radius; made by `bounds_of`.

    Args:
        first: Largest gradient of each row, for distances in whitened coordinates; infinite where nothing is known.
        second: The same for the second derivative.
        third: The same for the third.
        centre: Middle of the region, flat.
        whiten: To whitened coordinates.
        radius: Of the region, in these.
    """

    first: Real[Array, " rows"]
    second: Real[Array, " rows"]
    third: Real[Array, " rows"]
    centre: Real[Array, " d"]
    whiten: Real[Array, "d d"]
    radius: Real[Array, ""]
    largest: Real[Array, ""]
    mean: Real[Array, ""]
    rank_one: bool = eqx.field(static=True)

    @property
    def proven(self) -> bool:
        """They follow from rules of arithmetic."""
        return True

    def derivative_bounds(self, order: int, rows: Rows, stretch: np.ndarray | None = None) -> np.ndarray | None:
        """Those of the region; None if some row has none."""
        found = np.asarray((self.first, self.second, self.third)[order - 1], float)
        if found.shape != (rows.num_rows,):
            raise ValueError(
                f"these bounds are of {len(found)} rows, and there are {rows.num_rows}; work them out anew"
            )
        if not np.all(np.isfinite(found)):
            return None
        whiten = np.asarray(self.whiten, float)
        factor = np.linalg.norm(whiten if stretch is None else whiten @ stretch, 2)
        return found * factor**order * (1 + 1e-5)  # as these, and the matrix, may be in float32

    def near(self, place: Place) -> Near | None:
        """In the largest ball around a place, in its coordinates, that lies in the region."""
        constants = self.derivative_bounds(place.order, place.rows, np.asarray(place.stretch, float))
        whiten = np.asarray(self.whiten, float)
        away = np.linalg.norm(whiten @ (place.centre.astype(float) - np.asarray(self.centre, float)))
        radius = float((float(self.radius) - away) / np.linalg.norm(whiten @ place.stretch, 2))
        if radius <= 0:
            raise ValueError(
                f"the expansion's centre lies {away:.3g} from that of the bounds' region, of radius "
                f"{float(self.radius):.3g}: expand there, with tm.Taylor(at=...), or work out bounds around it"
            )
        return None if constants is None else Near(constants, radius, self.rank_one)

    def reach(self, position: PyTree, proposed: PyTree) -> Real[Array, ""]:
        """The distance between both positions; infinite if one lies outside the region."""
        old, new = (ravel_pytree(end)[0] for end in (position, proposed))
        distances = jnp.stack([matvec(self.whiten, end - self.centre) for end in (old, new)])
        inside = jnp.max(jnp.sum(distances * distances, axis=1)) <= self.radius**2
        return jnp.where(inside, jnp.sqrt(jnp.sum((new - old) ** 2)), jnp.inf)


def bounds_of(
    posterior: Posterior, centre: PyTree, factor: Real[np.ndarray, "d d"], radius: float | None = None
) -> RegionBounds:
    """Bounds on what each row can say near a place, worked out from the program of its log likelihood.

    They hold for all positions with |factor^-1 (position - centre)| <= radius. Where the posterior has bounds that hold
    everywhere, the tighter of both is taken for each row.

    Args:
        posterior: With its rows.
        centre: Middle of the region: the mode, as a rule.
        factor: Of the covariance there: `factor @ factor.T` is the covariance. `tm.optimise.mode` has its inverse.
        radius: In standard deviations; left out, so many that a chain hardly ever leaves the region.

    Returns:
        Bounds for `tm.Posterior(..., bounds=...)`; `first`, `second` and `third` have a number for each row.

    Example:
        >>> import numpy as np, jax, tallmc as tm
        >>> def log_likelihood(position, row):
        ...     z = row["x"] @ position
        ...     return row["count"] * z - jax.numpy.exp(z)
        >>> rows = {"x": np.ones((4, 2), np.float32), "count": np.arange(4, dtype=np.float32)}
        >>> posterior = tm.Posterior(log_likelihood, rows)
        >>> bounds = tm.bounds_of(posterior, np.zeros(2, np.float32), 0.1 * np.eye(2), radius=5.0)
        >>> [round(float(bound), 4) for bound in bounds.third]  # exp(5 * 0.1 * sqrt(2)) * (0.1 * sqrt(2))^3
        [0.0057, 0.0057, 0.0057, 0.0057]
    """
    flat, unravel = flatten(centre)
    region = _checked_region(posterior, flat, factor, radius)
    trouble = why_not_covered(posterior.log_likelihood, unravel, flat.size, posterior.rows.like)
    if trouble is not None:
        raise ValueError(
            f"no bounds can be worked out for this likelihood: there is no rule for {trouble}. Write it without that, "
            "pass bounds=tm.DerivativeBounds(...), or use tm.MHMinibatch(), which needs none"
        )
    rows, likelihood = posterior.rows, posterior.log_likelihood
    wider = region._replace(radius=region.radius * (1 + _MARGIN))
    found = list(_over_rows(likelihood, unravel, wider, rows, (1, 2, 3)))
    if isinstance(posterior.bounds, SmoothBounds):
        for order in (1, 2, 3):
            known = posterior.bounds.derivative_bounds(order, rows, region.stretch)
            found[order - 1] = found[order - 1] if known is None else np.minimum(found[order - 1], known)
    dtype, whiten = jnp.result_type(float), np.linalg.inv(region.stretch)
    first, second, third = (as_device_array(_rounded_up(bound, dtype)) for bound in found)
    changes = found[0] * np.linalg.norm(whiten, 2)
    return RegionBounds(
        first=first,
        second=second,
        third=third,
        centre=as_device_array(flat, dtype),
        whiten=as_device_array(whiten, dtype),
        radius=as_device_array(region.radius, dtype),
        largest=as_device_array(np.max(changes), dtype),
        mean=as_device_array(np.mean(changes), dtype),
        rank_one=_num_predictors(likelihood, unravel, flat.size, rows.like) == 1,
    )


class _Region(NamedTuple):
    centre: Float[np.ndarray, " d"]
    stretch: Float[np.ndarray, "d d"]
    radius: float


def _checked_region(posterior: Posterior, flat: np.ndarray, factor: np.ndarray, radius: float | None) -> _Region:
    stretch = np.asarray(factor, float)
    if posterior.moves_elsewhere:
        raise ValueError(
            "bounds are about unconstrained numbers: pass posterior.unconstrained, and a centre on that scale "
            "(posterior.unconstrain(position))"
        )
    if stretch.shape != (flat.size, flat.size) or not np.linalg.matrix_rank(stretch) == flat.size:
        raise ValueError(
            f"factor must be an invertible matrix of {flat.size} rows and columns, for a position of as many numbers; "
            f"got shape {stretch.shape}"
        )
    radius = usual_radius(flat.size) if radius is None else float(radius)
    if not (0 < radius < np.inf):
        raise ValueError(f"radius must be a positive number, got {radius!r}")
    return _Region(flat.astype(float), stretch, radius)


def _num_predictors(likelihood: Likelihood, unravel: Unflatten, size: int, like: PyTree) -> int:
    """Through how many numbers a row knows the position."""
    shape: Any = jax.ShapeDtypeStruct((size,), jnp.result_type(float))
    found = predictors_of(likelihood, unravel, shape, like) if size > 1 else None
    return size if found is None else found.count


def _over_rows(
    likelihood: Likelihood,
    unravel: Unflatten,
    region: _Region,
    rows: Rows,
    orders: tuple[int, ...],
    few_enough: float = 0.0,
) -> tuple[Float[np.ndarray, " rows"], ...]:
    """The bounds of these orders, an array each, as tight as cutting makes them; coarse if a test then reads so few."""
    found = [rows.one_each(np.float64) for _ in orders]
    size = min(_rows_at_once(likelihood, unravel, len(region.centre), rows.like), rows.num_rows)
    columns, finer = rows.on_device(), as_double(likelihood)
    radius = np.asarray(region.radius)

    def one_block(start: int, pieces: int) -> np.ndarray:
        first = min(start, rows.num_rows - size)
        place = region.centre, region.stretch, radius, np.int32(pieces)
        with double_precision():
            block = np.asarray(_bounds_of_block(finer, unravel, *place, columns, np.int32(first), size, orders))
        for bounds, of_block in zip(found, block, strict=True):
            bounds[first : first + size] = of_block
        return block

    with must_fit(f"bounds of {size:,} rows at a time", "try fewer coordinates, or sample on the CPU"):
        count = _num_predictors(likelihood, unravel, len(region.centre), rows.like)
        # A step of d coordinates reads about sum(c) d^1.5 / 3 rows, with c the bounds on third derivatives.
        each = rows.num_rows / size * len(region.centre) ** (orders[-1] / 2) / 3
        pieces = _enough_pieces(partial(one_block, 0), count, few_enough / each)  # compiles, if anything does
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(carried_over(partial(one_block, pieces=pieces)), range(size, rows.num_rows, size)))
    return tuple(found)


def _enough_pieces(first_block: Callable[[int], np.ndarray], count: int, enough: float) -> int:
    """Cuts finer until that gains little, or nothing more is needed; the first rows stand for all of them.

    Args:
        first_block: Bounds of the first rows, given the number of pieces.
        count: Of the numbers through which a row knows the position.
        enough: What the sum of these rows' bounds may be.
    """
    pieces, finer = 1, {1: _FINER_ONE, 2: _FINER_TWO}.get(count, 1)
    total = np.sum(first_block(1)[-1])
    while finer > 1 and pieces < _MOST_PIECES[count] and not total <= enough:
        again = np.sum(first_block(pieces * finer)[-1])
        if not again < _WORTHWHILE * total:
            break
        pieces, total = pieces * finer, again
    first_block(pieces)
    return pieces


def _rows_at_once(likelihood: Likelihood, unravel: Unflatten, size: int, like: PyTree) -> int:
    """So many rows that what is worked out of them fits into a few megabytes."""
    flat: Any = jax.ShapeDtypeStruct((size,), jnp.result_type(float))
    found = operations_on(lambda row, at: likelihood(unravel(at), row), like, flat)
    widest = max((math.prod(out.aval.shape) for one in found for out in one.equation.outvars), default=1)
    return int(np.clip(_AT_ONCE // (widest * size), _FEWEST_ROWS, _MOST_ROWS))


@program(compiler_options=COMPILED_SOON)
def _bounds_of_block(
    likelihood: Likelihood,
    unravel: Unflatten,
    centre: Array,
    stretch: Array,
    radius: Array,
    pieces: Array,
    columns: PyTree,
    start: Array,
    size: int,
    orders: tuple[int, ...],
) -> Array:
    of_row = partial(derivative_bounds_of_row, likelihood, unravel, centre, stretch, radius, pieces)
    with jax.default_matmul_precision("highest"):
        found = jax.vmap(of_row)(resident.block(columns, start, size))
    return jnp.stack([found[:, order - 1] for order in orders])


def _rounded_up(bound: np.ndarray, dtype: Any) -> np.ndarray:
    """In the precision of the run, and no smaller."""
    coarser = bound.astype(dtype)
    return np.where(coarser > 0, np.nextafter(coarser, np.asarray(np.inf, dtype)), coarser)
