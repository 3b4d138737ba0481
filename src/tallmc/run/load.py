"""`tm.load`: a run that was saved, ready to be looked at or to go on."""

import dataclasses
import os
from typing import Any

import equinox as eqx
import jax

from tallmc.posterior import PlainModel, Posterior
from tallmc.run import store
from tallmc.run.result import Run


def load(path: str | os.PathLike[str], posterior: Posterior | None = None) -> Run:
    """Reads a run that `run.save(path)` wrote: its draws, and all that it needs to go on.

    Args:
        path: The folder.
        posterior: The posterior that was sampled. Needed to go on if the run was saved without its rows, or if its
            likelihood or prior is a function that cannot be imported by name (a lambda, or one inside another).

    Returns:
        The run.

    Example:
        >>> import tempfile, tallmc as tm
        >>> X, y, _ = tm.models.generate_logistic(num_rows=2000, num_columns=2)
        >>> run = tm.sample(tm.models.logistic_regression(X, y), num_samples=200, progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run.save(f"{folder}/run.zarr")
        ...     again = tm.load(f"{folder}/run.zarr")
        >>> again.extend(100).samples.shape
        (4, 300, 2)
    """
    fields, about = store.read(path)
    run = Run(**fields)
    return run if posterior is None else _taken_up(run, posterior, about)


def _taken_up(run: Run, posterior: Posterior, about: dict[str, Any]) -> Run:
    """The run with a posterior that the caller brings along, if it is the one that was sampled."""
    if not isinstance(posterior, Posterior):
        raise ValueError(f"posterior must be a tm.Posterior, not {type(posterior).__name__}")
    if posterior.num_rows != about["num_rows"] or store.fingerprint(posterior.rows) != about["fingerprint"]:
        raise ValueError(
            "this posterior has other rows than the one that was sampled; pass the same data, in its order"
        )
    model, old = run.session.model, run.posterior
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
    plain = dataclasses.replace(posterior.model, num_rows=model.num_rows)  # a draw may read rows more than once
    plain = plain if isinstance(model, PlainModel) else eqx.tree_at(lambda m: m.plain, model, plain)
    return dataclasses.replace(run, posterior=posterior, session=run.session._replace(model=plain))
