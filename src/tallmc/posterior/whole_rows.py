"""The log density of all rows with its gradient, inside compiled code: for kernels that follow it, such as NUTS."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree, Real

from tallmc.numerics.arithmetic import ordered_sum
from tallmc.posterior import resident
from tallmc.posterior.model import Model

_BLOCK, _LARGE_BLOCK = 16_384, 1_048_576  # rows of a block, on a CPU and elsewhere


class WholeRows(eqx.Module):
    """All rows, where they lie on the device.

    Args:
        columns: Pytree of `resident.Column`.
        num_rows: How many rows there are.
    """

    columns: PyTree
    num_rows: int = eqx.field(static=True)

    @property
    def count(self) -> Int[Array, ""]:
        """Rows that a look at it reads: all of them."""
        return jnp.int32(self.num_rows)

    def log_density(self, model: Model, level: Real[Array, ""]) -> Callable[[PyTree], Real[Array, ""]]:
        """The log density less a constant, as a function of the position.

        `level` is subtracted from the log likelihood of each row before the rows are added up. Any number will do. The
        mean log likelihood of a row somewhere nearby is best: what is added up are then small numbers of both signs,
        and of a sum over a million rows in float32 four digits after the point are right, instead of none.

        The function has a derivative of its own. Value and gradient are summed block by block in the same pass, so
        that memory does not grow with the number of rows, and reverse differentiation has nothing to go back over.

        Args:
            model: With likelihood, prior and temperature; an expansion is not looked at.
            level: For each row, before temperature.
        """

        @jax.custom_vjp
        def density(position: PyTree) -> Real[Array, ""]:
            return self._value_and_slope(model, level, position)[0]

        def forward(position: PyTree) -> tuple[Array, PyTree]:
            return self._value_and_slope(model, level, position)

        def backward(slope: PyTree, along: Array) -> tuple[PyTree]:
            return (jax.tree.map(lambda leaf: leaf * along.astype(leaf.dtype), slope),)

        density.defvjp(forward, backward)
        return density

    def log_likelihoods(self, model: Model, level: Real[Array, ""], positions: PyTree) -> Real[Array, " positions"]:
        """Log likelihood of all rows, before temperature and less `level` for each of them, at several positions.

        Every block of rows is read once for all positions.

        Args:
            model: With the likelihood.
            level: See `log_density`.
            positions: With a leading axis.
        """
        finest = jnp.result_type(float)

        def of_block(first: Any, size: int) -> tuple[Array, PyTree]:
            start = jnp.minimum(first, self.num_rows - size)
            rows = resident.block(self.columns, start, size)
            seen = jnp.arange(size, dtype=jnp.int32) >= first - start

            def total(at: PyTree) -> Array:
                excess = model.log_likelihoods(at, rows).astype(finest) - level.astype(finest)
                return ordered_sum(jnp.where(seen, excess, 0))

            return jax.vmap(total)(positions), ()

        return self._summed(of_block, (), jnp.zeros(len(jax.tree.leaves(positions)[0]), finest))[0]

    def _value_and_slope(self, model: Model, level: Array, position: PyTree) -> tuple[Array, PyTree]:
        finest = jnp.result_type(float)

        def prior(at: PyTree) -> Array:
            return jnp.asarray(model.log_prior(at), finest)

        def of_block(first: Any, size: int) -> tuple[Array, PyTree]:
            """The rows from `first` on; for the last block, which ends with the last row, only those not seen yet."""
            start = jnp.minimum(first, self.num_rows - size)
            rows = resident.block(self.columns, start, size)
            seen = first - start

            def total(at: PyTree) -> Array:
                excess = model.log_likelihoods(at, rows).astype(finest) - level.astype(finest)
                return jnp.sum(jnp.where(jnp.arange(size, dtype=jnp.int32) >= seen, excess, 0))

            return jax.value_and_grad(total)(position)

        known, likelihood = jax.value_and_grad(prior)(position), self._summed(of_block, position)
        cold = 1 / model.temperature.astype(finest)
        return jax.tree.map(lambda a, b: a + b * cold.astype(b.dtype), known, likelihood)

    def _summed(
        self, of_block: Callable[[Any, int], tuple[Array, PyTree]], position: PyTree, zero: Array | None = None
    ) -> tuple[Array, PyTree]:
        """The sum of all blocks, with Kahan's compensation; `zero` is what the first part of it begins with."""
        largest = _BLOCK if jax.default_backend() == "cpu" else _LARGE_BLOCK
        count = -(-self.num_rows // largest)
        size = -(-self.num_rows // count)
        if count == 1:
            return of_block(jnp.int32(0), size)

        def add_one(number: Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
            totals, lost = carry
            addends = jax.tree.map(jnp.subtract, of_block(number * size, size), lost)
            sums = jax.tree.map(jnp.add, totals, addends)
            lost = jax.tree.map(lambda new, old, addend: (new - old) - addend, sums, totals, addends)
            return sums, lost

        nothing = jnp.zeros((), jnp.result_type(float)) if zero is None else zero
        zeros = nothing, jax.tree.map(jnp.zeros_like, position)
        return jax.lax.fori_loop(0, count, add_one, (zeros, zeros))[0]
