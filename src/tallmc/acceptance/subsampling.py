"""What the exact subsampling rules share: a Poisson number of rows, drawn by what they can say and thinned by it.

Write the log ratio of a move as offset - sum_i a_i, with |a_i| <= c_i M for every row: a_i is what row i has against
the move. Rows are drawn in proportion to c_i, and what a drawn row says is scaled to v = a_i * sum(c) / c_i, an
estimate of the whole sum that never exceeds K = M * sum(c). Rows arrive as a Poisson process of rate L + K. Each is
kept with probability (L + f(v)) / (L + K), where 0 <= f <= K and f(v) - f(-v) = v; a kept row multiplies the chance to
accept by (L + f(-v)) / (L + f(v)). The way back keeps rows at the rates L + f(-v), so the chances of both ways stand in
the ratio that detailed balance wants, whatever the number of rows (Zhang, Cooper & De Sa, 2020; Prado, Nemeth &
Sherlock, 2024). The offset makes a first stage, a Metropolis test of its own.
"""

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Int, Real

from tallmc.acceptance.full_sum import FullSum
from tallmc.bounds import RowBounds
from tallmc.feed import Window
from tallmc.kernel import AcceptanceRule, Guarantee, Question, Verdict, check_batch_size
from tallmc.keys import uniforms_from
from tallmc.posterior import Posterior

_TOLERANCE = 1e-3  # by which rounding may exceed a bound without its being wrong


class SubsamplingEvidence(eqx.Module):
    """Where the Poisson process is, and what its rows have said.

    Args:
        key: For arrivals and thinning, and for the levels before them.
        drawn: Random numbers taken from that key so far.
        left: Time that the process has still to run, in units of its rate.
        ceiling: K, what a drawn row can say at most.
        extra: L, the part of the rate that does not depend on bounds.
        worth_a_look: Whether the move passed the first stage, which needs no rows.
        total: Logarithm of the chance that the rows so far leave to accept.
        level: What the total must exceed.
        violations: Rows that said more than they can.
        every_row: Whether this is a plain test of all rows, because the process would draw more.
        full: That test.
    """

    key: Array
    drawn: Int[Array, ""]
    left: Real[Array, ""]
    ceiling: Real[Array, ""]
    extra: Real[Array, ""]
    worth_a_look: Bool[Array, ""]
    total: Real[Array, ""]
    level: Real[Array, ""]
    violations: Int[Array, ""]
    every_row: Bool[Array, ""]
    full: FullSum


