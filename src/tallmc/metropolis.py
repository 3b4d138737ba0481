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


class MetropolisState(eqx.Module):
    """A position, the proposal under test, and the evidence so far."""

    position: PyTree
    proposed: PyTree
    possible: Bool[Array, ""]  # false if the prior rules the proposal out: no row can change that
    evidence: PyTree
    finite: Bool[Array, ""]
    rows: Int[Array, ""]
    step_size: Real[Array, ""]


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

    def decisive_rows(self, num_rows: int) -> int:
        """The rule's."""
        return self.rule.decisive_rows(num_rows)

    def init(self, key: Array, position: PyTree, posterior: Posterior) -> MetropolisState:
        """Draws the first proposal."""
        return self._begin(key, position, jnp.ones((), jnp.result_type(float)), posterior, jnp.int32(0))

    def observe(
        self, state: MetropolisState, posterior: Posterior, window: Window
    ) -> tuple[MetropolisState, Bool[Array, ""]]:
        """Hands each row's log ratio to the rule."""
        log_ratios = posterior.log_ratios(state.position, state.proposed, window.rows)
        # Evidence is gathered in the finest precision that is on, whatever the likelihood was written in.
        log_ratios = jnp.where(window.valid, log_ratios, 0).astype(jnp.result_type(float))
        finite = jnp.isfinite(ordered_sum(log_ratios))  # a sum is finite only if all its terms are
        evidence = self.rule.observe(state.evidence, log_ratios, window)
        state = eqx.tree_at(
            lambda s: (s.evidence, s.finite, s.rows), state, (evidence, finite, state.rows + window.count)
        )
        return state, self.rule.verdict(evidence).done | ~finite | ~state.possible

    def conclude(
        self, key: Array, state: MetropolisState, posterior: Posterior, time: Int[Array, ""]
    ) -> tuple[MetropolisState, Info]:
        """Moves if the rule says so and every log ratio was finite; then begins the next test."""
        accepted = self.rule.verdict(state.evidence).accept & state.finite & state.possible
        nonfinite = ~state.finite & state.possible
        info = Info(accepted, state.rows, nonfinite, self.rule.stats(state.evidence))
        position = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), state.proposed, state.position)
        return self._begin(key, position, state.step_size, posterior, time), info

    def position(self, state: MetropolisState) -> PyTree:
        """Where the chain is."""
        return state.position

    def adapt(self, state: MetropolisState, info: Info, gain: Real[Array, ""]) -> MetropolisState:
        """Robbins-Monro on the logarithm of the step size, towards the rule's best acceptance rate."""
        surprise = info.accepted.astype(gain.dtype) - self.rule.target_acceptance
        step_size = state.step_size * jnp.exp(gain * surprise).astype(state.step_size.dtype)
        return eqx.tree_at(lambda s: s.step_size, state, step_size)

    def step_size(self, state: MetropolisState) -> Real[Array, ""]:
        """The factor warm-up found for the proposal's steps."""
        return state.step_size

    def notes(self, stats: dict[str, np.ndarray], posterior: Posterior) -> list[str]:
        """The rule's."""
        return self.rule.notes(stats, posterior)

    def warnings(self, stats: dict[str, np.ndarray]) -> list[str]:
        """The rule's."""
        return self.rule.warnings(stats)

    def check(self, position: PyTree, posterior: Posterior) -> None:
        """Asks the proposal and the rule."""
        self.proposal.check(position)
        self.rule.check(posterior)

    def _begin(
        self, key: Array, position: PyTree, step_size: Array, posterior: Posterior, time: Int[Array, ""]
    ) -> MetropolisState:
        key_proposal, key_rule = jax.random.split(key)
        move = self.proposal.rescaled(step_size).propose(key_proposal, position, posterior)
        offset = posterior.log_prior(move.position) - posterior.log_prior(position) + move.log_ratio
        offset = jnp.asarray(offset, jnp.result_type(float))
        possible = jnp.isfinite(offset)
        question = Question(position, move.position, jnp.where(possible, offset, 0), time)
        evidence = self.rule.init(key_rule, question, posterior)
        return MetropolisState(position, move.position, possible, evidence, jnp.bool_(True), jnp.int32(0), step_size)
