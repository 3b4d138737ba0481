"""Limits that tie the numbers along the last axis of an array together."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from tallmc.transforms.contract import Transform, Words


class Ordered(Transform):
    """Numbers in increasing order along the last axis, such as the means of groups that would else trade places.

    Chains move the first number and the logarithms of the gaps. `tm.transforms.ordered` is one.

    Example:
        >>> import jax.numpy as jnp, tallmc as tm
        >>> tm.transforms.ordered.constrain(jnp.array([-1.0, 0.0, 0.0]))
        Array([-1.,  0.,  1.], dtype=float32)
    """

    fewest: ClassVar[int | None] = 1

    @property
    def words(self) -> Words:
        """For messages."""
        return Words("tm.transforms.ordered", "in increasing order", "sort them, with no two alike")

    @property
    def constraint(self) -> Any:
        """The same in NumPyro."""
        from numpyro.distributions import constraints

        return constraints.ordered_vector

    def margin(self, natural: Any) -> Any:
        """The gaps."""
        return natural[..., 1:] - natural[..., :-1]


class Simplex(Transform):
    """Positive numbers that add up to one along the last axis, such as the shares of groups.

    Chains move one number less: how much each takes of what those before it have left. `tm.transforms.simplex` is one.

    Example:
        >>> import jax.numpy as jnp, tallmc as tm
        >>> tm.transforms.simplex.constrain(jnp.zeros(1))
        Array([0.5, 0.5], dtype=float32)
    """

    fewest: ClassVar[int | None] = 2

    @property
    def words(self) -> Words:
        """For messages."""
        return Words(
            "tm.transforms.simplex", "positive numbers that add up to one", "divide positive numbers by their sum"
        )

    @property
    def constraint(self) -> Any:
        """The same in NumPyro."""
        from numpyro.distributions import constraints

        return constraints.simplex

    def margin(self, natural: Any) -> Any:
        """The smallest number, or below 0 if the sum is off one by more than half of the digits."""
        tolerance = float(np.sqrt(jnp.finfo(natural.dtype).eps))
        off = abs(natural.sum(-1) - 1) > tolerance
        return (jnp if isinstance(natural, jnp.ndarray) else np).where(off, -1, natural.min(-1))


ordered = Ordered()
simplex = Simplex()
