"""A NumPyro model as a posterior: found, taken apart, checked."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer.util import compute_log_probs

from tallmc.bridges import agreement
from tallmc.bridges.agreement import Parts
from tallmc.bridges.arguments import Arguments
from tallmc.bridges.numpyro_program import NamedSites, NumPyroProgram, OtherSites, RowLikelihood, SomeRows
from tallmc.bridges.numpyro_sites import Sites, plate_of_rows, sites_of
from tallmc.bridges.supports import transform_of
from tallmc.numerics.double_precision import as_double
from tallmc.numerics.promotion import promoting
from tallmc.posterior import Posterior
from tallmc.posterior.rows import RowsInMemory
from tallmc.transforms import Transform


def posterior_of(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Posterior:
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
    try:
        (first_supports, values), (other_supports, _) = (_supports(program, first, at) for at in (0.0, 0.5))
    except NotImplementedError as error:
        raise ValueError(f"{_said(error)}; take another parameterisation") from error
    except Exception as error:  # whatever the caller's own function raises
        raise ValueError(
            f"the model does not run on one row, plate {program.plate} being one long ({_said(error)}); write its data "
            "with the rows along the first axis, all of it among the arguments, and the plate around it"
        ) from error
    transforms, position = {}, {}
    for name in program.latent:
        support, again = first_supports[name], other_supports[name]
        pairs = zip(jax.tree.leaves(support), jax.tree.leaves(again), strict=True)
        if not all(np.array_equal(*pair) for pair in pairs):
            raise ValueError(
                f"the limits of site {name} depend on other parameters; give it fixed ones, and scale it: "
                "numpyro.deterministic(name, scale * numpyro.sample(..., dist.Uniform(0, 1)))"
            )
        transform = transform_of(support)
        transforms |= {} if transform is None else {name: transform}
        position[name] = np.asarray(values[name])
    return transforms, position


def _supports(program: NumPyroProgram, columns: PyTree, at: float) -> tuple[dict[str, Any], dict[str, Array]]:
    """The support of each parameter, which is a pytree, and its value where all unconstrained numbers are `at`."""

    def value(site: Any) -> Array | None:
        if site["type"] != "sample" or site["is_observed"]:
            return None
        try:
            bijection = biject_to(site["fn"].support)
        except NotImplementedError as error:
            said = f"site {site['name']} cannot be moved: NumPyro has no bijection for {site['fn'].support}"
            raise NotImplementedError(said) from error
        return bijection(jnp.full(bijection.inverse_shape(site["fn"].shape(site["kwargs"]["sample_shape"])), at))

    @jax.jit
    def look(columns: PyTree) -> tuple[dict[str, Any], dict[str, Array]]:
        model = handlers.substitute(program.model, substitute_fn=value)
        sites, _ = dataclasses.replace(program, model=model, latent=()).trace({}, columns)
        parameters = {name: sites[name] for name in program.latent}
        supports = {name: site["fn"].support for name, site in parameters.items()}
        return supports, {name: site["value"] for name, site in parameters.items()}

    return look(columns)


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
        with promoting(), SomeRows(program.plate, len(jax.tree.leaves(plain)[0])):
            log_probs, sites = compute_log_probs(program.model, args, kwargs, dict(position))
        of_rows = {name for name in log_probs if program.of_plate(sites[name])}
        return Parts(
            {name: value for name, value in log_probs.items() if name in of_rows},
            {name: value for name, value in log_probs.items() if name not in of_rows},
        )

    def apart(position: PyTree) -> Parts:
        def of_row(row: PyTree) -> dict[str, Array]:
            columns = jax.tree.map(lambda leaf: leaf[None], row)
            return _summed(given_likelihood.program.log_probs(position, columns, rows=True))

        rows = jax.tree.map(lambda values: values.sum(0), jax.vmap(of_row)(plain))
        return Parts(rows, _summed(given_prior.program.log_probs(position, given_prior.first, rows=False)))

    try:
        found = agreement.disagreement(positions, jax.jit(lambda position: (together(position), apart(position))))
    except agreement.NowhereFiniteError:
        raise
    except (TypeError, ValueError, IndexError, AssertionError, NotImplementedError) as error:
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


def _summed(log_probs: dict[str, Array]) -> dict[str, Array]:
    return {name: jnp.sum(value) for name, value in log_probs.items()}


def _named_by_no_row(program: NumPyroProgram, first: PyTree, some: PyTree, position: PyTree) -> tuple[str, ...]:
    """Deterministic sites that are the same whatever the rows."""

    @jax.jit
    def named(position: PyTree, first: PyTree, some: PyTree) -> tuple[dict[str, Array], dict[str, Array]]:
        return program.named(position, first), program.named(position, some)

    of_one, of_some = named(position, first, some)
    return tuple(
        name
        for name, value in of_one.items()
        if value.shape == of_some[name].shape and bool(np.allclose(value, of_some[name], equal_nan=True))
    )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
