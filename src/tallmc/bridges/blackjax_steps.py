"""`tm.as_blackjax`: a kernel as a pair of pure functions, as BlackJAX's users write their loops around."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Int, PyTree

from tallmc.control_variates import Taylor
from tallmc.kernel import Info, Kernel
from tallmc.posterior import Posterior, checks
from tallmc.posterior.unconstrained_start import unconstrained_start
from tallmc.run.chain import Problem, single_transition
from tallmc.setup.start import (
    Start,
    check_parts,
    feed_kinds,
    find_start,
    make_feed,
    needs_expansion,
    unconstrained_expansion,
    weights_of,
)


class ChainState(NamedTuple):
    """A chain between two steps.

    Args:
        position: Where it is, on the natural scale.
        rest: What the kernel keeps of it.
        time: Steps so far.
    """

    position: PyTree
    rest: PyTree
    time: Int[Array, ""]


class Steps(NamedTuple):
    """A sampling algorithm as BlackJAX has them.

    Args:
        init: `init(position, rng_key=None)` gives the state of a chain there.
        step: `step(rng_key, state)` gives the next state, and a `tm.Info` on the way there.
    """

    init: Callable[..., ChainState]
    step: Callable[[Array, ChainState], tuple[ChainState, Info]]


def as_blackjax(
    kernel: Kernel, posterior: Posterior, *, init: PyTree = None, control_variate: Taylor | None = None, seed: int = 0
) -> Steps:
    """A kernel as the pair `init` and `step`, for loops of your own under `jax.jit`, `jax.vmap` and `jax.lax.scan`.

    A step is one whole transition, by a key of its own; nothing is tuned. What `tm.sample` has tuned is taken over by
    passing a kernel with those steps. The other way round, `posterior.log_density` is a `logdensity_fn` for BlackJAX's
    own algorithms; with transforms take `posterior.unconstrained.log_density`.

    Args:
        kernel: How to move.
        posterior: What to draw from. Its rows are shuffled here, once, and put on the device.
        init: For kernels with an expansion, where the search for the mode begins; not needed for ready models.
        control_variate: `tm.Taylor()`, if rows are to say less; as in `tm.sample`.
        seed: Of the shuffle.

    Returns:
        The two functions.

    Example:
        >>> import jax, jax.numpy as jnp, tallmc as tm
        >>> posterior = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, jnp.linspace(-2.0, 2.0, 1000))
        >>> steps = tm.as_blackjax(tm.MetropolisHastings(tm.RandomWalk(0.05), tm.Exact()), posterior)
        >>> def one(state, key):
        ...     state, info = steps.step(key, state)
        ...     return state, state.position
        >>> keys = jax.random.split(jax.random.key(0), 100)
        >>> jax.lax.scan(one, steps.init(0.0), keys)[1].shape
        (100,)
    """
    if not isinstance(kernel, Kernel):
        swapped = "; the arguments may be swapped" if isinstance(posterior, Kernel) else ""
        raise ValueError(
            "kernel must be a Kernel such as tm.MetropolisHastings(proposal, rule), not "
            f"{type(kernel).__name__}{swapped}"
        )
    if not isinstance(posterior, Posterior):
        raise ValueError(f"posterior must be a tm.Posterior, not {type(posterior).__name__}")
    checks.check_data(posterior.data)
    problem = _problem(kernel, posterior, init, control_variate, seed)

    def begin(position: PyTree, rng_key: Array | None = None) -> ChainState:
        del rng_key  # BlackJAX passes one to algorithms that want it
        traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(position))
        if not traced:
            position = _checked(problem, posterior, position)
        natural = jax.tree.map(jnp.asarray, position)
        return ChainState(natural, problem.kernel.init(posterior.unconstrain(natural)), jnp.int32(0))

    def step(rng_key: Array, state: ChainState) -> tuple[ChainState, Info]:
        rest, info = single_transition(problem, state.rest, rng_key, state.time)
        return ChainState(posterior.constrain(problem.kernel.position(rest)), rest, state.time + 1), info

    return Steps(begin, step)


def _problem(kernel: Kernel, given: Posterior, init: PyTree, control_variate: Taylor | None, seed: int) -> Problem:
    posterior = given.unconstrained
    start = Start(posterior.model, kernel, None, 0)
    if control_variate is not None or needs_expansion(kernel):
        begin = unconstrained_start(given, init, 1)
        expansion = unconstrained_expansion(given, control_variate)
        start = find_start(posterior, kernel, begin, expansion, 1, progress=False)
    prepared = kernel.prepared_for(start.model, 0)
    kinds = feed_kinds(prepared, start.feed)
    source = make_feed(
        prepared, kinds, posterior.rows, start.model, start.weights or weights_of(start.controlled, kinds)
    )
    return Problem(prepared.fed_by(source), start.model, source, source.arrange(posterior.rows, seed), np.int32(0))


def _checked(problem: Problem, posterior: Posterior, position: PyTree) -> PyTree:
    """A position whose log density is finite, and that the kernel can move."""
    positions: Any = checks.one_position_per_chain(posterior.natural, position, 1, real_only=True)
    one = jax.tree.map(lambda leaf: leaf[0], positions)
    unconstrained = jax.tree.map(lambda leaf: np.asarray(leaf)[None], posterior.unconstrain(one))
    checks.check_start(posterior.unconstrained, unconstrained)
    check_parts(problem.kernel, feed_kinds(problem.kernel, None), unconstrained, problem.model)
    return one
