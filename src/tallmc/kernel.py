"""The contract: what a proposal, an acceptance rule and a kernel are. Read this first.

A chain is a small state machine. In a *round* it is shown one window of rows and adds them to the evidence for or
against its current proposal; when its acceptance rule has seen enough, the chain moves or stays and draws the next
proposal. A *transition* is as many rounds as one decision takes.
"""

import abc
import enum
import math
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Int, PyTree, Real

from tallmc.feed import Window
from tallmc.normality import skewness_warning
from tallmc.posterior import Posterior
from tallmc.tuning import TowardsAcceptance, Tuning

State = TypeVar("State")
Evidence = TypeVar("Evidence")


class Move(NamedTuple):
    """A proposed position and `log q(old | new) - log q(new | old)`, Jacobian included; nothing else."""

    position: PyTree
    log_ratio: Real[Array, ""]


class Proposal(eqx.Module):
    """Suggests where to go next. Knows nothing of acceptance rules."""

    @abc.abstractmethod
    def propose(self, key: Array, position: PyTree, posterior: Posterior) -> Move:
        """Draws one proposal."""

    def rescaled(self, step_size: Real[Array, ""]) -> "Proposal":
        """The same proposal with steps `step_size` times as long; warm-up tunes that factor."""
        del step_size
        return self

    def tuning(self, target_acceptance: float) -> Tuning:
        """How warm-up finds that factor, given the share of accepted steps at which a random walk explores fastest."""
        return TowardsAcceptance(target_acceptance)

    def check(self, position: PyTree, posterior: Posterior) -> None:
        """Raises `ValueError` if this proposal cannot move such a position of such a posterior."""
        del position, posterior


class Guarantee(enum.Enum):
    """What a rule promises about the chance that it accepts."""

    EXACT = "exact"  # equal to its formula
    BOUNDED = "bounded"  # within a stated error of its formula
    ASYMPTOTIC = "asymptotic"  # tends to its formula as the batch grows


class Question(NamedTuple):
    """What a rule is asked: to go from one position to another, or not.

    Args:
        position: Where the chain is.
        proposed: Where it might go.
        offset: The part of the log acceptance ratio that needs no data.
        time: Transitions that the chain has made before this one, warm-up included.
        between: What `posterior.between` says of the move, for bounds; None to let them work it out.
    """

    position: PyTree
    proposed: PyTree
    offset: Real[Array, ""]
    time: Int[Array, ""]
    between: PyTree = None


class Verdict(NamedTuple):
    """Whether a rule has seen enough, and if so what it decides."""

    done: Bool[Array, ""]
    accept: Bool[Array, ""]


class AcceptanceRule(eqx.Module, Generic[Evidence]):
    """Decides from rows whether a chain moves. Knows nothing of proposals.

    A rule draws its random numbers in `init`, or a key for them there, so that its rounds are functions of what they
    are given. Once it has been shown every row it must be done.
    """

    guarantee: ClassVar[Guarantee]
    reference: ClassVar[str]
    target_acceptance: ClassVar[float]
    """Share of accepted proposals at which a random walk explores fastest under this rule."""
    trusts_normality: ClassVar[bool] = False
    """Whether the rule takes the mean log ratio of a few rows for normal."""
    wants_weighted_rows: ClassVar[bool] = False
    """Whether rows must come in proportion to the constants of `posterior.bounds`, as from a `WeightedFeed`."""
    allows_weighted_rows: ClassVar[bool] = False
    """Whether they may: whether the rule knows that as many draws as there are rows are not all rows."""

    batch_size: eqx.AbstractVar[int]
    """Rows in a window."""

    @abc.abstractmethod
    def init(self, key: Array, question: Question, posterior: Posterior) -> Evidence:
        """Starts a test."""

    @property
    def expansion_order(self) -> int | None:
        """Order of the Taylor expansion that the rule cannot do without; None if it can."""
        return None

    def every_row(self, evidence: Evidence) -> Bool[Array, ""] | None:
        """For rules that want weighted rows: whether this test wants every row once instead."""
        del evidence
        return None

    def wanted(self, evidence: Evidence, window: Window) -> Window:
        """What the rule wants of a window: its first rows, or all of it."""
        del evidence
        return window

    @abc.abstractmethod
    def observe(self, evidence: Evidence, log_ratios: Real[Array, " rows"], window: Window) -> Evidence:
        """Adds one window: `log_ratios[i]` is row i's log likelihood ratio, zero where the window is padding.

        Ratios of rows that were drawn by weight are scaled so that their expected mean is the mean over all rows.
        """

    @abc.abstractmethod
    def verdict(self, evidence: Evidence) -> Verdict:
        """Whether this is enough, and what follows from it."""

    def level(self, evidence: Evidence) -> Real[Array, ""] | None:
        """What the sum of all rows' log ratios must exceed, for rules that draw such a level; None for others."""
        del evidence
        return None

    def decisive_rows(self, num_rows: int) -> int:
        """Rows that a decision rests on at least."""
        del num_rows
        return self.batch_size

    def stats(self, evidence: Evidence) -> dict[str, Array]:
        """What a reader wants to know of a finished test; one number a name."""
        del evidence
        return {}

    @abc.abstractmethod
    def acceptance_probability(self, log_ratio: ArrayLike) -> Real[Array, "..."]:
        """The formula: the chance to accept if the log acceptance ratio over all rows is `log_ratio`."""

    def error_bound(self, num_rows: int) -> float:
        """Largest distance from the formula that a bounded rule allows itself; 0 if exact, NaN if nothing is known."""
        del num_rows
        return 0.0 if self.guarantee is Guarantee.EXACT else math.nan

    def inverse_temperature(self, num_rows: int) -> float:
        """What a tempered rule multiplies the likelihood's log ratio by before it enters the formula."""
        del num_rows
        return 1.0

    def notes(self, stats: dict[str, np.ndarray], posterior: Posterior) -> list[str]:
        """What a reader of a run's summary must be told, from the statistics of all its tests."""
        del stats, posterior
        return []

    def warnings(self, stats: dict[str, np.ndarray]) -> list[str]:
        """Why the run should not be trusted, from the same; raised as warnings when it ends, and in the summary."""
        return skewness_warning(type(self).__name__, stats) if self.trusts_normality else []

    def check(self, posterior: Posterior) -> None:
        """Raises `ValueError` if this rule cannot decide about such a posterior."""
        del posterior


