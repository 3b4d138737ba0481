"""Is a run right? Its means and standard deviations against the truth, and what chance alone explains."""

from typing import NamedTuple

import numpy as np

TOLERATED_MEAN = 0.1  # posterior standard deviations
TOLERATED_SD = 0.05  # of itself
# Standard errors that chance is granted: 6e-5 false alarms a figure, and none while they are within what is tolerated.
STANDARD_ERRORS = 4.0
FEWEST = 400  # effective draws of a reference: its standard errors are then known well enough to be believed


class Estimates(NamedTuple):
    """Of each coordinate.

    Args:
        mean: Its mean.
        sd: Its standard deviation.
        mean_error: Monte Carlo standard error of the mean.
        sd_error: And of the standard deviation.
        ess: Effective draws (bulk).
        r_hat: 1 where all chains agree.
    """

    mean: np.ndarray
    sd: np.ndarray
    mean_error: np.ndarray
    sd_error: np.ndarray
    ess: np.ndarray
    r_hat: np.ndarray

    @classmethod
    def of(cls, draws: np.ndarray) -> "Estimates":
        """Of draws (chain, draw, coordinate); the figures are ArviZ's, but for the error of a standard deviation.

        ArviZ takes it from the effective draws of the mean. Those of the squares may be a quarter as many, where a
        sampler leaps from side to side.
        """
        from arviz_stats.base import array_stats

        axes = {"chain_axis": 0, "draw_axis": 1}
        together = draws.reshape(-1, draws.shape[-1])
        mean, sd = together.mean(axis=0), together.std(axis=0, ddof=1)
        mean_error, of_squares = (array_stats.mcse(x, **axes, method="mean") for x in (draws, (draws - mean) ** 2))
        moved = np.ptp(draws, axis=1).min(axis=0) > 0  # ArviZ takes draws that are all alike for independent ones
        ess = np.where(moved, array_stats.ess(draws, **axes, method="bulk"), 0.0)
        r_hat = np.where(moved, array_stats.rhat(draws, **axes, method="rank"), np.inf)
        return cls(mean, sd, mean_error, of_squares / (2 * sd), ess, r_hat)

    @classmethod
    def exact(cls, mean: np.ndarray, sd: np.ndarray) -> "Estimates":
        """Known without error."""
        none = np.zeros(len(mean))
        return cls(np.asarray(mean, float), np.asarray(sd, float), none, none, none + np.inf, none + 1.0)

    @property
    def trusted(self) -> bool:
        """Whether they can serve as the truth."""
        return bool(np.all(self.ess >= FEWEST) and np.all(self.r_hat < 1.05))


class Distance(NamedTuple):
    """How far a run is from the truth.

    Args:
        mean: Largest error of a mean, in standard deviations.
        sd_ratio: The ratio of standard deviations, run to truth, that is furthest from 1.
        right: Whether all errors are tolerated, or no larger than chance explains.
    """

    mean: float
    sd_ratio: float
    right: bool


def distance(run: Estimates, truth: Estimates) -> Distance:
    """Of a run from the truth; what is not a number is not right."""
    means, ratios = np.abs(run.mean - truth.mean) / truth.sd, run.sd / truth.sd
    by_chance = [
        STANDARD_ERRORS * np.hypot(mine, theirs) / truth.sd
        for mine, theirs in ((run.mean_error, truth.mean_error), (run.sd_error, truth.sd_error))
    ]
    right = np.all(means <= np.maximum(TOLERATED_MEAN, by_chance[0])) and np.all(
        np.abs(ratios - 1) <= np.maximum(TOLERATED_SD, by_chance[1])
    )
    return Distance(float(np.max(means)), float(ratios[np.argmax(np.abs(np.log(ratios)))]), bool(right))


def verdict(run: Estimates, truth: Estimates, doubts: list[str]) -> str:
    """`right`; `doubted` if it is not, and the run says so; `WRONG` if it is not and says nothing.

    `unknown` if the truth itself is not known well enough.
    """
    if not truth.trusted:
        return "unknown"
    if distance(run, truth).right:
        return "right"
    return "doubted" if doubts else "WRONG"
