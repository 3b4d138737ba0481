"""Beyond the papers: what one effective draw costs as rows grow, with an expansion and without."""

import dataclasses
import time
import warnings
from collections.abc import Mapping

import numpy as np

import tallmc as tm
from tallmc.diagnostics.moves import move_moments, moves_of
from tallmc.reproduce.kind import Bench, Figure, Kind, Measured
from tallmc.reproduce.svg import Mark, Series, plot
from tallmc.run.mixing import mixing

_NUM_MOVES = 40


@dataclasses.dataclass(frozen=True)
class FlatInN(Kind):
    """'Flat in N', and 'no free lunch': the two pictures that explain the library.

    Args:
        rows: Numbers of rows.
        columns: Of a logistic regression.
        draws: Of `tm.sample`, after its warm-up.
        plain_draws: Of a random walk without an expansion.
        seed: Of the chains.
    """

    rows: list[int]
    columns: int
    draws: int
    plain_draws: int
    seed: int

    @property
    def parts(self) -> tuple[str, ...]:
        """A part for each number of rows."""
        return tuple(f"{count:,} rows" for count in self.rows)

    def measure(self, part: str, bench: Bench) -> Measured:
        """What `tm.sample` reads and takes, and what a walk without an expansion must read."""
        count = int(part.removesuffix(" rows").replace(",", ""))
        X, y, _ = tm.models.generate_logistic(count, self.columns)
        posterior = tm.models.logistic_regression(X, y)
        options = {"rng_key": self.seed, "num_chains": 2, "progress": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first = tm.sample(posterior, **options)
            first.extend(10)  # compiles whatever going on needs
            began = time.process_time()
            run = first.extend(self.draws)
            seconds = time.process_time() - began
        bench.keep(part.replace(",", "").replace(" ", "-"), run)
        draws = np.asarray(run.samples, float)[:, -self.draws :]
        effective = float(np.min(mixing(draws).ess_bulk))
        rows = float(run.stats["rows"][:, -self.draws :].mean())
        needed, share = self._without_expansion(posterior, first)
        figures = {
            f"{part}: rows a step": Figure(rows),
            f"{part}: rows an effective draw": Figure(rows * draws.shape[0] * draws.shape[1] / effective),
            f"{part}: effective draws a second": Figure(effective / seconds),
            f"{part}: rows needed without expansion": Figure(needed),
            f"{part}: share of rows read without expansion": Figure(share),
        }
        return Measured(figures)

    def _without_expansion(self, posterior: tm.Posterior, fitted: tm.Run) -> tuple[float, float]:
        """Rows that the noise of a Barker test asks for, and the share that `MHMinibatch` reads, both without help."""
        draws = np.asarray(fitted.samples, float).reshape(-1, self.columns)
        factor = np.linalg.cholesky(np.cov(draws.T)) * 2.38 / np.sqrt(self.columns)
        kernel = tm.MetropolisHastings(tm.RandomWalk(factor.astype(np.float32)), tm.MHMinibatch(500))
        start = draws[-1].astype(np.float32)
        options = {"num_warmup": 0, "num_chains": 1, "progress": False, "rng_key": self.seed}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = tm.sample(posterior, kernel, init=start, num_samples=self.plain_draws, **options)
        moments = move_moments(run.session.model, posterior.rows, moves_of(run, _NUM_MOVES))
        # The mean of m rows, times N, has variance N spread^2 / m; a test with sigma 1 waits for one.
        needed = float(np.mean(np.minimum(moments.spread**2, 1.0)))
        return needed, float(run.stats["rows"].mean()) / posterior.num_rows

    def pictures(self, found: Mapping[str, Measured]) -> dict[str, str]:
        """Both, against the number of rows."""

        def of(name: str) -> list[float]:
            return [found[part].figures[f"{part}: {name}"].value for part in self.parts]

        flat, lunch = "Flat in N: effective draws a second", "No free lunch: rows a step at temperature 1"
        read = (np.array(of("share of rows read without expansion")) * np.array(self.rows)).tolist()
        speed = [Series("tm.sample", self.rows, of("effective draws a second"), Mark.LINE, 0)]
        rows = [
            Series("all rows", self.rows, [float(count) for count in self.rows], Mark.DASHED, 3),
            Series("MHMinibatch, no expansion", self.rows, read, Mark.LINE, 1),
            Series("tm.sample", self.rows, of("rows a step"), Mark.LINE, 0),
        ]
        return {
            flat: plot(flat, speed, "rows of the data", "effective draws a processor second", log_x=True, log_y=True),
            lunch: plot(lunch, rows, "rows of the data", "rows read a step", log_x=True, log_y=True),
        }
