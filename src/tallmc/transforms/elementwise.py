"""Limits of each number by itself."""

import math
from typing import Any

import equinox as eqx

from tallmc.transforms.contract import Transform, Words


class Positive(Transform):
    """Positive numbers, such as scales and rates. Chains move their logarithms.

    `tm.transforms.positive` is one.

    Example:
        >>> import jax.numpy as jnp, tallmc as tm
        >>> tm.transforms.positive.constrain(jnp.array([0.0, 1.0]))
        Array([1.       , 2.7182817], dtype=float32)
    """

    @property
    def words(self) -> Words:
        """For messages."""
        return Words("tm.transforms.positive", "positive", "start above 0")

    @property
    def constraint(self) -> Any:
        """The same in NumPyro."""
        from numpyro.distributions import constraints

        return constraints.positive

    def margin(self, natural: Any) -> Any:
        """The numbers themselves."""
        return natural


class Interval(Transform):
    """Numbers between two ends, such as chances. Chains move the logits of how far between they are.

    `tm.transforms.interval(low, high)` makes one.

    Args:
        low: What the numbers are above.
        high: What they are below.

    Example:
        >>> import jax.numpy as jnp, tallmc as tm
        >>> tm.transforms.interval(-1, 3).constrain(jnp.array([0.0, 1.0]))
        Array([1.       , 1.9242344], dtype=float32)
    """

    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)

    @property
    def words(self) -> Words:
        """For messages."""
        return Words(
            f"tm.transforms.interval({self.low:g}, {self.high:g})",
            f"between {self.low:g} and {self.high:g}",
            "start inside, not at an end",
        )

    @property
    def constraint(self) -> Any:
        """The same in NumPyro."""
        from numpyro.distributions import constraints

        return constraints.interval(self.low, self.high)

    def margin(self, natural: Any) -> Any:
        """The product of the distances from both ends, which is negative beyond either."""
        return (natural - self.low) * (self.high - natural)


positive = Positive()


def interval(low: Any, high: Any) -> Interval:
    """Numbers between `low` and `high`.

    Args:
        low: What the numbers are above.
        high: What they are below.

    Example:
        >>> import tallmc as tm
        >>> chance = tm.transforms.interval(0, 1)
        >>> chance.low, chance.high
        (0.0, 1.0)
    """
    try:
        ends = float(low), float(high)
    except (TypeError, ValueError) as error:
        raise ValueError(f"interval needs two numbers, not {low!r} and {high!r}; pass interval(0, 1)") from error
    if not all(map(math.isfinite, ends)):
        raise ValueError(
            f"interval needs finite ends, got {low!r} and {high!r}; for positive numbers take tm.transforms.positive"
        )
    if not ends[0] < ends[1]:
        raise ValueError(f"interval needs low < high, got {low!r} and {high!r}; pass interval(low, high) in this order")
    return Interval(*ends)
