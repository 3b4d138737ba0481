"""What a Taylor polynomial leaves over, to full relative precision."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Real

from tallmc.control_variates.term_sizes import term_sizes

Elementwise = Callable[[Array], Array]

_NUM_NODES = 2
_ROUNDINGS = 16.0  # units in the last place of its largest term that a likelihood of several terms may be off


def remainder(
    function: Elementwise, point: Real[Array, "*n"], step: Real[Array, "*n"], order: int
) -> Real[Array, "*n"]:
    """`function(point + step)` less its Taylor polynomial of degree `order` at `point`.

    Near the point the difference of the two would be nothing but rounding, so there it is computed as the integral
    that it equals (Gauss-Jacobi quadrature of the next derivative). Far from it the quadrature is poor and the plain
    difference is right to the rounding of its terms. Where the two differ by more than that rounding, it is the
    quadrature that is wrong; where they do not, it is at least as good.

    Args:
        function: Works element by element, and can be differentiated `order + 1` times.
        point: Where it is expanded.
        step: How far from there.
        order: Degree of the polynomial, 0, 1 or 2.

    Example:
        >>> import jax.numpy as jnp
        >>> float(remainder(jnp.exp, jnp.zeros(()), jnp.asarray(1e-3), order=2)) * 6e9
        1.00...
    """
    derivative, polynomial, size, power = function, jnp.zeros_like(step), jnp.zeros_like(step), jnp.ones_like(step)
    for k in range(order + 1):
        term = derivative(point) * power
        polynomial, size = polynomial + term, jnp.maximum(size, jnp.abs(term))
        derivative, power = _derivative(derivative), power * step / (k + 1)
    end = point + step
    value, slope = jax.jvp(function, (end,), (jnp.ones_like(end),))
    plain = value - polynomial
    nodes, weights = _quadrature(order)
    integral = sum(w * derivative(point + t * step) for t, w in zip(nodes, weights, strict=True)) * power
    eps = float(jnp.finfo(step.dtype).eps)
    # The sum of point and step is itself rounded, which moves the value by the slope times that.
    blur = 4 * eps * jnp.abs(end)
    slope = jnp.abs(slope) + jnp.abs(_derivative(_derivative(function))(point)) * blur
    # A value is rounded as the terms are that it is the sum of, and these may cancel.
    size = jnp.maximum(jnp.maximum(size, term_sizes(function, point)), term_sizes(function, end))
    rounding = _ROUNDINGS * eps * size + blur * slope
    return jnp.where(jnp.abs(plain - integral) > rounding, plain, integral)


def _derivative(function: Elementwise) -> Elementwise:
    return lambda z: jax.jvp(function, (z,), (jnp.ones_like(z),))[1]


def _quadrature(order: int) -> tuple[list[float], list[float]]:
    """Nodes and weights of the mean over (0, 1) with density (order + 1) (1 - t)^order."""
    import scipy.special

    nodes, weights = scipy.special.roots_jacobi(_NUM_NODES, order, 0)
    return ((1 + nodes) / 2).tolist(), (weights / np.sum(weights)).tolist()
