"""Handwritten digits, two of them against each other: rows of a test, and the risk of a predictive mean."""

import dataclasses
import functools
import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import expit

import tallmc as tm
from tallmc.reproduce.kind import Bench, Figure, Kind, Measured
from tallmc.reproduce.prepared import pairs, principal
from tallmc.reproduce.printed import PrintedMHMinibatch
from tallmc.reproduce.svg import Mark, Series, plot

_MOST_POINTS = 60  # of a curve


def quiet_sample(posterior: tm.Posterior, kernel: tm.Kernel | None, **options: Any) -> tm.Run:
    """A run without progress and warnings: short chains are the papers'."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tm.sample(posterior, kernel, progress=False, **options)


@dataclasses.dataclass(frozen=True)
class OneOrSeven(Kind):
    """Table 2 and Figures 3 and 5 of Seita et al. (2018), and section 4.2 of Li and Wong (2017).

    Args:
        temperature: Divides the log likelihood.
        step: Standard deviation of the random walk.
        exponent: lambda of MINT, which the paper does not say; near the largest, its temperature is like the others'.
        draws: Of a trial by a test that reads few rows.
        slow_draws: Of a trial by one that reads all rows, if only to know what it would have read.
        trials: Chains from zero.
        batches: Whose mean is looked at for normality.
        seed: Of the chains.
    """

    temperature: float
    step: float
    exponent: float
    draws: int
    slow_draws: int
    trials: int
    batches: int
    seed: int

    @property
    def data_files(self) -> tuple[str, ...]:
        """Ones and sevens."""
        return ("mnist_1v7.npz",)

    @property
    def parts(self) -> tuple[str, ...]:
        """A part for each test."""
        return (*self._rules, "batch means")

    @functools.cached_property
    def _rules(self) -> dict[str, tuple[tm.AcceptanceRule, float, int]]:
        variance = self.step**0.5
        return {
            "MHMINIBATCH as printed": (PrintedMHMinibatch(100), self.step, self.draws),
            "MHMinibatch of this library": (tm.MHMinibatch(100), self.step, self.draws),
            "MINT": (tm.Mint(100, self.exponent), self.step, self.draws),
            "AUSTEREMH(C)": (tm.AustereMH(0.01, 450), self.step, self.draws),
            "AUSTEREMH(C), covariance 0.05": (tm.AustereMH(0.01, 450), variance, self.slow_draws),
            "AUSTEREMH(NC)": (tm.AustereMHPerStep(0.05, list(range(50, 501, 50))), self.step, self.slow_draws),
            "MHSUBLHD": (tm.MHSubLhd(0.01, 2.0, 2.0, 100, bound="scan"), self.step, self.slow_draws),
        }

    def measure(self, part: str, bench: Bench) -> Measured:
        """One test, or the batch means."""
        X, y, other, truth = pairs(bench.data.load("mnist_1v7.npz"), 7)
        posterior = tm.models.logistic_regression(X, y, prior_precision=0.0, temperature=self.temperature)
        if part == "batch means":
            return self._batch_means(X, y)
        rule, step, draws = self._rules[part]
        if isinstance(rule, tm.Mint):  # tempers by itself
            posterior = tm.models.logistic_regression(X, y, prior_precision=0.0)
        run = quiet_sample(
            posterior,
            tm.MetropolisHastings(tm.RandomWalk(step), rule),
            init=np.zeros(X.shape[1], np.float32),
            num_samples=draws,
            num_warmup=0,
            num_chains=self.trials,
            rng_key=self.seed,
        )
        asked = run.stats.get("test_rows", run.stats["rows"])
        means = asked.mean(axis=1)
        error = float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else None
        chain = np.asarray(run.samples[0], np.float32)
        places = np.unique(np.geomspace(1, draws, _MOST_POINTS).astype(int)) - 1
        accuracy = np.array([np.mean((other @ chain[at] > 0) == truth) for at in places])
        average = np.mean([expit(other @ chain[at]) for at in range(draws // 2, draws, max(1, draws // 100))], axis=0)
        figures = {
            f"rows, {part}": Figure(float(means.mean()), error),
            f"accuracy, {part}": Figure(float(np.mean((average > 0.5) == truth))),
        }
        counts = np.bincount((4 * np.log2(np.maximum(asked.ravel(), 1))).astype(int)) / asked.size
        seen = np.flatnonzero(counts)
        return Measured(
            figures,
            {
                "read": np.cumsum(asked[0])[places],
                "accuracy": accuracy,
                "rows": 2.0 ** ((seen + 0.5) / 4),
                "share": counts[seen],
            },
        )

    def _batch_means(self, X: np.ndarray, y: np.ndarray) -> Measured:
        """Means of log likelihoods over batches of 100, at a position near the mode; the paper shows a histogram."""
        generator = np.random.default_rng(self.seed)
        position = generator.normal(scale=0.05, size=X.shape[1])
        predictor = X @ position
        values = y * predictor - np.logaddexp(0, predictor)
        chosen = generator.integers(0, len(values), (self.batches, 100))
        means = values[chosen].mean(axis=1)
        standard = (means - means.mean()) / means.std(ddof=1)
        figures = {
            "distance of batch means from a normal": Figure(float(stats.kstest(standard, "norm").statistic)),
            "samples a pass": Figure(len(X) / 100),
        }
        counts, edges = np.histogram(standard, np.linspace(-4, 4, 41), density=True)
        return Measured(figures, {"place": (edges[1:] + edges[:-1]) / 2, "density": counts})

    def pictures(self, found: Mapping[str, Measured]) -> dict[str, str]:
        """Figures 3 and 5 of Seita et al., and Figure 2, left, of Li and Wong."""
        shown = [name for name in found if name in self._rules and "covariance" not in name]
        curves = [
            Series(name, found[name].curves["read"], found[name].curves["accuracy"], Mark.LINE, colour)
            for colour, name in enumerate(shown)
        ]
        rows = [
            Series(name, found[name].curves["rows"], found[name].curves["share"], Mark.LINE, colour)
            for colour, name in enumerate(shown)
        ]
        means = found["batch means"].curves
        places = np.asarray(means["place"])
        normal = [
            Series("batch means", means["place"], means["density"], Mark.BARS, 0),
            Series("normal", means["place"], stats.norm.pdf(places).tolist(), Mark.LINE, 1),
        ]
        first, second, third = "Figure 3: accuracy by rows read", "Figure 5: rows of a test", "Means of batches"
        return {
            first: plot(first, curves, "rows read", "test accuracy", log_x=True),
            second: plot(second, rows, "rows", "share of tests", log_x=True, log_y=True),
            third: plot(third, normal, "standard deviations from the mean", "density"),
        }


@dataclasses.dataclass(frozen=True)
class SevenOrNine(Kind):
    """Section 6.1 of Korattikara et al. (2014): the risk of a predictive mean against the rows it takes.

    Args:
        components: Principal components.
        step: Standard deviation of the random walk.
        batch: Rows of a look.
        epsilons: Errors allowed to one look; 0 is the exact test.
        exact_draws: Of a chain by the exact test; the others get as many rows as that reads.
        chains: From the mode.
        truth_draws: Of the run that is taken for the truth.
        seed: Of the chains.
    """

    components: int
    step: float
    batch: int
    epsilons: list[float]
    exact_draws: int
    chains: int
    truth_draws: int
    seed: int

    @property
    def data_files(self) -> tuple[str, ...]:
        """Sevens and nines."""
        return ("mnist_7v9.npz",)

    @property
    def parts(self) -> tuple[str, ...]:
        """All in one part: the risks are to one truth."""
        return ("all",)

    def measure(self, part: str, bench: Bench) -> Measured:
        """Rows, time and risk for every epsilon."""
        del part
        train, y, test, _ = pairs(bench.data.load("mnist_7v9.npz"), 9)
        X, other = principal(train, test, self.components)
        posterior = tm.models.logistic_regression(X, y, prior_precision=10.0)
        mode = np.asarray(tm.optimise.mode(posterior, progress=False).position)
        truth = quiet_sample(posterior, None, num_samples=self.truth_draws, num_chains=2, rng_key=self.seed + 1)
        true_mean = _predictive(np.asarray(truth.samples, np.float32).reshape(-1, X.shape[1]), other)
        budget = self.exact_draws * len(X)
        figures, curves, seconds = {}, {}, {}
        for epsilon in self.epsilons:
            bench.say(f"    epsilon {epsilon:g}")
            run, seconds[epsilon] = self._chain(posterior, mode, epsilon, budget)
            bench.keep(f"epsilon-{epsilon:g}", run)
            rows = float(run.stats["rows"].mean())
            draws = np.asarray(run.samples, np.float32)
            places, risks = self._risks(draws, other, true_mean, rows, budget)
            spread = draws.reshape(-1, X.shape[1]).std(axis=0) / np.asarray(truth.samples).std(axis=(0, 1))
            figures[f"share of rows, epsilon {epsilon:g}"] = Figure(rows / len(X))
            figures[f"draws for the same rows, epsilon {epsilon:g}"] = Figure(len(X) / rows)
            figures[f"risk, epsilon {epsilon:g}"] = Figure(risks[-1])
            figures[f"sd over the exact one, epsilon {epsilon:g}"] = Figure(float(np.median(spread)))
            curves[f"{epsilon:g}"] = {"rows": places, "risk": risks}
        for epsilon in self.epsilons[1:]:
            ratio = seconds[self.epsilons[0]] / seconds[epsilon]
            figures[f"draws for the same time, epsilon {epsilon:g}"] = Figure(ratio)
        least = min(self.epsilons, key=lambda epsilon: figures[f"risk, epsilon {epsilon:g}"].value)
        return Measured({**figures, "epsilon of least risk": Figure(least)}, curves)

    def _chain(self, posterior: tm.Posterior, mode: np.ndarray, epsilon: float, budget: int) -> tuple[tm.Run, float]:
        """Chains that read about as many rows as the exact one, and the processor seconds of a draw."""
        rule = tm.AustereMH(epsilon, self.batch) if epsilon else tm.Exact()
        kernel = tm.MetropolisHastings(tm.RandomWalk(self.step), rule)
        options = {"init": mode, "num_warmup": 0, "num_chains": self.chains, "rng_key": self.seed}
        first = quiet_sample(posterior, kernel, num_samples=max(20, self.exact_draws // 20), **options)
        draws = int(budget / first.stats["rows"].mean())
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = first.extend(draws)
        return run, (time.process_time() - began) / (draws * self.chains)

    def _risks(
        self, draws: np.ndarray, other: np.ndarray, true_mean: np.ndarray, rows: float, budget: int
    ) -> tuple[list[float], list[float]]:
        """Mean squared error of each chain's predictive mean, after growing parts of its rows."""
        places = [budget * share for share in (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)]
        risks = []
        for place in places:
            count = max(2, min(int(place / rows), draws.shape[1]))
            means = [_predictive(chain[:count], other) for chain in draws]
            risks.append(float(np.mean([(mean - true_mean) ** 2 for mean in means])))
        return places, risks

    def pictures(self, found: Mapping[str, Measured]) -> dict[str, str]:
        """Figure 2, with rows in the place of seconds."""
        title = "Figure 2: risk of the predictive mean"
        series = [
            Series(f"epsilon {name}", curve["rows"], curve["risk"], Mark.LINE, colour)
            for colour, (name, curve) in enumerate(found["all"].curves.items())
        ]
        return {title: plot(title, series, "rows read by a chain", "risk", log_x=True, log_y=True)}


def _predictive(draws: np.ndarray, other: np.ndarray, most: int = 500) -> np.ndarray:
    """Mean of the probability of each test row, over at most so many draws, evenly spaced."""
    kept = draws[np.linspace(0, len(draws) - 1, min(most, len(draws))).astype(int)]
    return expit(other @ kept.T).mean(axis=1)
