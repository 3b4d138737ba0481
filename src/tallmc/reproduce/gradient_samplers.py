"""The samplers without a test that papers compare with, from BlackJAX, where people find them."""

from collections.abc import Callable
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.sgmcmc.gradients import grad_estimator
from jaxtyping import Array, Real

import tallmc as tm
from tallmc.numerics.keys import as_key


def sgld(
    posterior: tm.Posterior, start: Any, step: float, batch: int, draws: int, seed: int, thin: int = 1
) -> np.ndarray:
    """Stochastic gradient Langevin dynamics: each step adds `step / 2` of the gradient and noise of variance `step`.

    Args:
        posterior: Of one position array.
        start: First position.
        step: The papers' alpha.
        batch: Rows of a gradient.
        draws: Steps.
        seed: Of batches and noise.
        thin: Of so many steps one is kept.
    """
    kernel = blackjax.sgld(_gradient(posterior))
    return _draws(kernel.step, posterior, start, (step / 2,), batch, draws, seed, thin)


def sghmc(
    posterior: tm.Posterior, start: Any, step: float, batch: int, draws: int, seed: int, thin: int = 1
) -> np.ndarray:
    """Stochastic gradient Hamiltonian dynamics, ten steps to a draw; arguments as of `sgld`."""
    kernel = blackjax.sghmc(_gradient(posterior), 10)
    return _draws(kernel.step, posterior, start, (step,), batch, draws, seed, thin)


def _gradient(posterior: tm.Posterior) -> Callable:
    inverse = 1.0 / float(posterior.temperature)

    def log_likelihood(position: Any, row: Any) -> Real[Array, ""]:
        return inverse * posterior.log_likelihood(position, row)

    return grad_estimator(posterior.log_prior, log_likelihood, posterior.num_rows)


def _draws(
    step: Callable, posterior: tm.Posterior, start: Any, sizes: tuple, batch: int, draws: int, seed: int, thin: int
) -> np.ndarray:
    """Positions after every `thin` steps, in one compiled loop."""

    @jax.jit
    def run(key: Array, position: Any, rows: Any) -> Any:
        def one(number: Any, state: Any) -> Any:
            key, position = state
            key_rows, key_step = jax.random.split(jax.random.fold_in(key, number))
            chosen = jax.random.randint(key_rows, (batch,), 0, posterior.num_rows)
            return key, step(key_step, position, jax.tree.map(lambda column: column[chosen], rows), *sizes)

        def kept(position: Any, key: Array) -> Any:
            _, position = jax.lax.fori_loop(0, thin, one, (key, position))
            return position, position

        return jax.lax.scan(kept, position, jax.random.split(key, draws // thin))[1]

    position = jnp.asarray(start, jnp.result_type(float))
    return np.asarray(run(as_key(seed), position, jax.tree.map(jnp.asarray, posterior.data)))
