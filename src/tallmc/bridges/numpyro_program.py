"""A NumPyro model run on some of its rows: one row's log likelihood, the prior, what else it names."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree
from numpyro import handlers
from numpyro.primitives import Messenger

from tallmc.bridges.arguments import Rest
from tallmc.bridges.numpyro_densities import log_prob_of
from tallmc.numerics.promotion import promoting


class SomeRows(Messenger):
    """Makes one plate as long as the rows that the model is given now, whatever length the model asks for.

    Args:
        plate: Name of the plate.
        count: Rows there are.
    """

    def __init__(self, plate: str, count: int):
        self.plate, self.count, self.asked = plate, count, count
        super(SomeRows, self).__init__(None)  # noqa: UP008  NumPyro's handlers are made so

    def process_message(self, msg: Any) -> None:
        """Answers a plate that asks how long it is."""
        if msg["type"] == "plate" and msg["name"] == self.plate:
            self.asked, msg["args"] = msg["args"][0], (self.count, None)
            msg["value"] = jnp.arange(self.count)


class NumPyroProgram(eqx.Module):
    """A model with the arguments that are the same for all rows.

    Args:
        model: As its author wrote it.
        plate: Name of the plate of rows.
        latent: Names of its parameters.
        rest: The arguments but for the columns of rows.
    """

    model: Callable[..., Any] = eqx.field(static=True)
    plate: str = eqx.field(static=True)
    latent: tuple[str, ...] = eqx.field(static=True)
    rest: Rest

    def trace(self, position: PyTree, columns: PyTree) -> "tuple[dict[str, Any], float]":
        """The sites of a run on these rows, and by how much NumPyro scales those of the plate for having fewer."""
        some = SomeRows(self.plate, len(jax.tree.leaves(columns)[0]))
        args, kwargs = self.rest.with_rows(columns)
        values = {name: position[name] for name in self.latent}
        with promoting(), some, handlers.trace() as sites, handlers.substitute(data=values):
            self.model(*args, **kwargs)
        return sites, some.asked / some.count

    def of_plate(self, site: Any) -> bool:
        """Whether a site is one of rows."""
        return any(frame.name == self.plate for frame in site["cond_indep_stack"])

    def log_probs(self, position: PyTree, columns: PyTree, *, rows: bool) -> dict[str, Array]:
        """Log density of each site of rows, or of each other one."""
        sites, scale = self.trace(position, columns)
        with promoting():
            found = {
                name: log_prob_of(site, scale if rows else 1.0)
                for name, site in sites.items()
                if site["type"] == "sample" and self.of_plate(site) == rows
            }
        if rows:
            self._check_lengths(sites, found, len(jax.tree.leaves(columns)[0]))
        return found

    def _check_lengths(self, sites: Any, found: dict[str, Array], count: int) -> None:
        for name, log_prob in found.items():
            (dim,) = (frame.dim for frame in sites[name]["cond_indep_stack"] if frame.name == self.plate)
            if log_prob.shape[dim] != count:
                raise ValueError(
                    f"site {name} has {log_prob.shape[dim]} values where there are {count} rows: is its data not among "
                    "the arguments?"
                )

    def named(self, position: PyTree, columns: PyTree) -> dict[str, Array]:
        """What the model calls deterministic, but for what it says of rows."""
        sites, _ = self.trace(position, columns)
        return {
            name: jnp.asarray(site["value"])
            for name, site in sites.items()
            if site["type"] == "deterministic" and not self.of_plate(site)
        }


class RowLikelihood(eqx.Module):
    """The log likelihood of one row: the model's sites in the plate, with a plate of size one.

    Args:
        program: The model.
    """

    program: NumPyroProgram

    def __call__(self, position: PyTree, row: PyTree) -> Array:
        """Of one row."""
        columns = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], row)
        return added_up(self.program.log_probs(position, columns, rows=True))


class OtherSites(eqx.Module):
    """The log prior: all sites but those of rows.

    Args:
        program: The model.
        first: A row to run the model on; nothing here depends on which.
    """

    program: NumPyroProgram
    first: dict[str, Any]

    def __call__(self, position: PyTree) -> Array:
        """At one position."""
        return added_up(self.program.log_probs(position, self.first, rows=False))


class NamedSites(eqx.Module):
    """What the model calls deterministic, of one position.

    Args:
        program: The model.
        first: A row to run the model on.
        names: Of those that no row decides.
    """

    program: NumPyroProgram
    first: dict[str, Any]
    names: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, position: PyTree) -> dict[str, Array]:
        """At one position."""
        found = self.program.named(position, self.first)
        return {name: found[name] for name in self.names}


def added_up(log_probs: dict[str, Array]) -> Array:
    """The sum over sites and what is in them."""
    with promoting():
        parts = [jnp.sum(log_prob) for log_prob in log_probs.values()]
        return jnp.asarray(sum(parts[1:], start=parts[0]) if parts else 0.0, jnp.result_type(float))
