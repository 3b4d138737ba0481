"""Independent components of two recordings and two normal sources: risk by rows, and the design of tests."""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

import tallmc as tm
from tallmc.diagnostics.moves import MoveMoments, move_moments, moves_of
from tallmc.reproduce import prepared
from tallmc.reproduce.kind import Bench, Figure, Kind, Measured
from tallmc.reproduce.svg import Mark, Series, plot

_FIXED = 600  # rows of a look, in the heuristic that the paper compares its design with


class Problem(NamedTuple):
    """What is sampled, where from, and what is true."""

    posterior: tm.Posterior
    mode: tm.models.IcaMode
    true_W: np.ndarray
    starts: np.ndarray


def posed(X: np.ndarray, mixing_matrix: np.ndarray, chains: int) -> Problem:
    """Whitened mixtures, and the mode that is nearest to the truth."""
    posterior = tm.models.ica(X)
    true_W = np.linalg.inv(posterior.log_likelihood.whitening.matrix @ mixing_matrix)
    mode = tm.models.ica_mode(posterior, true_W)
    return Problem(posterior, mode, true_W, np.stack([mode.W] * chains))


def sampled(
    problem: Problem, rule: tm.AcceptanceRule, step: float, draws: int, *, expanded: bool = False, seed: int = 0
) -> tm.Run:
    """Steps of fixed size; without reflections, for all copies of the posterior are alike."""
    kernel = tm.MetropolisHastings(tm.StiefelWalk(step * problem.mode.angles, reflections=0.0), rule)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tm.sample(
            problem.posterior,
            kernel,
            init=problem.starts,
            num_samples=draws,
            num_warmup=0,
            num_chains=len(problem.starts),
            control_variate=tm.Taylor(at=problem.mode.W) if expanded else None,
            rng_key=seed,
            progress=False,
        )


