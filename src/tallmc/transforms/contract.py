"""What a transform is: a limit on some numbers, and the way to numbers without one and back."""

import abc
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Real

from tallmc.numerics.promotion import promoting

if TYPE_CHECKING:
    import numpyro.distributions.transforms as numpyro_transforms


class Words(NamedTuple):
    """How to speak of a limit.

    Args:
        name: As a user writes the transform, such as `tm.transforms.positive`.
        limit: What it asks of natural numbers, such as "positive".
        cure: How to make numbers keep to it.
    """

    name: str
    limit: str
    cure: str


class Transform(eqx.Module):
    """A limit on an array, such as that its numbers are positive.

    *Natural* numbers keep to the limit; *unconstrained* ones are any real numbers. A subclass names the constraint, for
    which NumPyro knows the way. It holds no arrays, so that it can be compared.
    """

    fewest: ClassVar[int | None] = None
    """Numbers that its last axis must have at least; None if it takes each number by itself, in arrays of any shape."""

    @property
    @abc.abstractmethod
    def words(self) -> Words:
        """For messages."""

    @property
    @abc.abstractmethod
    def constraint(self) -> Any:
        """The same in NumPyro."""

    @abc.abstractmethod
    def margin(self, natural: Any) -> Any:
        """Numbers that are positive inside the limit, 0 at its edge, negative beyond; for NumPy's arrays and JAX's."""

    @property
    def bijection(self) -> "numpyro_transforms.Transform":
        """From unconstrained numbers to natural ones. NumPyro is loaded here, when a transform is first used."""
        from numpyro.distributions import biject_to

        return biject_to(self.constraint)

    def constrain(self, unconstrained: Real[Array, "..."]) -> Real[Array, "..."]:
        """From unconstrained numbers to natural ones."""
        with promoting():
            return jnp.asarray(self.bijection(unconstrained), unconstrained.dtype)

    def unconstrain(self, natural: Real[Array, "..."]) -> Real[Array, "..."]:
        """From natural numbers to unconstrained ones."""
        with promoting():
            return jnp.asarray(self.bijection.inv(natural), natural.dtype)

    def log_jacobian(self, unconstrained: Real[Array, "..."]) -> Real[Array, ""]:
        """Logarithm of the change of volume from unconstrained to natural numbers, of the whole array."""
        with promoting():
            bijection = self.bijection
            change = bijection.log_abs_det_jacobian(unconstrained, bijection(unconstrained))
            return jnp.sum(change).astype(unconstrained.dtype)

    def contains(self, natural: Real[Array, "..."]) -> Bool[Array, ""]:
        """Whether all numbers keep to the limit; its edge is part of it, for draws may be rounded to there."""
        return jnp.all(self.margin(natural) >= 0)

    def trouble_with_shape(self, shape: tuple[int, ...]) -> str | None:
        """Why it cannot be the limit of an array of this shape, or None."""
        if self.fewest is None or (shape and shape[-1] >= self.fewest):
            return None
        has = f"has shape {shape}" if shape else "is a single number"
        return f"{self.words.name} needs a last axis of {self.fewest} or more, but it {has}"

    def trouble_with(self, natural: Real[np.ndarray, "..."]) -> str | None:
        """Why these numbers are not inside the limit, or None."""
        if np.all(self.margin(natural) > 0):
            return None
        shown = np.array2string(natural, threshold=6, edgeitems=3, max_line_width=1000).replace("\n", "")
        return f"must be {self.words.limit} ({self.words.name}), but is {shown}; {self.words.cure}"
