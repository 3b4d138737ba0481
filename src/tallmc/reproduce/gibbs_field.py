"""Gibbs sampling of a dense random field by sequential tests: errors of conditionals, factors read, small fields."""

import dataclasses
import functools
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tallmc as tm
from tallmc.fields import SiteUpdates, shape_of
from tallmc.fields.layout import lay_out
from tallmc.numerics.keys import as_key
from tallmc.reproduce.kind import Bench, Figure, Kind, Measured
from tallmc.reproduce.svg import Mark, Series, plot
from tallmc.run.native import native

DEGREE, BATCH = 4851, 500
DRIVER = tm.ChainByChain(1)


def quiet(field: tm.Posterior, rule: tm.AcceptanceRule, **options: Any) -> tm.Run:
    """A run without progress and warnings; what is measured here needs few draws."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tm.ConvergenceWarning)
        return tm.gibbs(field, rule, progress=False, **{"driver": DRIVER, **options})


def moments(field: tm.Posterior, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log odds of every variable, and the spread of its factors' parts of them."""
    scope, table = field.data["scope"], np.asarray(field.data["log_table"], float)
    found = []
    for site in range(len(values)):
        mine = np.flatnonzero(np.any(scope == site, axis=1))
        high, low = values.copy(), values.copy()
        high[site], low[site] = 1, 0
        parts = table[(mine, *high[scope[mine]].T)] - table[(mine, *low[scope[mine]].T)]
        found.append((parts.sum(), parts.std() * np.sqrt(len(parts))))
    log_odds, spread = np.array(found).T
    return log_odds, spread


@native
def first_updates(updates: Any, model: Any, tables: Any, keys: Any, values: Any) -> Any:
    """The first update of a sweep under each key."""

    def one(key: Any) -> Any:
        begun = updates.begin(key, values, model, jnp.int32(0))
        look = lambda state: updates.observe(state, model, tables)[0]  # noqa: E731
        done = jax.lax.while_loop(lambda state: state.number == 0, look, begun)
        return done.values, done.tally.rows

    return jax.lax.map(one, keys)


def updates_of(field: tm.Posterior, values: np.ndarray, site: int, epsilon: float, count: int) -> tuple[float, float]:
    """How often many updates of one variable make it 1, all others being as given, and the share of factors read."""
    shape = shape_of(field.log_likelihood, field.data)
    order = np.concatenate([[site], np.delete(np.arange(len(values)), site)])
    updates = SiteUpdates(tm.AustereMH(epsilon, BATCH), shape, tm.FixedSweep(order))
    keys = jax.random.split(as_key(site), count)
    taken, rows = first_updates(updates, field.model, lay_out(shape, field.data, 0), keys, values)
    return float(np.mean(np.asarray(taken)[:, site])), float(np.mean(rows)) / DEGREE


def enumerated_field() -> tuple[tm.Posterior, np.ndarray]:
    """Ten variables and 4,000 factors, and the probability of each of the 1,024 assignments."""
    generator = np.random.default_rng(0)
    scopes = np.stack([generator.permutation(10)[:3] for _ in range(4000)])
    field = tm.models.random_field(scopes, (0.04 * generator.normal(size=(4000, 2, 2, 2))).astype(np.float32))
    every = ((np.arange(1024)[:, None] >> np.arange(9, -1, -1)) & 1).astype(np.int32)
    scope, table = field.data["scope"], np.asarray(field.data["log_table"], float)
    log_density = sum(table[(f, *every[:, scope[f]].T)] for f in range(4000))
    expected = np.exp(log_density - np.max(log_density))
    expected /= expected.sum()
    return field, expected


