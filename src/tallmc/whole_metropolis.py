"""Metropolis-Hastings on all rows that remembers the log likelihood of where it is."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc.acceptance.formulas import METROPOLIS
from tallmc.feed import Drawn, Needs
from tallmc.kernel import Info
from tallmc.numerics.flat import as_device_array
from tallmc.posterior import Model
from tallmc.posterior.whole_rows import WholeRows
from tallmc.proposals.contract import Proposal
from tallmc.proposals.tuning import Outcome, Tuning
from tallmc.remembering import KnownLikelihood, Remembering


class AtRest(eqx.Module):
    """A position, its log likelihood less the level of all rows, and what warm-up has learned of the step size."""

    position: PyTree
    likelihood: Real[Array, ""]
    known: Bool[Array, ""]
    tuned: PyTree


class OnTrial(eqx.Module):
    """A proposal, what its log likelihood must gain, and once the rows were read, that log likelihood."""

    rest: AtRest
    proposed: PyTree
    offset: Real[Array, ""]
    threshold: Real[Array, ""]
    likelihood: Real[Array, ""]
    heat: Real[Array, ""]
    rows: Int[Array, ""]


class WholeMetropolis(Remembering[AtRest, OnTrial]):
    """Metropolis' test on all rows, which evaluates the likelihood at the proposed position only.

    `tm.MetropolisHastings(proposal, tm.Exact())` decides alike, but reads rows at both ends of a step. Here the log
    likelihood of the current one is kept. So rungs of a ladder have what their swaps need without reading anything.

    Args:
        proposal: Where to go next; one that needs no rows.
        level: Log likelihood of a row at a typical position, from which the sum is measured: it keeps a sum over a
            million rows exact to a few digits after the point in float32. The same on all rungs of a ladder.
    """

    proposal: Proposal
    level: Real[Array, ""]

    def __init__(self, proposal: Proposal, level: float = 0.0):
        if proposal.needs is not None:
            raise ValueError(f"{type(proposal).__name__} needs rows of its own; use tm.MetropolisHastings with it")
        self.proposal, self.level = proposal, as_device_array(level, jnp.result_type(float))

    @property
    def needs(self) -> Needs:
        """All rows in every round."""
        return Needs(2**30, (Drawn.ALL_AT_ONCE,), every_row=True)

    @property
    def label(self) -> str:
        """What it decides like."""
        return "Exact"

    def init(self, position: PyTree) -> AtRest:
        """A chain that has not looked at any row yet."""
        zero = jnp.zeros((), jnp.result_type(float))
        return AtRest(position, zero, jnp.bool_(False), self._tuning.init(position))

    def begin(self, key: Array, rest: AtRest, model: Model, time: Int[Array, ""]) -> OnTrial:
        """Proposes. A chain that does not know its own log likelihood looks at that first, and stays."""
        del time
        key_proposal, key_level = jax.random.split(key)
        finest = jnp.result_type(float)
        proposal = self.proposal.rescaled(self._tuning.factor(rest.tuned))
        move = proposal.propose(key_proposal, rest.position, model)
        offset = model.log_prior_change(rest.position, move.position).astype(finest) + move.log_ratio.astype(finest)
        # Until the log likelihood of the position is known, the position itself is what is looked at.
        proposed = jax.tree.map(lambda new, old: jnp.where(rest.known, new, old), move.position, rest.position)
        threshold = METROPOLIS.level(key_level, jnp.zeros((), finest))
        return OnTrial(
            rest, proposed, offset, threshold, rest.likelihood, model.temperature.astype(finest), jnp.int32(0)
        )

    def observe(self, state: OnTrial, model: Model, window: WholeRows) -> tuple[OnTrial, Bool[Array, ""]]:
        """One pass over all rows."""
        alone = jax.tree.map(lambda leaf: leaf[None], state.proposed)
        likelihood = window.log_likelihoods(model, self.level, alone)[0]
        return dataclasses.replace(state, likelihood=likelihood, rows=window.count), jnp.bool_(True)

    def settle(self, state: OnTrial, gain: Real[Array, ""]) -> tuple[AtRest, Info]:
        """Moves if the gain is large enough; then tunes."""
        rest = state.rest
        ratio = state.offset + (state.likelihood - rest.likelihood) / state.heat
        finite = jnp.isfinite(ratio)
        accepted = rest.known & finite & (ratio > state.threshold)
        position = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), state.proposed, rest.position)
        likelihood = jnp.where(accepted | ~rest.known, state.likelihood, rest.likelihood)
        outcome = Outcome(rest.position, position, accepted, state.rows, state.offset)
        tuned = self._tuning.update(rest.tuned, outcome, jnp.where(rest.known, gain, 0))
        # Beyond the support the prior says so without any rows; a row that is not finite is another matter.
        nonfinite = rest.known & ~finite & jnp.isfinite(state.offset)
        stats = {"evaluations": state.rows.astype(ratio.dtype)}
        return AtRest(position, likelihood, jnp.bool_(True), tuned), Info(accepted, state.rows, nonfinite, stats)

    def abandon(self, state: OnTrial) -> AtRest:
        """The chain where it was."""
        return state.rest

    def position(self, rest: AtRest) -> PyTree:
        """Where the chain is at rest."""
        return rest.position

    def moved(self, rest: AtRest, position: PyTree) -> AtRest:
        """The chain elsewhere; its log likelihood there remains to be seen."""
        return AtRest(position, rest.likelihood, jnp.bool_(False), rest.tuned)

    def known_likelihood(self, rest: AtRest) -> KnownLikelihood:
        """What it remembers."""
        return KnownLikelihood(rest.likelihood, self.level)

    def moved_to_known(self, rest: AtRest, position: PyTree, likelihood: Real[Array, ""]) -> AtRest:
        """The chain where another was, with what that one knew."""
        return AtRest(position, likelihood, jnp.bool_(True), rest.tuned)

    def step_size(self, rest: AtRest) -> Real[Array, ""]:
        """The factor warm-up found for the proposal's steps."""
        return self._tuning.step_size(rest.tuned)

    def check(self, position: PyTree, model: Model, drawn: Drawn) -> None:
        """Asks the proposal."""
        if drawn is not Drawn.ALL_AT_ONCE:
            raise ValueError("WholeMetropolis reads all rows at once; leave feed out")
        self.proposal.check(position, model)

    @property
    def _tuning(self) -> Tuning:
        return self.proposal.tuning(METROPOLIS.best_acceptance)
