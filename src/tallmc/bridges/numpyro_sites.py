"""What a NumPyro model consists of, and which of its plates is that of the rows. Nothing is computed."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro import handlers

from tallmc.bridges.arguments import Arguments
from tallmc.numerics.promotion import promoting

_NEEDS_A_NUMBER = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
)


class Site(NamedTuple):
    """One `sample` statement.

    Args:
        name: Its name.
        observed: Whether it has data.
        plates: Names of the plates that it stands in.
        shape: Of its value.
        discrete: Whether its values are whole numbers.
    """

    name: str
    observed: bool
    plates: frozenset[str]
    shape: tuple[int, ...]
    discrete: bool


class Sites(NamedTuple):
    """A model, as far as it is known without numbers.

    Args:
        sites: Its `sample` statements.
        sizes: Of its plates, by name: what they stand for, not how many are drawn of them.
    """

    sites: tuple[Site, ...]
    sizes: dict[str, int]

    @property
    def latent(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(site.name for site in self.sites if not site.observed)


def sites_of(model: Callable[..., Any], arguments: Arguments) -> Sites:
    """Runs a model without numbers, or says why that cannot be."""
    seeded = handlers.seed(model, rng_seed=0)
    try:
        with promoting():
            traced = arguments.traced(lambda *args, **kwargs: _described(handlers.trace(seeded), args, kwargs))
    except _NEEDS_A_NUMBER as error:
        raise ValueError(
            f"the model uses values of its data before there are any ({type(error).__name__}), as numpy.unique, if or "
            "int() do; work out such things outside (numbers of groups, say) and pass them as arguments of their own"
        ) from error
    except NotImplementedError as error:
        if "control flow" in str(error):
            raise ValueError(
                "the model has a scan inside a plate: what it scans over is not independent given the parameters, and "
                "tallmc reads rows one by one; scan over parameters only, outside of the plate of rows"
            ) from error
        raise
    except Exception as error:  # whatever the caller's own function raises
        said = " ".join(str(error).split())
        raise ValueError(
            f"the model does not run on these arguments ({type(error).__name__}: {said}); {arguments.lengths} rows: "
            f"mend the model or pass what it takes{arguments.hint}"
        ) from error
    return traced


def _described(traced: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sites:
    found = traced.get_trace(*args, **kwargs)
    for site in found.values():
        if site["type"] in ("param", "mutable"):
            raise ValueError(
                f"numpyro.{site['type']}({site['name']!r}) is no random variable; make it numpyro.sample with a prior"
            )
    return Sites(
        tuple(_site(site) for site in found.values() if site["type"] == "sample"),
        {site["name"]: int(site["args"][0]) for site in found.values() if site["type"] == "plate"},
    )


def _site(site: Any) -> Site:
    return Site(
        site["name"],
        bool(site["is_observed"]),
        frozenset(frame.name for frame in site["cond_indep_stack"]),
        np.shape(site["value"]),
        bool(site["fn"].support is not None and site["fn"].support.is_discrete),
    )


def plate_of_rows(known: Sites, arguments: Arguments) -> str:
    """The plate that all observed sites stand in, no parameter does, and arguments are as long as."""
    observed = [site for site in known.sites if site.observed]
    if not observed:
        raise ValueError("the model observes nothing: pass its data, so that a sample statement has obs=")
    if not known.latent:
        raise ValueError("the model has no parameters: every sample statement has obs=")
    placed = [site for site in observed if site.plates]
    if not placed:
        names = ", ".join(site.name for site in observed)
        raise ValueError(
            f"no plate found around {names}: write it as with numpyro.plate('rows', len(data)), which says that rows "
            "are independent given the parameters (in a scan, or as one multivariate outcome, they are not)"
        )
    shared = frozenset.intersection(*(site.plates for site in placed))
    if not shared:
        raise ValueError(
            f"observed sites stand in different plates ({_where(placed)}), and only one can be that of the rows; "
            "put them into one plate, or sample from one of them at a time"
        )
    crowded = {plate: site.name for site in known.sites if not site.observed for plate in site.plates}
    matching = [plate for plate in shared if arguments.columns_of(known.sizes[plate])]
    free = [plate for plate in matching if plate not in crowded]
    if not free:
        raise ValueError(_no_plate(known, arguments, shared, crowded, matching))
    largest = max(known.sizes[plate] for plate in free)
    (*others, chosen) = sorted(plate for plate in free if known.sizes[plate] == largest)
    if others:
        raise ValueError(
            f"plates {', '.join([*others, chosen])} are all {largest:,} long, and each could be that of the rows; "
            "keep one plate for rows, and make what they cross in one event (.to_event)"
        )
    return chosen


def _where(sites: list[Site]) -> str:
    return ", ".join(f"{site.name} in {' and '.join(sorted(site.plates))}" for site in sites)


def _no_plate(
    known: Sites, arguments: Arguments, shared: frozenset[str], crowded: dict[str, str], matching: list[str]
) -> str:
    if matching:
        plate = sorted(matching)[0]
        return (
            f"site {crowded[plate]} is a parameter of each row of plate {plate} (no obs= there): tallmc reads few rows "
            "a step, and cannot move so many; pass its data, or sum it out of the likelihood"
        )
    sizes = ", ".join(f"{plate} is {known.sizes[plate]:,} long" for plate in sorted(shared))
    return (
        f"no plate of rows found: plate {sizes}, but of the arguments {arguments.lengths} rows along the first axis; "
        "pass the data as arrays (numpy.asarray) among the arguments, as long as the plate, and not by a closure"
    )
