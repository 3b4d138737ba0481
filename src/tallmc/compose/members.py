"""What kernels made of kernels share: one member at work at a time, the others at rest."""

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc.feed import Feed, SeveralFeeds, Windows
from tallmc.feed.contract import begins_with_rows
from tallmc.kernel import Info, Kernel
from tallmc.posterior import Model


class AllAtRest(eqx.Module):
    """Where the chain is, every member at rest with what it has tuned, and how many turns they have had together."""

    position: PyTree
    members: tuple[PyTree, ...]
    turns: Int[Array, ""]


class OneInTest(eqx.Module):
    """The member at work, and the state of its test; those of the others mean nothing."""

    rest: AllAtRest
    which: Int[Array, ""]
    tests: tuple[PyTree, ...]


class OneAtATime(Kernel[AllAtRest, OneInTest]):
    """A kernel that makes each of its transitions with one of its members; `choose` says with which."""

    kernels: eqx.AbstractVar[tuple[Kernel, ...]]

    @property
    @abc.abstractmethod
    def shares(self) -> tuple[float, ...]:
        """Of all transitions, those that each member makes in the long run."""

    @abc.abstractmethod
    def choose(self, key: Array, turns: Int[Array, ""]) -> Int[Array, ""]:
        """The member whose turn it is, after so many turns of this kernel's own: inside another it has fewer."""

    def members(self) -> tuple[Kernel, ...]:
        """The kernels it was given."""
        return self.kernels

    @property
    def needs(self) -> tuple[Any, ...]:
        """What each member needs of its rows, in their order; each is given a feed of its own for that."""
        return tuple(kernel.needs for kernel in self.kernels)

    def fed_by(self, feed: Feed) -> "OneAtATime":
        """Tells each member where its own rows come from."""
        assert isinstance(feed, SeveralFeeds)
        pairs = zip(self.kernels, feed.feeds, strict=True)
        return dataclasses.replace(self, kernels=tuple(kernel.fed_by(own) for kernel, own in pairs))

    def prepared_for(self, model: Model, num_warmup: int) -> "OneAtATime":
        """Tells each member what it will be asked about, and how many transitions of warm-up are its own."""
        turns = (int(num_warmup * share) for share in self.shares)
        pairs = zip(self.kernels, turns, strict=True)
        return dataclasses.replace(self, kernels=tuple(kernel.prepared_for(model, own) for kernel, own in pairs))

    def init(self, position: PyTree) -> AllAtRest:
        """All members at rest in the same place, none of which has tuned its steps yet."""
        return AllAtRest(position, tuple(kernel.init(position) for kernel in self.kernels), jnp.int32(0))

    @property
    def dear_to_begin(self) -> bool:
        """Whether it is for some member."""
        return any(kernel.dear_to_begin for kernel in self.kernels)

    def begin(
        self, key: Array, rest: AllAtRest, model: Model, time: Int[Array, ""], windows: Windows | None = None
    ) -> OneInTest:
        """Lets the member whose turn it is begin, from where the chain is."""
        key_choice, key_member = jax.random.split(key)
        which = self.choose(key_choice, rest.turns)

        def begin(i: int) -> PyTree:
            kernel = self.kernels[i]
            rows = (windows.of(i),) if windows is not None and begins_with_rows(kernel.needs) else ()
            return kernel.begin(key_member, kernel.moved(rest.members[i], rest.position), model, time, *rows)

        shapes = [jax.eval_shape(lambda i=i: begin(i)) for i in range(len(self.kernels))]

        def branch(i: int) -> tuple[PyTree, ...]:
            return tuple(begin(j) if j == i else _blank(shape, key) for j, shape in enumerate(shapes))

        tests = jax.lax.switch(which, [lambda i=i: branch(i) for i in range(len(self.kernels))])
        return OneInTest(rest, which, tests)

    def observe(self, state: OneInTest, model: Model, window: Windows) -> tuple[OneInTest, Bool[Array, ""]]:
        """Shows the member at work its window; no other is read."""

        def branch(i: int) -> tuple[tuple[PyTree, ...], Bool[Array, ""]]:
            test, done = self.kernels[i].observe(state.tests[i], model, window.of(i))  # pyright: ignore
            return _with(state.tests, i, test), done

        tests, done = jax.lax.switch(state.which, [lambda i=i: branch(i) for i in range(len(self.kernels))])
        return dataclasses.replace(state, tests=tests), done

    def settle(self, state: OneInTest, gain: Real[Array, ""]) -> tuple[AllAtRest, Info]:
        """Lets the member at work settle; the chain is where that leaves it."""
        infos = [jax.eval_shape(k.settle, test, gain)[1] for k, test in zip(self.kernels, state.tests, strict=True)]
        names: dict[str, Any] = {name: like for info in infos for name, like in info.stats.items() if name != "part"}
        first_part = _first_parts(self.kernels)

        def branch(i: int) -> tuple[AllAtRest, Info]:
            kernel = self.kernels[i]
            rest, info = kernel.settle(state.tests[i], gain)
            stats = {name: info.stats.get(name, _absent(like)) for name, like in names.items()}
            stats["part"] = jnp.int32(first_part[i]) + info.stats.get("part", jnp.int32(0))
            members = _with(state.rest.members, i, rest)
            everyone = AllAtRest(kernel.position(rest), members, state.rest.turns + 1)
            return everyone, Info(info.accepted, info.rows, info.nonfinite, stats)

        return jax.lax.switch(state.which, [lambda i=i: branch(i) for i in range(len(self.kernels))])

    def abandon(self, state: OneInTest) -> AllAtRest:
        """The chain where it was."""
        return state.rest

    def position(self, rest: AllAtRest) -> PyTree:
        """Where the chain is: where the member that moved last has left it."""
        return rest.position

    def moved(self, rest: AllAtRest, position: PyTree) -> AllAtRest:
        """The chain elsewhere; members are moved there when it is their turn."""
        return AllAtRest(position, rest.members, rest.turns)

    def wants_every_row(self, state: OneInTest) -> tuple[PyTree, ...]:
        """What each member wants; only that of the one at work is ever read."""
        return tuple(k.wants_every_row(test) for k, test in zip(self.kernels, state.tests, strict=True))

    def turn_of(self, part: int, key: Array, rest: AllAtRest) -> tuple[Kernel, Array, Any]:
        """The turn of the member that the part belongs to."""
        first = _first_parts(self.kernels)
        i = max(number for number, start in enumerate(first) if start <= part)
        kernel, key_member = self.kernels[i], jax.random.split(key)[1]
        return kernel.turn_of(part - first[i], key_member, kernel.moved(rest.members[i], rest.position))

    def step_size(self, rest: AllAtRest) -> tuple[PyTree, ...]:
        """What each member has tuned."""
        return tuple(kernel.step_size(own) for kernel, own in zip(self.kernels, rest.members, strict=True))


