"""The Metropolis test as a sequential t-test."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, ArrayLike, Real

from tallmc.acceptance.contract import AcceptanceRule, Guarantee, Promise, Question, Verdict, check_batch_size
from tallmc.acceptance.formulas import METROPOLIS
from tallmc.acceptance.full_sum import FullSum
from tallmc.acceptance.sequential_test import check_boundary, check_epsilon, sequential_test
from tallmc.feed import Drawn, Needs, Window
from tallmc.numerics.arithmetic import rounded
from tallmc.numerics.moments import Moments
from tallmc.numerics.schedule import Schedule
from tallmc.posterior import Model

_FEWEST_ROWS = 10  # the expansion of Student's quantile is good to 1e-3 from here on, at any epsilon above 0.001
_TOLERATED_SHARE = 0.01


class SequentialEvidence(eqx.Module):
    """The sum that decides if all rows are seen, the moments that decide before, and the confidence asked for."""

    full: FullSum
    moments: Moments
    confidence: Real[Array, "..."]  # as a normal quantile; one, or one for each of several tests
    with_replacement: bool = eqx.field(static=True)

    @classmethod
    def start(
        cls, level: Real[Array, ""], confidence: Real[Array, "..."], num_rows: int, *, with_replacement: bool = False
    ) -> "SequentialEvidence":
        """A test that has seen no row yet."""
        return cls(FullSum.start(level, num_rows), Moments.empty(level.dtype), confidence, with_replacement)

    def add(self, log_ratios: Real[Array, " rows"], window: Window) -> "SequentialEvidence":
        """Adds the log ratios of one window to the exact sum over rows, and to the moments of the rows seen."""
        moments = self.moments.merge(Moments.of(log_ratios, window.valid, window.count))
        return eqx.tree_at(lambda e: (e.full, e.moments), self, (self.full.add(log_ratios, window), moments))

    @property
    def gap(self) -> Real[Array, ""]:
        """Mean log ratio of the rows seen, above the level that it must exceed."""
        return self.moments.mean - rounded(self.full.level / self.full.num_rows)

    def exceeds(self, confidence: Real[Array, "..."], boundary: float) -> Array:
        """Whether the mean is further from the level than chance explains, at one confidence or at several.

        The t-test with finite-population correction, |gap| > G s sqrt((1 - n / N) / n ...), squared: no root, no
        division, and no distribution function. Rows drawn with replacement get no such correction.
        """
        count, num_rows = self.moments.count, float(self.full.num_rows)
        if boundary != 0.5:
            share = jnp.minimum(count / num_rows, 1)
            confidence = confidence * share ** jnp.asarray(0.5 - boundary, count.dtype)
        quantile = student_quantile(confidence, 1 / jnp.maximum(count - 1, 1))
        unseen = num_rows - (1 if self.with_replacement else count)
        far = self.gap * self.gap * count * (num_rows - 1) > quantile * quantile * self.moments.variance * unseen
        # Rows that are all alike say nothing about how rows differ.
        return far & (self.moments.squares > 0) & (count >= _FEWEST_ROWS)


class AustereMH(AcceptanceRule[SequentialEvidence]):
    """The Metropolis test, stopped as soon as a t-test is sure of its outcome (Korattikara et al., 2014).

    After each window a t-test asks whether the mean log ratio of the rows seen lies on the same side of its level as
    the mean of all rows. It stops at confidence 1 - epsilon, and is exact once it has read everything. `epsilon` is the
    error of one look; a test looks often, so its own error is larger: `tm.design.sequential_test` has the figure and
    `tm.design.worst_case` finds the cheapest rule with a given one.

    What that does to the draws: at temperature 1, without an expansion, they are spread too widely. A normal posterior
    in one dimension (12,214 rows, batches of 500, tuned steps) is too wide by 7 % at an epsilon of 0.01, 28 to 31 % at
    0.05, 56 % at 0.1 and 94 % at 0.2; at temperature 100 by 1 % at 0.05. See `tm.design.normal_posterior`.

    With `feed=tm.WeightedFeed`, for rare features, it ends after as many draws as there are rows and goes by the sign
    of what it has then. That is precise enough only for what a Taylor expansion leaves of the rows, so it needs one
    (`control_variate=tm.Taylor()`); the summary says how often it came to that.

    Args:
        epsilon: Error allowed to one look, in [0, 1); or a schedule of it, such as `tm.schedule.power(0.2)`, or
            `tm.schedule.redesigned(0.01)`, which warm-up designs. 0 decides as `Exact` does, unless rows are drawn by
            weight.
        batch_size: Rows between two looks. 500 or so, for the test trusts the central limit theorem.
        boundary: Exponent of Wang and Tsiatis: 0.5 (Pocock) asks for the same confidence at every look, 1
            (O'Brien and Fleming) for more at early ones.

    Example:
        >>> AustereMH(epsilon=0.05).promise.guarantee.value
        'bounded'
    """

    epsilon: float | Schedule
    batch_size: int = eqx.field(static=True)
    boundary: float = eqx.field(static=True)

    def __init__(self, epsilon: float | Schedule = 0.05, batch_size: int = 500, boundary: float = 0.5):
        check_batch_size(batch_size)
        check_boundary(boundary)
        if isinstance(epsilon, Schedule):
            for corner in epsilon.corners():
                check_epsilon(corner)
        else:
            check_epsilon(epsilon)
            epsilon = float(epsilon)
        self.epsilon = epsilon
        self.batch_size = int(batch_size)
        self.boundary = float(boundary)

    @property
    def promise(self) -> Promise:
        """Decisions like those of all rows, but for an error that the design of the test gives."""
        return Promise(
            Guarantee.BOUNDED,
            METROPOLIS,
            "korattikara2014austerity",
            error_bound=self._largest_error,
            trusts_normality=True,
        )

    @property
    def needs(self) -> Needs:
        """A batch for each look."""
        return Needs(self.batch_size, drawn=(Drawn.EACH_ONCE, Drawn.BY_WEIGHT))

    def init(self, key: Array, question: Question, model: Model) -> SequentialEvidence:
        """Draws the level to exceed."""
        dtype = question.offset.dtype
        if isinstance(self.epsilon, Schedule):
            confidence = jnp.maximum(-ndtri(self.epsilon(question.time)), 0).astype(dtype)
        else:
            confidence = jnp.asarray(normal_quantile(self.epsilon), dtype)
        level, by_weight = METROPOLIS.level(key, question.offset), question.drawn is Drawn.BY_WEIGHT
        return SequentialEvidence.start(level, confidence, model.num_rows, with_replacement=by_weight)

    def observe(
        self, evidence: SequentialEvidence, log_ratios: Real[Array, " rows"], window: Window
    ) -> SequentialEvidence:
        """Adds a window to the sum, which decides once all rows are seen, and to the moments of the t-test."""
        return evidence.add(log_ratios, window)

    def verdict(self, evidence: SequentialEvidence) -> Verdict:
        """Decides once the t-test is sure, or no row is left."""
        all_seen = evidence.full.complete
        known = all_seen & (not evidence.with_replacement)  # as many draws as there are rows are not all rows
        accept = jnp.where(known, evidence.full.total > evidence.full.level, evidence.gap > 0)
        # A test may begin with the one window that is partial; that is no look yet.
        whole = evidence.moments.count >= min(self.batch_size, evidence.full.num_rows)
        return Verdict((evidence.exceeds(evidence.confidence, self.boundary) & whole) | all_seen, accept)

    def stats(self, evidence: SequentialEvidence) -> dict[str, Array]:
        """The skewness of the log ratios that decided."""
        return {"skewness": evidence.moments.skewness}

    def notes(self, stats: dict[str, np.ndarray], model: Model) -> list[str]:
        """How many tests on rows drawn by weight were not sure when they ended."""
        unsure = float(np.mean((stats["rows"] >= model.num_rows) & ~stats["used_all_rows"]))
        if unsure <= _TOLERATED_SHARE:
            return []
        return [
            f"{100 * unsure:.2g} % of the tests were not sure after {model.num_rows:,} draws of rows by weight "
            "and went by the sign; tm.audit(run) says how often that was wrong"
        ]

    def check(self, model: Model, drawn: Drawn) -> None:
        """Without an expansion, as many draws as there are rows leave a log ratio far too uncertain."""
        if drawn is Drawn.BY_WEIGHT and not model.expanded:
            raise ValueError(
                "AustereMH on rows drawn by weight needs an expansion: pass control_variate=tm.Taylor(), or use "
                "tm.MHMinibatch() with this feed"
            )

    def _largest_error(self, num_rows: int) -> float:
        """The error of a test in the hardest case, by dynamic programming; of a schedule, at its largest.

        For rows drawn without replacement. Of rows drawn by weight it says nothing; `tm.audit` does.
        """
        epsilon = self.epsilon
        if isinstance(epsilon, Schedule):
            epsilon = max(epsilon.corners())
        return float(sequential_test(0.0, min(1.0, self.batch_size / num_rows), epsilon, self.boundary).error)


def normal_quantile(epsilon: ArrayLike) -> np.ndarray | float:
    """How many standard deviations a mean has to be away at an error of epsilon; not below 0."""
    import scipy.special

    return np.maximum(-scipy.special.ndtri(np.asarray(epsilon, float)), 0.0)


def student_quantile(normal: Real[Array, "..."], inverse_degrees: Real[Array, ""]) -> Real[Array, "..."]:
    """Student's quantile from the normal one, by four terms of the expansion of Cornish and Fisher.

    Good to 1e-4 from 20 degrees of freedom on, at any epsilon above 1e-4. A few multiplications, where the quantile
    itself is a special function.
    """
    square = normal * normal
    terms = (
        rounded(square + 1) / 4,
        (rounded((5 * square + 16) * square) + 3) / 96,
        (rounded((rounded((3 * square + 19) * square) + 17) * square) - 15) / 384,
        (rounded((rounded((rounded((79 * square + 776) * square) + 1482) * square) - 1920) * square) - 945) / 92160,
    )
    total = terms[3]
    for term in (*terms[2::-1], jnp.ones_like(normal)):
        total = term + rounded(total * inverse_degrees)
    return normal * total
