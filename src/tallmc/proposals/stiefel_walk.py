"""A random walk on matrices with orthonormal columns."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, PyTree, Real

from tallmc.numerics.arithmetic import matrix_product, rounded, solved_by_elimination
from tallmc.numerics.flat import as_device_array
from tallmc.posterior import Model
from tallmc.posterior.orthonormal import TOLERANCE, orthonormality_error
from tallmc.proposals.contract import Move, Proposal

# Share of the steps of a square matrix that change the sign of its determinant as well. Without any, half of the
# manifold is never seen; where both halves weigh the same and look different, the others lose at most this share.
# A judgement: a chain that all of these steps are accepted for forgets which half it was in within five steps.
_REFLECTIONS = 0.1


class StiefelWalk(Proposal):
    """Rotates a matrix with orthonormal columns by a small random angle in every plane.

    The proposal is `Q W`, with `Q = (I - A/2)^-1 (I + A/2)` the Cayley transform of a random skew matrix `A`, whose
    entries above the diagonal are independent normals. `Q` is a rotation whatever `A` is.

    *Why the walk is symmetric.* `A` and `-A` have the same distribution, `Q(-A)` is the inverse of `Q(A)`, and the
    uniform (Haar) measure on these matrices does not notice a rotation. So to go from `W` to a set by `Q` is as likely
    as to come back by its inverse, with respect to that measure, and the log ratio of the proposal is zero.

    *Why it stays on the manifold.* Rounding would drift away like a walk of its own. So each proposal takes one Newton
    step `W - W (W^T W - I) / 2` towards the nearest matrix with orthonormal columns (its polar factor). Where `W` is
    orthonormal that step does nothing, and off by rounding it commutes with rotations, `P(Q W) = Q P(W)`: projecting
    after every step is the same walk as projecting once. So it removes rounding and nothing else.

    *Both halves.* Rotations keep the determinant of a square matrix. A share of the steps, `reflections`, therefore
    also changes the sign of a random row or column, each of which is its own inverse and leaves the distribution of `A`
    alone. Matrices with fewer columns than rows need none and get none.

    These steps alone leave the uniform distribution as it is. The walk of Korattikara et al. (2014, section 6.2) is
    that of Ouyang (2008). A step is made of plain sums and products, about `p^3` of them for `p` rows, and
    `p (p - 1) / 2` random numbers: it is meant for a hundred rows at most.

    Args:
        scale: Standard deviation of the angles, in radians: one for all planes, or a symmetric matrix with that of the
            plane of coordinates i and j at (i, j) and (j, i), the diagonal being ignored. Warm-up tunes a common
            factor. Angles that are longer than useful, beyond `sqrt(8 / (p - 1))`, are cut to that: there the proposal
            is nearly uncorrelated with where it began.
        reflections: Share of the steps of a square matrix that also change the sign of its determinant. 0 where the
            posterior is the same on both halves, such as that of `tm.models.ica`, keeps chains in one of them.

    A position is a matrix, a vector of length one, or a pytree of nothing but such; all leaves move at once.

    Example:
        >>> import jax, tallmc as tm
        >>> walk = StiefelWalk(0.1)
        >>> posterior = tm.Posterior(lambda w, row: row @ w @ row, np.ones((5, 3), np.float32))
        >>> move = walk.propose(jax.random.key(0), jnp.eye(3), posterior.model)
        >>> bool(jnp.allclose(move.position.T @ move.position, jnp.eye(3), atol=1e-6))
        True
    """

    scale: Real[Array, "..."]
    reflections: Real[Array, ""]

    def __init__(self, scale: ArrayLike | Sequence[Sequence[float]], reflections: float | int = _REFLECTIONS):
        _check_scale(np.asarray(scale))
        if np.ndim(reflections) or not 0 <= float(reflections) <= 1:
            raise ValueError(f"reflections is a share of the steps, from 0 to 1, got {reflections}")
        dtype = jnp.result_type(float)
        self.scale, self.reflections = (
            as_device_array(value, dtype) for value in ((np.asarray(scale) + np.asarray(scale).T) / 2, reflections)
        )

    def propose(self, key: Array, position: PyTree, model: Model) -> Move:
        """Rotates every leaf; the walk is symmetric, so its log ratio is zero."""
        del model
        leaves, structure = jax.tree.flatten(position)
        keys = [key] if len(leaves) == 1 else list(jax.random.split(key, len(leaves)))
        moved = [self._moved(own, leaf) for own, leaf in zip(keys, leaves, strict=True)]
        return Move(jax.tree.unflatten(structure, moved), jnp.zeros((), jnp.result_type(*leaves)))

    def _moved(self, key: Array, leaf: Array) -> Array:
        matrix = leaf.reshape(leaf.shape[0], -1)
        size, square = len(matrix), matrix.shape[0] == matrix.shape[1]
        key_angles, key_share, key_which = jax.random.split(key, 3)
        if size > 1:
            scale = jnp.minimum(self.scale, longest_useful(size)).astype(leaf.dtype)
            matrix = rotated(matrix, rounded(scale * random_skew(key_angles, size, leaf.dtype)))
        if square:
            reflect = jax.random.uniform(key_share, (), self.reflections.dtype) < self.reflections
            matrix = jnp.where(reflect, _reflected(key_which, matrix), matrix)
        return nearest_orthonormal(matrix).reshape(leaf.shape)

    def rescaled(self, step_size: Real[Array, ""]) -> "StiefelWalk":
        """The same proposal with angles `step_size` times as large."""
        return eqx.tree_at(lambda walk: walk.scale, self, self.scale * step_size)

    def check(self, position: PyTree, model: Model) -> None:
        """Every leaf must have orthonormal columns, and the scale must fit it."""
        del model
        for path, leaf in jax.tree.leaves_with_path(position):
            name = f"init{jax.tree_util.keystr(path)}"
            _check_leaf(name, np.asarray(leaf))
            if self.scale.ndim and len(self.scale) != len(leaf):
                raise ValueError(
                    f"StiefelWalk's scale is for the planes of {len(self.scale)} rows but {name} has {len(leaf)}; pass "
                    f"one number, or a symmetric {len(leaf)} x {len(leaf)} matrix"
                )


def longest_useful(size: int) -> float:
    """A scale at which a step of that many rows leaves hardly any correlation with where it began.

    The eigenvalues of a large skew matrix with normal entries of standard deviation s fill a semicircle of radius
    `2 s sqrt(p)`. Averaged over it, the cosine of the angle of a Cayley transform is zero at `s sqrt(p) = sqrt(8)`.
    With p - 1 for p the correlation is 0.09 at 2 rows, where longer steps would end in mere changes of sign.
    """
    return math.sqrt(8 / (size - 1))


def random_skew(key: Array, size: int, dtype: jnp.dtype) -> Real[Array, "p p"]:
    """A skew matrix with independent standard normals above its diagonal."""
    numbers = jax.random.normal(key, (size * (size - 1) // 2,), dtype)
    places, above = np.zeros((size, size), np.int32), np.triu_indices(size, 1)
    places[above] = np.arange(len(above[0]))
    sign = np.triu(np.ones((size, size)), 1)
    return numbers[places + places.T] * jnp.asarray(sign - sign.T, dtype)


def rotated(matrix: Real[Array, "p k"], skew: Real[Array, "p p"]) -> Real[Array, "p k"]:
    """The Cayley transform of a skew matrix, applied to another: `(I - A/2)^-1 (I + A/2) W`.

    Its system needs no pivots: `I - A/2` has the positive definite symmetric part I, and so have all that elimination
    leaves of it.
    """
    half = skew / 2
    system = jnp.eye(len(skew), dtype=skew.dtype) - half
    return solved_by_elimination(system, matrix + matrix_product(half, matrix))


def nearest_orthonormal(matrix: Real[Array, "p k"]) -> Real[Array, "p k"]:
    """One Newton-Schulz step towards the polar factor: what was off by e is then off by about e^2."""
    excess = matrix_product(matrix.T, matrix) - jnp.eye(matrix.shape[1], dtype=matrix.dtype)
    return matrix - rounded(matrix_product(matrix, excess) / 2)


def _reflected(key: Array, matrix: Real[Array, "p p"]) -> Real[Array, "p p"]:
    """With the sign of a random row or column changed."""
    size = len(matrix)
    which, places = jax.random.randint(key, (), 0, 2 * size, jnp.int32), jnp.arange(size, dtype=jnp.int32)
    rows = jnp.where(places == which, -1, 1).astype(matrix.dtype)
    columns = jnp.where(places + size == which, -1, 1).astype(matrix.dtype)
    return matrix * rows[:, None] * columns[None]


def _check_scale(scale: np.ndarray) -> None:
    planes = scale
    if scale.ndim:
        if scale.ndim != 2 or scale.shape[0] != scale.shape[1] or not np.allclose(scale, scale.T, rtol=1e-6):
            raise ValueError(
                "StiefelWalk's scale is one angle, or a symmetric matrix with one for each plane of two coordinates; "
                f"this is neither, and its shape is {scale.shape}"
            )
        planes = scale[~np.eye(len(scale), dtype=bool)]
    if not (np.all(np.isfinite(scale)) and np.all(planes > 0)):
        raise ValueError(f"StiefelWalk's scale is in radians and must be positive and finite, got {scale}")


def _check_leaf(name: str, leaf: np.ndarray) -> None:
    if leaf.ndim not in (1, 2) or not np.issubdtype(leaf.dtype, np.floating):
        raise ValueError(
            f"StiefelWalk moves matrices with orthonormal columns and vectors of length one, but {name} has shape "
            f"{leaf.shape} and holds {leaf.dtype}; move only such by it"
        )
    shape = (len(leaf), leaf.size // max(len(leaf), 1))
    if not shape[0] >= shape[1] > 0:
        raise ValueError(
            f"{name} has more columns ({shape[1]}) than rows ({shape[0]}), which cannot be orthonormal; pass {name}.T"
        )
    if not (error := orthonormality_error(leaf)) <= TOLERANCE:
        fix = f"{name} / np.linalg.norm({name})" if leaf.ndim == 1 else f"np.linalg.qr({name})[0]"
        raise ValueError(
            f"{name} does not have orthonormal columns (W.T @ W is up to {error:.2g} from the identity), and "
            f"StiefelWalk moves nothing else; start from {fix}"
        )
