"""What an acceptance rule is: what it promises, what it needs, and how it decides."""

import abc
import dataclasses
import enum
import math
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc.acceptance.formulas import Formula
from tallmc.acceptance.normality import skewness_warning
from tallmc.feed import Drawn, Needs, Window
from tallmc.posterior import Model

Evidence = TypeVar("Evidence")


class Guarantee(enum.Enum):
    """What a rule promises about the chance that it accepts."""

    EXACT = "exact"  # equal to its formula
    BOUNDED = "bounded"  # within a stated error of its formula
    NONE = "none"  # makes no test: its formula is the one that it leaves out
    ASYMPTOTIC = "asymptotic"  # tends to its formula as the batch grows


def _at_temperature_one(num_rows: int) -> float:
    del num_rows
    return 1.0


@dataclasses.dataclass(frozen=True)
class Promise:
    """What a rule promises, declared once.

    Args:
        guarantee: How near it comes to its formula.
        formula: The chance to accept, given the log acceptance ratio over all rows.
        reference: Key of the paper in CITATION.cff.
        error_bound: For bounded rules: largest distance from the formula, given the number of rows.
        target_acceptance: Share of accepted proposals at which a random walk explores fastest, if not the formula's.
        draws_level: Whether it compares the log likelihood ratio with a level that `formula.level` draws from its key;
            then each decision can be compared with the one that all rows would make.
        trusts_normality: Whether it takes the mean log ratio of a few rows for normal.
        inverse_temperature: What a tempered rule multiplies the likelihood's log ratio by, given the number of rows.
    """

    guarantee: Guarantee
    formula: Formula
    reference: str
    error_bound: Callable[[int], float] | None = None
    target_acceptance: float | None = None
    draws_level: bool = True
    trusts_normality: bool = False
    inverse_temperature: Callable[[int], float] = _at_temperature_one

    @property
    def best_acceptance(self) -> float:
        """Share of accepted proposals at which a random walk explores fastest."""
        return self.formula.best_acceptance if self.target_acceptance is None else self.target_acceptance

    def largest_error(self, num_rows: int) -> float:
        """Largest distance from the formula; 0 if exact, NaN if nothing is known."""
        if self.error_bound is not None:
            return self.error_bound(num_rows)
        return 0.0 if self.guarantee is Guarantee.EXACT else math.nan


class Question(eqx.Module):
    """What a rule is asked: to go from one position to another, or not.

    Args:
        position: Where the chain is.
        proposed: Where it might go.
        offset: The part of the log acceptance ratio that needs no rows.
        time: Transitions that the chain has made before this one, warm-up included.
        reach: What the rows' bounds are multiplied by for this move; None unless the rule needs bounds of each row.
        drawn: How its rows will be drawn.
    """

    position: PyTree
    proposed: PyTree
    offset: Real[Array, ""]
    time: Int[Array, ""]
    reach: Real[Array, ""] | None = None
    drawn: Drawn = eqx.field(static=True, default=Drawn.EACH_ONCE)


class Verdict(NamedTuple):
    """Whether a rule has seen enough, and if so what it decides."""

    done: Bool[Array, ""]
    accept: Bool[Array, ""]


class AcceptanceRule(eqx.Module, Generic[Evidence]):
    """Decides from rows whether a chain moves. Knows nothing of proposals.

    A rule draws its random numbers in `init`, or a key for them there, so that its rounds are functions of what they
    are given. Once it has been shown every row it must be done.
    """

    @property
    @abc.abstractmethod
    def promise(self) -> Promise:
        """What it promises of its decisions."""

    @property
    @abc.abstractmethod
    def needs(self) -> Needs:
        """What it needs of its rows."""

    @abc.abstractmethod
    def init(self, key: Array, question: Question, model: Model) -> Evidence:
        """Starts a test: draws the random numbers that it needs, and returns evidence that has seen no row yet."""

    @abc.abstractmethod
    def observe(self, evidence: Evidence, log_ratios: Real[Array, " rows"], window: Window) -> Evidence:
        """Adds one window: `log_ratios[i]` is row i's log likelihood ratio, zero where the window is padding.

        Ratios of rows that were drawn by weight are scaled so that their expected mean is the mean over all rows.
        """

    @abc.abstractmethod
    def verdict(self, evidence: Evidence) -> Verdict:
        """Whether this is enough, and what follows from it."""

    def stats(self, evidence: Evidence) -> dict[str, Array]:
        """What a reader wants to know of a finished test; one number a name."""
        del evidence
        return {}

    def notes(self, stats: dict[str, np.ndarray], model: Model) -> list[str]:
        """What a reader of a run's summary must be told, from the statistics of all its tests."""
        del stats, model
        return []

    def warnings(self, stats: dict[str, np.ndarray]) -> list[str]:
        """Why the run should not be trusted, from the same; raised as warnings when it ends, and in the summary."""
        return skewness_warning(type(self).__name__, stats) if self.promise.trusts_normality else []

    def doubts(self) -> list[str]:
        """What speaks against every run with this rule, whatever it decides; in `run.doubts`, and warned of."""
        return []

    def objections(self, stats: dict[str, np.ndarray]) -> list[str]:
        """What was seen to be wrong with decisions that were promised to be right, from the same."""
        del stats
        return []

    def check(self, model: Model, drawn: Drawn) -> None:
        """Raises `ValueError` if this rule cannot decide about such a model from rows so drawn."""
        del model, drawn


class SelectiveRule(AcceptanceRule[Evidence]):
    """A rule that chooses its own rows: how many of a window it wants, and whether it would rather have every row."""

    @abc.abstractmethod
    def select(self, evidence: Evidence, window: Window) -> tuple[PyTree, Window]:
        """What the rule wants of a window: its first rows. `observe` is given the first result as its evidence."""

    @abc.abstractmethod
    def wants_every_row(self, evidence: Evidence) -> Bool[Array, ""]:
        """Whether the test that has just begun wants every row once, instead of rows drawn by weight."""


def check_batch_size(batch_size: int) -> None:
    """Raises `ValueError` unless a rule reads at least one row at a time."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer) or batch_size < 1:
        raise ValueError(f"batch_size must be a whole number of at least 1, got {batch_size!r}")
