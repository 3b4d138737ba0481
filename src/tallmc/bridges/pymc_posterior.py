# pyright: reportMissingImports=false
"""A PyMC model as a posterior: its graph with one row of data in place of all, turned into JAX."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
from jaxtyping import Array, PyTree
from pymc.model.transform.conditioning import remove_value_transforms
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc

from tallmc.bridges import agreement
from tallmc.bridges.agreement import Parts
from tallmc.bridges.pymc_limits import limit_of
from tallmc.bridges.pymc_to_jax import jax_function
from tallmc.numerics.double_precision import as_double
from tallmc.numerics.promotion import promoting
from tallmc.posterior import Posterior
from tallmc.posterior.rows import RowsInMemory
from tallmc.transforms import Transform


class PyMCFunction(eqx.Module):
    """A part of a PyMC model as a function of a position, and of a row if it is about rows.

    Args:
        function: What PyMC's JAX back end made of the graph.
        inputs: Names of what it takes of a position.
        columns: Names of what it takes of a row.
        names: Of what it gives, if that is asked for by name; else it is added up.
    """

    function: Callable[..., Any] = eqx.field(static=True)
    inputs: tuple[str, ...] = eqx.field(static=True)
    columns: tuple[str, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def parts(self, position: PyTree, row: PyTree = None) -> dict[str, Array]:
        """Everything that it gives, by name."""
        with promoting():
            values = [jnp.asarray(position[name]) for name in self.inputs]
            values += [jnp.asarray(row[name])[None] for name in self.columns]
            return dict(zip(self.names, map(jnp.asarray, self.function(*values)), strict=True))

    def added_up(self, position: PyTree, row: PyTree = None) -> Array:
        """The sum of all that it gives."""
        with promoting():
            sums = [jnp.sum(part) for part in self.parts(position, row).values()]
            return jnp.asarray(sum(sums[1:], start=sums[0]) if sums else 0.0, jnp.result_type(float))


class RowLikelihood(eqx.Module):
    """The log likelihood of one row.

    Args:
        of_row: What is observed.
    """

    of_row: PyMCFunction

    def __call__(self, position: PyTree, row: PyTree) -> Array:
        """Of one row."""
        return self.of_row.added_up(position, row)


class Prior(eqx.Module):
    """All of a model that rows have no part in.

    Args:
        others: The log densities.
    """

    others: PyMCFunction

    def __call__(self, position: PyTree) -> Array:
        """At one position."""
        return self.others.added_up(position)


class Deterministics(eqx.Module):
    """What a model calls deterministic.

    Args:
        named: The values, by name.
    """

    named: PyMCFunction

    def __call__(self, position: PyTree) -> dict[str, Array]:
        """At one position."""
        return self.named.parts(position)


class _Graph(NamedTuple):
    """A model's graph on the natural scale.

    Args:
        model: Without transforms.
        values: Of the free variables, by name.
        of_rows: Log densities that depend on rows, by name.
        others: All other log densities, by name.
        columns: Data of rows, by name.
        num_rows: How many there are.
    """

    model: Any
    values: dict[str, Any]
    of_rows: dict[str, Any]
    others: dict[str, Any]
    columns: dict[str, Any]
    num_rows: int

    def jaxified(self, named: dict[str, Any], *, rows: bool, names: Sequence[str] | None = None) -> PyMCFunction:
        """Log densities or values as a JAX function; with `rows` of one row, which is then given."""
        inputs, outputs = list(self.values.values()), list(named.values())
        if rows:
            ones = {name: _one_long(variable) for name, variable in self.columns.items()}
            swapped: Any = {self.columns[name]: one for name, one in ones.items()} | _lengths(self.model, self.num_rows)
            outputs = pytensor.clone_replace(
                [_without_length(term) for term in outputs], replace=swapped, rebuild_strict=False
            )
            inputs += list(ones.values())
        columns = tuple(self.columns) if rows else ()
        return PyMCFunction(
            jax_function(inputs, outputs), tuple(self.values), columns, tuple(named if names is None else names)
        )


def posterior_of(model: Any) -> Posterior:
    """See `tm.from_pymc`."""
    graph = _graph_of(model)
    transforms, start = _limits(model, graph)
    try:
        of_row = graph.jaxified(graph.of_rows, rows=True)
    except Exception as error:  # whatever PyTensor raises of a graph whose data has become one row
        raise ValueError(
            f"the model cannot be written for one row ({type(error).__name__}: {' '.join(str(error).split())[:160]}); "
            "take sizes from dims or from the data, not from numbers, and let every row have its own outcome"
        ) from error
    others = graph.jaxified(graph.others, rows=False)
    rows = RowsInMemory({name: _data_of(variable) for name, variable in graph.columns.items()})
    functions = RowLikelihood(of_row), rows, Prior(others)
    posterior = Posterior(*functions, transforms=transforms)
    zeros = jax.tree.map(np.zeros_like, posterior.unconstrain(start))
    start = jax.tree.map(np.asarray, posterior.constrain(zeros))
    _check(graph, of_row, others, rows, agreement.random_positions(posterior, zeros))
    return Posterior(*functions, transforms=transforms, start=start, derived=_derived(graph))


def _graph_of(model: Any) -> _Graph:
    if not model.observed_RVs:
        raise ValueError("the model observes nothing; pass observed= to the variable that the data is of")
    for variable in model.free_RVs:
        if np.dtype(variable.dtype).kind != "f":
            raise ValueError(
                f"{variable.name} is a discrete parameter, which has no gradient; sum it out, as with pymc.Mixture"
            )
    if not model.free_RVs:
        raise ValueError("the model has no parameters: every variable is observed")
    lengths = {variable.name: _length(model, variable) for variable in model.observed_RVs}
    num_rows = max(lengths.values())
    odd = [name for name, length in lengths.items() if length != num_rows]
    if odd:
        raise ValueError(
            f"observed variables have different lengths ({_listed(lengths)}); sample from one of them at a time, "
            "or give all the same rows"
        )
    natural = _natural(model)
    values = {variable.name: natural.rvs_to_values[variable] for variable in natural.free_RVs}
    named = {
        variable.name: natural.logp(vars=[variable], sum=False, jacobian=False)[0] for variable in natural.basic_RVs
    }
    named |= {term.name: term for term in natural.replace_rvs_by_values(natural.potentials)}
    columns = _columns(list(named.values()), num_rows)
    variables = set(columns.values())
    of_rows = {name: term for name, term in named.items() if variables & set(ancestors([term]))}
    for name in of_rows:
        if name in values:
            raise ValueError(f"the prior of {name} depends on the rows; work out what it takes from them beforehand")
    return _Graph(
        natural, values, of_rows, {name: term for name, term in named.items() if name not in of_rows}, columns, num_rows
    )


def _natural(model: Any) -> Any:
    """The model without transforms; PyMC copies none that has starting values, which play no part here."""
    starting = dict(model.rvs_to_initial_values)
    model.rvs_to_initial_values.update(dict.fromkeys(starting))
    try:
        return remove_value_transforms(model)
    except NotImplementedError as error:
        raise ValueError(f"PyMC cannot copy this model: {error}; write it without that") from error
    finally:
        model.rvs_to_initial_values.update(starting)


def _length(model: Any, variable: Any) -> int:
    data = _data_of(model.rvs_to_values[variable])
    if data is None:
        raise ValueError(f"what {variable.name} observes is worked out inside of the model; pass it as plain data")
    if np.ndim(data) == 0:
        raise ValueError(f"{variable.name} observes a single number; tallmc is for data with many rows")
    return int(np.shape(data)[0])


def _listed(lengths: dict[str, int]) -> str:
    return ", ".join(f"{name} has {length:,}" for name, length in lengths.items())


def _columns(terms: list[Any], num_rows: int) -> dict[str, Any]:
    """Data whose first axis is as long as there are rows, by name."""
    found: dict[str, Any] = {}
    for variable in ancestors(terms):
        data = _data_of(variable)
        if data is None or np.ndim(data) == 0 or np.shape(data)[0] != num_rows or variable in set(found.values()):
            continue
        name = variable.name or f"data{len(found)}"
        found[name if name not in found else f"{name}_{len(found)}"] = variable
    return found


def _data_of(variable: Any) -> np.ndarray | None:
    if isinstance(variable, Constant) and isinstance(variable.data, np.ndarray):
        return variable.data
    if isinstance(variable, SharedVariable) and isinstance(variable.get_value(borrow=True), np.ndarray):
        return variable.get_value(borrow=True)
    return None


def _one_long(variable: Any) -> Any:
    data = _data_of(variable)
    assert data is not None
    return pt.tensor(variable.name, dtype=variable.type.dtype, shape=(1, *data.shape[1:]))


def _without_length(term: Any) -> Any:
    """A log density before it is spread to the shape of what is observed, which is its own if that is in there."""
    return term.owner.inputs[0] if term.owner is not None and isinstance(term.owner.op, Alloc) else term


def _lengths(model: Any, num_rows: int) -> dict[Any, Any]:
    """Dimensions of the model that are as long as there are rows: one is their number now."""
    lengths = {length for length in model.dim_lengths.values() if isinstance(length, SharedVariable)}
    return {
        length: pt.constant(1, dtype=length.type.dtype) for length in lengths if int(length.get_value()) == num_rows
    }


def _limits(model: Any, graph: _Graph) -> tuple[dict[str, Transform], PyTree]:
    transforms = {}
    for variable in model.free_RVs:
        limit = limit_of(variable, model.rvs_to_transforms[variable])
        transforms |= {} if limit is None else {variable.name: limit}
    start = graph.model.initial_point()
    return transforms, {name: np.asarray(start[variable.name]) for name, variable in graph.values.items()}


def _check(graph: _Graph, of_row: PyMCFunction, others: PyMCFunction, rows: Any, positions: list[PyTree]) -> None:
    """Single rows must add up to what PyMC makes of all of them together."""
    whole = graph.jaxified(graph.of_rows, rows=False)
    every = as_double(jax.tree.map(np.asarray, rows.all()))

    def together(position: PyTree) -> Parts:
        return Parts(_summed(whole.parts(position)), _summed(others.parts(position)))

    def apart(position: PyTree) -> Parts:
        each = jax.vmap(lambda row: _summed(of_row.parts(position, row)))(every)
        return Parts(jax.tree.map(lambda part: part.sum(0), each), _summed(others.parts(position)))

    try:
        found = agreement.disagreement(positions, jax.jit(lambda position: (together(position), apart(position))))
    except agreement.NowhereFiniteError:
        raise
    except (TypeError, IndexError, NotImplementedError, ValueError) as error:
        raise ValueError(
            f"the model does not run on single rows ({type(error).__name__}: {' '.join(str(error).split())[:160]}); "
            "give every row its own outcome, and let nothing be as long as the rows but data"
        ) from error
    crowded = [name for name, value in positions[0].items() if np.shape(value)[:1] == (graph.num_rows,)]
    if found is not None and crowded:
        raise ValueError(
            f"{crowded[0]} is a parameter of each row: tallmc reads few rows a step, and cannot move so many; sum it "
            "out of the likelihood"
        )
    if found is not None:
        raise ValueError(
            f"rows of {found.part} are not independent given the parameters: their log density is {found.whole:.6g} "
            f"together, {found.apart:.6g} one by one. What is worked out from several rows (means, ranks, lags) must "
            "be worked out before, and parameters must not be as many as rows"
        )


def _summed(parts: dict[str, Array]) -> dict[str, Array]:
    return {name: jnp.sum(part) for name, part in parts.items()}


def _derived(graph: _Graph) -> Deterministics | None:
    """Deterministic variables that no row has a part in."""
    model, variables = graph.model, set(graph.columns.values())
    values = model.replace_rvs_by_values(model.deterministics)
    kept = {
        variable.name: value
        for variable, value in zip(model.deterministics, values, strict=True)
        if not variables & set(ancestors([value]))
    }
    return Deterministics(graph.jaxified(kept, rows=False)) if kept else None
