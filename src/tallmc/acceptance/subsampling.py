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
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Real

from tallmc.acceptance.contract import Guarantee, Promise, Question, SelectiveRule, Verdict, check_batch_size
from tallmc.acceptance.formulas import METROPOLIS
from tallmc.acceptance.full_sum import FullSum
from tallmc.feed import ALL_ROWS, Drawn, Needs, Window
from tallmc.numerics.keys import uniforms_from
from tallmc.posterior import Model, RowBounds

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
        every_row: Whether this is a plain test of all rows, because the process would draw more, or because an end of
            the move lies where the bounds do not hold. Neither depends on which end is which.
        outside: Whether it is for the second reason.
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
    outside: Bool[Array, ""]
    full: FullSum


class Arrivals(NamedTuple):
    """A window's worth of the Poisson process.

    Args:
        evidence: Before it.
        left: Time that the process has still to run after it.
        uniforms: One for each row, that decides whether it is kept.
    """

    evidence: SubsamplingEvidence
    left: Real[Array, ""]
    uniforms: Real[Array, " rows"]


class SubsamplingRule(SelectiveRule[SubsamplingEvidence]):
    """Exact decisions from a Poisson number of rows; needs bounds on what a row can say."""

    batch_size: eqx.AbstractVar[int]
    reference: ClassVar[str]
    target_acceptance: ClassVar[float]

    def __check_init__(self):
        check_batch_size(self.batch_size)

    @property
    def promise(self) -> Promise:
        """Reversible to the last digit; it accepts at most as often as Metropolis' formula says."""
        return Promise(
            Guarantee.EXACT,
            METROPOLIS,
            self.reference,
            target_acceptance=self.target_acceptance,
            draws_level=False,
        )

    def rows_by_weight(self, expansion_order: int | None) -> Needs:
        """What such a rule needs. Whatever the number of rows, rounding is a part of each row's own ratio."""
        return Needs(self.batch_size, (Drawn.BY_WEIGHT,), expansion_order, decisive_rows=ALL_ROWS)

    @abc.abstractmethod
    def extra_rate(self, ceiling: Real[Array, ""]) -> Real[Array, ""]:
        """The rate L of rows that arrive on top of the bound K, as a function of K; docs/flat-in-n.md has both."""

    @abc.abstractmethod
    def share(self, against: Real[Array, " rows"], ceiling: Real[Array, ""]) -> Real[Array, " rows"]:
        """f(v) for |v| <= K: between 0 and K, and with f(v) - f(-v) = v."""

    def check(self, model: Model, drawn: Drawn) -> None:
        """Wants bounds with a constant for each row."""
        del drawn
        self.check_row_bounds(model)

    def check_row_bounds(self, model: Model) -> None:
        """Raises `ValueError` unless there is a finite bound for each row."""
        if not isinstance(model.bounds, RowBounds) or not np.isfinite(float(model.bounds.mean)):
            raise ValueError(
                f"{type(self).__name__} needs a bound on what each row can say, and this posterior has none; use a "
                "model of tm.models, or pass tm.Posterior(..., bounds=tm.DerivativeBounds(first=..., second=..., "
                "third=...)); without bounds use tm.MHMinibatch() or tm.Exact()"
            )

    def init(self, key: Array, question: Question, model: Model) -> SubsamplingEvidence:
        """The first stage, and the rate of the second."""
        offset, reach = question.offset, question.reach
        assert reach is not None
        mean_change = (model.bounds.mean.astype(reach.dtype) * reach).astype(offset.dtype)
        ceiling = model.num_rows * mean_change / model.temperature.astype(offset.dtype)
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
            every_row=~(ceiling + extra < model.num_rows),
            outside=~jnp.isfinite(reach),
            full=FullSum.start(on_all_rows - offset, model.num_rows),
        )

    def wants_every_row(self, evidence: SubsamplingEvidence) -> Bool[Array, ""]:
        """If the process would draw more rows than there are."""
        return evidence.every_row

    def select(self, evidence: SubsamplingEvidence, window: Window) -> tuple[Arrivals, Window]:
        """The rows that arrive in time."""
        gaps, uniforms = uniforms_from(evidence.key, evidence.drawn, (2, window.size), evidence.left.dtype)
        arrivals = jnp.cumsum(-jnp.log1p(-gaps))
        in_time = jnp.sum(arrivals <= evidence.left).astype(jnp.int32)
        count = jnp.where(evidence.every_row, window.count, jnp.where(evidence.worth_a_look, in_time, 0))
        return Arrivals(evidence, evidence.left - arrivals[-1], uniforms), window.first(count)

    def observe(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, evidence: Arrivals, log_ratios: Real[Array, " rows"], window: Window
    ) -> SubsamplingEvidence:
        """Thins the rows that arrived and weighs those that are kept."""
        before, left, uniforms = evidence
        ceiling, extra = before.ceiling, before.extra
        against = -log_ratios * before.full.num_rows
        beyond = window.valid & (jnp.abs(against) > ceiling * (1 + _TOLERANCE)) & ~before.every_row
        against = jnp.clip(against, -ceiling, ceiling)
        here = extra + self.share(against, ceiling)
        there = extra + self.share(-against, ceiling)
        kept = window.valid & (uniforms * (extra + ceiling) < here)
        tiny = jnp.finfo(here.dtype).tiny
        said = jnp.where(kept, jnp.log(jnp.maximum(there, tiny)) - jnp.log(jnp.maximum(here, tiny)), 0)
        return eqx.tree_at(
            lambda e: (e.drawn, e.left, e.total, e.violations, e.full),
            before,
            (
                before.drawn + 2 * window.size,
                left,
                before.total + jnp.sum(said),
                before.violations + jnp.sum(beyond).astype(jnp.int32),
                before.full.add(log_ratios, window),
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

    def stats(self, evidence: SubsamplingEvidence) -> dict[str, Array]:
        """How many rows said more than their bound allows, and whether the move led where there are no bounds."""
        return {"violations": evidence.violations, "outside": evidence.outside}

    def notes(self, stats: dict[str, np.ndarray], model: Model) -> list[str]:
        """Says where bounds hold that do not hold everywhere, and how often chains were to go elsewhere."""
        if getattr(model.bounds, "radius", None) is None:
            return []
        beyond, count = int(np.sum(stats["outside"])), np.size(stats["outside"])
        return [
            "the bounds on what a row can say were worked out from the likelihood's own program and hold within "
            f"{float(model.bounds.radius):.3g} standard deviations of the centre; {beyond:,} of {count:,} steps led "
            "beyond and were decided on all rows"
        ]

    def objections(self, stats: dict[str, np.ndarray]) -> list[str]:
        """Says so if rows were seen to break their bounds."""
        broken = int(np.sum(stats["violations"]))
        if not broken:
            return []
        return [
            f"{broken} of {int(np.sum(stats['rows'])):,} rows that {type(self).__name__} read changed by more than "
            "posterior.bounds allows: its decisions are not exact. Mend the bounds, or use tm.MHMinibatch()"
        ]
