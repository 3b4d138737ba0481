"""Which columns belong into a regression, by reversible jumps: exact and sequential tests from the same starts."""

import dataclasses
import warnings
from collections.abc import Mapping

import numpy as np
from scipy.special import expit

import tallmc as tm
from tallmc.posterior.at_zero import at_zero
from tallmc.reproduce import prepared
from tallmc.reproduce.kind import Bench, Figure, Kind, Measured
from tallmc.reproduce.svg import Mark, Series, plot

_STARTS = ("one variable", "the mode")


@dataclasses.dataclass(frozen=True)
class Selection(Kind):
    """Section 6.3 and supplement E of Korattikara et al. (2014), Figures 4 and 13.

    Args:
        size_penalty: lambda of the paper.
        update: Standard deviation of an update.
        birth: Of a new coefficient.
        epsilons: Errors allowed to one look; 0 is the exact test.
        batch: Rows of a look.
        warmup: Steps that are dropped; they tune nothing.
        draws: Of a chain.
        chains: From each start.
        seed: Of the chains.
    """

    size_penalty: float
    update: float
    birth: float
    epsilons: list[float]
    batch: int
    warmup: int
    draws: int
    chains: int
    seed: int

    @property
    def data_files(self) -> tuple[str, ...]:
        """Documents, in the place of MiniBooNE."""
        return ("letor4.npz",)

    @property
    def parts(self) -> tuple[str, ...]:
        """Each start with each test."""
        return tuple(f"from {start}, epsilon {epsilon:g}" for start in _STARTS for epsilon in self.epsilons)

    def measure(self, part: str, bench: Bench) -> Measured:
        """Chains from one start by one test."""
        (X, y), (other, truth) = prepared.relevance(bench.data.load("letor4.npz"))
        posterior = tm.models.variable_selection(X, y, size_penalty=self.size_penalty)
        start, _, epsilon = part.removeprefix("from ").partition(", epsilon ")
        rule = tm.AustereMH(float(epsilon), self.batch) if float(epsilon) else tm.Exact(8000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = tm.sample(
                posterior,
                tm.MetropolisHastings(tm.ReversibleJump(self.update, self.birth), rule),
                init=_start(posterior, X, y, start),
                num_samples=self.warmup + self.draws,
                num_warmup=0,
                num_chains=self.chains,
                rng_key=self.seed,
                progress=False,
            )
        bench.keep(part.replace(" ", "-").replace(",", ""), run)
        return self._figures(part, run, other, truth)

    def _figures(self, part: str, run: tm.Run, other: np.ndarray, truth: np.ndarray) -> Measured:
        gamma = np.asarray(run.samples["gamma"])[:, self.warmup :]
        beta = np.asarray(run.samples["beta"], np.float32)[:, self.warmup :: max(1, self.draws // 100)]
        chance = expit(beta.reshape(-1, beta.shape[-1]) @ other.T).mean(axis=0)
        jumps = run.stats["birth"] | run.stats["death"]
        early, late = jumps.copy(), jumps.copy()
        early[:, self.warmup :], late[:, : self.warmup] = False, False
        accepted = run.stats["accepted"]
        figures = {
            f"columns, {part}": Figure(float(gamma.sum(axis=2).mean())),
            f"test error, {part}": Figure(100 * float(np.mean((chance > 0.5) != truth))),
            f"jumps accepted at the end, {part}": Figure(100 * float(accepted[late].mean())),
            f"updates accepted, {part}": Figure(100 * float(accepted[~jumps].mean())),
            f"share of rows, {part}": Figure(float(run.stats["rows"].mean()) / run.posterior.num_rows),
        }
        if part.startswith("from one"):
            figures[f"jumps accepted at the start, {part}"] = Figure(100 * float(accepted[early][:200].mean()))
        return Measured(figures, {"inclusion": gamma.mean(axis=(0, 1))})

    def pictures(self, found: Mapping[str, Measured]) -> dict[str, str]:
        """Figure 13: inclusion probabilities, exact against approximate."""
        exact = np.asarray(found[f"from the mode, epsilon {self.epsilons[0]:g}"].curves["inclusion"])
        series = [Series("the same", [0.0, 1.0], [0.0, 1.0], Mark.DASHED, 3)]
        for colour, epsilon in enumerate(self.epsilons[1:]):
            other = found[f"from the mode, epsilon {epsilon:g}"].curves["inclusion"]
            series.append(Series(f"epsilon {epsilon:g}", exact.tolist(), other, Mark.POINTS, colour))
        title = "Figure 13: probability of a column to be in the model"
        return {title: plot(title, series, "by the exact test", "by a sequential test")}


def _start(posterior: tm.Posterior, X: np.ndarray, y: np.ndarray, start: str) -> dict[str, np.ndarray]:
    """All columns at their mode, or the one that explains most."""
    if start == "the mode":
        mode = tm.optimise.mode(tm.models.logistic_regression(X, y, prior_precision=0.01), progress=False).position
        return {"beta": np.asarray(mode), "gamma": np.ones(X.shape[1], bool)}
    found = at_zero(posterior.log_likelihood.link, posterior.rows)
    if found is None:
        raise RuntimeError("this likelihood has no expansion at zero")
    best = np.arange(X.shape[1]) == np.argmax(found.gain)
    return {"beta": np.where(best, found.slope / found.bend, 0).astype(np.float32), "gamma": best}
