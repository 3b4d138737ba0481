"""`run.save`: a run that was held in memory, written as a store."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from tallmc.posterior import Posterior, Rows
from tallmc.run import files, fingerprints
from tallmc.run.store import Store
from tallmc.run.stored import INSIDE, LOCK, is_store
from tallmc.run.variables import Kept

_DRAWS_AT_A_TIME = 16_384
SET_UP = ("setup_rows", "choices", "known_doubts", "unless_mixed", "rng_key")  # fields of a run that set-up gives it


def save(path: str | os.PathLike[str], run: Any, *, with_rows: bool) -> None:
    """Writes a run to a folder, all of it or nothing.

    Args:
        path: Of the folder.
        run: The run.
        with_rows: Whether to write its data too.
    """
    target = Path(path)
    if target.exists() and not is_store(target):
        raise ValueError(f"{target} exists and is not a saved run; choose another path")
    posterior = run.posterior
    facts = fingerprints.facts_of("run.save", posterior)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        store = Store(unfinished, files.Lock(files.folder(unfinished, INSIDE) / LOCK, target), facts, posterior)
        store.context = lambda session: set_up_of(
            run.kernel,
            posterior if with_rows else without_rows(posterior),
            **{name: getattr(run, name) for name in SET_UP},
        )
        store.expected = run.num_draws
        try:
            _write(store, run)
        finally:
            store.close()
        unfinished.chmod(0o777 & ~_umask())
        if target.exists():
            shutil.rmtree(target)
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _write(store: Store, run: Any) -> None:
    kept = Kept(run.samples, run.unconstrained, dict(run.stats))
    position = jax.tree.map(lambda leaf: np.zeros(leaf.shape[2:], leaf.dtype), run.unconstrained_samples)
    store.set_up(kept, run.session, position)
    store.checkpoint(run.session, {}, seconds=0.0)
    for start in range(0, run.num_draws, _DRAWS_AT_A_TIME):
        store.take(jax.tree.map(lambda leaf, start=start: leaf[:, start : start + _DRAWS_AT_A_TIME], kept))
    store.checkpoint(run.session, {}, seconds=run.seconds, result=result_of(run))


def set_up_of(kernel: Any, posterior: Posterior, **others: Any) -> dict[str, Any]:
    """What a store keeps of a set-up besides the session."""
    return {"kernel": kernel, "posterior": posterior, **others}


def result_of(run: Any) -> dict[str, Any]:
    """What is known of a run at its end."""
    return {
        "audit": run.audit,
        "timing": run.timing,
        "interrupted": run.interrupted,
        "setup_rows": run.setup_rows,
        "choices": run.choices,
        "known_doubts": run.known_doubts,
        "seconds": run.seconds,
    }


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


def without_rows(posterior: Posterior) -> Posterior:
    """The posterior, with a note in place of its rows."""
    return eqx.tree_at(lambda p: p.rows, posterior, RowsElsewhere(posterior.num_rows), is_leaf=_is_rows)


def _is_rows(value: Any) -> bool:
    return isinstance(value, Rows)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
