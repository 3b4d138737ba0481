"""The Metropolis test stopped by a concentration inequality, which holds for any rows within known bounds."""

import math
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc.acceptance.contract import AcceptanceRule, Guarantee, Promise, Question, Verdict, check_batch_size
from tallmc.acceptance.formulas import METROPOLIS
from tallmc.acceptance.full_sum import FullSum
from tallmc.feed import Drawn, Needs, Window
from tallmc.numerics.arithmetic import rounded
from tallmc.numerics.moments import Moments
from tallmc.posterior import Model


class Looks(eqx.Module):
    """What was seen at each look so far; rows is zero at looks still to come."""

    rows: Real[Array, " looks"]
    gap: Real[Array, " looks"]
    variance: Real[Array, " looks"]


class BoundedEvidence(eqx.Module):
    """The sum that decides if all rows are seen, the moments that decide before, and the largest log ratio."""

    full: FullSum
    moments: Moments
    largest: Real[Array, ""]
    look: Int[Array, ""]
    next_look: Int[Array, ""]
    at_look: Bool[Array, ""]
    looks: Looks | None  # kept only if the range is known no sooner than all rows


class MHSubLhd(AcceptanceRule[BoundedEvidence]):
    """The Metropolis test, stopped once a concentration inequality is sure of its outcome (Bardenet et al., 2014).

    Reads a geometrically growing number of rows until the mean log ratio is further from its level than an empirical
    Bernstein bound allows by chance. Unlike a t-test this holds for rows of any shape, however skewed, and the chance
    of a wrong decision is below `delta`. The price is a bound on every row's log ratio, and many more rows.

    Args:
        delta: Chance of a wrong decision, at most.
        p: The look number t may be wrong with probability delta (p - 1) / (p t^p).
        gamma: Factor between the rows of one look and the next.
        batch_size: Rows of the first look, and rows read at a time.
        bound: What bounds the change of a row's log likelihood between two positions: None, `posterior.bounds`; a
            function `bound(position, proposed)`, before temperature; or "scan", which looks at every row. A scan costs
            all rows of every test, and they are counted; `run.stats["test_rows"]` then has what the test asked for.
        inequality: "bernstein", as in the paper; or "serfling", which knows that rows are drawn without replacement and
            gains once a large share of them has been read.

    Example:
        >>> MHSubLhd(delta=0.01).promise.guarantee.value
        'bounded'
    """

    delta: float = eqx.field(static=True)
    p: float = eqx.field(static=True)
    gamma: float = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    bound: Callable[[PyTree, PyTree], Real[Array, ""]] | str | None
    inequality: str = eqx.field(static=True)

    def __init__(
        self,
        delta: float = 0.01,
        p: float = 2.0,
        gamma: float = 1.5,
        batch_size: int = 50,
        bound: Callable[[PyTree, PyTree], Real[Array, ""]] | str | None = None,
        inequality: str = "bernstein",
    ):
        check_batch_size(batch_size)
        if not 0 < delta < 1:
            raise ValueError(f"delta must lie between 0 and 1, got {delta}; it is the chance of a wrong decision")
        if not p > 1:
            raise ValueError(f"p must be above 1, got {p}; otherwise the errors of all looks add up to more than delta")
        if not gamma > 1:
            raise ValueError(f"gamma must be above 1, got {gamma}; it is the factor between two looks, such as 1.5")
        if not (bound is None or bound == "scan" or callable(bound)):
            raise ValueError(f'bound must be None, "scan" or a function of (position, proposed), got {bound!r}')
        if inequality not in ("bernstein", "serfling"):
            raise ValueError(f'inequality must be "bernstein" or "serfling", got {inequality!r}')
        self.delta, self.p, self.gamma = float(delta), float(p), float(gamma)
        self.batch_size, self.bound, self.inequality = int(batch_size), bound, inequality

    @property
    def promise(self) -> Promise:
        """Decisions like those of all rows, but for `delta`, whatever the rows."""
        return Promise(Guarantee.BOUNDED, METROPOLIS, "bardenet2014towards", error_bound=lambda num_rows: self.delta)

    @property
    def needs(self) -> Needs:
        """Batches; a scan reads all rows but decides from a few of them."""
        return Needs(self.batch_size)

    def check(self, model: Model, drawn: Drawn) -> None:
        """Wants a bound from somewhere, and on what it is shown."""
        del drawn
        if callable(self.bound) and model.expanded:
            raise ValueError(
                "bound=... bounds the change of a row's log likelihood, not what a Taylor expansion leaves of it; "
                "leave bound out and give the posterior bounds=tm.DerivativeBounds(...), or leave control_variate out"
            )
        if self.bound is None and model.bounds is None:
            raise ValueError(
                "MHSubLhd needs a bound on the change of a row's log likelihood, and this posterior has none; pass "
                "tm.Posterior(..., bounds=tm.Lipschitz(constant)), a function MHSubLhd(bound=lambda position, "
                'proposed: ...), or MHSubLhd(bound="scan") to look at every row in every test'
            )

    def init(self, key: Array, question: Question, model: Model) -> BoundedEvidence:
        """Draws the level to exceed and works out the bound."""
        level = METROPOLIS.level(key, question.offset)
        looks = None
        if self.bound == "scan":
            largest = jnp.zeros_like(level)
            empty = jnp.zeros(self._most_looks(model.num_rows), level.dtype)
            looks = Looks(empty, empty, empty)
        else:
            bound = model.bounds.largest_change if self.bound is None else self.bound
            largest = jnp.asarray(bound(question.position, question.proposed), level.dtype)  # pyright: ignore
            largest = largest / model.temperature.astype(level.dtype)
        full = FullSum.start(level, model.num_rows)
        first = jnp.int32(min(self.batch_size, model.num_rows))
        return BoundedEvidence(full, Moments.empty(level.dtype), largest, jnp.int32(0), first, jnp.bool_(False), looks)

    def observe(self, evidence: BoundedEvidence, log_ratios: Real[Array, " rows"], window: Window) -> BoundedEvidence:
        """Updates sum and moments, and counts a look if enough rows have come since the last."""
        full = evidence.full.add(log_ratios, window)
        moments = evidence.moments.merge(Moments.of(log_ratios, window.valid, window.count))
        largest, looks = evidence.largest, evidence.looks
        now = full.seen >= evidence.next_look
        if looks is not None:
            largest = jnp.maximum(largest, jnp.max(jnp.abs(log_ratios)))
            here = (jnp.arange(looks.rows.shape[0], dtype=jnp.int32) == evidence.look) & now
            gap = moments.mean - rounded(full.level / full.num_rows)
            seen = (moments.count, gap, moments.squares / moments.count)
            old = (looks.rows, looks.gap, looks.variance)
            looks = Looks(*(jnp.where(here, new, kept) for new, kept in zip(seen, old, strict=True)))
        # Beyond the last row there is no look; the minimum keeps that number an integer.
        next_look = jnp.ceil(jnp.minimum(self.gamma * moments.count, 2.0**30)).astype(jnp.int32)
        next_look = jnp.where(now, next_look, evidence.next_look)
        return BoundedEvidence(full, moments, largest, evidence.look + now.astype(jnp.int32), next_look, now, looks)

    def verdict(self, evidence: BoundedEvidence) -> Verdict:
        """Decides once the inequality is sure, or no row is left."""
        full, moments = evidence.full, evidence.moments
        all_seen = full.complete
        exact = full.total > full.level
        if evidence.looks is not None:
            _, gap, stopped = self._first_sure_look(evidence)
            return Verdict(all_seen, jnp.where(stopped, gap > 0, exact))
        gap = moments.mean - rounded(full.level / full.num_rows)
        count = jnp.maximum(moments.count, 1)
        sure = self._sure(evidence, gap, moments.squares / count, count, evidence.look)
        # Between looks nothing of delta has been set aside.
        return Verdict((sure & evidence.at_look) | all_seen, jnp.where(all_seen, exact, gap > 0))

    def stats(self, evidence: BoundedEvidence) -> dict[str, Array]:
        """After a scan: the rows that the test itself asked for."""
        if evidence.looks is None:
            return {}
        rows, _, stopped = self._first_sure_look(evidence)
        return {"test_rows": jnp.where(stopped, rows.astype(jnp.int32), evidence.full.seen)}

    def notes(self, stats: dict[str, np.ndarray], model: Model) -> list[str]:
        """Says so if every test read every row."""
        if self.bound != "scan":
            return []
        return [
            f"every test scanned all {model.num_rows:,} rows for the largest log ratio; the test itself asked for "
            f"{stats['test_rows'].mean():,.0f} on average. A bound in closed form would save the scan"
        ]

    def _first_sure_look(self, evidence: BoundedEvidence) -> tuple[Array, Array, Array]:
        """Rows and gap of the first look that could decide, and whether there is one before the last row."""
        looks = evidence.looks
        assert looks is not None
        numbers = 1 + jnp.arange(looks.rows.shape[0], dtype=jnp.int32)
        sure = self._sure(evidence, looks.gap, looks.variance, jnp.maximum(looks.rows, 1), numbers)
        sure &= (looks.rows > 0) & (looks.rows < evidence.full.num_rows)
        first = jnp.argmax(sure)
        return looks.rows[first], looks.gap[first], jnp.any(sure)

    def _sure(
        self, evidence: BoundedEvidence, gap: Array, variance: Array, count: Array, look: Int[Array, "..."]
    ) -> Array:
        """Whether a mean is further from its level than the inequality allows at this look."""
        factor = 3.0 if self.inequality == "bernstein" else 5.0
        # log(factor / delta_t) with delta_t = delta (p - 1) / (p t^p)
        constant = math.log(factor * self.p / ((self.p - 1) * self.delta))
        log_term = constant + rounded(self.p * jnp.log(jnp.maximum(look, 1).astype(count.dtype)))
        spread, slope = 2 * variance, 3.0
        if self.inequality == "serfling":
            num_rows = float(evidence.full.num_rows)
            few = 1 - rounded((count - 1) / num_rows)
            many = (1 - rounded(count / num_rows)) * (1 + 1 / count)
            spread, slope = spread * jnp.where(count <= num_rows / 2, few, many), 7 / 3 + 3 / math.sqrt(2)
        full_range = 2 * evidence.largest
        allowed = jnp.sqrt(spread * log_term / count) + rounded(slope * full_range * log_term / count)
        return jnp.abs(gap) > allowed

    def _most_looks(self, num_rows: int) -> int:
        return 2 + math.ceil(math.log(max(num_rows / self.batch_size, 1)) / math.log(self.gamma))
