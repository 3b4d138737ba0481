"""A NumPyro model as a posterior: found, taken apart, checked."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from numpyro import handlers
from numpyro.infer.util import compute_log_probs

from tallmc.bridges import agreement
from tallmc.bridges.agreement import Parts
from tallmc.bridges.arguments import Arguments
from tallmc.bridges.numpyro_program import NamedSites, NumPyroProgram, OtherSites, RowLikelihood
from tallmc.bridges.numpyro_sites import Sites, plate_of_rows, sites_of
from tallmc.bridges.supports import transform_of
from tallmc.numerics.double_precision import as_double
from tallmc.numerics.promotion import promoting
from tallmc.posterior import Posterior
from tallmc.posterior.rows import RowsInMemory
from tallmc.transforms import Transform


def posterior_of(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Posterior:
    """See `tm.from_numpyro`."""
    if not callable(model):
        raise ValueError(f"model must be a function with numpyro.sample statements, not {type(model).__name__}")
    arguments = Arguments(model, args, kwargs)
    known = sites_of(model, arguments)
    _refuse_discrete(known)
    plate = plate_of_rows(known, arguments)
    columns, rest = arguments.apart(known.sizes[plate])
    program, rows = NumPyroProgram(model, plate, known.latent, rest), RowsInMemory(columns)
    first = jax.tree.map(jnp.asarray, rows.take(np.arange(1)))
    prior, likelihood = OtherSites(program, first), RowLikelihood(program)
    transforms, start = _limits(program, rows, first)
    posterior = Posterior(likelihood, rows, prior, transforms=transforms)
    zeros = jax.tree.map(np.zeros_like, posterior.unconstrain(start))
    start = jax.tree.map(np.asarray, posterior.constrain(zeros))
    some = rows.take(agreement.some_rows(rows.num_rows))
    positions = agreement.random_positions(posterior, zeros)
    _check(program, likelihood, prior, some, positions, whole=rows.num_rows <= agreement.ALL_ROWS)
    names = _named_by_no_row(program, first, some, positions[-1])
    derived = NamedSites(program, first, names) if names else None
    return Posterior(likelihood, rows, prior, transforms=transforms, start=start, derived=derived)


def _refuse_discrete(known: Sites) -> None:
    for site in known.sites:
        if site.discrete and not site.observed:
            raise ValueError(
                f"site {site.name} is a discrete parameter, which has no gradient; sum it out, as with "
                "numpyro.distributions.MixtureSameFamily"
            )


def _limits(program: NumPyroProgram, rows: RowsInMemory, first: PyTree) -> tuple[dict[str, Transform], PyTree]:
    """The transform of each site that has limits, and some position within them."""
    found = []
    for seed in (0, 1):
        seeded = NumPyroProgram(_Seeded(program.model, seed), program.plate, (), program.rest)
        try:
            found.append(seeded.trace({}, first)[0])
        except Exception as error:  # whatever the caller's own function raises
            raise ValueError(
                f"the model does not run on one row, plate {program.plate} being one long ({_said(error)}); write its "
                "data with the rows along the first axis, all of it among the arguments, and the plate around it"
            ) from error
    transforms, position = {}, {}
    for name in program.latent:
        site, again = (sites[name] for sites in found)
        support = site["fn"].support
        if jax.tree.structure(support) != jax.tree.structure(again["fn"].support) or not all(
            np.array_equal(*pair)
            for pair in zip(jax.tree.leaves(support), jax.tree.leaves(again["fn"].support), strict=True)
        ):
            raise ValueError(
                f"the limits of site {name} depend on other parameters; give it fixed ones, and scale it: "
                "numpyro.deterministic(name, scale * numpyro.sample(..., dist.Uniform(0, 1)))"
            )
        try:
            transform = transform_of(support)
        except ValueError as error:
            raise ValueError(f"site {name} cannot be moved: {error}; take another parameterisation") from error
        transforms |= {} if transform is None else {name: transform}
        position[name] = np.asarray(site["value"])
    return transforms, position


class _Seeded:
    """A model that draws its parameters."""

    def __init__(self, model: Callable[..., Any], seed: int):
        self.model, self.seed = model, seed

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return handlers.seed(self.model, self.seed)(*args, **kwargs)


def _check(
    program: NumPyroProgram,
    likelihood: RowLikelihood,
    prior: OtherSites,
    some: PyTree,
    positions: list[PyTree],
    *,
    whole: bool,
) -> None:
    """Single rows must add up to what NumPyro itself makes of them together."""
    plain, (given_likelihood, given_prior) = jax.tree.map(as_double, some), as_double((likelihood, prior))

    def together(position: PyTree) -> Parts:
        if not whole:
            return Parts(
                _summed(program.log_probs(position, plain, rows=True)),
                _summed(program.log_probs(position, plain, rows=False)),
            )
        args, kwargs = as_double(program.rest).with_rows(plain)
        with promoting():
            log_probs, sites = compute_log_probs(program.model, args, kwargs, dict(position))
        of_rows = {name for name in log_probs if program.of_plate(sites[name])}
        scale = _scale(program, sites)
        return Parts(
            {name: value / scale for name, value in log_probs.items() if name in of_rows},
            {name: value for name, value in log_probs.items() if name not in of_rows},
        )

    @jax.jit
    def apart(position: PyTree) -> Parts:
        def of_row(row: PyTree) -> dict[str, Array]:
            columns = jax.tree.map(lambda leaf: leaf[None], row)
            return _summed(given_likelihood.program.log_probs(position, columns, rows=True))

        rows = jax.tree.map(lambda values: values.sum(0), jax.vmap(of_row)(plain))
        return Parts(rows, _summed(given_prior.program.log_probs(position, given_prior.first, rows=False)))

    try:
        found = agreement.disagreement(positions, together, apart)
    except (TypeError, IndexError, AssertionError, NotImplementedError) as error:
        raise ValueError(
            f"the model does not run on single rows ({_said(error)}); write its data with the rows along the first "
            "axis, all of it among the arguments"
        ) from error
    if found is None:
        return
    numbers = f"{found.whole:.6g} together, {found.apart:.6g} one by one"
    if found.of_rows:
        raise ValueError(
            f"rows of site {found.part} are not independent given the parameters: their log density is {numbers}. What "
            "the model works out from several rows (means, ranks, lags) must be worked out before and passed as an "
            "argument; and all arguments as long as the plate must be of rows"
        )
    raise ValueError(
        f"site {found.part} stands outside of plate {program.plate}, but depends on its rows or their number: its log "
        f"density is {numbers}. Put it into the plate, or pass what it takes from the rows as an argument"
    )


def _scale(program: NumPyroProgram, sites: Any) -> float:
    size, drawn = sites[program.plate]["args"]
    return 1.0 if drawn is None else size / drawn


def _summed(log_probs: dict[str, Array]) -> dict[str, Array]:
    return {name: jnp.sum(value) for name, value in log_probs.items()}


def _named_by_no_row(program: NumPyroProgram, first: PyTree, some: PyTree, position: PyTree) -> tuple[str, ...]:
    """Deterministic sites that are the same whatever the rows."""
    of_one, of_some = (program.named(position, columns) for columns in (first, some))
    return tuple(
        name
        for name, value in of_one.items()
        if value.shape == of_some[name].shape and bool(jnp.allclose(value, of_some[name], equal_nan=True))
    )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
