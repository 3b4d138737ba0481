"""Bias against variance: the epsilon that makes an estimate best, and one that follows the best as a run goes on."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, Real

from tallmc.design.acceptance_error import acceptance_error
from tallmc.diagnostics.moves import Moves, move_moments, moves_of
from tallmc.numerics import schedule
from tallmc.numerics.schedule import Schedule
from tallmc.posterior import Posterior
from tallmc.run import Run
from tallmc.run.mixing import ess_of_mean

# From an exact test to one that always stops at its first look. Neighbours differ by a factor of 1.6; near its least
# the risk is so flat that half of that on either side hardly shows.
_EPSILONS = (0.0, *np.geomspace(1e-5, 0.5, 24))
_NUM_MOVES = 1000
_STRETCHES = 200  # of the run, in each of which epsilon stays: each 4 % longer than the one before, in a run of 10,000


@dataclasses.dataclass(frozen=True)
class Risk:
    """What an estimate of a posterior mean costs and misses; arrays have one entry for each epsilon.

    Args:
        epsilon: Error allowed to one look.
        bias: Of the long-run average of the draws.
        data_fraction: Expected share of the rows that a test reads.
        variance: Of an average over n draws, times n: the function's own, times its autocorrelation time.
        num_rows: Rows of the data.
    """

    epsilon: Float[np.ndarray, " k"]
    bias: Float[np.ndarray, " k"]
    data_fraction: Float[np.ndarray, " k"]
    variance: float
    num_rows: int

    def after(self, rows: float) -> Float[np.ndarray, " k"]:
        """Expected squared error of the average once so many rows have been read by all chains together."""
        return self.bias**2 + self.variance * self.data_fraction * self.num_rows / rows

    def best(self, rows: float) -> float:
        """The constant epsilon whose average is best after so many rows."""
        return float(self.epsilon[np.argmin(self.after(rows))])


def risk(
    posterior: Posterior,
    trial: Run,
    function: Callable[[PyTree], Real[Array, ""]],
    *,
    batch_size: int = 500,
    boundary: float = 0.5,
    epsilons: Sequence[float] = _EPSILONS,
    rng_key: int | Array = 0,
) -> Risk:
    """What `AustereMH` would make of an estimate of a posterior mean, for many epsilons, from one trial run.

    The risk of an average is its squared bias and its variance (Korattikara et al., 2014, section 3). To first order
    in the error D of the acceptance probability, a test moves the mean of f by E[D(x, x') (F(x') - F(x))] over the
    exact chain's proposals, F being what f is expected to add up to along the chain, above its mean. Where what f
    remembers decays by one rate, F = f (time + 1) / 2 with its autocorrelation time. For the squared deviation in a
    normal posterior this gave a bias 10 % too small at an epsilon of 0.05 and 17 % at 0.2.

    Args:
        posterior: What will be sampled; every row is read once.
        trial: A run on it, with the proposal that will be used, and a test that errs little: draws should be those
            of the posterior.
        function: Of a position, whose posterior mean is wanted.
        batch_size: Rows between two looks of the rule.
        boundary: Exponent of Wang and Tsiatis of the rule.
        epsilons: Candidates.
        rng_key: For the moves.

    Returns:
        Bias, variance and cost of each candidate.
    """
    model = trial.session.model if trial.session.model.expanded else posterior.model
    moves = moves_of(trial, _NUM_MOVES, rng_key)
    found = move_moments(model, posterior.rows, moves)
    kept = np.isfinite(found.log_ratio) & np.isfinite(found.spread)
    if not kept.any():
        raise ValueError("no move has a finite log ratio over all rows; use smaller steps")
    change = _change(posterior, function, moves)[kept]
    draws = _values(posterior, function, trial.unconstrained_samples, axes=2)
    effective = ess_of_mean(draws)
    if not (np.isfinite(effective) and effective > 0 and np.ptp(draws) > 0):
        raise ValueError("the trial run is too short, or the function is constant; draw more")
    time = max(draws.size / effective, 1.0)
    share = min(1.0, batch_size / posterior.num_rows)
    designs = [acceptance_error(found.log_ratio[kept], found.spread[kept], share, e, boundary) for e in epsilons]
    # Moves that the prior or some row rules out change nothing, but they are proposals too.
    tried = len(kept) / max(np.count_nonzero(kept), 1)
    bias = [(time + 1) / 2 * float(np.mean(design.error * change)) / tried for design in designs]
    fractions = [float(np.mean(design.data_fraction)) for design in designs]
    variance = float(np.var(draws)) * time
    return Risk(np.asarray(epsilons, float), np.asarray(bias), np.asarray(fractions), variance, posterior.num_rows)


def least_risk(estimated: Risk, num_samples: int, num_chains: int = 4, *, num_warmup: int = 0) -> Schedule:
    """An epsilon that keeps the risk of the running average as low as possible at every moment of a run.

    The paper leaves this to future work (Korattikara et al., 2014, section 7). In each stretch of the run the epsilon
    is taken that lowers the risk of the average so far by most for each row read: a rough test at first, when variance
    is all there is, and a finer one as bias would be what is left. It is a function of time alone, fixed before the
    run: what chains see never changes it, so nothing is adapted. The chain's kernel changes with time, though, and its
    error diminishes: for a run that is to be stopped at any time. Of a run whose length is known the best constant,
    `estimated.best(rows)`, does better at its end.

    Args:
        estimated: What `risk` found.
        num_samples: Draws of each chain that it is worked out for; after those the last epsilon stays.
        num_chains: Chains whose draws are averaged.
        num_warmup: Transitions before the first draw, made with the first epsilon.

    Returns:
        The schedule, to be passed as `epsilon`.
    """
    for name, value in (("num_samples", num_samples), ("num_chains", num_chains)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    edges = np.unique(np.geomspace(1, num_samples, _STRETCHES).astype(int))
    variance, total = estimated.variance / num_chains, 0.0  # of one draw of each chain; sum of the biases so far
    values: dict[int, float] = {}
    for start, end in zip(np.append(0, edges[:-1]).tolist(), edges.tolist(), strict=True):
        # The average after `end` draws, if this stretch is made with each of the epsilons ...
        bias = (total + (end - start) * estimated.bias) / end
        before = np.inf if start == 0 else (total / start) ** 2 + variance / start
        gain = before - (bias**2 + variance / end)
        # ... and what that gains for each row. The first draw has nothing to be compared with: it is made most cheaply.
        pick = int(np.argmin(estimated.data_fraction) if start == 0 else np.argmax(gain / estimated.data_fraction))
        total += (end - start) * estimated.bias[pick]
        values[start + (num_warmup if start else 0)] = float(estimated.epsilon[pick])
    return schedule.steps(_without_repeats(values))


def _without_repeats(values: dict[int, float]) -> dict[int, float]:
    kept, last = {}, None
    for time in sorted(values):
        if values[time] != last:
            kept[time] = last = values[time]
    return kept


def _change(posterior: Posterior, function: Callable, moves: Moves) -> Float[np.ndarray, " moves"]:
    before, after = (_values(posterior, function, ends, axes=1) for ends in (moves.position, moves.proposed))
    return after - before


def _values(posterior: Posterior, function: Callable, positions: PyTree, axes: int) -> Float[np.ndarray, "..."]:
    """The function at many positions of unconstrained numbers, with so many leading axes."""
    at: Any = lambda position: jnp.asarray(function(posterior.constrain(position)))  # noqa: E731
    for _ in range(axes):
        at = jax.vmap(at)
    values = np.asarray(at(jax.tree.map(jnp.asarray, positions)), float)
    if values.ndim != axes:
        raise ValueError(f"function must give one number for a position, not an array of shape {values.shape[axes:]}")
    return values