def check_members(name: str, kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """The members as a tuple; raises `ValueError` unless they are kernels, and at least one."""
    if isinstance(kernels, Kernel) or not isinstance(kernels, Sequence) or not kernels:
        raise ValueError(f"{name} needs a list of kernels, such as tm.{name}([kernel, other])")
    for number, kernel in enumerate(kernels):
        if not isinstance(kernel, Kernel):
            raise ValueError(
                f"part {number} of {name} must be a Kernel such as tm.MetropolisHastings(proposal, rule), not "
                f"{type(kernel).__name__}"
            )
    return tuple(kernels)


def _with(items: tuple[PyTree, ...], i: int, item: PyTree) -> tuple[PyTree, ...]:
    return (*items[:i], item, *items[i + 1 :])


def _blank(shapes: PyTree, key: Array) -> PyTree:
    """A state that means nothing, of the right shape."""

    def blank(like: Any) -> Array:
        return key if jnp.issubdtype(like.dtype, jax.dtypes.prng_key) else jnp.zeros(like.shape, like.dtype)

    return jax.tree.map(blank, shapes)


def _absent(like: Any) -> Array:
    """What stands for a statistic that a member does not have."""
    floats = jnp.issubdtype(like.dtype, jnp.inexact)
    return jnp.full(like.shape, jnp.nan, like.dtype) if floats else jnp.zeros(like.shape, like.dtype)


def _first_parts(kernels: tuple[Kernel, ...]) -> list[int]:
    """Number of the first part of each member."""
    counts = [len(kernel.parts()) for kernel in kernels]
    return [sum(counts[:i]) for i in range(len(counts))]
