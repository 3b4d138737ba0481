"""What a row can say at most: bounds on the change of its log likelihood, for the rules that need one."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Real


class Bounds(eqx.Module):
    """Bounds that hold for every row of the data."""

    @abc.abstractmethod
    def largest_change(self, position: PyTree, proposed: PyTree) -> Real[Array, ""]:
        """At least the largest |log likelihood at `proposed` - log likelihood at `position`| of any row."""


class Lipschitz(Bounds):
    """A row's log likelihood changes by at most `constant` times the distance.

    Args:
        constant: Largest gradient norm of any row's log likelihood, at any position.

    Example:
        >>> import jax.numpy as jnp
        >>> float(Lipschitz(2.0).largest_change(jnp.array([0.0, 0.0]), jnp.array([3.0, 4.0])))
        10.0
    """

    constant: Real[Array, ""]

    def __init__(self, constant: float | Array):
        if isinstance(constant, float | int) and not constant >= 0:
            raise ValueError(f"constant must not be negative, got {constant}")
        self.constant = jnp.asarray(constant, jnp.result_type(float))

    def largest_change(self, position: PyTree, proposed: PyTree) -> Real[Array, ""]:
        """Constant times distance."""
        squares = jax.tree.map(lambda new, old: jnp.sum((new - old) ** 2), proposed, position)
        distance = jnp.sqrt(sum(jax.tree.leaves(squares)))
        return self.constant.astype(distance.dtype) * distance
