"""Passes over all rows: sums and derivatives of the log likelihood, and log ratios of moves.

Every reading of all rows outside a chain is one of these, or one of a bound's constants. A pass is one compiled loop
over blocks of the rows, where they lie; what it takes besides does not grow with the number of rows.
"""

import concurrent.futures
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Real, UInt32

from tallmc.numerics import watch
from tallmc.numerics.flat import as_position, flatten, is_real
from tallmc.numerics.memory import must_fit
from tallmc.numerics.permutation import NUM_KEYS, permuted
from tallmc.numerics.programs import COMPILED_SOON, carried_over, program
from tallmc.posterior import pieces, resident
from tallmc.posterior.block_sums import derivative_sums
from tallmc.posterior.mesh_passes import Blocks, add_up_on_mesh, with_numbers
from tallmc.posterior.model import Model
from tallmc.posterior.rows import Rows
from tallmc.posterior.rows_on_mesh import RowsOnMesh
from tallmc.posterior.spread import Scattered

# Rows of a block: on a CPU so few that a Hessian's intermediate results stay in a core's cache (2,048 and 8,192 took
# equally long), elsewhere so many that a block keeps the device busy.
_BLOCK, _LARGE_BLOCK = 2048, 65_536
# Parts that a CPU's threads share out. Always so many, so that the number of threads changes no digit.
_PARTS = 8
_FEWEST_PER_PART = 4  # blocks: beginning a part takes about as long
# Coordinates up to which one program works out gradients, with Hessians or without as it is told. Beyond that, adding
# up Hessians of zeros would cost as much as the gradients do.
_SMALL_HESSIAN = 64
_MOVES_BLOCK = 8192  # rows whose log ratios are handed to the host at once


class Span(NamedTuple):
    """Rows that a pass reads: from one place of an order of all rows up to another.

    Args:
        start: The first place.
        stop: The first place that is not read any more.
        order: Words of a random order (`numerics.permutation`); None: the rows' own.
    """

    start: int
    stop: int
    order: UInt32[np.ndarray, " words"] | None = None

    @property
    def num_rows(self) -> int:
        """How many rows there are in it."""
        return self.stop - self.start


def likelihood_sums(
    model: Model,
    unravel: Callable,
    flat: Real[Array | np.ndarray, " d"],
    rows: Rows,
    *,
    curvature: bool,
    span: Span | None = None,
) -> tuple[float, np.ndarray, np.ndarray | None]:
    """Log likelihood of all rows, before temperature, with gradient and, if asked for, Hessian.

    Blocks are summed in the position's precision, their sums in twice as many digits.

    Args:
        model: With the likelihood.
        unravel: From a flat position to one that the likelihood takes.
        flat: The position.
        rows: All of them are read once.
        curvature: Whether to work out the Hessian.
        span: Some of the rows, if not all.
    """
    wanted = np.asarray(curvature) if len(flat) <= _SMALL_HESSIAN else curvature
    pass_ = partial(_likelihood_sums, model.log_likelihood, unravel, np.asarray(flat), wanted)
    value, slope, *hessian = in_parts(pass_, rows, span)
    return float(value), slope, hessian[0] if curvature else None


def log_likelihood_sum(model: Model, rows: Rows, position: PyTree) -> float:
    """Log likelihood of all rows at a position, before temperature."""
    arrays = jax.tree.map(as_position, position)
    if not all(is_real(leaf) for leaf in jax.tree.leaves(arrays)):
        (value,) = in_parts(partial(_values, model.log_likelihood, arrays), rows)
        return float(value)
    flat, unravel = flatten(position)
    return likelihood_sums(model, unravel, flat, rows, curvature=False)[0]


def log_densities(model: Model, rows: Rows, positions: list[PyTree]) -> list[float]:
    """Unnormalised log density at each position; reads all rows for each."""
    densities = []
    for position in positions:
        flat, unravel = flatten(position)
        prior = prior_derivatives(model, unravel, flat)[0]
        densities.append(prior + log_likelihood_sum(model, rows, position) / float(model.temperature))
    return densities


