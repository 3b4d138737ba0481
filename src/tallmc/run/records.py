"""Draws as plain arrays: one for each dtype, so that storing a draw is one write, not one for each name.

Compiled code writes them round a ring of fixed size, which the host empties into a sink. So neither memory on the
device nor the compiled program depends on how many draws there will be.
"""

import abc
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


Record = dict[str, Any]  # of arrays: NumPy's before anything was written, then JAX's


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

    def shapes(self, leading: tuple[int, ...]) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and dtypes of records with room for so many draws."""
        shapes = jax.eval_shape(pack, self.like)
        return {name: jax.ShapeDtypeStruct((*leading, *one.shape), one.dtype) for name, one in shapes.items()}

    @property
    def num_bytes(self) -> int:
        """Bytes that one draw takes in a ring, its position and all its statistics."""
        return sum(shape.size * shape.dtype.itemsize for shape in jax.eval_shape(pack, self.like).values())

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


class Sink(abc.ABC):
    """Where blocks of draws go."""

    @abc.abstractmethod
    def settled(self, layout: Layout, session: Any) -> None:
        """Told, before the first block, that the set-up is done and what draws are like."""

    @abc.abstractmethod
    def append(self, block: dict[str, np.ndarray]) -> None:
        """Takes the next draws of all chains: arrays (chain, draw, ...), one for each dtype."""

    @abc.abstractmethod
    def due(self) -> bool:
        """Whether it is time for a checkpoint."""

    @abc.abstractmethod
    def checkpoint(self, session: Any, ahead: dict[str, np.ndarray], *, seconds: float) -> None:
        """Takes a session, and records of draws that some chains have made beyond those that were appended."""


class Memory(Sink):
    """Keeps all blocks in memory."""

    def __init__(self):
        self.blocks: list[dict[str, np.ndarray]] = []

    def settled(self, layout: Layout, session: Any) -> None:
        """Takes blocks as they are."""

    def append(self, block: dict[str, np.ndarray]) -> None:
        """Keeps a block as it is; blocks are joined only when all draws are asked for."""
        self.blocks.append(block)

    def due(self) -> bool:
        """Never: what is in memory ends with the process."""
        return False

    def checkpoint(self, session: Any, ahead: dict[str, np.ndarray], *, seconds: float) -> None:
        """Has nowhere to write one."""

    def collect(self) -> dict[str, np.ndarray]:
        """All draws so far as one array for each dtype, (chain, draw, ...); takes as much memory again."""
        return {name: np.concatenate([block[name] for block in self.blocks], axis=1) for name in self.blocks[0]}


def ring_size(bytes_per_draw: int, num_bytes: int) -> int:
    """Draws that fit into so many bytes: a power of two, so that the place in the ring is a mask."""
    fits = max(num_bytes // max(bytes_per_draw, 1), 1)
    return int(np.clip(1 << (int(fits).bit_length() - 1), SMALLEST_RING, LARGEST_RING))


SMALLEST_RING = 256  # chains that are moved together may be so far apart
LARGEST_RING = 16_384  # about a second of the fastest chain: looking at it more rarely saves nothing
