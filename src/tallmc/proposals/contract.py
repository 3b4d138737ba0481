"""What a proposal is."""

import abc
from typing import ClassVar, NamedTuple

import equinox as eqx
import numpy as np
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

    real_only: ClassVar[bool] = False
    """Whether it moves real numbers only: a start of whole numbers then becomes real, and truth values are refused."""

    @abc.abstractmethod
    def propose(self, key: Array, position: PyTree, model: Model) -> Move:
        """Draws one proposal.

        A proposal that declares `needs` is called as `propose(key, position, model, window)`, with a window of rows
        that are drawn independently of those that the test will read. The log ratio must then be that of this window:
        the way back is proposed from the same rows.
        """

    @property
    def needs(self) -> Needs | None:
        """What it needs of rows, such as a minibatch for a gradient; None if it reads none."""
        return None

    @property
    def dear(self) -> bool:
        """Whether proposing costs as much as a window of a test, or more: by default, if it reads rows."""
        return self.needs is not None

    def prepared_for(self, model: Model, num_warmup: int) -> "Proposal":
        """The same proposal, told what it will be asked about, and how many transitions of a chain are warm-up."""
        del model, num_warmup
        return self

    def rescaled(self, step_size: PyTree) -> "Proposal":
        """The same proposal as tuning has it: for most, with steps `step_size` times as long."""
        del step_size
        return self

    def tuning(self, target_acceptance: float) -> Tuning:
        """How warm-up finds that factor, given the share of accepted steps at which a random walk explores fastest."""
        return TowardsAcceptance(target_acceptance)

    def stats(self, position: PyTree, proposed: PyTree) -> dict[str, Array]:
        """What a reader wants to know of a step besides what became of it, such as its kind; one value a name."""
        del position, proposed
        return {}

    def notes(self, stats: dict[str, np.ndarray]) -> list[str]:
        """What a reader of a run's summary should be told, from the statistics of all its steps."""
        del stats
        return []

    def check(self, position: PyTree, model: Model) -> None:
        """Raises `ValueError` if this proposal cannot move such a position of such a model."""
        del position, model
