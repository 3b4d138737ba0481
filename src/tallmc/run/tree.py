"""A run as an ArviZ DataTree: draws, statistics, the rows or what tells them apart, and how it all came about."""

import json
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array

from tallmc.posterior.labels import arviz_options, named
from tallmc.run.draws import design_of, link_of
from tallmc.run.fingerprints import fingerprint
from tallmc.run.leave_out import rows_at, sampled_rows
from tallmc.run.predict import log_density, log_likelihood_at

if TYPE_CHECKING:
    import xarray

# Numbers of data that a tree has a copy of; of more it has a fingerprint. A megabyte or so is no burden to a file.
_MOST_NUMBERS = 250_000
# Rows times draws up to which the log density of every draw is worked out: about a second.
_MOST_EVALUATIONS = 100_000_000


def posterior_group(run: Any) -> "xarray.DataTree":
    """Draws under their names, and nothing else."""
    import arviz_base

    labels = run.posterior.labels
    return arviz_base.from_dict({"posterior": named(run.samples, labels)}, **arviz_options(labels))


def datatree(run: Any, log_likelihood_rows: int, rng_key: int | Array) -> "xarray.DataTree":
    """See `Run.to_datatree`."""
    about = attributes(run)
    if run.stored is not None:
        tree = _lazy(run)
    else:
        tree, more = _in_memory(run)
        about |= more
    if log_likelihood_rows:
        tree["log_likelihood"] = _log_likelihood(run, log_likelihood_rows, rng_key)
    tree.attrs.update(about)
    return tree


def _lazy(run: Any) -> "xarray.DataTree":
    """Draws on disk stay there until they are asked for."""
    from tallmc.run.lazy_tree import lazy_tree

    return lazy_tree(run.stored, run.posterior.labels)


def _in_memory(run: Any) -> "tuple[xarray.DataTree, dict[str, Any]]":
    """Draws, statistics and data, and what to say of data that are left out."""
    import arviz_base

    about: dict[str, Any] = {}
    options = arviz_options(run.posterior.labels)
    dims, coords = options.get("dims", {}), options.get("coords", {})
    groups: dict[str, Any] = {"posterior": named(run.samples, run.posterior.labels)}
    groups["sample_stats"] = {**run.stats, **_log_density(run)}
    if _num_numbers(run) <= _MOST_NUMBERS:
        found, of_data = _data(run)
        groups |= found
        dims = {**dims, **of_data}
    else:
        about |= {"data": "left out for its size; data_fingerprint tells whether other data are the same"}
        about |= {"data_fingerprint": fingerprint(run.posterior.rows)}
    return arviz_base.from_dict(groups, dims=dims, coords=coords), about


def attributes(run: Any) -> dict[str, Any]:
    """How the draws came about: strings and numbers, as files can hold them."""
    from importlib.metadata import version

    return {
        "inference_library": "tallmc",
        "inference_library_version": version("tallmc"),
        "jax_version": jax.__version__,
        "rng_key": "not kept" if run.rng_key is None else run.rng_key,
        "shuffle_seed": int(run.shuffle_seed),
        "kernel": ", ".join(part.label for part in run.kernel.parts()),
        "num_rows": int(run.posterior.num_rows),
        "temperature": float(run.posterior.temperature),
        "num_warmup": int(run.num_warmup),
        "warmup_draws": "not kept",
        "setup_rows": int(run.setup_rows),
        "sampling_time": float(run.seconds),
        "timing": json.dumps({name: round(float(spent), 4) for name, spent in run.timing.items()}),
        "choices": json.dumps(list(run.choices)),
        "doubts": json.dumps(list(run.doubts)),
        "audit": str(run.audit or ""),
        "interrupted": int(run.interrupted),
    }


def _log_density(run: Any) -> dict[str, np.ndarray]:
    """Of each draw as chains made it, up to a constant, where that is a matter of a moment."""
    evaluations = run.num_chains * run.num_draws * run.posterior.num_rows
    return {} if evaluations > _MOST_EVALUATIONS else {"lp": log_density(run)}


def _num_numbers(run: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(run.posterior.rows.like)) * run.posterior.num_rows


def _data(run: Any) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, list[str]]]:
    """Groups of outcomes and of all else, and the names of their axes."""
    data = run.posterior.rows.all()
    if link_of(run.posterior) is None:
        arrays = {("data" if name == "position" else name): np.asarray(leaf) for name, leaf in named(data).items()}
        return {"observed_data": arrays}, {name: ["row", *_axes(name, leaf)] for name, leaf in arrays.items()}
    target = outcome_name(run)
    groups = {"observed_data": {target: np.asarray(data["y"])}, "constant_data": {"x": np.asarray(data["x"])}}
    axis = "column" if run.posterior.labels is not None else "x_dim_0"
    return groups, {target: ["row"], "x": ["row", axis]}


def _axes(name: str, leaf: np.ndarray) -> list[str]:
    return [f"{name}_dim_{number}" for number in range(leaf.ndim - 1)]


def outcome_name(run: Any) -> str:
    """Of the outcome's column; y if it has none."""
    design = design_of(run.posterior)
    return "y" if design is None or design.target is None else design.target


def _log_likelihood(run: Any, num_rows: int, rng_key: int | Array) -> "xarray.Dataset":
    """Of some rows, whose numbers are the coordinate."""
    import xarray

    which = sampled_rows(run.posterior.num_rows, num_rows, rng_key)
    values = log_likelihood_at(run, rows_at(run, which), None)
    coords = {"row": which, "chain": np.arange(values.shape[0]), "draw": np.arange(values.shape[1])}
    return xarray.Dataset(
        {outcome_name(run): (("chain", "draw", "row"), values)},
        coords=coords,
        attrs={"rows": f"{len(which)} of {run.posterior.num_rows}, drawn without replacement"},
    )