@dataclasses.dataclass(frozen=True)
class Components(Kind):
    """Sections 6.2 and 6.5 of Korattikara et al. (2014).

    Args:
        rows: Samples of the recordings, evenly spaced.
        step: Of the walk, in posterior standard deviations of the angles.
        epsilons: Errors allowed to one look; 0 is the exact test.
        exact_draws: Of a chain by the exact test; the others get as many rows.
        chains: From the last draws of the run that is taken for the truth.
        truth_draws: Of that run.
        moves: For the design, half to train on and half to test on.
        targets: Errors that designs aim at.
        seed: Of the chains.
    """

    rows: int
    step: float
    epsilons: list[float]
    exact_draws: int
    chains: int
    truth_draws: int
    moves: int
    targets: list[float]
    seed: int

    @property
    def data_files(self) -> tuple[str, ...]:
        """Recordings in the place of those of the paper."""
        return ("audio_ica.npz",)

    @property
    def parts(self) -> tuple[str, ...]:
        """Risks, and designs."""
        return "risk", "design"

    def measure(self, part: str, bench: Bench) -> Measured:
        """One part."""
        X, mixing = prepared.recordings(bench.data.load("audio_ica.npz"), self.rows)
        problem = posed(X, mixing, self.chains)
        return self._risk(problem, bench) if part == "risk" else self._design(problem)

    def _risk(self, problem: Problem, bench: Bench) -> Measured:
        """Squared error of each chain's mean Amari distance, after as many rows as the exact test spends."""
        truth = sampled(problem, tm.MHSS(batch_size=64), 0.97, self.truth_draws, expanded=True, seed=self.seed)
        bench.keep("truth", truth)
        true_mean = float(tm.amari_distance(truth.samples, problem.true_W).mean())
        problem = problem._replace(starts=np.asarray(truth.samples)[:, -1])
        figures, curves, budget = {}, {}, self.exact_draws * self.rows
        for epsilon in self.epsilons:
            bench.say(f"    epsilon {epsilon:g}")
            rule = tm.AustereMH(epsilon, _FIXED) if epsilon else tm.Exact()
            trial = sampled(problem, rule, self.step, 20, seed=self.seed + 1)
            draws = max(30, int(budget / trial.stats["rows"].mean()))
            run = sampled(problem, rule, self.step, draws, seed=self.seed)
            bench.keep(f"epsilon-{epsilon:g}", run)
            distance = np.asarray(tm.amari_distance(run.samples, problem.true_W), float)
            means = np.cumsum(distance, axis=1) / np.arange(1, draws + 1)
            risks = np.mean((means - true_mean) ** 2, axis=0)
            rows = float(run.stats["rows"].mean())
            figures[f"risk, epsilon {epsilon:g}"] = Figure(float(risks[-1]))
            figures[f"share of rows, epsilon {epsilon:g}"] = Figure(rows / self.rows)
            figures[f"accepted, epsilon {epsilon:g}"] = Figure(float(run.stats["accepted"].mean()))
            places = np.unique(np.geomspace(1, draws, 25).astype(int))
            curves[f"{epsilon:g}"] = {"rows": places * rows, "risk": risks[places - 1]}
        exact = figures[f"risk, epsilon {self.epsilons[0]:g}"].value
        approximate = min(figures[f"risk, epsilon {epsilon:g}"].value for epsilon in self.epsilons[1:])
        note = "Other recordings than the paper's: music and street noise that may be passed on."
        return Measured({**figures, "least risk over the exact one": Figure(approximate / exact)}, curves, (note,))

    def _design(self, problem: Problem) -> Measured:
        """Average design, fixed looks and worst case: trained on half of the moves, tested on the others."""
        run = sampled(problem, tm.AustereMH(0.05, _FIXED), self.step, 200, seed=self.seed)
        moments = move_moments(run.session.model, problem.posterior.rows, moves_of(run, self.moves))
        train, test = (
            MoveMoments(*(getattr(moments, field.name)[half::2] for field in dataclasses.fields(MoveMoments)))
            for half in (0, 1)
        )
        curves = {name: {"error": [], "share": []} for name in ("average", "fixed", "worst case")}
        for target in self.targets:
            average = tm.design.cheapest(tm.design.average_candidates(target, self.rows, train))
            worst = tm.design.cheapest(tm.design.worst_case_candidates(target, self.rows))
            fixed = tm.design.epsilon_within(target, train, _FIXED / self.rows)
            for name, batch, epsilon, boundary in (
                ("average", average.batch_size, average.epsilon, average.boundary),
                ("fixed", _FIXED, fixed, 0.5),
                ("worst case", worst.batch_size, worst.epsilon, worst.boundary),
            ):
                found = tm.design.acceptance_error(test.log_ratio, test.spread, batch / self.rows, epsilon, boundary)
                curves[name]["error"].append(float(np.mean(np.abs(found.error))))
                curves[name]["share"].append(float(np.mean(found.data_fraction)))
        last = self.targets[-1]
        figures = {
            "design, average over fixed": Figure(curves["average"]["share"][-1] / curves["fixed"]["share"][-1]),
            "design, average over worst case": Figure(
                curves["average"]["share"][-1] / curves["worst case"]["share"][-1]
            ),
            "design, test error over target": Figure(curves["average"]["error"][-1] / last),
            "design, test error of the worst case over target": Figure(curves["worst case"]["error"][-1] / last),
        }
        return Measured(figures, {**curves, "targets": self.targets})

    def pictures(self, found: Mapping[str, Measured]) -> dict[str, str]:
        """Figures 3 and 6."""
        risk, design = "Figure 3: risk of the mean Amari distance", "Figure 6: rows of designed tests"
        series = [
            Series(f"epsilon {name}", curve["rows"], curve["risk"], Mark.LINE, colour)
            for colour, (name, curve) in enumerate(found["risk"].curves.items())
        ]
        curves = found["design"].curves
        designs = [
            Series(name, curves["targets"], curves[name]["share"], Mark.LINE, colour)
            for colour, name in enumerate(("average", "fixed", "worst case"))
        ]
        return {
            risk: plot(risk, series, "rows read by a chain", "risk", log_x=True, log_y=True),
            design: plot(design, designs, "error that is aimed at", "share of the rows read", log_x=True),
        }