def check_batch_size(batch_size: int) -> None:
    """Raises `ValueError` unless a rule reads at least one row at a time."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer) or batch_size < 1:
        raise ValueError(f"batch_size must be a whole number of at least 1, got {batch_size!r}")


class Info(NamedTuple):
    """What a reader is told of a transition.

    Args:
        accepted: Whether the chain moved.
        rows: Rows the transition consumed.
        nonfinite: Whether the proposal was rejected for a log ratio that was not a finite number.
        stats: What the rule adds.
    """

    accepted: Bool[Array, ""]
    rows: Int[Array, ""]
    nonfinite: Bool[Array, ""]
    stats: dict[str, Any]


class Kernel(eqx.Module, Generic[State]):
    """Moves one chain: `observe` windows until done, then `conclude`. Kernels can be made of kernels."""

    @property
    @abc.abstractmethod
    def batch_size(self) -> int:
        """Rows in the windows that `observe` wants."""

    @property
    def wants_weighted_rows(self) -> bool:
        """Whether rows must come in proportion to the constants of `posterior.bounds`."""
        return False

    @property
    def allows_weighted_rows(self) -> bool:
        """Whether they may."""
        return False

    @property
    def expansion_order(self) -> int | None:
        """Order of the Taylor expansion that the kernel cannot do without; None if it can."""
        return None

    @abc.abstractmethod
    def init(self, key: Array, position: PyTree, posterior: Posterior) -> State:
        """The state before the first round."""

    def restart(self, key: Array, state: State, posterior: Posterior, time: Int[Array, ""]) -> State:
        """The state with its test begun anew, for a posterior that is expanded elsewhere."""
        del time
        return self.init(key, self.position(state), posterior)

    @abc.abstractmethod
    def observe(self, state: State, posterior: Posterior, window: Window) -> tuple[State, Bool[Array, ""]]:
        """One round: weighs a window. Returns the state and whether this is enough to conclude."""

    @abc.abstractmethod
    def conclude(
        self, key: Array, state: State, posterior: Posterior, time: Int[Array, ""], gain: Real[Array, ""]
    ) -> tuple[State, Info]:
        """Ends a transition, of which there are then `time`: moves or stays, tunes, and makes the next proposal.

        `gain` says how strongly to tune; it falls during warm-up and is zero after it.
        """

    def every_row(self, state: State) -> Bool[Array, ""] | None:
        """With weighted rows: whether the test that has just begun wants every row once instead; None if never."""
        del state
        return None

    @abc.abstractmethod
    def position(self, state: State) -> PyTree:
        """Where the chain is."""

    def decisive_rows(self, num_rows: int) -> int:
        """Rows that a decision rests on at least."""
        del num_rows
        return self.batch_size

    def step_size(self, state: State) -> Real[Array, ""] | None:
        """What tuning has made of the step size, as a factor; None if nothing is tuned."""
        del state
        return None

    def notes(self, stats: dict[str, np.ndarray], posterior: Posterior) -> list[str]:
        """What a reader of a run's summary must be told."""
        del stats, posterior
        return []

    def warnings(self, stats: dict[str, np.ndarray]) -> list[str]:
        """Why the run should not be trusted."""
        del stats
        return []

    def check(self, position: PyTree, posterior: Posterior) -> None:
        """Raises `ValueError` if this kernel cannot move such a position of such a posterior."""
        del position, posterior
