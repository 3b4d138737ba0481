"""Draws and rows for what comes after the draws: as many as are wanted, on the scale that goes with the rows."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tallmc.frames import ArrayCoding, Design, Table
from tallmc.numerics.programs import program
from tallmc.posterior import Posterior
from tallmc.posterior.linear_predictor import LinearPredictor, Link, SelectedPredictor

# Rows that one compiled call takes: so that 4,000 draws of them, in float32, are 16 megabytes.
_BLOCK = 1024
MOST_NUMBERS = 2**27  # of draws times rows: half a gigabyte in float32
_FEWEST_DRAWS = 100  # below that neither spread nor quantiles of a prediction mean much


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows to say something about.

    Args:
        blocks: So many at a time, as NumPy arrays.
        count: How many there are.
        as_sampled: Whether they are those of the posterior, on whose scale its chains moved.
    """

    blocks: Callable[[int], Iterator[PyTree]]
    count: int
    as_sampled: bool


def rows_of(posterior: Posterior, rows: Table, *, outcomes: bool) -> Rows:
    """The posterior's own rows (None), or new ones, coded as those were.

    Args:
        posterior: With the design that its rows were made by, if there is one.
        rows: A frame, a matrix, or arrays as in the posterior's data.
        outcomes: Whether what is asked needs the outcomes.
    """
    if rows is None:
        return Rows(posterior.rows.blocks, posterior.num_rows, True)
    design = design_of(posterior)
    if design is None:
        arrays = _plain_rows(posterior, rows, outcomes=outcomes)
    else:
        arrays = design.columns(rows, jnp.result_type(float), outcomes=outcomes)
    count = len(jax.tree.leaves(arrays)[0])

    def blocks(size: int) -> Iterator[PyTree]:
        for start in range(0, count, size):
            yield jax.tree.map(lambda leaf, start=start: leaf[start : start + size], arrays)

    return Rows(blocks, count, False)


def design_of(posterior: Posterior) -> Design | None:
    """How rows of a regression are coded, also of one that was made from an array; None for other likelihoods."""
    if posterior.design is None and link_of(posterior) is not None:
        return Design(ArrayCoding(posterior.rows.like["x"].shape[0], False))
    return posterior.design


def link_of(posterior: Posterior) -> Link | None:
    """Of a ready regression; None for other likelihoods."""
    likelihood = posterior.log_likelihood
    return likelihood.link if isinstance(likelihood, LinearPredictor | SelectedPredictor) else None


def positions_of(run: Any, rows: Rows, num_draws: int | None) -> tuple[PyTree, tuple[int, int]]:
    """Draws on the scale that goes with the rows; see `thinned`."""
    standardised = run.posterior.design is not None and run.posterior.design.rescaling is not None
    samples = run.unconstrained_samples if standardised and rows.as_sampled else run.samples
    return thinned(samples, rows.count, num_draws)


def thinned(samples: PyTree, num_rows: int, num_draws: int | None) -> tuple[PyTree, tuple[int, int]]:
    """Draws spread evenly over each chain, stacked along one axis, and how many chains and draws of each these are.

    Args:
        samples: Leaves (chain, draw, ...).
        num_rows: That each of them will meet.
        num_draws: Of all chains together; None: all, or as many as `MOST_NUMBERS` allows.
    """
    num_chains, available = jax.tree.leaves(samples)[0].shape[:2]
    wanted = num_draws_of(num_chains * available, num_rows, num_draws)
    of_each = min(available, math.ceil(wanted / num_chains))
    which = np.linspace(0, available - 1, of_each).round().astype(int)
    return jax.tree.map(lambda leaf: _stacked(np.asarray(leaf)[:, which]), samples), (num_chains, of_each)


def num_draws_of(available: int, num_rows: int, wanted: int | None) -> int:
    """Of all chains together, checked."""
    if wanted is None:
        return min(available, max(_FEWEST_DRAWS, MOST_NUMBERS // num_rows))
    if isinstance(wanted, bool) or not isinstance(wanted, int | np.integer) or wanted < 1:
        raise ValueError(f"num_draws must be a whole number of at least 1, got {wanted!r}")
    if min(int(wanted), available) * num_rows > 2 * MOST_NUMBERS:
        raise ValueError(
            f"{min(int(wanted), available):,} draws at {num_rows:,} rows are too many numbers for one array; pass "
            f"num_draws={max(1, MOST_NUMBERS // num_rows)}, or fewer rows at a time"
        )
    return min(int(wanted), available)


def over_rows(function: Callable, positions: PyTree, rows: Rows, *others: Any, at_once: int = _BLOCK) -> np.ndarray:
    """`function(position, row, number of the row, *others)` of each draw and each row: (draw, row, ...)."""
    parts = list(over_blocks(function, positions, rows, *others, at_once=at_once))
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def over_blocks(
    function: Callable, positions: PyTree, rows: Rows, *others: Any, at_once: int = _BLOCK
) -> Iterator[np.ndarray]:
    """The same, some rows at a time. All blocks have one size, so that one program does for all."""
    size = min(at_once, rows.count)
    for number, block in enumerate(rows.blocks(size)):
        length = len(jax.tree.leaves(block)[0])
        numbers = np.arange(size, dtype=np.int32) + np.int32(number * size)
        padded = jax.tree.map(lambda leaf, length=length: _padded(np.asarray(leaf), size - length), block)
        yield np.asarray(_of_block(function, positions, padded, numbers, *others))[:, :length]


@program
def _of_block(function: Callable, positions: PyTree, rows: PyTree, numbers: Any, *others: Any) -> Any:
    with jax.default_matmul_precision("highest"):
        of_row = jax.vmap(lambda at, row, number: function(at, row, number, *others), in_axes=(None, 0, 0))
        of_each = jax.vmap(of_row, in_axes=(0, None, None))
        return of_each(positions, rows, numbers)


def _plain_rows(posterior: Posterior, rows: Any, *, outcomes: bool) -> PyTree:
    """Arrays as in the posterior's data; parts that are not needed may be missing."""
    leaves = jax.tree.leaves(rows)
    if not leaves or not all(isinstance(leaf, np.ndarray | jax.Array) and leaf.ndim for leaf in leaves):
        raise ValueError("rows must be arrays as in the posterior's data, with one row per first index; or None for it")
    like = posterior.rows.like
    if outcomes and jax.tree.structure(rows) != jax.tree.structure(like):
        raise ValueError(f"rows must have the parts of the posterior's data, {_parts(like)}; they have {_parts(rows)}")
    lengths = {leaf.shape[0] for leaf in leaves}
    if len(lengths) > 1:
        raise ValueError(f"parts of rows have different lengths: {sorted(lengths)}; give all the same first axis")
    known = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(like)}
    for path, leaf in jax.tree.leaves_with_path(rows):
        wanted = known.get(jax.tree_util.keystr(path))
        if wanted is not None and leaf.shape[1:] != wanted.shape:
            name = "rows" + jax.tree_util.keystr(path)
            raise ValueError(f"{name} has rows of shape {leaf.shape[1:]}; the posterior's have {wanted.shape}")
    return jax.tree.map(np.asarray, rows)


def _parts(tree: PyTree) -> str:
    return ", ".join(jax.tree_util.keystr(path) or "one array" for path, _ in jax.tree.leaves_with_path(tree))


def _stacked(leaf: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(leaf.reshape(-1, *leaf.shape[2:]))


def _padded(leaf: np.ndarray, missing: int) -> np.ndarray:
    return leaf if not missing else np.concatenate([leaf, np.repeat(leaf[-1:], missing, axis=0)])
