"""Draws of a logistic posterior by Hamiltonian Monte Carlo on all rows, many chains at once.

Slow and exact: the judge where a posterior is too far from normal for importance sampling. It shares the mode and the
curvature with what it judges, which only set its pace, and nothing else.
"""

import jax
import jax.numpy as jnp
import numpy as np

NUM_CHAINS, WARMUP = 128, 20
STEP, LEAPS = 0.3, 5  # about a quarter of a turn where the posterior is normal and one wide


def draws(X: np.ndarray, y: np.ndarray, mode: np.ndarray, factor: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Of each chain, `count` positions, shape chains x draws x coordinates; prior precision 1, temperature 1.

    Args:
        X: Columns.
        y: Outcomes.
        mode: Of the posterior.
        factor: Cholesky factor of about its covariance; coordinates are whitened with it.
        count: Draws of each chain that are kept.
        seed: Of the random numbers.
    """
    columns = jnp.asarray(np.asarray(X, float) @ factor, jnp.float32)
    at_mode = jnp.asarray(np.asarray(X, float) @ mode, jnp.float32)
    sign = 1 - 2 * jnp.asarray(y, jnp.float32)
    centre, stretch = jnp.asarray(mode, jnp.float32), jnp.asarray(factor, jnp.float32)

    def log_density(white, columns, at_mode, sign):
        """Against that of the mode."""
        rise = jax.nn.softplus(sign * (at_mode + white @ columns.T)) - jax.nn.softplus(sign * at_mode)
        step = white @ stretch.T
        return -jnp.sum(rise, axis=1) - jnp.sum(step * (step + 2 * centre), axis=1) / 2

    def with_slope(white, data):
        value, pull_back = jax.vjp(lambda w: log_density(w, *data), white)
        return value, pull_back(jnp.ones(NUM_CHAINS))[0]

    @jax.jit
    def transition(key, white, value, slope, data):
        key_momentum, key_step, key_accept = jax.random.split(key, 3)
        momentum = jax.random.normal(key_momentum, white.shape)
        step = STEP * jax.random.uniform(key_step, minval=0.8, maxval=1.2)

        def leap(_, state):
            white, _, slope, momentum = state
            momentum = momentum + step / 2 * slope
            white = white + step * momentum
            value, slope = with_slope(white, data)
            return white, value, slope, momentum + step / 2 * slope

        new = jax.lax.fori_loop(0, LEAPS, leap, (white, value, slope, momentum))
        gain = new[1] - value - jnp.sum(new[3] ** 2 - momentum**2, axis=1) / 2
        accept = jnp.log(jax.random.uniform(key_accept, (NUM_CHAINS,))) < gain
        wide = accept[:, None]
        return jnp.where(wide, new[0], white), jnp.where(accept, new[1], value), jnp.where(wide, new[2], slope)

    key, data = jax.random.key(seed), (columns, at_mode, sign)
    white = jax.random.normal(key, (NUM_CHAINS, len(mode)))
    with jax.default_matmul_precision("highest"):
        state, kept = (white, *jax.jit(with_slope)(white, data)), []
        for index in range(WARMUP + count):
            state = transition(jax.random.fold_in(key, index + 1), *state, data)
            kept.append(np.asarray(state[0], float))
    return np.stack(kept[WARMUP:], axis=1) @ factor.T + mode
