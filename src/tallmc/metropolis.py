"""One round of Metropolis-Hastings: any proposal, any acceptance rule. Read this second."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc.acceptance.contract import AcceptanceRule, Guarantee, Question, SelectiveRule
from tallmc.feed import Drawn, Feed, Needs, SeveralFeeds, Window, Windows
from tallmc.kernel import Info, Kernel
from tallmc.numerics.arithmetic import ordered_sum
from tallmc.numerics.flat import require_reals
from tallmc.posterior import Model
from tallmc.proposals.contract import Proposal
from tallmc.proposals.tuning import NothingLearned, Outcome, Tuning


class AtRest(eqx.Module):
    """A position, and what warm-up has learned of the step size."""

    position: PyTree
    tuned: PyTree


class Asked(eqx.Module):
    """A question to the rule, the key that it may draw from, and whether the answer can be other than no."""

    question: Question
    key_rule: Array
    possible: Bool[Array, ""]  # false if the prior rules the proposal out: no row can change that
    rows: Int[Array, ""] | None = None  # that the proposal read


class InTest(eqx.Module):
    """Where the chain was, the proposal under test, and the evidence so far."""

    rest: AtRest
    proposed: PyTree
    possible: Bool[Array, ""]
    evidence: PyTree
    finite: Bool[Array, ""]
    rows: Int[Array, ""]  # that the test has read
    known: Real[Array, ""]  # the log acceptance ratio as far as it needs no rows
    read_before: Int[Array, ""] | None = None  # rows that the proposal read, if it reads any


class MetropolisHastings(Kernel[AtRest, InTest]):
    """Metropolis-Hastings with a proposal and an acceptance rule that know nothing of each other.

    Args:
        proposal: Where to go next.
        rule: Decides, from as few rows as it needs, whether to go there.
        drawn: How rows come; set-up fills this in.

    Example:
        >>> import tallmc as tm
        >>> kernel = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.MHMinibatch())
    """

    proposal: Proposal
    rule: AcceptanceRule
    drawn: Drawn = eqx.field(static=True, default=Drawn.EACH_ONCE)

    def __check_init__(self):
        if not isinstance(self.proposal, Proposal):
            raise ValueError(
                f"proposal must be a Proposal such as tm.RandomWalk(0.1), not {type(self.proposal).__name__}"
            )
        if not isinstance(self.rule, AcceptanceRule):
            name = type(self.rule).__name__
            raise ValueError(f"rule must be an AcceptanceRule such as tm.MHMinibatch(), not {name}")

    @property
    def needs(self) -> Needs | tuple[Needs, Needs]:
        """Those of the rule, and those of the proposal if it has any."""
        own = self.proposal.needs
        return self.rule.needs if own is None else (self.rule.needs, own._replace(to_begin=True))

    def prepared_for(self, model: Model, num_warmup: int) -> "MetropolisHastings":
        """The same kernel, whose proposal knows whether it can do without rows, and how long it may learn."""
        return dataclasses.replace(self, proposal=self.proposal.prepared_for(model, num_warmup))

    def fed_by(self, feed: Feed) -> "MetropolisHastings":
        """The same kernel, which tells its rule how this feed draws rows."""
        for_rule = feed.feeds[0] if isinstance(feed, SeveralFeeds) else feed
        return dataclasses.replace(self, drawn=for_rule.drawn)

    def init(self, position: PyTree) -> AtRest:
        """A chain at rest with steps as long as the proposal was given; warm-up has learned nothing yet."""
        return AtRest(position, self._tuning.init(position))

    @property
    def dear_to_begin(self) -> bool:
        """Whether proposing is dear."""
        return self.proposal.dear

    def begin(
        self, key: Array, rest: AtRest, model: Model, time: Int[Array, ""], windows: Windows | None = None
    ) -> InTest:
        """Proposes, and begins the test of that."""
        return self.test(rest, self.ask(key, rest, model, time, windows), model)

    def ask(
        self, key: Array, rest: AtRest, model: Model, time: Int[Array, ""], windows: Windows | None = None
    ) -> Asked:
        """Draws a proposal, from the second of the windows if it needs rows, and asks the rule about it."""
        key_proposal, key_rule = jax.random.split(key)
        proposal = self.tuned_proposal(rest)
        own: tuple[Any, ...] = () if windows is None else (windows.of(1),)
        move = proposal.propose(key_proposal, rest.position, model, *own)
        known = model.known_change(rest.position, move.position, with_reach=self.rule.needs.row_bounds)
        finest = jnp.result_type(float)
        offset = known.offset.astype(finest) + move.log_ratio.astype(finest)
        possible = jnp.isfinite(offset)
        question = Question(
            rest.position, move.position, jnp.where(possible, offset, 0), time, known.reach, drawn=self.drawn
        )
        return Asked(question, key_rule, possible, own[0].count if own else None)

    def observe(self, state: InTest, model: Model, window: Window | Windows) -> tuple[InTest, Bool[Array, ""]]:
        """Hands each row's log ratio to the rule; the proposal has had its window."""
        rows: Any = window.of(0) if isinstance(window, Windows) else window
        evidence = state.evidence
        if isinstance(self.rule, SelectiveRule):
            evidence, rows = self.rule.select(evidence, rows)
        said = rows.sums if self.rule.needs.only_sums else rows.map
        log_ratios = said(lambda some: model.log_ratios(state.rest.position, state.proposed, some))
        finite = jnp.isfinite(ordered_sum(log_ratios))  # a sum is finite only if all its terms are
        evidence = self.rule.observe(evidence, log_ratios, rows)
        state = dataclasses.replace(state, evidence=evidence, finite=finite, rows=state.rows + rows.count)
        return state, self.rule.verdict(evidence).done | ~finite | ~state.possible

    def settle(self, state: InTest, gain: Real[Array, ""]) -> tuple[AtRest, Info]:
        """Moves if the rule says so and every log ratio was finite; then tunes."""
        accepted = self.decide(state)
        nonfinite = ~state.finite & state.possible
        stats = self.rule.stats(state.evidence) | self.proposal.stats(state.rest.position, state.proposed)
        rows = state.rows
        if state.read_before is not None:
            rows, stats = rows + state.read_before, {**stats, "proposal_rows": state.read_before}
        info = Info(accepted, rows, nonfinite, stats)
        position = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), state.proposed, state.rest.position)
        outcome = Outcome(state.rest.position, position, accepted, rows, state.known, state.proposed)
        tuned = self._tuning.update(state.rest.tuned, outcome, gain)
        return AtRest(position, tuned), info

    def abandon(self, state: InTest) -> AtRest:
        """The chain where it was."""
        return state.rest

    def position(self, rest: AtRest) -> PyTree:
        """Where the chain is at rest: the last position that a test let it move to."""
        return rest.position

    def moved(self, rest: AtRest, position: PyTree) -> AtRest:
        """The chain elsewhere, with the step size that it has found."""
        return AtRest(position, rest.tuned)

    def wants_every_row(self, state: InTest) -> PyTree:
        """Asks a rule that chooses its own rows."""
        own = self.rule.wants_every_row(state.evidence) if isinstance(self.rule, SelectiveRule) else None
        return own if self.proposal.needs is None else (own, None)

    @property
    def label(self) -> str:
        """The name of the rule, which is what tells such kernels apart."""
        return type(self.rule).__name__

    def step_size(self, rest: AtRest) -> Real[Array, ""]:
        """The factor warm-up found for the proposal's steps."""
        return self._tuning.step_size(rest.tuned)

    def tuned_proposal(self, rest: AtRest) -> Proposal:
        """The proposal as warm-up has left it."""
        return self.proposal.rescaled(self._tuning.factor(rest.tuned))

    def notes(self, stats: dict[str, np.ndarray], model: Model) -> list[str]:
        """What proposal and rule have to say."""
        of_steps = self.proposal.notes(stats) + _rows_to_propose(type(self.proposal).__name__, stats)
        return of_steps + self.rule.notes(_of_the_test(stats), model)

    def warnings(self, stats: dict[str, np.ndarray]) -> list[str]:
        """What the rule warns of."""
        return self.rule.warnings(_of_the_test(stats))

    def objections(self, stats: dict[str, np.ndarray]) -> list[str]:
        """What the rule has seen."""
        return self.rule.objections(_of_the_test(stats))

    def check(self, position: PyTree, model: Model, drawn: Drawn) -> None:
        """Asks the proposal and the rule, and whether they can go together."""
        if self.proposal.real_only:
            require_reals(type(self.proposal).__name__, position)
        self.proposal.check(position, model)
        self.rule.check(model, drawn)

    def decide(self, state: InTest) -> Bool[Array, ""]:
        """Whether a finished test lets the chain move."""
        return self.rule.verdict(state.evidence).accept & state.finite & state.possible

    @property
    def _tuning(self) -> Tuning:
        promise = self.rule.promise
        tuning = self.proposal.tuning(promise.best_acceptance)
        return NothingLearned(tuning) if promise.guarantee is Guarantee.NONE else tuning

    def test(self, rest: AtRest, asked: Asked, model: Model) -> InTest:
        """Begins the test of a question."""
        evidence = self.rule.init(asked.key_rule, asked.question, model)
        known = jnp.where(asked.possible, asked.question.offset, -jnp.inf)
        return InTest(
            rest, asked.question.proposed, asked.possible, evidence, jnp.bool_(True), jnp.int32(0), known, asked.rows
        )


def _of_the_test(stats: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The statistics as a rule knows them: rows are those of its tests."""
    return {**stats, "rows": stats["rows"] - stats["proposal_rows"]} if "proposal_rows" in stats else stats


def _rows_to_propose(name: str, stats: dict[str, np.ndarray]) -> list[str]:
    """Of the rows of a step, how many went into the proposal."""
    if "proposal_rows" not in stats or not stats["rows"].size:
        return []
    own, whole = float(stats["proposal_rows"].mean()), float(stats["rows"].mean())
    if not own:  # those of other parts
        return []
    return [
        f"{own:,.0f} of the {whole:,.0f} rows of a step are those that {name} proposes from; the test reads its own"
    ]
