"""The rows of a dataset on several devices, of one process or of many, none of which need have all of them."""

import itertools
from collections.abc import Iterator

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Int, PyTree, Real

from tallmc.numerics.processes import Team, team_of
from tallmc.posterior.rows import Rows
from tallmc.posterior.spread import Ring, Scattered, on_devices

_ROWS_AT_A_TIME = 65_536  # of which every process is sent a copy, when rows change hands


class RowsOnMesh(Rows):
    """Rows spread over the devices of a mesh.

    All rows are numbered: those of the first process come first. What is asked of all rows, every process must ask.

    Args:
        own: Rows of this process; with one process all there are.
        mesh: Devices of all processes.
    """

    own: Rows
    mesh: Mesh = eqx.field(static=True)
    num_rows: int = eqx.field(static=True)
    counts: tuple[int, ...] = eqx.field(static=True)
    """Rows of each process."""

    def __init__(self, own: Rows, mesh: Mesh):
        self.own, self.mesh = own, mesh
        self.counts = tuple(int(count) for count in self._gathered(np.asarray([own.num_rows], np.int64))[:, 0])
        self.num_rows = sum(self.counts)
        if self.num_rows < mesh.size or min(self.counts) < self.own_devices:
            raise ValueError(
                f"{min(self.counts):,} rows are fewer than the {self.own_devices} devices that share them; pass a mesh "
                "of fewer devices"
            )

    @property
    def in_random_order(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether neighbours are a random sample of all rows, not only of those of a process."""
        return self.own.in_random_order and len(self.counts) == 1

    @property
    def known_finite(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether they were checked for NaN and infinity when they were stored."""
        return self.own.known_finite

    @property
    def team(self) -> Team:
        """The processes that share them."""
        return Team(len(self.counts))

    @property
    def own_devices(self) -> int:
        """Devices of this process."""
        return self.mesh.size // len(self.counts)

    @property
    def like(self) -> PyTree:
        """Shape and dtype of one row, as compiled code sees it."""
        return self.own.like

    def all(self) -> PyTree:
        """All rows that this process has."""
        return self.own.all()

    def take(self, indices: Int[np.ndarray, " k"]) -> PyTree:
        """Some rows, by number; processes send each other those that the others lack."""
        if len(self.counts) == 1:
            return self.own.take(indices)
        first, rank = self._first, jax.process_index()
        meant = (indices >= first) & (indices < first + self.counts[rank])
        mine = self.own.take(np.where(meant, indices - first, 0))
        owner = np.searchsorted(np.cumsum(self.counts), indices, side="right")
        places = np.arange(len(indices))
        return jax.tree.map(lambda leaf: self._gathered(np.asarray(leaf))[owner, places], mine)

    def blocks(self, size: int) -> Iterator[PyTree]:
        """All rows in their order, `size` at a time."""
        if len(self.counts) == 1:
            yield from self.own.blocks(size)
            return
        for start in range(0, self.num_rows, size):
            yield self.take(np.arange(start, min(start + size, self.num_rows)))

    def on_device(self) -> PyTree:
        """All rows on one device, which only a process that has them all can do."""
        if self.team.size > 1:
            raise ValueError(
                "what follows gradients of all rows, as tm.NUTS does, cannot do so for rows of several processes; move "
                "by tm.CrankNicolson or tm.RandomWalk, with a rule that reads few rows or tm.Exact()"
            )
        return self.own.on_device()

    def scattered(self) -> Scattered:
        """A stretch of rows on each device."""
        if "scattered" not in self._devices:
            self._devices["scattered"] = self._scattered()
        return self._devices["scattered"]

    def _scattered(self) -> Scattered:
        starts, first = self._starts, self._first
        longest = int(np.max(np.diff(starts)))

        def spread(leaf: jax.ShapeDtypeStruct, array: np.ndarray) -> Array:
            own = [np.asarray(array[start - first : stop - first], leaf.dtype) for start, stop in self.own_stretches]
            return on_devices([_padded(part, longest) for part in own], self.mesh)

        arrays = jax.tree.map(spread, self.like, self.own.all())
        return Scattered(arrays, starts, self.mesh)  # pyright: ignore[reportArgumentType]

    @property
    def _starts(self) -> Int[np.ndarray, " devices_and_one"]:
        """Number of the first row of each device, and how many there are in all."""
        before = np.concatenate([[0], np.cumsum(self.counts)])
        share = [np.linspace(0, count, self.own_devices + 1).astype(int)[:-1] for count in self.counts]
        return np.concatenate([*map(np.add, share, before), before[-1:]]).astype(np.int32)

    @property
    def own_stretches(self) -> list[tuple[int, int]]:
        """Of each device of this process the numbers of its first row, and of the first that is the next one's."""
        own = self._starts[self._rank * self.own_devices :][: self.own_devices + 1].tolist()
        return list(itertools.pairwise(own))

    def shuffled(self, seed: int, repeated: int) -> Ring:
        """All rows in random order, the same for any number of devices, dealt out to them."""
        order = np.random.default_rng(seed).permutation(self.num_rows)
        order = np.concatenate([order, order[:repeated]])
        devices, own = self.mesh.size, self.own_devices
        # One more than a device's share, so that a slice that ends beyond it begins where it should.
        length = -(-len(order) // devices) + 1
        first = self._rank * own
        parts = [jax.tree.map(lambda leaf: np.zeros((length, *leaf.shape), leaf.dtype), self.like) for _ in range(own)]
        step = _ROWS_AT_A_TIME // devices * devices or devices
        for start in range(0, len(order), step):
            some = self.take(order[start : start + step])
            for number, part in enumerate(parts):
                for array, leaf in zip(jax.tree.leaves(part), jax.tree.leaves(some), strict=True):
                    dealt = leaf[first + number :: devices]
                    array[start // devices : start // devices + len(dealt)] = dealt
        return Ring(jax.tree.map(lambda *leaves: on_devices(list(leaves), self.mesh), *parts), self.mesh)

    def joined(self, own: Real[np.ndarray, " own_rows"]) -> Real[np.ndarray, " rows"]:
        """One number for each row, from those of the rows of each process; every process then has all of them."""
        if len(self.counts) == 1:
            return own
        padded = np.zeros(max(self.counts), own.dtype)
        padded[: len(own)] = own
        every = self._gathered(padded)
        return np.concatenate([part[:count] for part, count in zip(every, self.counts, strict=True)])

    def one_each(self, dtype: np.dtype | type) -> Real[np.ndarray, " rows"]:
        """Room for one number for each row of this process."""
        return self.own.one_each(dtype)

    @property
    def _rank(self) -> int:
        return jax.process_index() if len(self.counts) > 1 else 0

    @property
    def _first(self) -> int:
        return sum(self.counts[: self._rank])

    def _gathered(self, array: np.ndarray) -> np.ndarray:
        """The array of each process, stacked."""
        return team_of(self.mesh).gathered(array)


def _padded(array: np.ndarray, length: int) -> np.ndarray:
    """With copies of its last row, which are never meant."""
    missing = length - len(array)
    return np.concatenate([array, np.repeat(array[-1:], missing, axis=0)]) if missing else array
