"""Positions from one scale to the other: which transform belongs to which array, and whether a start keeps to it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree, Real

from tallmc.numerics.flat import num_coordinates
from tallmc.numerics.programs import program
from tallmc.numerics.promotion import promoting
from tallmc.transforms.contract import Transform

# Draws that are brought to the natural scale at once. Always so many, so that their number compiles nothing; fewer, in
# powers of two, where they have so many coordinates that a block would have more than a million numbers.
_DRAWS, _NUMBERS = 4096, 2**20


def check_transforms(transforms: PyTree) -> bool:
    """Whether there are any; raises `ValueError` if something else is among them."""
    leaves = jax.tree.leaves_with_path(transforms, is_leaf=_is_transform)
    for path, leaf in leaves:
        if not _is_transform(leaf):
            name = "transforms" + jax.tree_util.keystr(path)
            ends = ", and interval wants its ends: interval(0, 1)" if callable(leaf) else ""
            raise ValueError(
                f"{name} must be a transform such as tm.transforms.positive, or None, not {leaf!r}; take one of "
                f"positive, interval(low, high), ordered and simplex{ends}"
            )
    return bool(leaves)


def constrain(transforms: PyTree, position: PyTree) -> PyTree:
    """A position of unconstrained numbers on the natural scale."""
    return _mapped(lambda transform, leaf: transform.constrain(leaf), transforms, position)


def unconstrain(transforms: PyTree, position: PyTree) -> PyTree:
    """A position on the natural scale as unconstrained numbers."""
    return _mapped(lambda transform, leaf: transform.unconstrain(leaf), transforms, position)


def log_jacobian(transforms: PyTree, position: PyTree) -> Real[Array, ""]:
    """Logarithm of the change of volume from unconstrained numbers, at this position of theirs, to natural ones."""
    pairs = zip(assigned(transforms, position), jax.tree.leaves(position), strict=True)
    changes = [transform.log_jacobian(leaf) for transform, leaf in pairs if transform is not None]
    with promoting():
        return jnp.asarray(sum(changes))


def contains(transforms: PyTree, position: PyTree) -> Bool[Array, ""]:
    """Whether a position on the natural scale keeps to all limits."""
    pairs = zip(assigned(transforms, position), jax.tree.leaves(position), strict=True)
    inside = [transform.contains(leaf) for transform, leaf in pairs if transform is not None]
    return jnp.all(jnp.stack(inside)) if inside else jnp.bool_(True)


def constrained_draws(transforms: PyTree, draws: PyTree) -> PyTree:
    """Draws of unconstrained numbers, leaves (chain, draw, ...), on the natural scale; NumPy's in, NumPy's out."""
    return _in_blocks(_constrained, transforms, draws)


def mapped_draws(function: Callable[[PyTree], PyTree], draws: PyTree) -> PyTree:
    """What a function of a position gives for each draw, leaves (chain, draw, ...); NumPy's in, NumPy's out."""
    return _in_blocks(_mapped_to, function, draws)


def _in_blocks(program_of: Callable[[Any, PyTree], PyTree], how: Any, draws: PyTree) -> PyTree:
    leaves = jax.tree.leaves(draws)
    if not leaves:
        return draws
    lead = leaves[0].shape[:2]
    count, size = lead[0] * lead[1], num_coordinates(jax.tree.map(lambda leaf: leaf[0, 0], draws))
    block = 1 << int(np.clip(_NUMBERS // max(size, 1), 1, _DRAWS)).bit_length() - 1
    flat = jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[2:]), draws)
    parts = []
    for start in range(0, count, block):
        some = jax.tree.map(lambda leaf, start=start: leaf[start : start + block], flat)
        kept = min(block, count - start)
        done = program_of(how, jax.tree.map(lambda leaf, kept=kept: _padded(leaf, block - kept), some))
        parts.append(jax.tree.map(lambda leaf, kept=kept: np.asarray(leaf)[:kept], done))
    return jax.tree.map(lambda *some: np.concatenate(some).reshape(*lead, *some[0].shape[1:]), *parts)


def check_start(transforms: PyTree, positions: PyTree, name: str, *, alike: bool) -> None:
    """Raises `ValueError` unless positions on the natural scale, one a chain, are inside all limits.

    Args:
        transforms: The limits.
        positions: NumPy arrays with a leading axis of chains.
        name: What the caller calls them.
        alike: Whether all chains have the same.
    """
    for (path, leaf), transform in zip(
        jax.tree.leaves_with_path(positions), assigned(transforms, positions), strict=True
    ):
        if transform is None:
            continue
        named = name + jax.tree_util.keystr(path)
        if (trouble := transform.trouble_with_shape(leaf.shape[1:])) is not None:
            raise ValueError(f"{named}: {trouble}; give it one, or leave its transform out")
        for chain, value in enumerate(leaf[:1] if alike else leaf):
            if (trouble := transform.trouble_with(np.asarray(value))) is not None:
                raise ValueError(f"{named} {'' if alike else f'of chain {chain} '}{trouble}")


@program
def unconstrained_position(transforms: PyTree, position: PyTree) -> PyTree:
    """`unconstrain`, compiled."""
    return unconstrain(transforms, position)


@program
def constrained_position(transforms: PyTree, position: PyTree) -> PyTree:
    """`constrain`, compiled."""
    return constrain(transforms, position)


@program
def _mapped_to(function: Callable[[PyTree], PyTree], positions: PyTree) -> PyTree:
    return jax.vmap(function)(positions)


@program
def _constrained(transforms: PyTree, positions: PyTree) -> PyTree:
    return jax.vmap(lambda position: constrain(transforms, position))(positions)


def _padded(leaf: np.ndarray, missing: int) -> np.ndarray:
    return np.concatenate([leaf, np.zeros((missing, *leaf.shape[1:]), leaf.dtype)]) if missing else leaf


def _mapped(function: Any, transforms: PyTree, position: PyTree) -> PyTree:
    leaves, structure = jax.tree.flatten(position)
    pairs = zip(assigned(transforms, position), leaves, strict=True)
    moved = [leaf if transform is None else function(transform, jnp.asarray(leaf)) for transform, leaf in pairs]
    return jax.tree.unflatten(structure, moved)


def assigned(transforms: PyTree, position: PyTree) -> list[Transform | None]:
    """The transform of each array of a position: that which has its name, or that of what it is part of."""
    given = {_names(path): one for path, one in jax.tree.leaves_with_path(transforms, is_leaf=_is_transform)}
    paths = [path for path, _ in jax.tree.leaves_with_path(position)]
    arrays = [_names(path) for path in paths]
    for name in given:
        if not any(array[: len(name)] == name for array in arrays):
            there = ", ".join("position" + jax.tree_util.keystr(path) for path in paths)
            called = "".join(f"[{part!r}]" for part in name) or "the transform"
            raise ValueError(
                f"transforms names {called}, but there is only {there}; mend the name, or pass transforms shaped like "
                "the position, with None where there is no limit"
            )
    return [next((given[name[:n]] for n in range(len(name) + 1) if name[:n] in given), None) for name in arrays]


def _is_transform(leaf: object) -> bool:
    return isinstance(leaf, Transform)


def _names(path: tuple[Any, ...]) -> tuple[Any, ...]:
    """Keys, numbers and names of fields, whatever kind of container they belong to."""
    return tuple(getattr(part, "key", getattr(part, "name", getattr(part, "idx", None))) for part in path)
