"""Random fields: discrete variables whose joint log probability is a sum over factors of a few of them each."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Real

from tallmc.posterior import Posterior

_MOST_VARIABLES = 2**16


class LogFactor(eqx.Module):
    """What one factor says of an assignment: the entry of its table.

    Args:
        num_values: Values that each variable can take.
    """

    num_values: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, position: Real[Array | np.ndarray, " variables"], row: dict[str, Array]) -> Real[Array, ""]:
        """`row["log_table"]` at the values that the variables of `row["scope"]` have."""
        values = jnp.asarray(position).astype(jnp.int32)[row["scope"].astype(jnp.int32)]
        return row["log_table"][tuple(values)]


def random_field(scopes: Any, log_tables: Any) -> Posterior:
    """A random field: any factor graph over variables with a few values each, given as arrays.

    The log probability of an assignment is the sum of one table entry for each factor, and a constant. Factors are the
    rows of the posterior that this gives; its positions are vectors of whole numbers, one a variable, counted from 0.
    `tm.gibbs` draws from it.

    Args:
        scopes: Which variables a factor joins: whole numbers, (factors, variables in each). For factors of several
            sizes, a list of such arrays, one a size.
        log_tables: Logarithm of each factor for all values of its variables, in the order of its scope: (factors, 2, 2,
            ...) for binary variables. A list of as many if scopes is one.

    Returns:
        The posterior of the assignment.

    Example:
        >>> import numpy as np
        >>> field = random_field(np.array([[0, 1], [1, 2]]), np.log([[[3.0, 1], [1, 3]], [[2.0, 1], [1, 2]]]))
        >>> round(float(np.exp(field.log_density(np.array([0, 0, 1])))), 4)  # not normalised
        3.0
    """
    several = isinstance(scopes, list | tuple) and len(scopes) > 0 and np.ndim(scopes[0]) == 2
    groups = _paired(scopes, log_tables) if several else [_checked(scopes, log_tables, "")]
    num_values = _num_values(groups)
    size, most = max(scope.shape[1] for scope, _ in groups), max(num_values)
    if most**size * sum(len(scope) for scope, _ in groups) >= 2**31:
        raise ValueError(
            "the tables have more than 2^31 entries together; give variables fewer values or split factors"
        )
    lifted = [_lifted(scope, table, size, most) for scope, table in groups]
    scope, table = (np.concatenate(parts) for parts in zip(*lifted, strict=True))
    small = np.uint8 if len(num_values) <= 2**8 else np.uint16
    return Posterior(LogFactor(num_values), {"scope": scope.astype(small), "log_table": table})


def generate_dense_field(
    num_variables: int = 100, scale: float = 0.02, seed: int = 0
) -> tuple[Int[np.ndarray, "factors 3"], Real[np.ndarray, "factors 2 2 2"]]:
    """The field of Korattikara et al. (2014, supplement F.1): binary, with a factor for each three of its variables.

    Entries of the tables are drawn from N(0, scale^2); the paper's 0.02 is a standard deviation.

    Args:
        num_variables: Variables; n of them have n (n - 1) (n - 2) / 6 factors.
        scale: Standard deviation of the entries.
        seed: Of the random numbers.

    Returns:
        Scopes and log tables for `random_field`.

    Example:
        >>> scopes, log_tables = generate_dense_field(10)
        >>> scopes.shape, log_tables.shape
        ((120, 3), (120, 2, 2, 2))
    """
    if num_variables < 3:
        raise ValueError(f"num_variables must be at least 3, for factors of three variables, got {num_variables}")
    if not (np.isfinite(scale) and scale >= 0):
        raise ValueError(f"scale must be a finite number, not negative, got {scale}")
    first, second, third = np.meshgrid(*[np.arange(num_variables)] * 3, indexing="ij", sparse=True)
    scopes = np.stack(np.nonzero((first < second) & (second < third)), axis=1)
    tables = scale * np.random.default_rng(seed).standard_normal((len(scopes), 2, 2, 2))
    return scopes, tables.astype(np.float32)


_Group = tuple[np.ndarray, np.ndarray]


def _paired(scopes: Sequence[Any], log_tables: Any) -> list[_Group]:
    """Scopes and tables of several sizes, checked."""
    if not isinstance(log_tables, list | tuple) or len(log_tables) != len(scopes):
        raise ValueError(
            f"scopes is a list of {len(scopes)} arrays, so log_tables must be a list of as many, one a size of factor"
        )
    return [_checked(s, t, f"[{i}]") for i, (s, t) in enumerate(zip(scopes, log_tables, strict=True))]


def _checked(scopes: Any, log_tables: Any, place: str) -> _Group:
    """One size of factors; raises `ValueError` unless scopes and tables can belong together."""
    scope, table = np.asarray(scopes), np.asarray(log_tables)
    if scope.ndim != 2 or 0 in scope.shape or not np.issubdtype(scope.dtype, np.integer):
        raise ValueError(
            f"scopes{place} must be whole numbers of shape (factors, variables in each), got {scope.dtype} of shape "
            f"{scope.shape}; factors of several sizes go into a list of such arrays"
        )
    if scope.min() < 0 or scope.max() >= _MOST_VARIABLES:
        raise ValueError(f"scopes{place} must number variables from 0 to at most {_MOST_VARIABLES - 1:,}")
    count, size = scope.shape
    if table.ndim != 1 + size or len(table) != count:
        raise ValueError(
            f"log_tables{place} must have shape ({count}, {', '.join(['values'] * size)}), one axis for each variable "
            f"of a factor, got {table.shape}"
        )
    if min(table.shape[1:]) < 2:
        raise ValueError(f"log_tables{place} has shape {table.shape}: a variable of fewer than 2 values never varies")
    ordered = np.sort(scope, axis=1)
    if np.any(twice := np.any(ordered[:, 1:] == ordered[:, :-1], axis=1)):
        row = int(np.argmax(twice))
        raise ValueError(
            f"scopes{place}[{row}] = {scope[row].tolist()} names a variable twice; give the factor a smaller scope and "
            "the diagonal of its table"
        )
    if not np.all(np.isfinite(table)):
        row = int(np.argmin(np.isfinite(table).reshape(count, -1).all(axis=1)))
        raise ValueError(
            f"log_tables{place}[{row}] holds NaN or infinity; an assignment that is ruled out needs a large negative "
            "number instead, such as -30"
        )
    return scope, table.astype(np.promote_types(table.dtype, np.float32), copy=False)


def _num_values(groups: list[_Group]) -> tuple[int, ...]:
    """Values of each variable, on which all factors must agree."""
    num_values = np.zeros(1 + max(int(scope.max()) for scope, _ in groups), int)
    for scope, table in groups:
        for slot in range(scope.shape[1]):
            variables, values = scope[:, slot], table.shape[1 + slot]
            known = num_values[variables]
            if np.any(other := (known > 0) & (known != values)):
                name = int(variables[np.argmax(other)])
                raise ValueError(
                    f"variable {name} has {num_values[name]} values in one factor's table and {values} in another's; "
                    "every table needs one entry for each value"
                )
            num_values[variables] = values
    if np.any(num_values == 0):
        name = int(np.argmin(num_values))
        raise ValueError(
            f"variable {name} is in no factor; number variables without gaps, or give it a factor of zeros"
        )
    return tuple(num_values.tolist())


def _lifted(scope: np.ndarray, table: np.ndarray, size: int, most: int) -> _Group:
    """The same factors with scopes and tables of the common size.

    A scope that is too short names its first variable again: the table does not depend on what it says there.
    """
    count, own = scope.shape
    scope = np.concatenate([scope, np.repeat(scope[:, :1], size - own, axis=1)], axis=1)
    table = np.pad(table, [(0, 0), *((0, most - values) for values in table.shape[1:])])
    table = table.reshape(*table.shape, *(1,) * (size - own))
    return scope, np.broadcast_to(table, (count, *(most,) * size))
