"""One round of Metropolis-Hastings: any proposal, any acceptance rule. Read this second."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc.arithmetic import ordered_sum
from tallmc.feed import Window
from tallmc.kernel import AcceptanceRule, Info, Kernel, Proposal, Question
from tallmc.posterior import Posterior
from tallmc.tuning import Tuning


class MetropolisState(eqx.Module):
    """A position, the proposal under test, and the evidence so far."""

    position: PyTree
    proposed: PyTree
    possible: Bool[Array, ""]  # false if the prior rules the proposal out: no row can change that
    evidence: PyTree
    finite: Bool[Array, ""]
    rows: Int[Array, ""]
    tuned: PyTree


class MetropolisHastings(Kernel[MetropolisState]):
    """Metropolis-Hastings with a proposal and an acceptance rule that know nothing of each other.

    Args:
        proposal: Where to go next.
        rule: Decides, from as few rows as it needs, whether to go there.

    Example:
        >>> import tallmc as tm
        >>> kernel = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.MHMinibatch())
    """

    proposal: Proposal
    rule: AcceptanceRule

    def __check_init__(self):
        if not isinstance(self.proposal, Proposal):
            raise ValueError(
                f"proposal must be a Proposal such as tm.RandomWalk(0.1), not {type(self.proposal).__name__}"
            )
        if not isinstance(self.rule, AcceptanceRule):
            name = type(self.rule).__name__
            raise ValueError(f"rule must be an AcceptanceRule such as tm.MHMinibatch(), not {name}")

    @property
    def batch_size(self) -> int:
        """The rule's."""
        return self.rule.batch_size

    @property
    def wants_weighted_rows(self) -> bool:
        """Whether the rule does."""
        return self.rule.wants_weighted_rows

    @property
    def allows_weighted_rows(self) -> bool:
        """Whether the rule does."""
        return self.rule.allows_weighted_rows

    @property
    def expansion_order(self) -> int | None:
        """The rule's."""
        return self.rule.expansion_order

    def decisive_rows(self, num_rows: int) -> int:
        """The rule's."""
        return self.rule.decisive_rows(num_rows)

    def init(self, key: Array, position: PyTree, posterior: Posterior) -> MetropolisState:
        """Draws the first proposal."""
        return self.begin(key, position, self._tuning.init(), posterior, jnp.int32(0))[0]

    def restart(
        self, key: Array, state: MetropolisState, posterior: Posterior, time: Int[Array, ""]
    ) -> MetropolisState:
        """Another proposal, with what has been tuned so far."""
        return self.begin(key, state.position, state.tuned, posterior, time)[0]

    def observe(
        self, state: MetropolisState, posterior: Posterior, window: Window
    ) -> tuple[MetropolisState, Bool[Array, ""]]:
        """Hands each row's log ratio to the rule."""
        window = self.rule.wanted(state.evidence, window)
        log_ratios = posterior.log_ratios(state.position, state.proposed, window.rows)
        # Evidence is gathered in the finest precision that is on, whatever the likelihood was written in.
        log_ratios = jnp.where(window.valid, log_ratios, 0).astype(jnp.result_type(float))
        if window.scale is not None:
            log_ratios = log_ratios * window.scale.astype(log_ratios.dtype)
        finite = jnp.isfinite(ordered_sum(log_ratios))  # a sum is finite only if all its terms are
        evidence = self.rule.observe(state.evidence, log_ratios, window)
        state = eqx.tree_at(
            lambda s: (s.evidence, s.finite, s.rows), state, (evidence, finite, state.rows + window.count)
        )
        return state, self.rule.verdict(evidence).done | ~finite | ~state.possible

    def conclude(
        self, key: Array, state: MetropolisState, posterior: Posterior, time: Int[Array, ""], gain: Real[Array, ""]
    ) -> tuple[MetropolisState, Info]:
        """Moves if the rule says so and every log ratio was finite; then tunes and begins the next test."""
        accepted = self.rule.verdict(state.evidence).accept & state.finite & state.possible
        nonfinite = ~state.finite & state.possible
        info = Info(accepted, state.rows, nonfinite, self.rule.stats(state.evidence))
        position = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), state.proposed, state.position)
        tuned = self._tuning.update(state.tuned, accepted, state.rows, gain)
        return self.begin(key, position, tuned, posterior, time)[0], info

    def every_row(self, state: MetropolisState) -> Bool[Array, ""] | None:
        """Asks the rule."""
        return self.rule.every_row(state.evidence)

    def position(self, state: MetropolisState) -> PyTree:
        """Where the chain is."""
        return state.position

    def step_size(self, state: MetropolisState) -> Real[Array, ""]:
        """The factor warm-up found for the proposal's steps."""
        return self._tuning.factor(state.tuned)

    def notes(self, stats: dict[str, np.ndarray], posterior: Posterior) -> list[str]:
        """The rule's."""
        return self.rule.notes(stats, posterior)

    def warnings(self, stats: dict[str, np.ndarray]) -> list[str]:
        """The rule's."""
        return self.rule.warnings(stats)

    def check(self, position: PyTree, posterior: Posterior) -> None:
        """Asks the proposal and the rule."""
        self.proposal.check(position, posterior)
        self.rule.check(posterior)

    @property
    def _tuning(self) -> Tuning:
        return self.proposal.tuning(self.rule.target_acceptance)

    def begin(
        self, key: Array, position: PyTree, tuned: PyTree, posterior: Posterior, time: Int[Array, ""]
    ) -> tuple[MetropolisState, Question]:
        """Proposes, and begins the test of that. Returns the state, and what the rule was asked."""
        key_proposal, key_rule = jax.random.split(key)
        move = self.proposal.rescaled(self._tuning.factor(tuned)).propose(key_proposal, position, posterior)
        finest = jnp.result_type(float)
        between = posterior.between(position, move.position)
        offset = posterior.offset(position, move.position, between).astype(finest) + move.log_ratio.astype(finest)
        possible = jnp.isfinite(offset)
        question = Question(position, move.position, jnp.where(possible, offset, 0), time, between)
        evidence = self.rule.init(key_rule, question, posterior)
        state = MetropolisState(position, move.position, possible, evidence, jnp.bool_(True), jnp.int32(0), tuned)
        return state, question
