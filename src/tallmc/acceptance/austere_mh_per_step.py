"""The sequential t-test whose settings are chosen anew in every step, from all rows."""

import functools
import math
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Real

from tallmc.acceptance.austere_mh import SequentialEvidence, normal_quantile
from tallmc.acceptance.contract import AcceptanceRule, Guarantee, Promise, Question, Verdict, check_batch_size
from tallmc.acceptance.formulas import METROPOLIS
from tallmc.acceptance.sequential_test import check_boundary, check_epsilon, sequential_test
from tallmc.feed import Needs, Window
from tallmc.posterior import Model

_EPSILONS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
_DRIFTS = np.sinh(np.linspace(0.0, np.arcsinh(1000.0), 128))


class RaceEvidence(eqx.Module):
    """All candidate tests at once on the same rows: where each stopped, and what it decided."""

    shared: SequentialEvidence
    windows: Int[Array, ""]
    test_rows: Real[Array, " candidates"]  # zero until a candidate stops
    accept: Bool[Array, " candidates"]


class AustereMHPerStep(AcceptanceRule[RaceEvidence]):
    """`AustereMH` with the best (batch size, epsilon) for each step, known from all rows (Korattikara et al., 2014).

    The error of a sequential test depends on the standardised mean log ratio over all rows. This rule works that
    number out, takes the candidate that reads least among those whose error is at most `max_error`, and decides as
    that candidate does. It therefore reads every row in every test, as `run.stats["rows"]` says; what the chosen test
    would have read is in `run.stats["test_rows"]`. A yardstick for what a sequential test could save, not a way to
    save.

    Args:
        max_error: Chance of a wrong decision, at most, in (0, 0.5).
        batch_size: Candidates for the number of rows between two looks, such as `range(50, 501, 50)`, which are those
            of Seita et al. (2018, appendix B.2.1). Of a single number also 2, 4, 8, ... times as many are candidates.
        epsilons: Candidates for the error of one look.
        boundary: Exponent of Wang and Tsiatis, as in `AustereMH`.

    Example:
        >>> AustereMHPerStep(max_error=0.01).promise.guarantee.value
        'bounded'
        >>> AustereMHPerStep(max_error=0.05, batch_size=range(100, 501, 50)).needs.batch_size
        50
    """

    max_error: float = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)  # of a window: every candidate is a whole number of windows
    batch_sizes: tuple[int, ...] | None = eqx.field(static=True)
    epsilons: tuple[float, ...] = eqx.field(static=True)
    boundary: float = eqx.field(static=True)

    def __init__(
        self,
        max_error: float,
        batch_size: int | Sequence[int] = 500,
        epsilons: Sequence[float] = _EPSILONS,
        boundary: float = 0.5,
    ):
        several = isinstance(batch_size, Sequence | np.ndarray)
        batch_sizes = list(batch_size) if several else [batch_size]
        if not batch_sizes:
            raise ValueError("batch_size is empty; pass one number, or a few candidates such as range(50, 501, 50)")
        for size in batch_sizes:
            check_batch_size(size)
        check_boundary(boundary)
        if not 0 < max_error < 0.5:
            raise ValueError(f"max_error must lie between 0 and 0.5, got {max_error}; it is the error of one decision")
        for epsilon in epsilons:
            check_epsilon(epsilon)
        if not epsilons:
            raise ValueError("epsilons is empty; pass a few candidates such as (0.01, 0.05, 0.1)")
        self.batch_size = math.gcd(*(int(size) for size in batch_sizes))
        self.batch_sizes = tuple(sorted({int(size) for size in batch_sizes})) if several else None
        self.max_error, self.boundary = float(max_error), float(boundary)
        self.epsilons = tuple(float(epsilon) for epsilon in epsilons)

    @property
    def promise(self) -> Promise:
        """Decisions like those of all rows, but for `max_error`."""
        return Promise(
            Guarantee.BOUNDED,
            METROPOLIS,
            "korattikara2014austerity",
            error_bound=lambda num_rows: self.max_error,
            trusts_normality=True,
        )

    @property
    def needs(self) -> Needs:
        """All rows, in windows of which every candidate has a whole number; a decision may rest on the smallest."""
        return Needs(self.batch_size, decisive_rows=min(self.batch_sizes or (self.batch_size,)))

    def init(self, key: Array, question: Question, model: Model) -> RaceEvidence:
        """Draws the level to exceed."""
        level = METROPOLIS.level(key, question.offset)
        batches, epsilons = self._candidates(model.num_rows)
        confidence = jnp.asarray(normal_quantile(epsilons), level.dtype)
        shared = SequentialEvidence.start(level, confidence, model.num_rows)
        stopped = jnp.zeros(len(batches), level.dtype)
        return RaceEvidence(shared, jnp.int32(0), stopped, jnp.zeros(len(batches), bool))

    def observe(self, evidence: RaceEvidence, log_ratios: Real[Array, " rows"], window: Window) -> RaceEvidence:
        """Lets every candidate look that is due."""
        shared = evidence.shared.add(log_ratios, window)
        batches, _ = self._candidates(shared.full.num_rows)
        windows = evidence.windows + 1
        due = jnp.mod(windows, jnp.asarray(batches // self.batch_size, jnp.int32)) == 0
        # A test may begin with the one window that is partial; that is no look yet.
        due &= shared.moments.count >= jnp.asarray(batches, shared.moments.count.dtype)
        stops = due & shared.exceeds(shared.confidence, self.boundary) & (evidence.test_rows == 0)
        return RaceEvidence(
            shared,
            windows,
            jnp.where(stops, shared.moments.count, evidence.test_rows),
            jnp.where(stops, shared.gap > 0, evidence.accept),
        )

    def verdict(self, evidence: RaceEvidence) -> Verdict:
        """Decides as the chosen candidate did, once every row has been seen."""
        full = evidence.shared.full
        candidate, decided = self._chosen(evidence)
        return Verdict(full.complete, jnp.where(decided, evidence.accept[candidate], full.total > full.level))

    def stats(self, evidence: RaceEvidence) -> dict[str, Array]:
        """Rows that the chosen candidate would have read."""
        candidate, decided = self._chosen(evidence)
        rows = evidence.test_rows[candidate].astype(jnp.int32)
        return {
            "skewness": evidence.shared.moments.skewness,
            "test_rows": jnp.where(decided, rows, evidence.shared.full.seen),
        }

    def notes(self, stats: dict[str, np.ndarray], model: Model) -> list[str]:
        """Says that every test read every row."""
        return [
            f"AustereMHPerStep read all {model.num_rows:,} rows in every test to choose its settings; the tests it "
            f"chose asked for {stats['test_rows'].mean():,.0f} on average"
        ]

    def _chosen(self, evidence: RaceEvidence) -> tuple[Array, Array]:
        """The cheapest candidate that is right often enough for these rows, and whether it stopped before the last."""
        shared = evidence.shared
        num_rows = shared.full.num_rows
        table = jnp.asarray(_cheapest(num_rows, self._sizes(num_rows), self.epsilons, self.boundary, self.max_error))
        spread = jnp.sqrt(jnp.where(shared.moments.squares > 0, shared.moments.squares, 1) / num_rows)
        mu_std = jnp.abs(shared.gap) * float(np.sqrt(max(num_rows - 1, 1))) / spread
        # The error falls with mu_std, so that of the next smaller entry is safe.
        entry = jnp.sum(mu_std >= jnp.asarray(_DRIFTS[1:], mu_std.dtype))
        candidate = table[entry]
        exact = candidate < 0
        candidate = jnp.maximum(candidate, 0)
        rows = evidence.test_rows[candidate]
        return candidate, ~exact & (rows > 0) & (rows < num_rows)

    def _candidates(self, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
        return _grid(self._sizes(num_rows), self.epsilons)

    def _sizes(self, num_rows: int) -> tuple[int, ...]:
        if self.batch_sizes is not None:
            return self.batch_sizes
        doublings = int(np.log2(max(num_rows / self.batch_size, 1)))
        return tuple(self.batch_size * 2**power for power in range(1 + doublings))


def _grid(batch_sizes: tuple[int, ...], epsilons: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Batch size and epsilon of every candidate."""
    batches, errors = np.meshgrid(batch_sizes, epsilons, indexing="ij")
    return batches.ravel(), errors.ravel()


@functools.lru_cache(maxsize=16)
def _cheapest(
    num_rows: int, batch_sizes: tuple[int, ...], epsilons: tuple[float, ...], boundary: float, max_error: float
) -> np.ndarray:
    """For each of `_DRIFTS` the candidate that reads least within the error; -1: none but all rows."""
    tests = [
        sequential_test(_DRIFTS, min(1.0, batch / num_rows), epsilon, boundary)
        for batch, epsilon in zip(*_grid(batch_sizes, epsilons), strict=True)
    ]
    errors, fractions = np.stack([t.error for t in tests]), np.stack([t.data_fraction for t in tests])
    fractions = np.where(errors <= max_error, fractions, np.inf)
    return np.where(np.isfinite(fractions).any(axis=0), np.argmin(fractions, axis=0), -1).astype(np.int32)
