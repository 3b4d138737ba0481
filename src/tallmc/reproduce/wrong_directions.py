"""How often a tested update points more than 90 degrees away from the update of all rows."""

import warnings

import numpy as np

import tallmc as tm


class Recorder:
    """Makes classes that note the updates a test accepts."""

    @staticmethod
    def of(test):
        """A subclass of the test, with a list `seen` of positions and updates."""

        class Recording(test):
            seen = []  # noqa: RUF012

            def accepts(self, look, looks):
                accepted = super().accepts(look, looks)
                if accepted:
                    self.seen.append((look.position, look.update(look.halves[0] + look.halves[1])))
                return accepted

        return Recording


def full_update(problem, position, kind=None):
    """The update of all rows, in float64; Newton's, or of a kind."""
    rows = type(problem.data)(*(leaf.astype(np.float64) for leaf in problem.data))
    sums = problem.sums(position, rows, curvature=True) + problem.prior(position)
    return np.linalg.solve(sums.curvature, sums.score) if kind is None else kind.of(sums, problem)


def share_of_wrong_directions(problem, test, num_tests, spread, *, epsilon=0.05, first_rows=None, kind=None):
    """One tested update from each of many positions, `spread` posterior standard deviations around the optimum.

    Returns:
        Share of wrong directions among all tested updates (those that ended on all rows are right), and the share
        that were made before all rows were read.
    """
    optimum = tm.optimise.irls(problem)
    factor = np.linalg.cholesky(np.linalg.inv(optimum.hessian))
    generator = np.random.default_rng(1)
    recorder = Recorder.of(test)
    for seed in range(num_tests):
        init = optimum.position + spread * factor @ generator.normal(size=problem.dimension)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            tm.optimise.irls(
                problem,
                test=recorder,
                update=kind,
                epsilon=epsilon,
                init=init,
                first_rows=first_rows,
                seed=seed,
                max_iterations=1,
            )
    wrong = sum(float(step @ full_update(problem, position, kind)) < 0 for position, step in recorder.seen)
    return wrong / num_tests, len(recorder.seen) / num_tests
