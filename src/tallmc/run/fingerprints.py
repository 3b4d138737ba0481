"""What a call was made with, so that a store goes on with nothing else."""

import hashlib
import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tallmc.posterior import Posterior, Rows
from tallmc.run.encoding import Encoder

_ROWS_AT_A_TIME = 65_536
_PACKAGES = ("tallmc", "jax", "jaxlib", "numpy", "equinox", "blackjax")  # whose arithmetic or layout a run rests on
_DIGEST = "#"  # begins what only says whether two things are the same

Facts = dict[str, str]


def facts_of(call: str, posterior: Posterior, **settings: Any) -> Facts:
    """Versions, device, data and settings of a call, each as a short text.

    Args:
        call: Name of the function.
        posterior: Its rows are read once.
        **settings: Arguments that decide what the chains do.
    """
    return {
        "call": call,
        **{name: _version(name) for name in _PACKAGES},
        "precision": jnp.result_type(float).name,
        "device": f"{jax.default_backend()}",
        "rows": f"{posterior.num_rows:,}",
        "data": data_of(posterior),
        "posterior": _DIGEST
        + _digest((posterior.temperature, posterior.schedule, posterior.bounds, posterior.transforms)),
        **{name: _text(value) for name, value in settings.items()},
    }


def data_of(posterior: Posterior) -> str:
    """What stands for the rows; they are read once."""
    return _DIGEST + fingerprint(posterior.rows)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a source tree that was not installed
        return "unknown"


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool | int | np.integer):
        return str(value)
    if isinstance(value, type):
        return value.__qualname__
    return _DIGEST + _digest(value)


def _digest(value: Any) -> str:
    """A hash of a value and of all arrays in it."""
    encoder = Encoder()
    digest = hashlib.blake2b(json.dumps(encoder.encode(value), sort_keys=True).encode(), digest_size=16)
    for array in encoder.arrays:
        digest.update(repr((array.shape, array.dtype.name)).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def fingerprint(rows: Rows) -> str:
    """A hash of every number in the data, and of its shape."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((rows.num_rows, jax.tree.structure(rows.like), jax.tree.leaves(rows.like))).encode())
    for block in rows.blocks(_ROWS_AT_A_TIME):
        for leaf in jax.tree.leaves(block):
            digest.update(np.ascontiguousarray(leaf).data)
    return digest.hexdigest()


def likelihood(posterior: Posterior, position: PyTree) -> Facts:
    """What likelihood and prior compute, whatever they are called and wherever they are from.

    Args:
        posterior: As the caller gave it.
        position: One, of the numbers that chains move.
    """
    position = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), position)

    def both(position: PyTree, row: PyTree) -> Any:
        return posterior.model.log_likelihood(position, row), posterior.model.log_prior(position)

    try:
        text = jax.jit(both).lower(position, posterior.rows.like).as_text()
    except Exception as error:  # a likelihood of another position, or one that only a kernel of its own can call
        text = f"{type(error).__name__} {_digest((posterior.model.log_likelihood, posterior.model.log_prior))}"
    return {"likelihood or prior": _DIGEST + hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}


def check(root: Path, before: Facts, now: Facts) -> None:
    """Raises `ValueError` in one line that names all that differs, if anything does."""
    differing = []
    for name in [*now, *(name for name in before if name not in now)]:
        was, is_now = before.get(name), now.get(name)
        if was == is_now:
            continue
        hidden = any(value is None or value.startswith(_DIGEST) for value in (was, is_now))
        differing.append(f"another {name}" if hidden else f"{name} {was} (here {is_now})")
    if differing:
        raise ValueError(
            f"{root} was made with {', '.join(differing)}, so its draws cannot go on from here bit for bit; call with "
            "what it was made with, or choose another path for a new run"
        )
