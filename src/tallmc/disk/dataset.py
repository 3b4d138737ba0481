"""Rows in files, read where they lie: the system's cache decides what of them is in memory."""

import mmap
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Int, PyTree, Real

from tallmc.disk.manifest import Leaf, Manifest
from tallmc.numerics.memory import limit_of_process
from tallmc.numerics.scratch import on_disk
from tallmc.posterior import Rows
from tallmc.posterior.resident import default_device, resident

_SHARE_OF_MEMORY = 0.5  # that rows may take before windows come in a stream. A judgement


def _not_by_a_link(path: str, flags: int) -> int:
    """Opens a file itself: a link may have been put in its place since the manifest was checked."""
    return os.open(path, flags if sys.platform == "win32" else flags | os.O_NOFOLLOW)


class Dataset(Rows):
    """Rows that `tm.ingest` wrote. `tm.Posterior` and the regressions of `tm.models` take it in place of arrays.

    Files are mapped into memory, and compiled code on a CPU reads them there. What was read stays in the system's cache
    as long as there is room, and no longer: none of it has to fit.

    Args:
        data: The arrays, read-only.
        rings: The same with the first rows once more at the end.
        apart: The same once more, for single rows: of these the system reads no neighbours ahead.
        folder: Where they are.
        manifest: What is known of them.
        num_rows: Rows of data.
    """

    data: PyTree
    rings: PyTree
    apart: PyTree
    folder: str = eqx.field(static=True)
    manifest: Manifest = eqx.field(static=True)

    in_random_order: ClassVar = True
    known_finite: ClassVar = True

    num_rows: int = eqx.field(static=True)

    @property
    def like(self) -> PyTree:
        """Shape and dtype of one row, as compiled code sees it."""

        def of_one(leaf: np.ndarray) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(leaf.shape[1:], jax.dtypes.canonicalize_dtype(leaf.dtype))

        return jax.tree.map(of_one, self.data)

    def take(self, indices: Int[np.ndarray, " k"]) -> PyTree:
        """Some rows, by number, as copies in NumPy arrays."""
        return jax.tree.map(lambda leaf: leaf[indices], self.apart)

    def blocks(self, size: int) -> Iterator[PyTree]:
        """All rows in their order, `size` at a time."""
        for start in range(0, self.num_rows, size):
            yield jax.tree.map(lambda leaf, start=start: leaf[start : start + size], self.data)

    def all(self) -> PyTree:
        """The arrays, as they are mapped: reading all of one does not mean that all of it is in memory."""
        return self.data

    def scattered(self) -> PyTree:
        """On a CPU the files as they are mapped for single rows; elsewhere the rows that are there."""
        device = default_device()
        return resident(self.apart, device) if device.platform == "cpu" else self.on_device()

    def shuffled(self, seed: int, repeated: int) -> PyTree:
        """The rows as they lie: they were shuffled when they were ingested, whatever the seed of a run.

        On a CPU nothing is copied. Windows that are longer than what the files repeat at their end take a copy.
        """
        if repeated > self.manifest.repeated:
            return Rows.shuffled(self, seed, repeated)
        count = self.num_rows + repeated
        with self._must_fit():
            return jax.tree.map(
                lambda ring, like: jax.device_put(ring[:count].astype(like.dtype, copy=False), may_alias=True),
                self.rings,
                self.like,
            )

    @property
    def want_stream(self) -> bool:
        """Whether they are more than the system can keep in its cache: every window would be a wait for the drive."""
        return self.outgrow_device or self.num_rows * self.row_bytes > _SHARE_OF_MEMORY * limit_of_process()

    def read_into(self, arrays: PyTree, start: int) -> None:
        """Fills arrays with rows that follow each other, from `start` on: one read of each file, around the mapping."""
        wanted = [arrays] if self.manifest.bare else [arrays[leaf.name] for leaf in self.manifest.leaves]
        for leaf, into in zip(self.manifest.leaves, wanted, strict=True):
            if into.dtype.str != leaf.dtype:  # float64 where JAX has float32
                np.copyto(into, self._array(leaf.name)[start : start + len(into)], casting="same_kind")
                continue
            with open(Path(self.folder) / leaf.file, "rb", buffering=0, opener=_not_by_a_link) as file:
                file.seek(start * leaf.row_bytes)
                content = into.data.cast("B")
                while len(content):
                    done = file.readinto(content)
                    if not done:
                        raise OSError(f"{leaf.file} in {self.folder} ends too soon; it was changed while it was read")
                    content = content[done:]

    def _array(self, name: str) -> np.ndarray:
        return self.data if self.manifest.bare else self.data[name]

    def one_each(self, dtype: np.dtype | type) -> Real[np.ndarray, " rows"]:
        """In a file beside the rows: however many there are, it takes no memory that the system cannot have back."""
        return on_disk((self.num_rows,), dtype, self.folder)

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """What the columns of each array were called where they came from."""
        return {leaf.name: leaf.columns for leaf in self.manifest.leaves}

    def verify(self) -> None:
        """Reads everything, and raises `ValueError` if a byte is not what was written."""
        size = self.manifest.chunk_rows
        for leaf, array in zip(self.manifest.leaves, self._arrays(), strict=True):
            for number, expected in enumerate(leaf.checksums):
                chunk = np.ascontiguousarray(array[number * size : (number + 1) * size])
                if zlib.crc32(chunk.data) != expected:
                    raise ValueError(
                        f"{leaf.file} is damaged in rows {number * size} to "
                        f"{min((number + 1) * size, self.num_rows) - 1}; ingest the data again"
                    )

    def _arrays(self) -> list[np.ndarray]:
        return [self.data] if self.manifest.bare else [self.data[leaf.name] for leaf in self.manifest.leaves]

    def __repr__(self) -> str:
        total = sum(leaf.row_bytes for leaf in self.manifest.leaves) * self.num_rows
        return f"Dataset({self.folder!r}, {self.num_rows:,} rows, {total / 1e9:.2g} GB)"


def open_dataset(path: str | os.PathLike[str]) -> Dataset:
    """Opens what `tm.ingest` wrote: takes no time and no memory, however large it is, and runs no code from it.

    Args:
        path: The folder.

    Returns:
        The rows, for `tm.Posterior(log_likelihood, rows)` or `tm.models.logistic_regression(rows)`.

    Example:
        >>> import tempfile, numpy as np, tallmc as tm
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = tm.ingest(np.arange(10.0), folder + "/numbers", progress=False)
        ...     tm.open_dataset(path).num_rows
        10
    """
    folder = Path(path)
    manifest = Manifest.read(folder)

    def mapped(*, at_random: bool) -> PyTree:
        arrays = {leaf.name: _mapped(folder, leaf, manifest, at_random=at_random) for leaf in manifest.leaves}
        return next(iter(arrays.values())) if manifest.bare else arrays

    def rows_of(rings: PyTree) -> PyTree:
        return jax.tree.map(lambda ring: ring[: manifest.num_rows], rings)

    rings = mapped(at_random=False)
    return Dataset(
        data=rows_of(rings),
        rings=rings,
        apart=rows_of(mapped(at_random=True)),
        folder=str(folder),
        manifest=manifest,
        num_rows=manifest.num_rows,
    )


def _mapped(folder: Path, leaf: Leaf, manifest: Manifest, *, at_random: bool) -> np.ndarray:
    size = (manifest.num_rows + manifest.repeated) * leaf.row_bytes
    with open(folder / leaf.file, "rb", opener=_not_by_a_link) as file:
        memory = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    if at_random and sys.platform != "win32":
        memory.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(memory, leaf.dtype).reshape(-1, *leaf.shape)