class SubsamplingRule(AcceptanceRule[SubsamplingEvidence]):
    """Exact decisions from a Poisson number of rows; needs bounds on what a row can say."""

    batch_size: eqx.AbstractVar[int]
    guarantee: ClassVar = Guarantee.EXACT
    wants_weighted_rows: ClassVar = True
    allows_weighted_rows: ClassVar = True

    def __check_init__(self):
        check_batch_size(self.batch_size)

    @abc.abstractmethod
    def extra_rate(self, ceiling: Real[Array, ""]) -> Real[Array, ""]:
        """L, given K."""

    @abc.abstractmethod
    def share(self, against: Real[Array, " rows"], ceiling: Real[Array, ""]) -> Real[Array, " rows"]:
        """f(v) for |v| <= K: between 0 and K, and with f(v) - f(-v) = v."""

    def check(self, posterior: Posterior) -> None:
        """Wants bounds with a constant for each row."""
        if not isinstance(posterior.bounds, RowBounds) or not np.isfinite(float(posterior.bounds.mean)):
            raise ValueError(
                f"{type(self).__name__} needs a bound on what each row can say, and this posterior has none; use a "
                "model of tm.models, or pass tm.Posterior(..., bounds=tm.DerivativeBounds(first=..., second=..., "
                "third=...)); without bounds use tm.MHMinibatch() or tm.Exact()"
            )

    def init(self, key: Array, question: Question, posterior: Posterior) -> SubsamplingEvidence:
        """The first stage, and the rate of the second."""
        offset, bounds = question.offset, posterior.bounds
        if question.between is None:
            reach = bounds.reach(question.position, question.proposed)
        else:
            reach = bounds.reach_of(question.between)
        mean_change = (bounds.mean.astype(reach.dtype) * reach).astype(offset.dtype)
        ceiling = posterior.num_rows * mean_change / posterior.temperature.astype(offset.dtype)
        extra = self.extra_rate(ceiling)
        first, second, on_all_rows = jnp.log1p(-uniforms_from(key, jnp.int32(0), (3,), offset.dtype))
        zero = jnp.zeros_like(offset)
        return SubsamplingEvidence(
            key=key,
            drawn=jnp.int32(3),
            left=ceiling + extra,
            ceiling=ceiling,
            extra=extra,
            worth_a_look=first <= offset,
            total=zero,
            level=second,
            violations=jnp.int32(0),
            # Both ways of a move have the same rate, so both are decided in the same way.
            every_row=~(ceiling + extra < posterior.num_rows),
            full=FullSum.start(on_all_rows - offset, posterior.num_rows),
        )

    def every_row(self, evidence: SubsamplingEvidence) -> Bool[Array, ""]:
        """If the process would draw more rows than there are."""
        return evidence.every_row

    def wanted(self, evidence: SubsamplingEvidence, window: Window) -> Window:
        """The rows that arrive in time, marked with the uniform numbers that decide which of them are kept."""
        gaps, uniforms = uniforms_from(evidence.key, evidence.drawn, (2, window.size), evidence.left.dtype)
        arrivals = jnp.cumsum(-jnp.log1p(-gaps))
        in_time = jnp.sum(arrivals <= evidence.left).astype(jnp.int32)
        count = jnp.where(evidence.every_row, window.count, jnp.where(evidence.worth_a_look, in_time, 0))
        marks = evidence.left - arrivals[-1], uniforms
        return Window(window.rows, count, window.size, window.scale, marks)

    def observe(
        self, evidence: SubsamplingEvidence, log_ratios: Real[Array, " rows"], window: Window
    ) -> SubsamplingEvidence:
        """Thins the rows that arrived and weighs those that are kept."""
        left, uniforms = window.marks
        ceiling, extra = evidence.ceiling, evidence.extra
        against = -log_ratios * evidence.full.num_rows
        beyond = window.valid & (jnp.abs(against) > ceiling * (1 + _TOLERANCE)) & ~evidence.every_row
        against = jnp.clip(against, -ceiling, ceiling)
        here = extra + self.share(against, ceiling)
        there = extra + self.share(-against, ceiling)
        kept = window.valid & (uniforms * (extra + ceiling) < here)
        tiny = jnp.finfo(here.dtype).tiny
        said = jnp.where(kept, jnp.log(jnp.maximum(there, tiny)) - jnp.log(jnp.maximum(here, tiny)), 0)
        return eqx.tree_at(
            lambda e: (e.drawn, e.left, e.total, e.violations, e.full),
            evidence,
            (
                evidence.drawn + 2 * window.size,
                left,
                evidence.total + jnp.sum(said),
                evidence.violations + jnp.sum(beyond).astype(jnp.int32),
                evidence.full.add(log_ratios, window),
            ),
        )

    def verdict(self, evidence: SubsamplingEvidence) -> Verdict:
        """Decides when the process has run its time, or at once if the first stage failed."""
        full = evidence.full
        over = ~evidence.worth_a_look | (evidence.left < 0)
        passed = evidence.worth_a_look & (evidence.total > evidence.level)
        return Verdict(
            jnp.where(evidence.every_row, full.complete, over),
            jnp.where(evidence.every_row, full.total > full.level, passed),
        )

    def decisive_rows(self, num_rows: int) -> int:
        """Whatever their number, rounding is a part of each row's own ratio."""
        return num_rows

    def stats(self, evidence: SubsamplingEvidence) -> dict[str, Array]:
        """Rows that broke their bound."""
        return {"violations": evidence.violations}

    def warnings(self, stats: dict[str, np.ndarray]) -> list[str]:
        """Bounds that do not hold."""
        broken = int(np.sum(stats["violations"]))
        if not broken:
            return []
        return [
            f"{broken} of {int(np.sum(stats['rows'])):,} rows that {type(self).__name__} read changed by more than "
            "posterior.bounds allows: its decisions are not exact. Mend the bounds, or use tm.MHMinibatch()"
        ]

    def acceptance_probability(self, log_ratio: ArrayLike) -> Real[Array, "..."]:
        """At most min(1, exp(log ratio)), and in the same proportion to that of the way back as that is."""
        return jnp.exp(jnp.minimum(log_ratio, 0))
