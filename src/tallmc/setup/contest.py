"""Which way of moving gives most effective draws for the time of the whole call.

Times come from what is counted (rows, gradients, leapfrog steps, programs to compile) and from constants that are
recorded below, never from a clock: the same call must give the same draws, on a busy machine too.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PyTree

from tallmc.acceptance import AcceptanceRule
from tallmc.control_variates import Controlled
from tallmc.feed import Feed, RowWeights
from tallmc.kernel import Kernel
from tallmc.metropolis import MetropolisHastings
from tallmc.posterior import Model

# Seconds on one of two CPU cores, measured and rounded. Other machines differ, but much alike in all of these: what is
# compared are ratios. Tests of all rows took 3 to 20 nanoseconds a row at each end of a step (seven likelihoods, 33 to
# 134 operations), gradients of NUTS twice that; `MHMinibatch` on an expansion 230 a row (20 columns).
_OPERATION = 1e-10  # of a likelihood, for one row among thousands that are read in their order
_GATHERED = 2e-8  # to fetch a row from anywhere
_FEW = 30  # by so much an operation is dearer where rows come a few at a time, and an expansion is subtracted
_STEP = 3e-6  # a transition, besides rows and trajectories
_LEAPFROG = 1e-6  # a step of a trajectory on prior + expansion, besides its products with matrices
_PRODUCT = 3e-10  # for each number of a matrix
_CORES = 2
# Seconds to compile what a way of moving needs, beyond what all need.
WALK, TRAJECTORIES, NO_U_TURN = 1.5, 2.5, 3.0

_LOOKED_UP = 100.0  # operations that looking something up by its number takes as long as
_DEAR = {
    "exp",
    "exp2",
    "log",
    "log1p",
    "expm1",
    "tanh",
    "logistic",
    "erf",
    "erfc",
    "pow",
    "sin",
    "cos",
    "atan2",
    "sqrt",
}
_VERY_DEAR = {"lgamma", "digamma", "erf_inv", "igamma", "igammac", "regularized_incomplete_beta", "cholesky"}
_LOOKUPS = {"gather", "dynamic_slice"}

WALK_EFFECTIVE = 0.33  # draws that a tuned random walk makes of each, times the number of coordinates
# Gradients that NUTS takes for a draw, and the effective draws that it makes of one in its worst coordinate. Of the
# posteriors of `benchmarks range` most lie between 5 and 30, and between 0.3 and 1.
_NUTS_GRADIENTS, NUTS_EFFECTIVE = 15.0, 0.6


Foreseen = Callable[[AcceptanceRule], float]


class Way(NamedTuple):
    """A way of moving.

    Args:
        kernel: That moves so.
        feed: How rows are drawn for it; None: as it likes best.
        controlled: The control variate, if it needs one.
        weights: How often rows are drawn, if by weight.
        starts: Where its chains begin, flat.
        effective: Effective draws that a transition gives, as foreseen.
        seconds: That a transition takes, as foreseen.
        once: Seconds for what is compiled.
        why: What was chosen and why, in words.
        doubts: What the caller must be warned of.
    """

    kernel: Kernel
    feed: type[Feed] | None
    controlled: Controlled | None
    weights: RowWeights | None
    starts: Float[np.ndarray, "chains d"]
    effective: float
    seconds: float
    once: float
    why: tuple[str, ...]
    doubts: tuple[str, ...] = ()

    def rate(self, num_transitions: int, num_draws: int) -> float:
        """Effective draws for each second of the call.

        Args:
            num_transitions: Of all chains, warm-up included.
            num_draws: Of all chains.
        """
        return self.effective * num_draws / (self.once + self.seconds * num_transitions / _CORES)

    @property
    def label(self) -> str:
        """What it is called beside others."""
        part = self.kernel
        return (
            f"{type(part.proposal).__name__} and {part.label}" if isinstance(part, MetropolisHastings) else part.label
        )


def best(ways: Sequence[Way], num_transitions: int, num_draws: int) -> Way:
    """The way with the most effective draws a second; the first of equals."""
    return max(ways, key=lambda way: way.rate(num_transitions, num_draws))


def metropolis_acceptance(misfit: float, correlation: float = 0.0) -> float:
    """Chance that Metropolis' test accepts a step that leaves what proposals fit as it is.

    What proposals miss is taken for normal.

    Args:
        misfit: Standard deviation of what proposals miss of the log density.
        correlation: Of that, at both ends of a step.

    Example:
        >>> round(metropolis_acceptance(1.0), 2)
        0.48
    """
    return _mean_chance(lambda ratio: np.exp(np.minimum(ratio, 0)), misfit, correlation)


def barker_acceptance(misfit: float, correlation: float = 0.0) -> float:
    """The same for Barker's test.

    Args:
        misfit: As above.
        correlation: As above.

    Example:
        >>> round(barker_acceptance(0.0), 2)
        0.5
    """
    return _mean_chance(lambda ratio: 1 / (1 + np.exp(-ratio)), misfit, correlation)


def _mean_chance(chance: Callable[[np.ndarray], np.ndarray], misfit: float, correlation: float) -> float:
    if not math.isfinite(misfit):
        return 0.0
    # At rest a log ratio has half its variance as its mean, negative.
    variance = 2 * min(misfit, 10.0) ** 2 * (1 - correlation)
    places = np.linspace(-8, 8, 401)
    weights = np.exp(-(places**2) / 2)
    return float(weights @ chance(math.sqrt(variance) * places - variance / 2) / weights.sum())


def effective_draws(accepted: float, correlation: float) -> float:
    """For each draw, if steps have this correlation and this chance: for means and squares, whichever are fewer.

    Example:
        >>> effective_draws(1.0, 0.0)
        1.0
    """
    r = 1 - accepted * (1 - correlation)
    return float(min((1 - r) / (1 + r), (1 - r * r) / (1 + r * r))) if accepted > 0 else 0.0


def seconds_of_a_row(model: Model, like: PyTree, position: PyTree) -> float:
    """To work out the log likelihood of one row among many, from the operations that it is made of.

    Args:
        model: With the likelihood.
        like: Shapes of a row.
        position: A position.
    """
    closed = jax.make_jaxpr(model.log_likelihood)(position, like)
    return max(_operations(closed.jaxpr), 10) * _OPERATION


def _operations(jaxpr: Any) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        size = sum(math.prod(getattr(variable.aval, "shape", ())) for variable in equation.outvars)
        inner = [found for value in equation.params.values() for found in _inner(value)]
        if inner:
            total += sum(_operations(one) for one in inner) * int(equation.params.get("length", 1))
        elif name == "dot_general":
            (axes, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2 * size * math.prod(shape[axis] for axis in axes)
        elif name in _LOOKUPS:
            total += _LOOKED_UP + size
        else:
            total += size * (40 if name in _VERY_DEAR else 10 if name in _DEAR else 1)
    return total


def _inner(value: Any) -> list[Any]:
    """Programs inside an operation."""
    values = value if isinstance(value, tuple | list) else (value,)
    found = (getattr(one, "jaxpr", one) for one in values)
    return [one for one in found if hasattr(one, "eqns")]


def pass_seconds(row_seconds: float, num_rows: int) -> float:
    """Of a transition that tests a step on all rows, at both ends."""
    return _STEP + 2 * row_seconds * num_rows


def few_rows_seconds(row_seconds: float, rows: float) -> float:
    """Of a transition whose test takes a few rows."""
    return _STEP + rows * (_GATHERED + _FEW * row_seconds)


def nuts_seconds(row_seconds: float, num_rows: int) -> float:
    """Of a transition of NUTS: a gradient costs as much as a test."""
    return _NUTS_GRADIENTS * (4 * _LEAPFROG + pass_seconds(row_seconds, num_rows))


def walk_seconds(size: int) -> float:
    """Of a proposal that multiplies by the normal's matrices, and of the expansion's change."""
    return 4 * _PRODUCT * size * size


def trajectory_seconds(num_steps: int, size: int) -> float:
    """Of a trajectory on prior + expansion."""
    return num_steps * (_LEAPFROG + walk_seconds(size))
