"""The contract of a kernel. Read this first.

A chain is a small state machine. In a *round* it is shown one window of rows and adds them to the evidence for or
against its current proposal; when it has seen enough, it moves or stays. A *transition* is as many rounds as one
decision takes:

    at rest ─ begin ─► in a test ─ observe ─► in a test ─ … ─ observe ─► decided ─ settle ─► at rest

At rest a chain is a position and what has been tuned, and nothing else: no proposal, no evidence. That is where a
kernel made of kernels hands a chain from one part to the next.
"""

import abc
from typing import Any, Generic, NamedTuple, TypeVar

from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc.feed import Drawn, Feed
from tallmc.posterior import Model
from tallmc.reported import Reported

Rest = TypeVar("Rest")
State = TypeVar("State")


class Info(NamedTuple):
    """What a reader is told of a transition.

    Args:
        accepted: Whether the chain moved.
        rows: Rows the transition consumed.
        nonfinite: Whether the proposal was rejected for a log ratio that was not a finite number.
        stats: One number a name, whatever else there is to tell.
    """

    accepted: Bool[Array, ""]
    rows: Int[Array, ""]
    nonfinite: Bool[Array, ""]
    stats: dict[str, Any]


class Part(Reported):
    """What reads rows and is told about: a kernel, or what decides between the rungs of a ladder.

    Whoever looks at what a run is made of walks `kernel.parts()`.
    """

    @property
    @abc.abstractmethod
    def needs(self) -> Any:
        """What it needs of its rows: one `Needs`; or a tuple of such, and `observe` is then given `Windows`."""

    def members(self) -> "tuple[Part, ...]":
        """What it is made of; nothing for most."""
        return ()

    def parts(self) -> "tuple[Part, ...]":
        """Those at the bottom, numbered as in `run.stats["part"]`; who looks at rules or proposals walks them."""
        members = self.members()
        return tuple(part for member in members for part in member.parts()) if members else (self,)

    def check(self, position: PyTree, model: Model, drawn: Drawn) -> None:
        """Raises `ValueError` if this cannot do its work on such a position of such a model, from rows so drawn."""
        del position, model, drawn


class Kernel(Part, Generic[Rest, State]):
    """Moves one chain. Kernels can be made of kernels: see `tm.Cycle`."""

    def fed_by(self, feed: Feed) -> "Kernel":
        """The same kernel, told where its rows will come from."""
        del feed
        return self

    def prepared_for(self, model: Model, num_warmup: int) -> "Kernel":
        """The same kernel, told what it will be asked about, and how many transitions of a chain are warm-up."""
        del model, num_warmup
        return self

    @abc.abstractmethod
    def init(self, position: PyTree) -> Rest:
        """A chain at rest that has not moved or learned yet."""

    @abc.abstractmethod
    def begin(self, key: Array, rest: Rest, model: Model, time: Int[Array, ""]) -> State:
        """Begins a transition, before which there were `time`: proposes, and starts the test of that.

        With needs `to_begin`: `begin(key, rest, model, time, windows)`, the first `Windows` as its test will have.
        """

    @abc.abstractmethod
    def observe(self, state: State, model: Model, window: Any) -> tuple[State, Bool[Array, ""]]:
        """One round: weighs a `Window`, or `Windows`. Returns the state and whether this is enough to settle."""

    @abc.abstractmethod
    def settle(self, state: State, gain: Real[Array, ""]) -> tuple[Rest, Info]:
        """Ends a transition: moves or stays, and tunes as strongly as `gain` says, which falls in warm-up to zero."""

    @abc.abstractmethod
    def abandon(self, state: State) -> Rest:
        """The chain as it was before a test that is dropped undecided."""

    @property
    def dear_to_begin(self) -> bool:
        """Whether `begin` costs as much as a round, or more: in `Together`, chains then wait for each other."""
        return False

    @abc.abstractmethod
    def position(self, rest: Rest) -> PyTree:
        """Where a chain at rest is."""

    @abc.abstractmethod
    def moved(self, rest: Rest, position: PyTree) -> Rest:
        """The chain put elsewhere; what it has tuned stays."""

    def wants_every_row(self, state: State) -> PyTree:
        """Shaped like `needs`: whether its test wants every row once, in place of rows by weight; None: never."""
        del state

    def turn_of(self, part: int, key: Array, rest: Rest) -> "tuple[Kernel, Array, Any]":
        """For audits: the part, and the key and rest that `begin` hands to it when it is given these."""
        del part
        return self, key, rest

    def step_size(self, rest: Rest) -> PyTree:
        """What tuning has made of the step size, as a factor; None if nothing is tuned."""
        del rest
