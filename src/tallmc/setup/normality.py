"""Is the mean of a minibatch normal? Asked before a run."""

import dataclasses
import warnings

import jax
import numpy as np
from jaxtyping import Array, PyTree

from tallmc.acceptance.normality import NormalityWarning, alternatives
from tallmc.diagnostics.moves import Moves, move_moments, moves_of
from tallmc.metropolis import MetropolisHastings
from tallmc.posterior import Posterior
from tallmc.posterior.passes import log_ratio_blocks
from tallmc.run import ConvergenceWarning
from tallmc.setup.sample import sample

_NUM_BATCHES = 4000
_TOLERATED = 0.05  # 2,000 times beyond what 4,000 normal batches show by chance
_WORST_MOVES = 4
_NUMBERS_AT_ONCE = 2**22


@dataclasses.dataclass(frozen=True)
class NormalityReport:
    """How normal the mean log ratio of a batch is.

    Args:
        rule: Name of the rule that was asked about.
        rows: Rows that nine of ten tests of a trial run read at least.
        skewness: Largest skewness of the rows' log ratios among the moves tried, in size.
        kurtosis: Largest excess kurtosis among them.
        distance: Largest distance between the distribution of a batch's t-statistic and Student's.
        warnings: What to do about it; empty if all is well.
    """

    rule: str
    rows: int
    skewness: float
    kurtosis: float
    distance: float
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"log ratios of rows: skewness up to {self.skewness:.3g}, excess kurtosis up to {self.kurtosis:.3g}",
            f"t-statistic of {self.rows} rows: {self.distance:.3f} from Student's distribution (at most {_TOLERATED})",
        ]
        return "\n".join([*lines, *(self.warnings or (f"nothing here speaks against {self.rule}",))])


def check_normality(
    posterior: Posterior,
    kernel: MetropolisHastings,
    *,
    init: PyTree = None,
    num_moves: int = 50,
    rng_key: int | Array = 0,
) -> NormalityReport:
    """Checks, before a run, the assumption behind a rule: that the mean log ratio of a few rows is normal.

    A short trial run gives moves. All rows give each move's true skewness and kurtosis. For the worst of them
    thousands of batches, as small as those the rule decides from, show how their t-statistic is really distributed.
    Rare features and heavy tails make it far from Student's, and the rule too sure of itself.

    Args:
        posterior: What would be sampled.
        kernel: How; its rule decides how many rows are looked at.
        init: Where to start, as in `tm.sample`.
        num_moves: Moves to look at.
        rng_key: Int or JAX key.

    Returns:
        The report. Its warnings are also raised as `NormalityWarning`.

    Example:
        >>> import jax.numpy as jnp, tallmc as tm
        >>> rows = jnp.linspace(-2.0, 2.0, 10_000)
        >>> posterior = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, rows, temperature=1000.0)
        >>> kernel = tm.MetropolisHastings(tm.RandomWalk(0.5), tm.MHMinibatch())
        >>> tm.check_normality(posterior, kernel, init=0.0).warnings
        ()
    """
    if not isinstance(kernel, MetropolisHastings):
        raise ValueError(f"check_normality needs a MetropolisHastings kernel, not {type(kernel).__name__}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NormalityWarning)  # the trial run would say the same in other words
        warnings.simplefilter("ignore", ConvergenceWarning)  # and it is short
        run = sample(
            posterior,
            kernel,
            init=init,
            num_samples=num_moves,
            num_warmup=4 * num_moves,
            num_chains=1,
            rng_key=rng_key,
            progress=False,
        )
    moves = moves_of(run, num_moves, rng_key)
    moments = move_moments(posterior.model, posterior.rows, moves)
    name, rows = type(kernel.rule).__name__, int(np.quantile(run.stats.get("test_rows", run.stats["rows"]), 0.1))
    worst = np.argsort(-moments.kurtosis)[:_WORST_MOVES]
    few = Moves(*(jax.tree.map(lambda leaf: leaf[worst], part) for part in moves))
    values = np.concatenate(list(log_ratio_blocks(posterior.model, posterior.rows, few.position, few.proposed)), axis=1)
    distance = max(_distance_from_student(line, rows) for line in values)
    report = NormalityReport(
        rule=name,
        rows=rows,
        skewness=float(np.max(np.abs(moments.skewness))),
        kurtosis=float(np.max(moments.kurtosis)),
        distance=distance,
        warnings=_warnings(name, rows, distance) if kernel.rule.promise.trusts_normality else (),
    )
    for warning in report.warnings:
        warnings.warn(warning, NormalityWarning, stacklevel=2)
    return report


def _warnings(rule: str, rows: int, distance: float) -> tuple[str, ...]:
    if distance <= _TOLERATED:
        return ()
    return (
        f"{rule} takes the mean of {rows} rows for normal, but here its t-statistic is {distance:.2f} away "
        f"from Student's distribution (rare features or heavy tails). {alternatives(rule)}",
    )


def _distance_from_student(values: np.ndarray, rows: int) -> float:
    """Kolmogorov distance of the t-statistic of random batches from what normal rows would give."""
    if rows >= len(values) or rows < 2:
        return 0.0
    from scipy import stats

    generator, centre = np.random.default_rng(0), values.mean()
    gap, spread = np.empty(_NUM_BATCHES), np.empty(_NUM_BATCHES)
    at_once = max(1, _NUMBERS_AT_ONCE // rows)
    for first in range(0, _NUM_BATCHES, at_once):
        some = slice(first, min(first + at_once, _NUM_BATCHES))
        batches = values[generator.integers(0, len(values), (some.stop - first, rows))]
        gap[some] = batches.mean(axis=1) - centre
        spread[some] = batches.std(axis=1, ddof=1) / np.sqrt(rows)
    # A batch whose rows are all alike is infinitely sure of itself.
    statistic = np.divide(gap, spread, out=np.copysign(np.inf, gap), where=spread > 0)
    return float(stats.kstest(statistic, stats.t(rows - 1).cdf).statistic)
