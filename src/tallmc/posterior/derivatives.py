"""Which derivatives a posterior has: asked of its shapes, so that nothing compiles, and answered in one line."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tallmc.numerics.flat import flatten
from tallmc.posterior.operations import operations_on
from tallmc.posterior.posterior import Posterior

# Operations that lack a derivative of some kind, by what users wrote.
_WRITTEN = {
    "while": "jax.lax.while_loop (or a fori_loop whose length is not known beforehand)",
    "pure_callback": "jax.pure_callback",
    "io_callback": "jax.experimental.io_callback",
}
_OWN_REVERSE = ("custom_vjp_call", "custom_vjp_call_jaxpr")
_WITHOUT_REVERSE = ("while", "pure_callback", "io_callback")
_WITHOUT_FORWARD = (*_OWN_REVERSE, "pure_callback", "io_callback")
_MOST_QUOTED = 160  # characters of what JAX says, where no operation is known to be the reason


class Derivatives(NamedTuple):
    """What stands in the way of derivatives; None where there is nothing.

    Args:
        reverse: Of gradients, which the search for a mode and NUTS follow.
        forward: Of derivatives along a direction, which curvature and Taylor expansions are made of.
    """

    reverse: str | None
    forward: str | None

    @property
    def some(self) -> str | None:
        """One of them, if there is any."""
        return self.reverse or self.forward


def derivative_trouble(posterior: Posterior, position: PyTree) -> Derivatives:
    """Whether likelihood and prior can be differentiated both ways, and if not, which operation is to blame.

    Args:
        posterior: Whose functions have been found to take such a position.
        position: For its shapes.

    Example:
        >>> slow = lambda place, row: jax.lax.while_loop(lambda x: x < 0, lambda x: x + 1.0, place * row)
        >>> derivative_trouble(Posterior(slow, jnp.ones(3)), jnp.ones(())).forward is None
        True
    """
    flat, unravel = flatten(position)
    like = jax.ShapeDtypeStruct(flat.shape, flat.dtype)
    reverse = forward = None
    if not jnp.issubdtype(flat.dtype, jnp.floating):
        return Derivatives(None, None)  # that it is complex is the trouble, and said by who cannot move such numbers
    functions: tuple[tuple[str, Callable[..., Any], tuple[PyTree, ...]], ...] = (
        ("log_likelihood", posterior.log_likelihood, (posterior.rows.like,)),
        ("log_prior", posterior.log_prior, ()),
    )
    for name, function, others in functions:

        def of_flat(flat: Any, *others: PyTree, function: Callable[..., Any] = function) -> Any:
            return jnp.asarray(function(unravel(flat), *others), flat.dtype)

        def along(flat: Any, *others: PyTree, of_flat: Callable[..., Any] = of_flat) -> Any:
            return jax.jvp(lambda at: of_flat(at, *others), (flat,), (flat,))

        reverse = reverse or _trouble(name, "gradient", jax.grad(of_flat), of_flat, _WITHOUT_REVERSE, like, *others)
        forward = forward or _trouble(name, "second derivatives", along, of_flat, _WITHOUT_FORWARD, like, *others)
    return Derivatives(reverse, forward)


def require_derivatives(posterior: Posterior, position: PyTree, wanted_by: str, *, forward: bool = True) -> None:
    """Raises `ValueError` of one line if a posterior lacks derivatives, which names what still works.

    Args:
        posterior: As for `derivative_trouble`.
        position: Likewise.
        wanted_by: Who wants derivatives, as a user calls it.
        forward: Whether gradients alone are not enough.
    """
    found = derivative_trouble(posterior, position)
    if (trouble := found.some if forward else found.reverse) is not None:
        raise ValueError(
            f"{wanted_by} needs derivatives, but {trouble}. Without derivatives there is still "
            "tm.MetropolisHastings(tm.RandomWalk(scale), rule), with init=..."
        )


def _trouble(
    name: str,
    kind: str,
    derivative: Callable[..., Any],
    function: Callable[..., Any],
    suspects: tuple[str, ...],
    *arguments: PyTree,
) -> str | None:
    position, *others = arguments
    try:
        jax.eval_shape(derivative, *arguments)
    except Exception as error:  # whatever JAX raises for want of a rule, and whatever a rule of the caller's raises
        reason = _named(function, suspects, position, *others) or f"because JAX says: {_short(error)}"
        return f"{name} has no {kind}, {reason}"
    # A derivative along a direction of such a function can be traced, and fails only when it is compiled.
    own = [part for part in suspects if part in _OWN_REVERSE]
    reason = _named(function, tuple(own), position, *others) if own else None
    return None if reason is None else f"{name} has no {kind}, {reason}"


def _named(function: Callable[..., Any], suspects: tuple[str, ...], position: PyTree, *others: PyTree) -> str | None:
    """The first of the operations under suspicion, and what to do about it."""
    for operation in operations_on(function, position, *others):
        name = operation.name
        if name not in suspects:
            continue
        if name in _OWN_REVERSE:
            return f"because it calls {_function_of(operation.equation)}, a jax.custom_vjp; make it a jax.custom_jvp"
        cure = "use jax.lax.scan, or a fori_loop of a fixed length" if name == "while" else "write it with jax.numpy"
        return f"because it uses {_WRITTEN[name]}; {cure}, or give it a rule with jax.custom_jvp"
    return None


def _short(error: Exception) -> str:
    said = " ".join(str(error).split())
    return said if len(said) <= _MOST_QUOTED else f"{said[:_MOST_QUOTED]}..."


def _function_of(equation: Any) -> str:
    """The name that a function with a rule of its own was given."""
    body = equation.params.get("call_jaxpr", equation.params.get("fun_jaxpr"))
    info = getattr(getattr(body, "jaxpr", body), "debug_info", None)
    return str(getattr(info, "func_src_info", None) or "a function").split(" at ")[0]
