"""What a proposal is."""

import abc
from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, PyTree, Real

from tallmc.feed import Needs
from tallmc.posterior import Model
from tallmc.proposals.tuning import TowardsAcceptance, Tuning


class Move(NamedTuple):
    """A proposed position and `log q(old | new) - log q(new | old)`, Jacobian included; nothing else."""

    position: PyTree
    log_ratio: Real[Array, ""]


class Proposal(eqx.Module):
    """Suggests where to go next. Knows nothing of acceptance rules."""

    @abc.abstractmethod
    def propose(self, key: Array, position: PyTree, model: Model) -> Move:
        """Draws one proposal.

        A proposal that declares `needs` is called as `propose(key, position, model, window)`, with a window of rows
        that are drawn independently of those that the test will read.
        """

    @property
    def needs(self) -> Needs | None:
        """What it needs of rows, such as a minibatch for a gradient; None if it reads none."""
        return None

    def rescaled(self, step_size: Real[Array, ""]) -> "Proposal":
        """The same proposal with steps `step_size` times as long; warm-up tunes that factor."""
        del step_size
        return self

    def tuning(self, target_acceptance: float) -> Tuning:
        """How warm-up finds that factor, given the share of accepted steps at which a random walk explores fastest."""
        return TowardsAcceptance(target_acceptance)

    def check(self, position: PyTree, model: Model) -> None:
        """Raises `ValueError` if this proposal cannot move such a position of such a model."""
        del position, model
