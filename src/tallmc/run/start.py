"""Chains before their first round, and the program that will move them, compiled at the same time."""

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax
from jaxtyping import Array, PyTree

from tallmc.numerics.programs import carried_over, program
from tallmc.posterior.spread import everywhere, mesh_of
from tallmc.run.chain import Chain, Problem, placed, start_chain
from tallmc.run.drivers import Driver


def start_chains(
    problem: Problem, keys: Array, positions: PyTree, driver: Driver, others: Sequence[Callable[[], None]] = ()
) -> Chain:
    """Stacked chains, each at a position of its own and with a key of its own.

    The driver compiles its loop at the same time. Compiling is most of what a first call waits for, and a compiler can
    do several things at once.

    Args:
        problem: What does not change while chains move.
        keys: One a chain.
        positions: One a chain.
        driver: Whose loop is compiled.
        others: What else is to be compiled while the loop is.
    """
    problem = placed(problem)
    keys, positions = everywhere((keys, positions), mesh_of(problem.stage))
    chains = _start_chains.like(problem, keys, positions)
    tasks = [lambda: driver.prepare(problem, chains), *others]
    # Threads that silence warnings for a while, as JAX may, can leave them silenced; this context undoes that.
    with warnings.catch_warnings(), ThreadPoolExecutor(2) as pool:
        ahead = [pool.submit(carried_over(task)) for task in tasks]
        started = _start_chains(problem, keys, positions)
        for task in ahead:
            task.result()
    return started


@program
def _start_chains(problem: Problem, keys: Array, positions: PyTree) -> Chain:
    return jax.vmap(lambda key, position: start_chain(problem, key, position))(keys, positions)