def prior_derivatives(
    model: Model, unravel: Callable, flat: Real[np.ndarray, " d"]
) -> tuple[float, np.ndarray, np.ndarray]:
    """Log prior at a flat position, its gradient and its Hessian, in float64."""
    value, slope, hessian = _prior_derivatives(model.log_prior, unravel, np.asarray(flat))
    return float(value), np.asarray(slope, np.float64), np.asarray(hessian, np.float64)


def influence_sums(
    model: Model, unravel: Callable, flat: np.ndarray, along: np.ndarray, step: np.ndarray, rows: Rows, span: Span
) -> tuple[float, float]:
    """Of each row's inner product of `along` with its score less its curvature times `step`: the sum and the sum of
    squares, before temperature."""
    total, squares = in_parts(partial(_influence_sums, model.log_likelihood, unravel, flat, along, step), rows, span)
    return float(total), float(squares)


def prepare_sums(model: Model, unravel: Callable, flat: np.ndarray, rows: Rows) -> None:
    """Compiles `likelihood_sums`, `influence_sums` and `prior_derivatives`, at the same time."""
    wanted = np.asarray(True) if len(flat) <= _SMALL_HESSIAN else True
    sums = partial(_likelihood_sums.prepare, model.log_likelihood, unravel, flat, wanted)
    influences = partial(_influence_sums.prepare, model.log_likelihood, unravel, flat, flat, flat)
    ahead = _threads().submit(carried_over(prepare_parts), influences, rows)
    prepare_parts(sums, rows)
    _prior_derivatives.prepare(model.log_prior, unravel, flat)
    ahead.result()


def log_ratio_blocks(
    model: Model, rows: Rows, position: PyTree, proposed: PyTree
) -> Iterator[Real[np.ndarray, "moves rows"]]:
    """The rows' log ratios of several moves, whose leaves have a leading axis of moves, block by block in float64."""
    num_rows = rows.num_rows
    size = min(_MOVES_BLOCK, num_rows)
    if rows.outgrow_device:
        for columns, count in pieces.of(rows, 0, num_rows, length=size):
            yield np.asarray(_log_ratios(model, position, proposed, columns, np.int32(0), size), float)[:, :count]
        return
    columns = rows.scattered() if isinstance(rows, RowsOnMesh) else rows.on_device()
    for start in range(0, num_rows, size):
        first = min(start, num_rows - size)
        values = np.asarray(_log_ratios(model, position, proposed, columns, np.int32(first), size), float)
        yield values[:, start - first :]


