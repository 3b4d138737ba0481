"""One measurement of `benchmarks.range` in a process of its own; its last line of output is the result as JSON.

`python -m benchmarks.range_child ours funnel 0`. Nothing of NumPyro is loaded where `tm.sample` is timed, and nothing
of tallmc where NUTS is.
"""

import json
import sys
import time
import warnings
from typing import Any

import numpy as np

from benchmarks.range_verdict import Estimates

NUTS_CHAINS, NUTS_DRAWS = 2, 1000  # and as many before them
# The reference: many draws of short steps, in double precision.
REFERENCE = {"chains": 4, "warmup": 1500, "draws": 2500, "target_accept_prob": 0.95}
LARGEST_DENSE = 60  # coordinates up to which its mass matrix is dense
POINTS = {1: 20_001, 2: 301}  # of a grid, along each axis, where there are so few coordinates
WIDER = 1.0  # how far the grid goes beyond the reference's draws, in their range
AT_ONCE = 4_000_000  # rows times points


def ours(name: str, seed: int) -> dict[str, Any]:
    """The first call of a process."""
    import jax
    from tests.range import CASES

    chosen = CASES[name]()
    posterior = chosen.posterior()
    import tallmc as tm

    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        started = time.perf_counter()
        try:
            run = tm.sample(posterior, init=chosen.init, rng_key=seed, progress=False)
        except ValueError as error:
            return {"refused": str(error), "seconds": time.perf_counter() - started}
        seconds = time.perf_counter() - started
    doubts = list(dict.fromkeys([*run.doubts, *(str(one.message) for one in raised)]))
    kernels = [part_name(part) for part in run.kernel.parts()]
    rows = {"rows_a_step": float(run.stats["rows"].mean()), "accepted": float(run.stats["accepted"].mean())}
    samples = jax.tree.map(np.asarray, run.samples)
    return estimates(chosen, samples) | rows | {"seconds": seconds, "doubts": doubts, "chosen": " | ".join(kernels)}


def part_name(part: Any) -> str:
    """Proposal and rule, or what a kernel calls itself."""
    if hasattr(part, "rule"):
        return f"{type(part.proposal).__name__}, {type(part.rule).__name__}"
    return part.label


def nuts(name: str, seed: int) -> dict[str, Any]:
    """NumPyro's NUTS from the making of the sampler to draws on the host: compilation and warm-up are part of it."""
    from tests.range import CASES

    chosen = CASES[name]()
    started = time.perf_counter()
    draws = nuts_draws(chosen, NUTS_CHAINS, NUTS_DRAWS, NUTS_DRAWS, seed)
    return {"seconds": time.perf_counter() - started} | estimates(chosen, draws)


def nuts_draws(chosen: Any, num_chains: int, num_warmup: int, num_samples: int, seed: int, **options: Any) -> Any:
    import jax
    import jax.numpy as jnp
    from numpyro.infer import MCMC, NUTS

    warnings.simplefilter("ignore")  # of too few devices: chains then come one after the other
    modes = chosen.modes if options and chosen.modes else (chosen.init,)
    starts = [modes[chain % len(modes)] for chain in range(num_chains)]
    init = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf, float) for leaf in leaves]), *starts)
    kernel = NUTS(potential_fn=chosen.potential(jax.tree.map(jnp.asarray, chosen.data)), **options)
    chains = MCMC(kernel, num_warmup=num_warmup, num_samples=num_samples, num_chains=num_chains, progress_bar=False)
    chains.run(jax.random.key(seed), init_params=init)
    return jax.device_get(chains.get_samples(group_by_chain=True))


def reference(name: str, seed: int = 1) -> dict[str, Any]:
    """The truth: in closed form, by a grid, or from a long NUTS in double precision."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from tests.range import CASES

    chosen = CASES[name]()
    if chosen.same_as:
        return reference(chosen.same_as)
    if chosen.truth is not None:
        return _as_fields(Estimates.exact(*chosen.truth))
    options = REFERENCE | {"dense_mass": _dimension(chosen) <= LARGEST_DENSE}
    draws = nuts_draws(chosen, options.pop("chains"), options.pop("warmup"), options.pop("draws"), seed, **options)
    if _dimension(chosen) in POINTS and (found := _by_grid(chosen, draws)):
        return found
    return estimates(chosen, draws)


def _dimension(chosen: Any) -> int:
    import jax

    return sum(np.size(leaf) for leaf in jax.tree.leaves(chosen.init))


def _by_grid(chosen: Any, draws: Any) -> dict[str, Any] | None:
    """Sums over a grid that holds all draws; None if there is mass at its edge."""
    import jax
    import jax.numpy as jnp
    from jax.flatten_util import ravel_pytree

    unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, float), chosen.init))[1]
    flat = np.asarray(jax.vmap(jax.vmap(lambda draw: ravel_pytree(draw)[0]))(draws))
    flat = flat.reshape(-1, flat.shape[-1])
    low, high = flat.min(axis=0), flat.max(axis=0)
    low, high = low - WIDER * (high - low), high + WIDER * (high - low)
    axes = [np.linspace(a, b, POINTS[len(low)]) for a, b in zip(low, high, strict=True)]
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=-1)
    data = jax.tree.map(jnp.asarray, chosen.data)
    num_rows = len(jax.tree.leaves(data)[0])
    potential = chosen.potential(data)
    values = jax.jit(
        lambda points: jax.lax.map(
            lambda point: -potential(unravel(point)), points, batch_size=max(1, AT_ONCE // num_rows)
        )
    )(points)
    weights = np.exp(np.asarray(values) - np.nanmax(np.asarray(values)))
    weights = np.where(np.isfinite(weights), weights, 0.0)
    weights /= weights.sum()
    at_edge = np.any((points == low) | (points == high), axis=1)
    if weights[at_edge].max() > 1e-8:
        return None
    seen = chosen.looked_at(jax.vmap(jax.vmap(unravel))(points[None]))[0]
    mean = weights @ seen
    return _as_fields(Estimates.exact(mean, np.sqrt(weights @ (seen - mean) ** 2)))


def estimates(chosen: Any, samples: Any) -> dict[str, Any]:
    """Of draws as they come."""
    return _as_fields(Estimates.of(chosen.looked_at(samples)))


def _as_fields(found: Estimates) -> dict[str, Any]:
    return {"estimates": {name: np.asarray(values).tolist() for name, values in found._asdict().items()}}


TASKS = {task.__name__: task for task in (ours, nuts, reference)}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](sys.argv[2], int(sys.argv[3]))))
