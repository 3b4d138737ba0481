"""Gibbs sampling as a kernel: a transition is a sweep, and each variable's update is a test of its factors."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc.acceptance.contract import AcceptanceRule, Question
from tallmc.acceptance.normality import lopsided
from tallmc.feed import Needs, Window
from tallmc.feed.run_order import RunOrder
from tallmc.fields.barker import barker_offset
from tallmc.fields.layout import Shape, SiteTables
from tallmc.fields.order import AsTheyLie
from tallmc.fields.sweeps import RandomSweep, Sweep
from tallmc.kernel import Info, Kernel
from tallmc.posterior import Model

# Factors of a window of a rule that reads them all: so many that sites of most fields need one window. A judgement.
_LARGEST_WINDOW = 2**14
_TOLERATED_SHARE = 0.01  # of updates that hang on one or two factors; as for tests on rows
_LANES = 8  # of `ordered_sum`


class SiteTest(eqx.Module):
    """A variable, the value it may take, and the evidence for that so far."""

    site: Int[Array, ""]
    proposed: Int[Array, ""]
    cursor: PyTree
    evidence: PyTree
    rows: Int[Array, ""]
    partial: Bool[Array, ""]  # whether some factors were not read


class Tally(eqx.Module):
    """What is told of a sweep: factors read, variables that changed, and sums of what the rule tells of each test."""

    rows: Int[Array, ""]
    changed: Int[Array, ""]
    stats: dict[str, Array]


class InSweep(eqx.Module):
    """A chain in a sweep: where it began, where it is, how many updates are behind it, and the one under test."""

    begun: Int[Array, " sites"]
    values: Int[Array, " sites"]
    keys: tuple[Array, Array]
    order: PyTree
    time: Int[Array, ""]
    number: Int[Array, ""]
    test: SiteTest
    tally: Tally


class SiteUpdates(Kernel[Array, InSweep]):
    """Sweeps over the variables of a random field; an acceptance rule decides each update from the variable's factors.

    An update proposes another value, each as likely as any other, and accepts it with Barker's chance p' / (p + p').
    For a binary variable that is Gibbs sampling: it takes either value with its conditional probability, whatever it
    was. For more values it is Gibbs sampling given that the value is one of the two; the field stays what is drawn.

    Args:
        rule: Decides; it is asked with Barker's level whatever its own formula.
        shape: Of the field.
        sweep: In which order variables come.
        thinning: Sweeps of a transition.
    """

    rule: AcceptanceRule
    shape: Shape = eqx.field(static=True)
    sweep: Sweep = RandomSweep()
    thinning: int = eqx.field(static=True, default=1)

    @property
    def needs(self) -> Needs:
        """Windows of the factors of one variable, never more than there are."""
        own = self.rule.needs
        wanted = max(own.batch_size, _LARGEST_WINDOW) if own.every_row else own.batch_size
        return own._replace(batch_size=min(wanted, self.shape.degree))

    @property
    def row_order(self) -> RunOrder | AsTheyLie:
        """The factors of a variable, in a fresh order for each test unless all are read."""
        if self.rule.needs.every_row:
            return AsTheyLie(self.shape.degree, self.needs.batch_size)
        return RunOrder(self.shape.degree, self.needs.batch_size)

    def init(self, position: Int[Array, " sites"]) -> Int[Array, " sites"]:
        """At rest a chain is an assignment."""
        return position

    def begin(self, key: Array, rest: Int[Array, " sites"], model: Model, time: Int[Array, ""]) -> InSweep:
        """Begins the update of the first variable."""
        key_sweeps, key = jax.random.split(key)
        number = jnp.int32(0)
        order = self.sweep.start(jax.random.fold_in(key_sweeps, number))
        test = self._begin_test(key, rest, order, number, time, model)
        told = jax.tree.map(jnp.zeros_like, self._told(test, jnp.bool_(False)))
        tally = Tally(jnp.int32(0), jnp.int32(0), told)
        return InSweep(rest, rest, (key_sweeps, key), order, time, number, test, tally)

    def observe(self, state: InSweep, model: Model, window: SiteTables) -> tuple[InSweep, Bool[Array, ""]]:
        """Weighs a window of factors; once they are enough, the next variable's update begins."""
        state = dataclasses.replace(state, test=self._weigh(state, model, window))
        decided = self.rule.verdict(state.test.evidence).done
        last = state.number == self._num_updates - 1
        state = jax.lax.cond(decided & ~last, lambda: self._next(state, model), lambda: state)
        return state, decided & last

    def _next(self, state: InSweep, model: Model) -> InSweep:
        """The chain after an update that is not the last, in the test of the next one."""
        state = self._concluded(state)
        key_sweeps, key = state.keys
        num_sites = self.shape.num_sites

        def drawn() -> PyTree:
            return self.sweep.start(jax.random.fold_in(key_sweeps, state.number // num_sites))

        order = jax.lax.cond(jnp.mod(state.number, num_sites) == 0, drawn, lambda: state.order)
        test = self._begin_test(key, state.values, order, state.number, state.time, model)
        return dataclasses.replace(state, order=order, test=test)

    def settle(self, state: InSweep, gain: Real[Array, ""]) -> tuple[Int[Array, " sites"], Info]:
        """Ends the last update, and with it the sweep."""
        del gain
        state = self._concluded(state)
        tally = state.tally
        stats = {name: total / self._num_updates for name, total in tally.stats.items()}
        stats["changed"] = tally.changed
        return state.values, Info(jnp.any(state.values != state.begun), tally.rows, jnp.bool_(False), stats)

    def abandon(self, state: InSweep) -> Int[Array, " sites"]:
        """The assignment before the sweep."""
        return state.begun

    def position(self, rest: Int[Array, " sites"]) -> Int[Array, " sites"]:
        """The assignment."""
        return rest

    def moved(self, rest: Int[Array, " sites"], position: Int[Array, " sites"]) -> Int[Array, " sites"]:
        """Another assignment; there is nothing else to a chain at rest."""
        del rest
        return position

    @property
    def label(self) -> str:
        """Gibbs sampling, and the rule by which it decides."""
        return f"Gibbs by {type(self.rule).__name__}"

    def site_model(self, model: Model) -> Model:
        """What the rule is told of the rows behind one update: their number."""
        return dataclasses.replace(model, num_rows=self.shape.degree)

    def notes(self, stats: dict[str, np.ndarray], model: Model) -> list[str]:
        """What share of the updates changed a variable."""
        del model
        share = stats["changed"].mean() / self._num_updates
        return [f"a draw is {self._num_updates:,} updates of a variable, of which {100 * share:.3g} % changed it"]

    def warnings(self, stats: dict[str, np.ndarray]) -> list[str]:
        """Whether single factors outweighed all others too often for a rule that takes means of factors for normal."""
        if not self.rule.promise.trusts_normality or "lopsided" not in stats:
            return []
        share = float(stats["lopsided"].mean())
        if share <= _TOLERATED_SHARE:
            return []
        return [
            f"in {100 * share:.2g} % of the updates one or two factors outweighed all others that were read: "
            f"{type(self.rule).__name__} takes means of factors for normal and cannot be trusted here. Use "
            "tm.ExactBarker(), or a larger batch_size"
        ]

    @property
    def _num_updates(self) -> int:
        return self.thinning * self.shape.num_sites

    def _begin_test(
        self, key: Array, values: Array, order: PyTree, number: Array, time: Array, model: Model
    ) -> SiteTest:
        """Chooses another value for the variable whose turn it is, and begins the test of that."""
        num_sites = self.shape.num_sites
        site = self.sweep.site(order, jnp.mod(number, num_sites), num_sites).astype(jnp.int32)
        key_value, key_rule, key_rows = jax.random.split(jax.random.fold_in(key, number), 3)
        proposed = self._proposed(key_value, values, site)
        question = Question(values, values.at[site].set(proposed), barker_offset(self.rule, key_rule), time)
        evidence = self.rule.init(key_rule, question, self.site_model(model))
        return SiteTest(site, proposed, self.row_order.start(key_rows), evidence, jnp.int32(0), jnp.bool_(False))

    def _proposed(self, key: Array, values: Array, site: Array) -> Array:
        """Another value of the variable: the other one, or one of several."""
        if self.shape.most_values == 2:
            return 1 - values[site]
        count = jnp.asarray(self.shape.num_values, jnp.int32)[site]
        shift = 1 + jax.random.randint(key, (), 0, count - 1, jnp.int32)
        return jnp.mod(values[site] + shift, count)

    def _weigh(self, state: InSweep, model: Model, tables: SiteTables) -> SiteTest:
        test, order = state.test, self.row_order
        window = _padded(order.numbers(test.cursor))
        cold = 1 / model.temperature

        def looked_up(factors: Array) -> Array:
            ratios = tables.log_ratios(self.shape, state.values, test.site, test.proposed, factors)
            return ratios * cold.astype(ratios.dtype)

        # Each is used in several sums, and would be looked up again for every one of them.
        log_ratios = jax.lax.optimization_barrier(window.map(looked_up))
        evidence = self.rule.observe(test.evidence, log_ratios, window)
        count = window.count
        if self.shape.factors < self.shape.num_sites * self.shape.degree:  # zeros of smaller sites are no factors
            count = jnp.sum(window.valid & (window.rows < tables.degrees[test.site]), dtype=jnp.int32)
        rows = test.rows + count
        partial = rows < tables.degrees[test.site]
        return SiteTest(test.site, test.proposed, order.advance(test.cursor), evidence, rows, partial)

    def _concluded(self, state: InSweep) -> InSweep:
        """The variable takes the value that the test lets it have, and the test is counted."""
        test, tally = state.test, state.tally
        accept = self.rule.verdict(test.evidence).accept
        values = state.values.at[test.site].set(jnp.where(accept, test.proposed, state.values[test.site]))
        told = jax.tree.map(jnp.add, tally.stats, self._told(test, test.partial))
        tally = Tally(tally.rows + test.rows, tally.changed + accept.astype(jnp.int32), told)
        return dataclasses.replace(state, values=values, number=state.number + 1, tally=tally)

    def _told(self, test: SiteTest, partial: Array) -> dict[str, Array]:
        """What the rule tells of a test; of its skewness, whether one or two factors outweighed all others."""
        told = dict(self.rule.stats(test.evidence))
        if "skewness" in told:
            told["lopsided"] = lopsided(told.pop("skewness"), test.rows.astype(jnp.result_type(float))) & partial
        return {name: value.astype(jnp.result_type(float)) for name, value in told.items()}


def _padded(window: Window) -> Window:
    """The window with padding up to a multiple of eight rows: sums of other lengths take half as long again."""
    missing = -window.size % _LANES
    rows = jnp.concatenate([window.rows, jnp.broadcast_to(window.rows[-1:], (missing,))]) if missing else window.rows
    return Window(rows, window.count, window.size + missing)
