"""What a run gives back: draws, what they cost, and a summary to read."""

import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array, PyTree

from tallmc.feed import Feed
from tallmc.frames import Table
from tallmc.kernel import Kernel
from tallmc.numerics.flat import as_numbers
from tallmc.posterior import Posterior
from tallmc.posterior.labels import named
from tallmc.run import reports, saving, shown
from tallmc.run.chain import Chain
from tallmc.run.convergence import convergence_doubts
from tallmc.run.drive import Driven, drive
from tallmc.run.drivers import Driver, pick_driver
from tallmc.run.exchanges import Exchanges, stats_of_rungs
from tallmc.run.late import Later, read_late
from tallmc.run.leave_out import loo
from tallmc.run.predict import Prediction, log_density, log_likelihood, posterior_predictive, predict
from tallmc.run.session import Session
from tallmc.run.store import reopened
from tallmc.run.stored import Stored
from tallmc.run.summary import Summary, costs_of
from tallmc.run.tree import datatree, posterior_group
from tallmc.run.variables import Kept

if TYPE_CHECKING:
    import arviz_stats.utils
    import xarray


@read_late("samples", "stats", "unconstrained")
@dataclasses.dataclass(frozen=True, repr=False)
class Run:
    """Draws and statistics of a run.

    Args:
        samples: Pytree like a position, on the natural scale if there are transforms; leaves are (chain, draw, ...).
        stats: One array (chain, draw) a name: `accepted`, `rows` (rows the test of that draw consumed),
            `used_all_rows`, `nonfinite` (rejected for a log ratio that was not finite), and what the kernel adds.
        setup_rows: Rows read outside the tests.
        seconds: Time spent moving chains, compilation included, fetching the draws not.
        interrupted: Whether the run was stopped before it had all its draws.
        kernel: What moved the chains, as the caller gave it or as it was chosen.
        posterior: What was sampled.
        session: All that the chains need to go on.
        choices: What was chosen for the caller, in words.
        known_doubts: What was known against the run before its draws were looked at.
        unless_mixed: What is besides, unless R-hat and effective draws have nothing against it.
        audit: Decisions checked on all rows, if that was done.
        timing: Seconds of the call that gave the run, by phase: reading, mode, expansion, pilot, compiling, warmup,
            sampling, audit, and total.
        unconstrained: The same draws as the chains made them, if there are transforms or standardised columns.
        stored: Draws on disk, from which samples and statistics are read when they are asked for; None in memory.
        rng_key: The int or key that the caller gave, in words.
    """

    samples: PyTree
    stats: Any
    setup_rows: int
    seconds: float
    interrupted: bool
    kernel: Kernel
    posterior: Posterior
    session: Session
    choices: tuple[str, ...] = ()
    known_doubts: tuple[str, ...] = ()
    unless_mixed: tuple[str, ...] = ()
    audit: Any = None
    timing: dict[str, float] = dataclasses.field(default_factory=dict)
    unconstrained: PyTree = None
    stored: Stored | None = None
    rng_key: str | int | None = None

    @classmethod
    def collect(cls, done: Driven, *, posterior: Posterior, **others: Any) -> "Run":
        """Adds what follows from the draws."""
        kept = Kept.of(done.draws, done.session, posterior)
        return cls(
            samples=kept.samples,
            unconstrained=kept.unconstrained,
            posterior=posterior,
            stats=kept.stats,
            seconds=done.seconds,
            interrupted=done.interrupted,
            session=done.session,
            **others,
        )

    @classmethod
    def on_disk(cls, stored: Stored, **others: Any) -> "Run":
        """A run whose draws are read when they are asked for."""
        return cls(**_read_late(stored), stored=stored, **others)

    def changed(self, **fields: Any) -> "Run":
        """The run with some fields changed, and without reading draws from disk."""
        late = {name: self.__dict__[name] for name in ("samples", "stats", "unconstrained") if name not in fields}
        return dataclasses.replace(self, **late, **fields)

    @functools.cached_property
    def thinned(self) -> "Run":
        """The run with so few draws that they fit into memory: every so many, of a run on disk that has too many."""
        if self.stored is None or self.stored.stride == 1:
            return self
        parts = {name: self.stored.part(name, self.stored.stride) for name in Kept._fields}
        parts["stats"] = dict(parts["stats"])
        return self.changed(**parts, stored=None)

    def draws_at(self, chain: np.ndarray, draw: np.ndarray) -> PyTree:
        """Single draws by chain and number, as the chains made them."""
        if self.stored is None:
            return jax.tree.map(lambda leaf: leaf[chain, draw], self.unconstrained_samples)
        stored = self.stored
        group = "unconstrained_posterior" if self.posterior.reports_otherwise else "posterior"
        like = stored.setup.decode("position")
        found = [stored.picked(stored.column(group, name), chain, draw) for name in named(like)]
        return jax.tree.unflatten(jax.tree.structure(like), found)

    def stats_at(self, name: str, chain: np.ndarray, draw: np.ndarray) -> np.ndarray:
        """A statistic of single draws."""
        if self.stored is None:
            return self.stats[name][chain, draw]
        return self.stored.picked(self.stored.column("sample_stats", name), chain, draw)

    @property
    def unconstrained_samples(self) -> PyTree:
        """Draws as the chains made them, for whatever follows their steps; without transforms these are `samples`."""
        return self.samples if self.unconstrained is None else self.unconstrained

    @property
    def num_chains(self) -> int:
        """How many independent chains there are: the first axis of samples and statistics."""
        return self.stats["rows"].shape[0] if self.stored is None else self.stored.num_chains

    @property
    def num_draws(self) -> int:
        """Draws that were kept of each chain, without warm-up: the second axis of samples and statistics."""
        return self.stats["rows"].shape[1] if self.stored is None else self.stored.num_draws

    @property
    def num_warmup(self) -> int:
        """Transitions of each chain before its first draw."""
        return self.session.num_warmup

    @property
    def shuffle_seed(self) -> int:
        """Seed of the one shuffle of the rows."""
        return self.session.shuffle_seed

    @property
    def chains(self) -> Chain:
        """The chains as they ended."""
        return self.session.chains

    @property
    def feed(self) -> Feed:
        """How rows were drawn for the tests, with the windows and weights of this run."""
        return self.session.feed

    @functools.cached_property
    def step_size(self) -> Any:
        """What warm-up made of each chain's step size, as a factor; for kernels made of kernels, one a part."""
        kernel = self.session.kernel
        factors = jax.vmap(lambda state: kernel.step_size(kernel.abandon(state)))(self.chains.state)
        return jax.tree.map(np.asarray, factors)

    def part_stats(self, part: int) -> dict[str, np.ndarray]:
        """Statistics of the transitions that one part of a kernel made, chain after chain."""
        if "swap_tried" in self.stats:
            return stats_of_rungs(part, self.stats)
        if "part" not in self.stats:
            return self.stats
        mine = self.stats["part"] == part
        return {name: values[mine] for name, values in self.stats.items()}

    @functools.cached_property
    def exchanges(self) -> Exchanges | None:
        """For a ladder of temperatures, what its rungs exchanged and the evidence that this gives; None for others."""
        if "swap_tried" not in self.stats:
            return None
        return Exchanges.of(self.stats, float(self.posterior.temperature), self.posterior.num_rows)

    def extend(self, num_samples: int, *, progress: bool = True, driver: Driver | None = None) -> "Run":
        """Goes on where the run stopped: these draws and `num_samples` more of each chain, as one long run has them.

        Nothing is set up or tuned again. A run with a store keeps its new draws there.

        Args:
            num_samples: Further draws of each chain.
            progress: Whether to show a progress bar, if output is a terminal.
            driver: How chains are scheduled; picked by device if left out.

        Example:
            >>> import jax.numpy as jnp, tallmc as tm
            >>> posterior = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, jnp.linspace(-2.0, 2.0, 1000))
            >>> kernel = tm.MetropolisHastings(tm.RandomWalk(0.05), tm.Exact())
            >>> run = tm.sample(posterior, kernel, init=0.0, num_samples=400)
            >>> run.extend(100).samples.shape
            (4, 500)
        """
        if isinstance(num_samples, bool) or not isinstance(num_samples, int | np.integer) or num_samples < 1:
            raise ValueError(f"num_samples must be a whole number of at least 1, got {num_samples!r}")
        if int(np.min(np.asarray(self.chains.finished))) < self.num_warmup + self.num_draws:
            raise ValueError(
                "this run was rescued from a damaged store: its chains are not where its draws end, and cannot go on"
            )
        stage = self.feed.arrange(self.posterior.rows, self.shuffle_seed)
        driver = driver or pick_driver(self.posterior.rows)
        if self.stored is not None and self.stored.appendable:
            return self._extended_on_disk(self.stored, int(num_samples), stage, driver, show=progress)
        done = drive(driver, self.session, stage, int(num_samples), show=progress)
        more = Run.collect(done, setup_rows=self.setup_rows, kernel=self.kernel, posterior=self.posterior)
        old, new = (self.samples, self.unconstrained), (more.samples, more.unconstrained)
        samples, unconstrained = jax.tree.map(lambda a, b: np.concatenate([a, b], axis=1), old, new)
        return dataclasses.replace(
            self,
            samples=samples,
            unconstrained=unconstrained,
            stats={name: np.concatenate([self.stats[name], more.stats[name]], axis=1) for name in self.stats},
            seconds=self.seconds + more.seconds,
            interrupted=more.interrupted,
            session=more.session,
            stored=None,
        )

    def _extended_on_disk(
        self, stored: Stored, num_samples: int, stage: PyTree, driver: Driver, *, show: bool
    ) -> "Run":
        store = reopened(stored, self.posterior)
        try:
            ahead = stored.checkpoint.decode("ahead")
            done = drive(driver, self.session, stage, num_samples, show=show, sink=store, ahead=ahead)
            now = Stored.open(stored.root)
            run = self.changed(
                **_read_late(now),
                stored=now,
                seconds=store.seconds + done.seconds,
                interrupted=done.interrupted,
                session=done.session,
            )
            store.checkpoint(run.session, {}, seconds=done.seconds, result=saving.result_of(run))
        finally:
            store.close()
        return run

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why the run may not be what the caller thinks; empty only if nothing is known against the draws."""
        unless_mixed = self.unless_mixed if self.convergence_doubts else ()
        known = self.known_doubts + self.decision_doubts + self.heat_doubts
        return known + unless_mixed + self.convergence_doubts

    @property
    def decision_doubts(self) -> tuple[str, ...]:
        """What the tests themselves saw that must not be, such as rows that broke their bounds."""
        parts = enumerate(self.kernel.parts())
        return tuple(found for number, part in parts for found in part.objections(self.part_stats(number)))

    @property
    def heat_doubts(self) -> tuple[str, ...]:
        """What a temperature that changed has to say against the draws: those made at another one than the last."""
        if "temperature" not in self.stats:
            return ()
        final, heat = float(self.posterior.temperature), np.asarray(self.stats["temperature"])
        other = heat[heat != heat.dtype.type(final)]
        if not len(other):
            return ()
        return (
            f"{len(other):,} of {heat.size:,} draws were made at temperatures from {other.min():g} to {other.max():g}, "
            f"and are no draws of the posterior at {final:g}: take a num_warmup that outlasts the schedule, or leave "
            'them out by run.stats["temperature"]',
        )

    @functools.cached_property
    def convergence_doubts(self) -> tuple[str, ...]:
        """What R-hat and effective sample sizes have against the draws."""
        return convergence_doubts(named(self.thinned.samples))

    def save(self, path: str | os.PathLike[str], *, rows: bool = True) -> None:
        """Writes the run to a folder, from which `tm.load(path)` gives it back, ready to go on.

        Draws, statistics, chains and rows are kept in the Zarr format, the kernel and the model by the names of their
        classes. Nothing is pickled, so a likelihood that is a lambda is not kept: `tm.load(path, posterior)` takes it.

        Args:
            path: Where to write. A run that was saved there before is replaced.
            rows: Whether to write the data too; without it, `tm.load` wants the posterior again to go on.
        """
        saving.save(path, self, with_rows=rows)

    def predict(
        self, rows: Table = None, function: Callable[..., Any] | None = None, *, num_draws: int | None = None
    ) -> Prediction:
        """What draws expect of rows, such as new ones.

        Args:
            rows: A frame with the columns that the model was made from, whose labels become numbers by the recorded
                levels; a matrix; or arrays as in the posterior's data. Left out: the rows that were sampled from.
            function: `function(position, row)`, of which the draws are wanted. Left out: the mean outcome, by the link
                of a ready regression.
            num_draws: Draws to use, spread over all chains; left out, all, or fewer where rows are many.

        Returns:
            Draws for each row, with `.mean`, `.sd`, `.interval()` and `.summary()`.

        Example:
            >>> import tallmc as tm
            >>> X, y, _ = tm.models.generate_logistic(num_rows=2000, num_columns=2)
            >>> run = tm.sample(tm.models.logistic_regression(X, y), num_samples=200, progress=False)
            >>> run.predict(X[:3])
            <expected outcomes: 800 draws of 3 rows; .mean, .sd, .interval(), .summary(), .draws>
            >>> run.posterior_predictive(X[:3]).draws.shape, run.log_likelihood({"x": X[:3], "y": y[:3]}).shape
            ((800, 3), (4, 200, 3))
        """
        return predict(self, rows, function, num_draws)

    def posterior_predictive(
        self,
        rows: Table = None,
        rng_key: int | Array = 0,
        *,
        function: Callable[..., Any] | None = None,
        num_draws: int | None = None,
    ) -> Prediction:
        """Outcomes drawn for rows, one for each draw of the posterior.

        Args:
            rows: As for `predict`.
            rng_key: Int or JAX key.
            function: `function(key, position, row) -> outcome`; the ready regressions have their own.
            num_draws: As for `predict`.
        """
        return posterior_predictive(self, rows, rng_key, function, num_draws)

    def log_likelihood(self, rows: Table = None, *, num_draws: int | None = None) -> np.ndarray:
        """The log likelihood of rows with their outcomes at each draw: an array (chain, draw, row).

        The ready regressions' is that of the normalised density, with the terms that sampling leaves out.

        Args:
            rows: As for `predict`.
            num_draws: As for `predict`.
        """
        return log_likelihood(self, rows, num_draws)

    def log_density(self) -> np.ndarray:
        """The unnormalised log density at each draw, (chain, draw): of the numbers that chains move, Jacobian included.

        Reads all rows for each draw.
        """
        return log_density(self)

    def loo(
        self, num_rows: int = 1000, rng_key: int | Array = 0, *, num_draws: int | None = None
    ) -> "arviz_stats.utils.ELPDData":
        """Leave-one-out cross-validation of all rows, from importance sampling at some of them.

        Every row gets an approximation by the mean and covariance of the draws; rows that are drawn without replacement
        get Pareto smoothed importance sampling as well, and the difference of the two corrects the sum over all rows
        (Magnusson et al., 2020).

        Args:
            num_rows: Rows to do by importance sampling. As many as there are: ordinary PSIS-LOO.
            rng_key: Draws these rows. Models that are to be compared should have the same.
            num_draws: As for `predict`.

        Returns:
            What `arviz_stats.loo_subsample` returns, for `arviz_stats.compare`: `elpd`, its `se` from having these rows
            and not others, and `subsampling_se`, from having drawn so few rows and so few draws. `elpd_i` has the
            approximation for rows that were not drawn.

        Example:
            >>> import tallmc as tm
            >>> X, y, _ = tm.models.generate_logistic(num_rows=2000, num_columns=2)
            >>> run = tm.sample(tm.models.logistic_regression(X, y), num_samples=200, progress=False)
            >>> found = run.loo(num_rows=100)
            >>> found.subsample_size, bool(found.subsampling_se < 0.1 * found.se)
            (100, True)
        """
        return loo(self, num_rows, rng_key, num_draws)

    def to_datatree(self, *, log_likelihood_rows: int = 0, rng_key: int | Array = 0) -> "xarray.DataTree":
        """The run as an ArviZ DataTree.

        It has the groups `posterior`, `sample_stats` (with the log density `lp` where that takes but a moment),
        `observed_data` and `constant_data` (or a fingerprint of large data), and in its attributes versions, keys,
        kernel, choices, timing, doubts and the audit.

        Args:
            log_likelihood_rows: Rows, drawn without replacement, whose log likelihood is added: `arviz_stats.loo` and
                `compare` then speak of these rows alone. For all rows take `run.loo()`.
            rng_key: Draws these rows.
        """
        return datatree(self, log_likelihood_rows, rng_key)

    @functools.cached_property
    def _table(self) -> Any:
        from arviz_stats import summary as summarise  # pyright: ignore

        # ESS and R-hat need a few draws; a run cut short by Ctrl-C may have fewer.
        options = {"kind": "all" if self.num_draws >= 4 else "stats", "round_to": "none"}
        # Truth values have no quantiles: they count as 0 and 1 here, so that a mean is a share.
        tree = posterior_group(dataclasses.replace(self, samples=jax.tree.map(as_numbers, self.samples)))
        with np.errstate(invalid="ignore", divide="ignore"):  # coordinates that never move have no R-hat
            return summarise(tree, ci_prob=0.9, ci_kind="eti", **options)  # pyright: ignore

    @functools.cached_property
    def _summary(self) -> Summary:
        fewest = float(np.min(self._table["ess_bulk"])) if "ess_bulk" in self._table else float("nan")
        costs = costs_of(self.stats, self.session.model.num_rows, self.setup_rows, fewest)
        audit = "" if self.audit is None else str(self.audit)
        return Summary(self._table, costs, shown.notes_of(self), audit, shown.parts_of(self), self.timing)

    def __repr__(self) -> str:
        return shown.line_of(self)

    def _repr_html_(self) -> str:
        return shown.card_of(self)

    def report(self, path: str | os.PathLike[str], title: str = "Posterior report") -> Path:
        """Writes the run as one HTML page that needs nothing else: estimates, doubts, costs and pictures.

        Args:
            path: Ends in .html; an existing page is replaced.
            title: Heading of the page.

        Returns:
            The path. To compare several runs on one page there is `tallmc.diagnostics.report.write_report`.
        """
        return reports.write(self, path, title)

    def summary(self) -> Summary:
        """Mean, spread, effective sample sizes, R-hat and Monte Carlo error, and what the draws cost."""
        return self._summary


def _read_late(stored: Stored) -> dict[str, Any]:
    return {name: Later(lambda name=name: stored.part(name)) for name in Kept._fields}
