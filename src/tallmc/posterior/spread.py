"""Rows that lie on several devices: each works out what its own rows say, and one all-reduce hands that to all.

A device looks only at rows of its own. What it says of them, one number a row, it puts where these rows are in the
window, and zeros elsewhere. The sum over devices is the window as one device would have had it, digit for digit: of
the addends of each number all but one are zero. So decisions do not depend on how many devices there are, nor on the
order in which a network adds, and chains need not be sent around: every device holds them all and moves them alike.
"""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc.numerics.arithmetic import ordered_sum


class Far(eqx.Module):
    """Rows of a window that are not all on one device."""

    arrays: eqx.AbstractVar[PyTree]
    mesh: eqx.AbstractVar[Mesh]

    @abc.abstractmethod
    def _own(self, arrays: PyTree, device: Int[Array, ""]) -> tuple[PyTree, Int[Array, " k"], Bool[Array, " k"]]:
        """Of this device: some rows, their places in the window, and which of them are meant."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Rows of the window."""

    def map(self, function: Callable[[PyTree], Real[Array, "..."]]) -> Real[Array, "..."]:
        """What a function of a batch of rows says of each row of the window, on every device.

        Args:
            function: Gives an array with an entry for each row.
        """

        def of_device(arrays: PyTree) -> Array:
            rows, places, meant = self._own(arrays, jax.lax.axis_index(self.mesh.axis_names))
            values = function(rows)
            whole = jnp.zeros((self.size, *values.shape[1:]), values.dtype)
            whole = whole.at[jnp.where(meant, places, self.size)].set(values, mode="drop", unique_indices=True)
            return jax.lax.psum(whole, self.mesh.axis_names)

        return self._everywhere(of_device)

    def sums(self, function: Callable[[PyTree], Real[Array, " k"]], count: Int[Array, ""]) -> Real[Array, " devices"]:
        """What a function says of the first `count` rows, added up by each device: one number for each.

        Args:
            function: Gives a number for each row.
            count: Rows of the window that are meant.
        """

        def of_device(arrays: PyTree) -> Array:
            device = jax.lax.axis_index(self.mesh.axis_names)
            rows, places, meant = self._own(arrays, device)
            values = function(rows).astype(jnp.result_type(float))
            total = ordered_sum(jnp.where(meant & (places < count), values, 0))
            return jax.lax.psum(jnp.zeros(self.mesh.size, total.dtype).at[device].set(total), self.mesh.axis_names)

        return self._everywhere(of_device)

    def _everywhere(self, of_device: Callable[[PyTree], Array]) -> Array:
        """What all devices find together."""
        along = PartitionSpec(self.mesh.axis_names)
        # JAX would check what varies between devices, and recorded steps of a likelihood do not say.
        return jax.shard_map(of_device, mesh=self.mesh, in_specs=(along,), out_specs=PartitionSpec(), check_vma=False)(
            self.arrays
        )


