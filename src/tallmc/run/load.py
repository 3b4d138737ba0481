"""`tm.load`: a run that was saved or stored, ready to be looked at or to go on."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from tallmc.kernel import Kernel
from tallmc.posterior import Model, PlainModel, Posterior
from tallmc.run import fingerprints
from tallmc.run.archive import DamagedError
from tallmc.run.encoding import Encoder
from tallmc.run.result import Run
from tallmc.run.saving import SET_UP, without_rows
from tallmc.run.session import Session
from tallmc.run.stored import Stored, generations, is_store


def load(path: str | os.PathLike[str], posterior: Posterior | None = None) -> Run:
    """Reads a run that `run.save(path)` wrote, or that `tm.sample(..., store=path)` writes or has written.

    Draws are read from disk when they are asked for. A store may still be written: then these are the draws up to its
    last checkpoint.

    Args:
        path: The folder.
        posterior: The posterior that was sampled. Needed to go on if the run was saved without its rows, as a store
            is, or if its likelihood or prior is a function that cannot be found by name (a lambda, or one inside
            another).

    Returns:
        The run.

    Example:
        >>> import tempfile, tallmc as tm
        >>> X, y, _ = tm.models.generate_logistic(num_rows=2000, num_columns=2)
        >>> run = tm.sample(tm.models.logistic_regression(X, y), num_samples=200, progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run.save(f"{folder}/run.zarr")
        ...     again = tm.load(f"{folder}/run.zarr").extend(100)
        >>> again.samples.shape
        (4, 300, 2)
    """
    if posterior is not None and not isinstance(posterior, Posterior):
        raise ValueError(f"posterior must be a tm.Posterior, not {type(posterior).__name__}")
    root = Path(path)
    if not is_store(root):
        raise ValueError(f"{root} is not a saved run; pass a folder that run.save(path) or tm.sample(store=path) wrote")
    if not generations(root):
        raise ValueError(f"{root} has no draws yet: its set-up has not come to its end")
    stored = Stored.open(root)
    if not stored.num_draws and stored.passed:
        raise DamagedError(f"{root} is damaged: {stored.passed[0]}. What can be saved: tallmc doctor --store {root}")
    if not stored.num_draws:
        raise ValueError(f"{root} has no draws yet: its chains are in warm-up")
    if posterior is not None:
        _check(stored, posterior)
    return run_of(stored, posterior)


def run_of(stored: Stored, posterior: Posterior | None, kernel: Any = None) -> Run:
    """The run of a store, with the caller's own posterior if there is one.

    Args:
        stored: What is on disk.
        posterior: As the caller gave it.
        kernel: Likewise.
    """
    functions = _functions(posterior, kernel)
    old = stored.setup.decode("posterior", functions)
    if not isinstance(old, Posterior):
        raise DamagedError(f"{stored.setup.archive.name} is damaged: it has no posterior")
    if posterior is not None:
        _check_alike(old, posterior)
    result = stored.checkpoint.decode("result") or {}
    fields = {name: stored.setup.decode(name, functions) for name in SET_UP}
    fields |= {"seconds": float(stored.checkpoint.archive.about["seconds"]), "interrupted": not result, **result}
    found = stored.setup.decode("kernel", functions)
    session = session_of(stored, posterior, kernel)
    if not (isinstance(found, Kernel) and isinstance(session.kernel, Kernel) and isinstance(session.model, Model)):
        raise DamagedError(f"{stored.setup.archive.name} is damaged: it has no kernel, or no model")
    mine = old if posterior is None else posterior
    return Run.on_disk(stored, kernel=found, posterior=mine, session=session, **fields)


def session_of(stored: Stored, posterior: Posterior | None, kernel: Any = None) -> Session:
    """All that the chains of a store need to go on."""
    session = stored.setup.decode("session", _functions(posterior, kernel))
    if not isinstance(session, Session):
        raise DamagedError(f"{stored.setup.archive.name} is damaged: it has no session")
    chains = stored.checkpoint.decode("chains")
    session = session._replace(chains=chains, drawn=stored.num_draws)
    if posterior is None:
        return session
    # What set-up made of the model stays: its expansion, and bounds that were worked out.
    model, given = session.model, posterior.model
    plain: PlainModel = model if isinstance(model, PlainModel) else model.plain  # pyright: ignore
    mine = eqx.tree_at(
        lambda m: (m.log_likelihood, m.log_prior), plain, (given.log_likelihood, given.log_prior), is_leaf=callable
    )
    model = mine if isinstance(model, PlainModel) else eqx.tree_at(lambda m: m.plain, model, mine)
    return session._replace(model=model)


def _functions(posterior: Posterior | None, kernel: Any) -> Mapping[str, Any]:
    """Functions of the caller's that have no name to be found by."""
    encoder = Encoder()
    encoder.encode(None if posterior is None else without_rows(posterior))
    encoder.encode(kernel)
    return encoder.missing


def _check(stored: Stored, posterior: Posterior) -> None:
    """Raises `ValueError` if these are not the rows that were sampled."""
    rows, data = f"{posterior.num_rows:,}", fingerprints.data_of(posterior)
    if (rows, data) != (stored.setup.facts.get("rows"), stored.setup.facts.get("data")):
        raise ValueError(
            "this posterior has other rows than the one that was sampled; pass the same data, in its order"
        )


def _check_alike(old: Posterior, posterior: Posterior) -> None:
    """Raises `ValueError` if this is not the posterior that was sampled."""
    if float(old.temperature) != float(posterior.temperature):
        raise ValueError(
            f"this posterior has temperature {float(posterior.temperature):g}; {float(old.temperature):g} was sampled"
        )
    if not eqx.tree_equal(posterior.schedule, old.schedule):
        raise ValueError(f"this posterior has the schedule {posterior.schedule}; {old.schedule} was sampled with")
    if jax.tree.structure(posterior.transforms) != jax.tree.structure(old.transforms):
        raise ValueError(
            f"this posterior has transforms {posterior.transforms}; {old.transforms} were sampled with: pass the same"
        )
    if (posterior.moves_elsewhere, old.moves_elsewhere) in ((True, False), (False, True)):
        raise ValueError("this posterior and the sampled one are not standardised alike; make it as it was made then")
