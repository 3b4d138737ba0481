"""Draws as plain arrays: one for each dtype, so that storing a draw is one write, not one for each name."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree


class Draw(NamedTuple):
    """What is kept of a transition."""

    position: PyTree
    stats: dict[str, Any]


Record = dict[str, Array]


def pack(draw: Draw) -> Record:
    """One draw as one vector for each dtype; truth values count as int32."""
    groups: dict[str, list[Array]] = {}
    for leaf in jax.tree.leaves(draw):
        leaf = leaf.astype(jnp.int32) if leaf.dtype == jnp.bool_ else leaf
        groups.setdefault(leaf.dtype.name, []).append(leaf.ravel())
    return {name: jnp.concatenate(leaves) for name, leaves in groups.items()}


class Layout(eqx.Module):
    """How to get draws back from records."""

    like: Draw = eqx.field(static=True)

    def empty(self, leading: tuple[int, ...]) -> Record:
        """Room for draws."""
        shapes = jax.eval_shape(pack, self.like)
        return {name: jnp.zeros((*leading, *shape.shape), shape.dtype) for name, shape in shapes.items()}

    def unpack(self, record: dict[str, np.ndarray]) -> Draw:
        """Draws with the records' leading axes."""
        leaves, structure = jax.tree.flatten(self.like)
        used = dict.fromkeys(record, 0)
        unpacked = []
        for leaf in leaves:
            name = "int32" if leaf.dtype == jnp.bool_ else leaf.dtype.name
            start, used[name] = used[name], used[name] + leaf.size
            part = record[name][..., start : used[name]]
            unpacked.append(part.reshape(part.shape[:-1] + leaf.shape).astype(leaf.dtype, copy=False))
        return jax.tree.unflatten(structure, unpacked)
