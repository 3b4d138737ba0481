"""Limits of other libraries' parameters as transforms: whatever NumPyro has a bijection for."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tallmc.transforms import Transform, interval, ordered, positive, simplex
from tallmc.transforms.contract import Words


class Supported(Transform):
    """Numbers within a constraint of NumPyro's, which moves them by its own bijection.

    Args:
        kind: Class of the constraint.
        parameters: Of the constraint, by name; arrays as nested tuples, so that it can be compared.

    Example:
        >>> import jax.numpy as jnp
        >>> from numpyro.distributions import constraints
        >>> transform_of(constraints.less_than(3.0)).constrain(jnp.zeros(1))
        Array([2.], dtype=float32)
    """

    kind: type = eqx.field(static=True)
    parameters: tuple[tuple[str, Any], ...] = eqx.field(static=True)

    @property
    def words(self) -> Words:
        """For messages."""
        name = self.kind.__name__.lstrip("_")
        values = ", ".join(str(value) for _, value in self.parameters)
        return Words(f"{name}({values})", f"within NumPyro's constraint {name}({values})", "start inside of it")

    @property
    def constraint(self) -> Any:
        """The same in NumPyro."""
        made: Any = object.__new__(self.kind)
        for name, value in self.parameters:
            setattr(made, name, np.asarray(value) if isinstance(value, tuple) else value)
        return made

    def margin(self, natural: Any) -> Any:
        """One inside, minus one outside: NumPyro says no more."""
        inside = self.constraint(natural)
        return (jnp if isinstance(inside, jax.Array) else np).where(inside, 1, -1)


def transform_of(constraint: Any) -> Transform | None:
    """The transform for a constraint of NumPyro's; None if there is no limit.

    Args:
        constraint: Of real numbers; its parameters are numbers, not traced.
    """
    from numpyro.distributions import constraints

    while isinstance(constraint, constraints.independent):
        constraint = constraint.base_constraint
    ready = {
        type(constraints.real): None,
        type(constraints.positive): positive,
        type(constraints.nonnegative): positive,
        type(constraints.unit_interval): interval(0, 1),
        type(constraints.ordered_vector): ordered,
        type(constraints.simplex): simplex,
    }
    if type(constraint) in ready:
        return ready[type(constraint)]
    names = {"_real_vector", "_real_matrix"}
    if type(constraint).__name__.lower() in names or constraint in (constraints.real_vector, constraints.real_matrix):
        return None
    values, (names_of_values, others) = constraint.tree_flatten()
    named = dict(zip(names_of_values, map(_plain, values), strict=True)) | others
    return Supported(type(constraint), tuple(named.items()))


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    if array.size and (array == array.flat[0]).all():
        return array.flat[0].item()
    return _nested(array.tolist())


def _nested(value: Any) -> Any:
    return tuple(map(_nested, value)) if isinstance(value, list) else value