@dataclasses.dataclass(frozen=True)
class GibbsField(Kind):
    """Supplement F.1 of Korattikara et al. (2014).

    Args:
        epsilons: Errors allowed to one look.
        conditional_epsilons: At which conditionals are estimated one by one.
        burn_in: Sweeps of the exact chain from whose states the others start.
        sites: Variables whose conditional is.
        updates: Of each of them.
        sweeps: Of chains whose share of factors is counted.
        small_sweeps: Of the field of ten variables, whose states can be enumerated.
        seed: Of the chains.
    """

    epsilons: list[float]
    conditional_epsilons: list[float]
    burn_in: int
    sites: int
    updates: int
    sweeps: int
    small_sweeps: int
    seed: int

    @property
    def parts(self) -> tuple[str, ...]:
        """Conditionals, shares of factors, what the design says, and a small field."""
        conditionals = (f"conditionals, epsilon {epsilon:g}" for epsilon in self.conditional_epsilons)
        shares = (f"share, epsilon {epsilon:g}" for epsilon in self.epsilons)
        return (*conditionals, *shares, "design", "ten variables")

    @functools.cached_property
    def _field(self) -> tm.Posterior:
        return tm.models.random_field(*tm.models.generate_dense_field(100))

    @functools.cached_property
    def _starts(self) -> np.ndarray:
        options = {"num_samples": 4, "num_warmup": self.burn_in, "num_chains": 2, "thinning": 10, "rng_key": self.seed}
        return quiet(self._field, tm.ExactBarker(), **options).samples.reshape(-1, 100)

    def measure(self, part: str, bench: Bench) -> Measured:
        """One part."""
        what, _, epsilon = part.partition(", epsilon ")
        if what == "conditionals":
            return self._conditionals(float(epsilon))
        if what == "share":
            return self._share(float(epsilon), bench)
        return self._design() if what == "design" else self._small()

    def _conditionals(self, epsilon: float) -> Measured:
        values = self._starts[-1]
        log_odds, spread = moments(self._field, values)
        chance = 1 / (1 + np.exp(-log_odds[: self.sites]))
        found = [updates_of(self._field, values, site, epsilon, self.updates)[0] for site in range(self.sites)]
        expected = tm.design.conditional_error(log_odds[: self.sites], spread[: self.sites], BATCH / DEGREE, epsilon)
        error, standard = np.array(found) - chance, np.sqrt(chance * (1 - chance) / self.updates)
        figures = {
            f"largest error of a conditional, epsilon {epsilon:g}": Figure(
                float(np.abs(error).max()), float(standard.max())
            ),
            f"distance from the design, epsilon {epsilon:g}": Figure(
                float(np.max(np.abs(error - expected.error) / standard))
            ),
        }
        return Measured(figures, {"chance": chance, "found": found})

    def _share(self, epsilon: float, bench: Bench) -> Measured:
        starts = self._starts
        run = quiet(
            self._field,
            tm.AustereMH(epsilon, BATCH),
            num_samples=self.sweeps,
            num_chains=len(starts[-4:]),
            init=starts[-4:],
            rng_key=self.seed,
        )
        bench.keep(f"epsilon-{epsilon:g}", run)
        shares = run.stats["rows"].mean(axis=1) / (100 * DEGREE)
        error = float(shares.std(ddof=1) / np.sqrt(len(shares)))
        return Measured({f"share of factors, epsilon {epsilon:g}": Figure(float(shares.mean()), error)})

    def _design(self) -> Measured:
        """Largest error of any conditional at epsilon 0.01: 0.02 read as a standard deviation, and as a variance."""
        figures = {}
        for name, scale in (("standard deviation", 0.02), ("variance", 0.02**0.5)):
            # The difference of two entries has sqrt(2) times their deviation, over sqrt(4851) factors.
            spread = scale * 2**0.5 * DEGREE**0.5
            levels = np.linspace(-5 * spread, 5 * spread, 401)
            error = tm.design.conditional_error(levels, spread, BATCH / DEGREE, 0.01).error
            figures[f"design, 0.02 a {name}"] = Figure(float(np.abs(error).max()))
        return Measured(figures)

    def _small(self) -> Measured:
        """Ten variables, 4,000 factors: total variation of the draws to the enumerated field."""
        field, expected = enumerated_field()
        figures = {}
        for name, rule in (("exact", tm.ExactBarker()), ("epsilon 0.1", tm.AustereMH(0.1, 100))):
            run = quiet(field, rule, num_samples=self.small_sweeps, num_warmup=100, num_chains=2, rng_key=self.seed)
            states = (run.samples @ (1 << np.arange(9, -1, -1))).ravel()
            shares = np.bincount(states, minlength=1024) / len(states)
            figures[f"ten variables, {name}"] = Figure(0.5 * float(np.abs(shares - expected).sum()))
        ratio = figures["ten variables, epsilon 0.1"].value / figures["ten variables, exact"].value
        return Measured({**figures, "ten variables, epsilon 0.1 over exact": Figure(ratio)})

    def pictures(self, found: Mapping[str, Measured]) -> dict[str, str]:
        """Figure 14 of the paper."""
        series = [Series("exact", [0.0, 1.0], [0.0, 1.0], Mark.DASHED, 3)]
        for colour, epsilon in enumerate(self.conditional_epsilons):
            curves = found[f"conditionals, epsilon {epsilon:g}"].curves
            series.append(Series(f"epsilon {epsilon:g}", curves["chance"], curves["found"], Mark.POINTS, colour))
        title = "Figure 14: empirical against exact conditional probability"
        return {title: plot(title, series, "exact conditional probability", "of many updates")}