class _Runs(Far):
    """Runs of neighbours of a `Ring`."""

    arrays: PyTree
    starts: Int[Array, " runs"]
    length: int = eqx.field(static=True)
    mesh: Mesh = eqx.field(static=True)

    @property
    def size(self) -> int:
        """All rows of all runs."""
        return self.starts.shape[0] * self.length

    def _own(self, arrays: PyTree, device: Int[Array, ""]) -> tuple[PyTree, Array, Array]:
        """Every so manyth row of each run is on this device, where these lie together."""
        devices = self.mesh.size
        first = (self.starts + (devices - 1) - device) // devices
        count = -(-self.length // devices)
        slices = jax.vmap(lambda leaf, at: jax.lax.dynamic_slice_in_dim(leaf, at, count), (None, 0))
        rows = jax.tree.map(lambda leaf: slices(leaf, first).reshape(-1, *leaf.shape[1:]), arrays)
        ring = (first[:, None] + jnp.arange(count, dtype=jnp.int32)[None]) * devices + device
        within = ring - self.starts[:, None]
        runs = jnp.arange(self.starts.shape[0], dtype=jnp.int32)[:, None] * self.length
        return rows, (runs + within).reshape(-1), (within < self.length).reshape(-1)


class Ring(eqx.Module):
    """Rows in random order, dealt out to devices like cards, so that each has its share of any window.

    Args:
        arrays: Device d has rows d, d + D, d + 2 D and so on, where D is the number of devices.
        mesh: The devices.
    """

    arrays: PyTree
    mesh: Mesh = eqx.field(static=True)

    def runs(self, starts: Int[Array, " runs"], length: int) -> Far:
        """Runs of neighbours, one after the other."""
        return _Runs(arrays=self.arrays, starts=starts, length=length, mesh=self.mesh)


class _Picked(Far):
    """Single rows of `Scattered` ones."""

    arrays: PyTree
    numbers: Int[Array, " k"]
    starts: Int[Array, " devices_and_one"]
    mesh: Mesh = eqx.field(static=True)

    @property
    def size(self) -> int:
        """As many as were picked."""
        return self.numbers.shape[0]

    def _own(self, arrays: PyTree, device: Int[Array, ""]) -> tuple[PyTree, Array, Array]:
        """Any row may be on any device: each has room for all, and looks at its first row in place of the others'."""
        meant = (self.numbers >= self.starts[device]) & (self.numbers < self.starts[device + 1])
        at = jnp.where(meant, self.numbers - self.starts[device], 0)
        return jax.tree.map(lambda leaf: leaf[at], arrays), jnp.arange(self.size, dtype=jnp.int32), meant


class Scattered(eqx.Module):
    """Rows in their order, cut into a stretch for each device.

    Args:
        arrays: Every device has as many rows, of which the last may be padding.
        starts: Number of the first row of each device, and how many there are in all.
        mesh: The devices.
        numbered: Whether rows are pairs, with a number for each.
    """

    arrays: PyTree
    starts: Int[Array, " devices_and_one"]
    mesh: Mesh = eqx.field(static=True)
    numbered: bool = eqx.field(static=True, default=False)

    @property
    def length(self) -> int:
        """Rows that each device has room for."""
        return jax.tree.leaves(self.arrays)[0].shape[0] // self.mesh.size

    def picked(self, numbers: Int[Array, " k"]) -> Far:
        """Some rows, by number."""
        return _Picked(arrays=self.arrays, numbers=numbers, starts=self.starts, mesh=self.mesh)


def on_devices(parts: list[np.ndarray], mesh: Mesh) -> Array:
    """One array of which every device of this process holds a part; all parts are as long.

    Args:
        parts: In the order in which this process's devices are in the mesh.
        mesh: All devices, of all processes.
    """
    sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    own = [device for device in mesh.devices.flat if device.process_index == jax.process_index()]
    shape = (len(parts[0]) * mesh.size, *parts[0].shape[1:])
    pieces = [jax.device_put(part, device) for part, device in zip(parts, own, strict=True)]
    return jax.make_array_from_single_device_arrays(shape, sharding, pieces)


def mesh_of(stage: PyTree) -> Mesh | None:
    """The devices that what a feed reads from is spread over; None if it is on one."""
    parts = jax.tree.leaves(stage, is_leaf=_is_spread)
    return next((part.mesh for part in parts if _is_spread(part)), None)


def replicated(mesh: Mesh | None) -> NamedSharding | None:
    """Of what every device has a copy of its own; None if there is one device."""
    return None if mesh is None else NamedSharding(mesh, PartitionSpec())


def at_home(tree: PyTree) -> PyTree:
    """With arrays of this process alone in place of copies on every device of a mesh."""

    def take(leaf: PyTree) -> PyTree:
        if not isinstance(leaf, jax.Array) or len(leaf.sharding.device_set) == 1:
            return leaf
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(take(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
        return jnp.asarray(np.asarray(leaf))

    return jax.tree.map(take, tree)


def everywhere(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """With a copy of every array on every device; as it is if there is one device.

    With several processes each must come with the same numbers.
    """
    place = replicated(mesh)
    if place is None:
        return tree

    def put(leaf: PyTree) -> PyTree:
        if not eqx.is_array(leaf) or (isinstance(leaf, jax.Array) and leaf.sharding == place):
            return leaf
        return jax.device_put(leaf, place) if place.is_fully_addressable else _copies(leaf, place)

    return jax.tree.map(put, tree)


def _copies(leaf: Array | np.ndarray, place: NamedSharding) -> Array:
    """One on each device of this process; what the other processes have, they have put there by themselves."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_copies(jax.random.key_data(leaf), place), impl=jax.random.key_impl(leaf))
    host = np.asarray(leaf)
    pieces = [jax.device_put(host, device) for device in sorted(place.addressable_devices, key=lambda one: one.id)]
    return jax.make_array_from_single_device_arrays(host.shape, place, pieces)


def _is_spread(part: object) -> bool:
    return isinstance(part, Ring | Scattered)
