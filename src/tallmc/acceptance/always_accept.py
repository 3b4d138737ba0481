"""No test at all: to show what a proposal does that nothing corrects."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree, Real

from tallmc.acceptance.contract import Guarantee, Promise, Question, SelectiveRule, Verdict
from tallmc.acceptance.formulas import METROPOLIS
from tallmc.feed import ALL_ROWS, Needs, Window
from tallmc.posterior import Model


class NoEvidence(eqx.Module):
    """Nothing is weighed."""


class AlwaysAccept(SelectiveRule[NoEvidence]):
    """Accepts whatever is proposed, but for what the prior rules out, and reads no rows (Welling and Teh, 2011).

    **The draws are not those of the posterior**, and a run warns of that. With `tm.SGLD` these are uncorrected Langevin
    dynamics, right only in the limit of steps that do not move. For showing what a test is there for; `tm.audit` says
    how often a Metropolis test on all rows would have refused. Warm-up learns nothing, as nothing is ever refused.

    Example:
        >>> AlwaysAccept().promise.guarantee.value
        'none'
    """

    reference: ClassVar = "welling2011bayesian"

    @property
    def promise(self) -> Promise:
        """None: the chance to accept may be as far from Metropolis' formula as can be."""
        return Promise(Guarantee.NONE, METROPOLIS, self.reference, error_bound=lambda num_rows: 1.0)

    @property
    def needs(self) -> Needs:
        """A row that is never counted, because a test sees a window; no decision rests on rounding."""
        return Needs(1, decisive_rows=ALL_ROWS)

    def init(self, key: Array, question: Question, model: Model) -> NoEvidence:
        """There is nothing to draw."""
        del key, question, model
        return NoEvidence()

    def select(self, evidence: NoEvidence, window: Window) -> tuple[PyTree, Window]:
        """No row of the window."""
        return evidence, window.first(jnp.int32(0))

    def wants_every_row(self, evidence: NoEvidence) -> Bool[Array, ""]:
        """Never."""
        del evidence
        return jnp.bool_(False)

    def observe(self, evidence: NoEvidence, log_ratios: Real[Array, " rows"], window: Window) -> NoEvidence:
        """Nothing is weighed."""
        del log_ratios, window
        return evidence

    def verdict(self, evidence: NoEvidence) -> Verdict:
        """Yes, at once."""
        del evidence
        return Verdict(jnp.bool_(True), jnp.bool_(True))

    def doubts(self) -> list[str]:
        """What is wrong with every run."""
        return [
            "AlwaysAccept makes no test, so these are not draws of the posterior: the longer the steps, the further "
            "off. Use tm.Exact() or tm.MHMinibatch() to correct them; tm.audit(run) says how often a test would have "
            "refused"
        ]