def in_parts(
    pass_: Callable[..., Any], rows: Rows, span: Span | None = None, beside: Real[Array, " rows"] | None = None
) -> Any:
    """Runs a compiled pass over rows, in several threads on a CPU, and adds up what it gives.

    Args:
        pass_: A compiled function of (columns, number of rows, rows of a block, bounds of a part as an array, words of
            an order, whether that is used), which returns what `add_up` does.
        rows: The rows.
        span: Some of them, if not all.
        beside: A number for each row, that blocks are to have as well: they are then pairs.
    """
    span = Span(0, rows.num_rows) if span is None else span
    if rows.outgrow_device:
        return _in_pieces(pass_, rows, span, beside)
    columns, num_rows, size, on_cpu = _where(rows, beside)
    words = np.zeros(NUM_KEYS, np.uint32) if span.order is None else span.order
    blocks = -(-span.num_rows // size)
    on_mesh = isinstance(rows, RowsOnMesh)
    parts = int(np.clip(blocks // _FEWEST_PER_PART, 1, _PARTS)) if on_cpu and not on_mesh else 1
    edges = span.start + np.minimum(np.arange(parts + 1) * -(-blocks // parts) * size, span.num_rows)
    shuffled = np.asarray(span.order is not None)
    finished: list[int] = []

    def run(part: int) -> Any:
        bounds = edges[part : part + 2].astype(np.int32)
        sums = jax.tree.map(np.asarray, pass_(columns, num_rows, size, bounds, words, shuffled))
        finished.append(part)
        watch.done(len(finished), parts)
        return sums

    with must_fit(f"a pass over blocks of {size:,} rows", "try fewer coordinates, or sample on the CPU"):
        first = run(0)  # compiles, if anything does
        sums = [first, *(_threads().map(run, range(1, parts)) if parts > 1 else ())]
    # Carried-over rounding is what Kahan's sums still have to subtract.
    pairs = [[total.astype(np.float64) - lost for total, lost in zip(*one, strict=True)] for one in sums]
    if on_mesh:  # of each device
        pairs = [list(device) for device in zip(*pairs[0], strict=True)]
    return [np.sum(column, axis=0) for column in zip(*pairs, strict=True)]


def _in_pieces(pass_: Callable[..., Any], rows: Rows, span: Span, beside: Array | None) -> Any:
    """The same for rows that the device has no room for: they come piece by piece, one while the last is read."""
    length = pieces.length_of(rows)
    size, words = min(_LARGE_BLOCK, length), np.zeros(NUM_KEYS, np.uint32)
    totals: list[np.ndarray] | None = None
    for columns, count in pieces.of(rows, span.start, span.stop, span.order, beside):
        bounds = np.asarray([0, count], np.int32)
        sums = jax.tree.map(np.asarray, pass_(columns, length, size, bounds, words, np.asarray(False)))
        one = [total.astype(np.float64) - lost for total, lost in zip(*sums, strict=True)]
        totals = one if totals is None else [before + new for before, new in zip(totals, one, strict=True)]
    assert totals is not None
    return totals


def prepare_parts(prepare: Callable[..., None], rows: Rows, beside: Real[Array, " rows"] | None = None) -> None:
    """Compiles a pass: calls the `prepare` of a program with what `in_parts` calls the program with."""
    if rows.outgrow_device:
        num_rows = pieces.length_of(rows)
        columns, size = pieces.like(rows, beside), min(_LARGE_BLOCK, num_rows)
    else:
        columns, num_rows, size, _ = _where(rows, beside)
    kinds = ((2,), np.int32), ((NUM_KEYS,), np.uint32), ((), np.bool_)
    prepare(columns, num_rows, size, *(jax.ShapeDtypeStruct(*kind) for kind in kinds))


def _where(rows: Rows, beside: Array | None) -> tuple[PyTree, int, int, bool]:
    """Columns, number of rows, rows of a block, and whether they are on a CPU."""
    if isinstance(rows, RowsOnMesh):
        scattered = rows.scattered() if beside is None else with_numbers(rows, beside)
        on_cpu = rows.mesh.devices.flat[0].platform == "cpu"
        return scattered, rows.num_rows, min(_BLOCK if on_cpu else _LARGE_BLOCK, scattered.length), on_cpu
    columns = rows.on_device()
    on_cpu = jax.tree.leaves(columns)[0].device.platform == "cpu"
    columns = columns if beside is None else (columns, resident.Column(beside))
    return columns, rows.num_rows, min(_BLOCK if on_cpu else _LARGE_BLOCK, rows.num_rows), on_cpu


def has_numbers(columns: Any) -> bool:
    """Whether blocks of these are pairs: rows, and a number for each."""
    if isinstance(columns, Scattered):
        return columns.numbered
    return isinstance(columns, tuple) and len(columns) == 2 and isinstance(columns[1], resident.Column)


_pool: concurrent.futures.ThreadPoolExecutor | None = None


def _threads() -> concurrent.futures.ThreadPoolExecutor:
    """Threads for parts of passes, the same for all: beginning one takes as long as a small part."""
    global _pool
    if _pool is None:
        _pool = concurrent.futures.ThreadPoolExecutor(min(_PARTS, os.cpu_count() or 1), "tallmc-pass")
    return _pool


def add_up(
    function: Callable[[PyTree, Array], tuple[Array, ...]],
    columns: PyTree,
    num_rows: int,
    size: int,
    bounds: Array,
    words: Array,
    shuffled: Array,
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """The sums of a function of blocks (rows, and which of them count), with Kahan's compensation; to be compiled.

    Of rows on several devices those of each, along a first axis of devices.
    """
    if isinstance(columns, Scattered):
        return add_up_on_mesh(function, columns, num_rows, Blocks(size, bounds, words, shuffled), _kahan)

    def read(first: Array) -> tuple[PyTree, Array]:
        def in_order() -> tuple[PyTree, Array]:
            at = jnp.minimum(first, num_rows - size)
            numbers = at + jnp.arange(size, dtype=jnp.int32)
            return resident.block(columns, at, size), (numbers >= first) & (numbers < bounds[1])

        def in_random_order() -> tuple[PyTree, Array]:
            places = first + jnp.arange(size, dtype=jnp.int32)
            chosen = permuted(jnp.minimum(places, num_rows - 1).astype(jnp.uint32), num_rows, words)
            return resident.take(columns, chosen), places < bounds[1]

        return jax.lax.cond(shuffled, in_random_order, in_order)

    return _kahan(function, read, bounds[0], bounds[1], size)


def _kahan(function: Callable, read: Callable, begin: Array, end: Array, size: int) -> tuple:
    """Totals of all blocks from a place to another, and the rounding that is still to be subtracted from them."""

    def one_block(carry: tuple) -> tuple:
        first, totals, lost = carry
        addends = [new - old for new, old in zip(function(*read(first)), lost, strict=True)]
        sums = [total + addend for total, addend in zip(totals, addends, strict=True)]
        lost = [(s - total) - addend for s, total, addend in zip(sums, totals, addends, strict=True)]
        return first + size, tuple(sums), tuple(lost)

    shapes = jax.eval_shape(lambda: function(*read(begin)))
    zeros = tuple(jnp.zeros(shape.shape, shape.dtype) for shape in shapes)
    with jax.default_matmul_precision("highest"):
        _, totals, lost = jax.lax.while_loop(lambda c: c[0] < end, one_block, (begin, zeros, zeros))
    return totals, lost


@program
def _values(likelihood: Callable, position: PyTree, *where: Any) -> tuple:
    """Of a position that has no derivatives, such as one with truth values."""

    def of_block(rows: PyTree, valid: Array) -> tuple[Array, ...]:
        return (jnp.sum(jnp.where(valid, jax.vmap(likelihood, in_axes=(None, 0))(position, rows), 0)),)

    return add_up(of_block, *where)


@program
def _likelihood_sums(
    likelihood: Callable, unravel: Callable, flat: Array, curvature: bool | Array, *where: Any
) -> tuple:
    def of_block(rows: PyTree, valid: Array) -> tuple[Array, ...]:
        return derivative_sums(likelihood, unravel, flat, rows, valid, curvature=curvature)

    return add_up(of_block, *where)


@program(compiler_options=COMPILED_SOON)  # which reads an eighth of the rows at most
def _influence_sums(
    likelihood: Callable, unravel: Callable, flat: Array, along: Array, step: Array, *where: Any
) -> tuple:
    def of_block(rows: PyTree, valid: Array) -> tuple[Array, ...]:
        def slopes(position: Array) -> Array:
            values = lambda p: jax.vmap(likelihood, in_axes=(None, 0))(unravel(p), rows)  # noqa: E731
            return jax.jvp(values, (position,), (along,))[1]

        slope, curvature = jax.jvp(slopes, (flat,), (step,))
        influences = jnp.where(valid, slope + curvature, 0)
        return jnp.sum(influences), jnp.sum(influences * influences)

    return add_up(of_block, *where)


@program
def _prior_derivatives(log_prior: Callable, unravel: Callable, flat: Array) -> tuple:
    def density(position: Array) -> Array:
        return jnp.asarray(log_prior(unravel(position)), flat.dtype)

    return *jax.value_and_grad(density)(flat), jax.hessian(density)(flat)


@program
def _log_ratios(model: Model, position: PyTree, proposed: PyTree, columns: PyTree, start: Array, size: int) -> Array:
    with jax.default_matmul_precision("highest"):
        if isinstance(columns, Scattered):
            picked = columns.picked(start + jnp.arange(size, dtype=jnp.int32))
            return picked.map(lambda rows: model.log_ratios_of_moves(position, proposed, rows).T).T
        return model.log_ratios_of_moves(position, proposed, resident.block(columns, start, size))
