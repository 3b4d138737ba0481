"""Several processes that make one run together: what they tell each other outside compiled code."""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh


class Team(NamedTuple):
    """Processes that must do the same at the same time, because they wait for each other in compiled code.

    Args:
        size: How many there are; alone, a process has nobody to ask.
    """

    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes and speaks for all."""
        return self.size == 1 or jax.process_index() == 0

    def gathered(self, array: np.ndarray) -> np.ndarray:
        """The array of each process, stacked. All must have the same shape."""
        if self.size == 1:
            return array[None]
        from jax.experimental import multihost_utils

        # As bytes: JAX would make float32 of float64.
        array = np.ascontiguousarray(array)
        sent = array.reshape(-1).view(np.uint8)
        got = np.asarray(multihost_utils.process_allgather(sent, tiled=False))
        return got.reshape(self.size, -1).view(array.dtype).reshape(self.size, *array.shape)

    @contextlib.contextmanager
    def explained(self, resumable: bool) -> Iterator[None]:
        """Says what it means if another process is gone: all that the others see is a message that does not come.

        Args:
            resumable: Whether the run is kept in a store.
        """
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            if self.size == 1:
                raise
            what = "start all processes again (as many, or fewer)"
            what += ", with resume=True" if resumable else "; with store='run.zarr' they would have gone on from there"
            reason = str(error).splitlines()[0]
            raise ConnectionError(
                f"a process of this run is gone, or cannot be reached (this is process {jax.process_index()} of "
                f"{self.size}): {what}. What was heard of it: {reason}"
            ) from error

    def agreed(self, *numbers: float | int | bool) -> tuple[float | int | bool, ...]:
        """The numbers of the first process, for what depends on a clock or on a user."""
        if self.size == 1:
            return numbers
        return tuple(self.gathered(np.asarray(numbers, float))[0].tolist())


def team_of(mesh: Mesh | None) -> Team:
    """The processes whose devices a mesh has; without one each is alone."""
    if mesh is None:
        return Team()
    return Team(len({device.process_index for device in mesh.devices.flat}))
