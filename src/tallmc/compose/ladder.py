"""Parallel tempering: rungs at rising temperatures that swap states, so that the coldest crosses between modes."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc.acceptance import AcceptanceRule, Exact, MHMinibatch
from tallmc.compose.exchange import Exchange, ExchangeByRule, Exchanged, ExchangeOnAllRows, Facing
from tallmc.compose.ladder_parts import absent, alike, check_temperatures
from tallmc.compose.rungs import Climbing, Rungs
from tallmc.feed import Feed, SeveralFeeds, Windows
from tallmc.kernel import Info, Kernel, Part
from tallmc.metropolis import MetropolisHastings
from tallmc.numerics.flat import as_device_array
from tallmc.posterior import Model
from tallmc.proposals import Proposal
from tallmc.remembering import Remembering

_RUNGS, _SWAPS = "rung_", "swap_"  # what the names of statistics begin with; see `run.exchanges`


class LadderAtRest(eqx.Module):
    """Every rung at rest with what it has tuned, and how many scans there were.

    Args:
        rungs: For each group of rungs that one kernel moves, their rests, stacked.
        scans: Scans of this ladder so far.
        level: Log likelihood of a row that energies are measured from: known after the first scan.
        memory: What the exchange keeps.
    """

    rungs: tuple[PyTree, ...]
    scans: Int[Array, ""]
    level: Real[Array, ""]
    memory: PyTree


class InScan(eqx.Module):
    """Rungs that move, and then face each other."""

    rest: LadderAtRest
    rungs: tuple[Climbing, ...]
    key_swaps: Array
    time: Int[Array, ""]
    facing: Bool[Array, ""]
    swaps: PyTree
    level: Real[Array, ""]
    used_all_rows: Bool[Array, " rungs"]


class Ladder(Kernel[LadderAtRest, InScan]):
    """Parallel tempering with non-reversible swaps (Syed et al., 2022): a kernel whose chain is a ladder of rungs.

    Rung k samples the posterior with its log likelihood divided by the k-th temperature; the prior stays as it is. One
    transition of the ladder is a *scan*: every rung makes `moves` transitions of its own kernel, all side by side, and
    then neighbours swap states or do not: the pairs (0, 1), (2, 3), ... in even scans, (1, 2), (3, 4), ... in odd
    ones. Draws are those of rung 0, at temperature 1. `run.exchanges` says how well states travelled.

    Args:
        temperatures: Increasing, from 1 on. The last may be infinite if the prior is proper: that rung samples it.
        kernels: Moves a rung: one kernel for all, or one for each. A kernel with a temperature of its own, as with the
            rule `tm.Mint`, is told what remains to its rung's.
        swaps: The rule that decides swaps, from rows that both states share; None: exactly, from all rows, which gives
            the log evidence as well. Or another kind of exchange: `tm.EnergyRings`.
        moves: Transitions of each rung in a scan.
        adapts: Whether warm-up may place the temperatures between the first and the last anew and, if all rungs have
            the same kernel, change their number. Afterwards they stay.

    Example:
        >>> import tallmc as tm
        >>> walk = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.Exact())
        >>> tm.Ladder([1, 3, 10], walk).temperatures.tolist()
        [1.0, 3.0, 10.0]
    """

    heats: Real[Array, " rungs"]
    groups: tuple[Rungs, ...]
    exchange: Exchange
    moves: int = eqx.field(static=True)
    adapts: bool = eqx.field(static=True)

    def __init__(
        self,
        temperatures: Sequence[float] | Sequence[int] | np.ndarray,
        kernels: Kernel | Sequence[Kernel],
        swaps: AcceptanceRule | Exchange | None = None,
        moves: int = 1,
        adapts: bool = False,
    ):
        heats = check_temperatures(temperatures)
        if isinstance(moves, bool) or not isinstance(moves, int | np.integer) or moves < 1:
            raise ValueError(f"moves must be a whole number of at least 1, got {moves!r}")
        each = [kernels] * len(heats) if isinstance(kernels, Kernel) else list(kernels)
        if len(each) != len(heats):
            raise ValueError(
                f"the ladder has {len(heats)} temperatures but {len(each)} kernels; pass one for each rung"
            )
        self.heats = as_device_array(heats, jnp.result_type(float))
        self.moves, self.adapts = int(moves), bool(adapts)
        self.groups = tuple(Rungs(kernel, count, self.moves, np.asarray(0, np.int32)) for kernel, count in alike(each))
        self.exchange = _exchange(swaps)
        if adapts and not self.exchange.follows:
            raise ValueError(
                f"temperatures that warm-up moves do not go with {self.exchange.label}: leave adapts out, or let "
                "tm.equi_energy(posterior) choose both"
            )

    @classmethod
    def geometric(
        cls,
        proposal: Proposal,
        num_rows: int,
        smallest: int = 1000,
        growth: float = 2.0,
        share: float = 1.0,
        rule: Callable[[int, float], AcceptanceRule] | None = None,
        swaps: AcceptanceRule | Exchange | None = None,
        moves: int = 1,
    ) -> "Ladder":
        """The ladder of Li and Wong (2017): batches grow geometrically downwards and set the temperatures.

        The hottest rung reads `smallest` rows at a time, the next colder one `growth` times as many, and so on up to
        all of them. A rung with batches of m rows has tau = log m / log(num_rows), lambda = share * tau and temperature
        num_rows^(1 - lambda): at a share of 1 that is num_rows / m, the evidence of one batch. Below these stands an
        exact rung at temperature 1.

        Args:
            proposal: Of every rung; each tunes its own steps.
            num_rows: Of data.
            smallest: Batch of the hottest rung.
            growth: The paper's gamma.
            share: Of lambda in tau. The paper's Mint must be below 1, and is near its temperature up to 1/2.
            rule: Makes the rule of a rung from its batch size and lambda; `lambda m, _: tm.MHMinibatch(m)` if left out,
                and `tm.Mint` for the paper's.
            swaps: As for `tm.Ladder`.
            moves: As for `tm.Ladder`.

        Example:
            >>> import tallmc as tm
            >>> tm.Ladder.geometric(tm.RandomWalk(0.1), num_rows=100_000, growth=10.0).temperatures.round().tolist()
            [1.0, 10.0, 100.0]
        """
        if not (1 <= smallest < num_rows and growth > 1 and 0 < share <= 1):
            raise ValueError(
                f"a geometric ladder needs 1 <= smallest < num_rows, growth > 1 and 0 < share <= 1, got smallest = "
                f"{smallest}, num_rows = {num_rows}, growth = {growth} and share = {share}"
            )
        count = math.ceil(math.log(num_rows / smallest) / math.log(growth) * (1 - 1e-9))
        batches = [round(smallest * growth**k) for k in range(count)]
        exponents = [share * math.log(batch) / math.log(num_rows) for batch in batches]
        make = (lambda batch, _: MHMinibatch(batch)) if rule is None else rule
        hot = [MetropolisHastings(proposal, make(m, e)) for m, e in zip(batches, exponents, strict=True)]
        temperatures = [1.0, *(num_rows ** (1 - exponent) for exponent in reversed(exponents))]
        return cls(temperatures, [MetropolisHastings(proposal, Exact()), *reversed(hot)], swaps, moves)

    @property
    def temperatures(self) -> np.ndarray:
        """Of the rungs, from the coldest to the hottest."""
        return np.asarray(self.heats, float)

    @property
    def num_rungs(self) -> int:
        """How many rungs there are."""
        return self.heats.shape[0]

    @property
    def knows_energies(self) -> bool:
        """Whether rungs remember their log likelihoods, all from the same level, so that exchanges read nothing."""
        return len(self.groups) == 1 and isinstance(self.groups[0].kernel, Remembering)

    def at(self, temperatures: Sequence[float] | np.ndarray) -> "Ladder":
        """The same ladder with as many other temperatures."""
        heats = check_temperatures(temperatures)
        if len(heats) != self.num_rungs:
            raise ValueError(f"the ladder has {self.num_rungs} rungs; pass as many temperatures, not {len(heats)}")
        return eqx.tree_at(lambda ladder: ladder.heats, self, as_device_array(heats, self.heats.dtype))

    def with_rungs(self, temperatures: Sequence[float] | np.ndarray) -> "Ladder":
        """The same ladder with another number of rungs, all of which one kernel moves."""
        heats = check_temperatures(temperatures)
        (group,) = self.groups
        groups = (dataclasses.replace(group, count=len(heats)),)
        changed = eqx.tree_at(lambda ladder: ladder.groups, self, groups)
        return eqx.tree_at(lambda ladder: ladder.heats, changed, as_device_array(heats, self.heats.dtype))

    def exchanging(
        self, swaps: AcceptanceRule | Exchange | None, temperatures: Sequence[float] | np.ndarray | None = None
    ) -> "Ladder":
        """The same kernels at temperatures that stay, with another exchange.

        Args:
            swaps: As for `tm.Ladder`.
            temperatures: Those of the ladder if left out. There may be another number if all have the same kernel.
        """
        heats = self.temperatures if temperatures is None else temperatures
        each = [group.kernel for group in self.groups for _ in range(group.count)]
        return Ladder(heats, each[0] if len(self.groups) == 1 else each, swaps, self.moves)

    def members(self) -> tuple[Part, ...]:
        """The kernels that move rungs, each once for all its rungs, and last the exchange."""
        return (*(group.kernel for group in self.groups), self.exchange)

    @property
    def needs(self) -> tuple[Any, ...]:
        """What each member needs of its rows."""
        return tuple(member.needs for member in self.members())

    def fed_by(self, feed: Feed) -> "Ladder":
        """Tells every member where its own rows come from, and keeps that: every rung reads at cursors of its own."""
        assert isinstance(feed, SeveralFeeds)
        *own, last = feed.feeds
        groups = tuple(
            dataclasses.replace(group, kernel=group.kernel.fed_by(one), feed=one)
            for group, one in zip(self.groups, own, strict=True)
        )
        exchange = self.exchange.fed_by(last)
        return eqx.tree_at(lambda ladder: (ladder.groups, ladder.exchange), self, (groups, exchange))

    def prepared_for(self, model: Model, num_warmup: int) -> "Ladder":
        """Tells every kernel how many transitions of warm-up are its own."""
        warmup = np.asarray(num_warmup, np.int32)
        groups = tuple(
            dataclasses.replace(
                group, kernel=group.kernel.prepared_for(model, num_warmup * self.moves), num_warmup=warmup
            )
            for group in self.groups
        )
        parts = (groups, self.exchange.prepared_for(model, num_warmup))
        return eqx.tree_at(lambda ladder: (ladder.groups, ladder.exchange), self, parts)

    def init(self, position: PyTree) -> LadderAtRest:
        """All rungs in one place; warm-up spreads them out."""
        rungs = tuple(group.init(position) for group in self.groups)
        each = [group.positions(own) for group, own in zip(self.groups, rungs, strict=True)]
        memory = self.exchange.remembering(jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *each))
        return LadderAtRest(rungs, jnp.int32(0), jnp.zeros((), jnp.result_type(float)), memory)

    def begin(self, key: Array, rest: LadderAtRest, model: Model, time: Int[Array, ""]) -> InScan:
        """Begins the transitions of all rungs."""
        key_rungs, key_swaps = jax.random.split(key)
        keys = jax.random.split(key_rungs, len(self.groups))
        rungs = tuple(
            group.begin(keys[i], own, model, heats, rest.scans)
            for i, (group, own, heats) in enumerate(zip(self.groups, rest.rungs, self._heats, strict=True))
        )
        # Only the shape of this matters: swaps begin once all rungs have moved.
        swaps = self.exchange.begin(key_swaps, self._facing(rest, time), model)
        return InScan(
            rest, rungs, key_swaps, time, jnp.bool_(False), swaps, rest.level, jnp.zeros(self.num_rungs, bool)
        )

    def observe(self, state: InScan, model: Model, window: Windows) -> tuple[InScan, Bool[Array, ""]]:
        """One round of every rung that has not moved enough; once all have, of their swaps."""
        pairs = zip(self.groups, state.rungs, self._heats, window.sources[:-1], strict=True)
        rungs = []
        for group, own, heats, source in pairs:

            def climb(
                group: Rungs = group, own: Climbing = own, heats: Array = heats, source: Any = source
            ) -> Climbing:
                return group.observe(own, model, heats, source, state.rest.scans)

            busy = jnp.any(own.made < self.moves)
            rungs.append(jax.lax.cond(busy, climb, lambda own=own: own))
        state = dataclasses.replace(state, rungs=tuple(rungs))
        moved = jnp.all(jnp.concatenate([own.made for own in rungs]) >= self.moves)

        def swap() -> tuple[PyTree, Array]:
            rest = dataclasses.replace(state.rest, rungs=tuple(own.rest for own in rungs))
            fresh = self.exchange.begin(state.key_swaps, self._facing(rest, state.time), model)
            swaps = jax.tree.map(lambda new, old: jnp.where(state.facing, old, new), fresh, state.swaps)
            return self.exchange.observe(swaps, rest.memory, model, window.sources[-1])

        swaps, done = jax.lax.cond(moved, swap, lambda: (state.swaps, jnp.bool_(False)))
        coldest = self.exchange.energies(swaps)[0] / model.num_rows
        shift = jnp.where(done & (state.rest.scans == 0) & jnp.isfinite(coldest), coldest, 0)
        pairs = zip(self.groups, rungs, strict=True)
        used = jnp.concatenate([group.used_all_rows(own, model.num_rows) for group, own in pairs])
        level = state.rest.level + shift
        return dataclasses.replace(state, swaps=swaps, facing=moved, level=level, used_all_rows=used), done

    def settle(self, state: InScan, gain: Real[Array, ""]) -> tuple[LadderAtRest, Info]:
        """Swaps the states of pairs that agreed to."""
        del gain  # rungs have settled already, each with a gain of its own
        done, first, rests = self.exchange.exchanged(state.swaps, state.rest.memory), 0, []
        for group, own in zip(self.groups, state.rungs, strict=True):
            some = slice(first, first + group.count)
            positions = jax.tree.map(lambda leaf, some=some: leaf[some], done.positions)
            known = None if state.swaps.facing.energies is None else done.energies[some]
            rests.append(group.moved(own.rest, positions, done.elsewhere[some], known))
            first += group.count
        rest = LadderAtRest(tuple(rests), state.rest.scans + 1, state.level, done.memory)
        return rest, self._info(state, done)

    def _info(self, state: InScan, done: Exchanged) -> Info:
        rungs = state.rungs
        rows = jnp.concatenate([own.rows for own in rungs])
        accepted = jnp.concatenate([own.accepted for own in rungs])
        stats = {
            "swap_tried": done.tried,
            "swap_accepted": done.accepted,
            "swap_rows": done.rows,
            **{_SWAPS + name: values for name, values in done.stats.items()},
            "energy_level": state.swaps.facing.level,
            "evaluations": done.evaluations + sum(jnp.sum(own.evaluations) for own in rungs),
            "rung_accepted": accepted,
            "scan_rows": rows,
            "rung_temperature": self.heats,
            "rung_part": jnp.asarray([i for i, group in enumerate(self.groups) for _ in range(group.count)], jnp.int32),
            "rung_rows": jnp.concatenate([own.last_rows for own in rungs]),
            "rung_used_all_rows": state.used_all_rows,
            "rung_energy": done.energies,
            **done.told,
        }
        names: dict[str, Any] = {name: like for own in rungs for name, like in own.stats.items()}
        for name, like in names.items():
            parts = [
                own.stats.get(name, absent(like, group.count)) for group, own in zip(self.groups, rungs, strict=True)
            ]
            stats[_RUNGS + name] = jnp.concatenate(parts)
        nonfinite = jnp.any(jnp.concatenate([own.nonfinite for own in rungs]))
        moved = accepted[0] | done.elsewhere[0]
        return Info(moved, jnp.sum(rows) + jnp.sum(done.rows), nonfinite, stats)

    def abandon(self, state: InScan) -> LadderAtRest:
        """All rungs where they were before this scan. What they knew of the density there is forgotten: whoever drops
        a test may put the rungs at other temperatures."""
        pairs = zip(self.groups, state.rest.rungs, strict=True)
        rungs = tuple(group.moved(own, group.positions(own), jnp.ones(group.count, bool)) for group, own in pairs)
        return dataclasses.replace(state.rest, rungs=rungs)

    def position(self, rest: LadderAtRest) -> PyTree:
        """Of the coldest rung."""
        coldest = jax.tree.map(lambda leaf: leaf[0], rest.rungs[0])
        return self.groups[0].kernel.position(coldest)

    def moved(self, rest: LadderAtRest, position: PyTree) -> LadderAtRest:
        """The coldest rung elsewhere; the others stay."""
        group, own = self.groups[0], rest.rungs[0]
        everywhere = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (group.count, *jnp.shape(leaf))), position)
        lowest = jnp.arange(group.count, dtype=jnp.int32) == 0
        return dataclasses.replace(rest, rungs=(group.moved(own, everywhere, lowest), *rest.rungs[1:]))

    def step_size(self, rest: LadderAtRest) -> tuple[PyTree, ...]:
        """For each kernel, what its rungs have tuned."""
        pairs = zip(self.groups, rest.rungs, strict=True)
        return tuple(jax.vmap(group.kernel.step_size)(own) for group, own in pairs)

    @property
    def label(self) -> str:
        """How many rungs there are."""
        return f"Ladder of {self.num_rungs}"

    @property
    def _heats(self) -> tuple[Real[Array, " some"], ...]:
        """Temperatures of each group."""
        ends = np.cumsum([group.count for group in self.groups])
        return tuple(self.heats[end - group.count : end] for group, end in zip(self.groups, ends, strict=True))

    def _positions(self, rest: LadderAtRest) -> PyTree:
        each = [group.positions(own) for group, own in zip(self.groups, rest.rungs, strict=True)]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *each)

    def _facing(self, rest: LadderAtRest, time: Int[Array, ""]) -> Facing:
        # Several kernels may not measure from the same level; one does.
        known = self.groups[0].known_likelihoods(rest.rungs[0]) if self.knows_energies else None
        level, energies = (rest.level, None) if known is None else (known.level, known.value)
        return Facing(self._positions(rest), self.heats, rest.scans, time, level, energies)


def _exchange(swaps: AcceptanceRule | Exchange | None) -> Exchange:
    """What was asked for."""
    if isinstance(swaps, Exchange):
        return swaps
    return ExchangeOnAllRows() if swaps is None else ExchangeByRule(swaps)
