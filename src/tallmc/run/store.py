"""Runs on disk: a folder in the Zarr format, with every array by itself and the rest as JSON."""

import hashlib
import json
import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from tallmc.posterior import Posterior, Rows
from tallmc.run.encoding import Decoder, Encoder

_FORMAT = 1


def write(path: str | os.PathLike[str], fields: dict[str, Any], posterior: Posterior, *, with_rows: bool) -> None:
    """Writes the fields of a run to a folder, all of it or nothing."""
    import zarr

    target = Path(path)
    if target.exists() and not _is_run(target):
        raise ValueError(f"{target} exists and is not a saved run; choose another path")
    encoder = Encoder()
    kept = posterior if with_rows else _without_rows(posterior)
    about = {
        "format": _FORMAT,
        "tallmc": version("tallmc"),
        "jax": jax.__version__,
        "num_rows": posterior.num_rows,
        "fingerprint": fingerprint(posterior.rows),
        "run": {name: encoder.encode(value) for name, value in {**fields, "posterior": kept}.items()},
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        group = zarr.open_group(unfinished, mode="w")
        for number, array in enumerate(encoder.arrays):
            group.create_array(str(number), data=array)
        group.attrs["tallmc"] = json.dumps(about)
        if target.exists():
            shutil.rmtree(target)
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `write` wrote: the fields of a run, and what the file says about itself."""
    import zarr

    source = Path(path)
    if not _is_run(source):
        raise ValueError(f"{source} is not a saved run; pass a folder that run.save(path) wrote")
    group = zarr.open_group(source, mode="r")
    about = json.loads(str(group.attrs["tallmc"]))
    if about["format"] != _FORMAT:
        raise ValueError(
            f"{source} was written by tallmc {about['tallmc']} in format {about['format']}, and this version reads "
            f"format {_FORMAT}; load it with that version"
        )
    decoder = Decoder(lambda number: np.asarray(group[str(number)][...]))  # pyright: ignore
    return {name: decoder.decode(code) for name, code in about["run"].items()}, about


def fingerprint(rows: Rows) -> str:
    """A hash of every number in the data, and of its shape."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((rows.num_rows, jax.tree.structure(rows.like), jax.tree.leaves(rows.like))).encode())
    for block in rows.blocks(65_536):
        for leaf in jax.tree.leaves(block):
            digest.update(np.ascontiguousarray(leaf).data)
    return digest.hexdigest()


class RowsElsewhere(Rows):
    """Stands for rows that were not saved with a run.

    Args:
        num_rows: How many there are.
    """

    num_rows: int = eqx.field(static=True)

    def _absent(self, *_: Any) -> Any:
        raise ValueError("the run was saved without its rows; pass the posterior again: tm.load(path, posterior)")

    like = property(_absent)  # pyright: ignore
    take = blocks = all = _absent  # pyright: ignore


def _without_rows(posterior: Posterior) -> Posterior:
    return eqx.tree_at(lambda p: p.rows, posterior, RowsElsewhere(posterior.num_rows), is_leaf=_is_rows)


def _is_rows(value: Any) -> bool:
    return isinstance(value, Rows)


def _is_run(path: Path) -> bool:
    marker = path / "zarr.json"
    return marker.is_file() and "tallmc" in json.loads(marker.read_text()).get("attributes", {})
