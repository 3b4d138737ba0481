"""Have the chains mixed, and are there draws enough? Asked of every run, with ArviZ's statistics."""

from collections.abc import Callable
from typing import Any

import arviz_base
import numpy as np
from arviz_stats import ess, rhat  # pyright: ignore
from jaxtyping import Real

LARGEST_R_HAT = 1.05  # chance alone gives up to about 1.03 where there are 100 effective draws
FEWEST_DRAWS = 100  # effective ones, below which neither an estimate nor its diagnostics mean much
_MOST_NUMBERS = 20_000_000  # beyond that some chains stand for all: these statistics take a second for so many


class ConvergenceWarning(UserWarning):
    """The chains of a run have not mixed, or there are too few effective draws."""


def convergence_doubts(named: dict[str, Real[np.ndarray, "chains draws ..."]]) -> tuple[str, ...]:
    """What R-hat and effective sample sizes say against a run, in words.

    Args:
        named: Draws of each variable.
    """
    num_chains, num_draws = next(iter(named.values())).shape[:2]
    if num_draws < 4:
        return (f"{num_draws} draws of each chain are too few to judge whether they have mixed",)
    share = 1.0
    if num_chains == 1:  # the halves of one chain must agree as two chains must
        half = num_draws // 2
        named = {name: draws[:, : 2 * half].reshape(2, half, *draws.shape[2:]) for name, draws in named.items()}
    elif (numbers := sum(draws.size for draws in named.values())) > _MOST_NUMBERS:
        some = np.linspace(0, num_chains - 1, max(64, int(num_chains * _MOST_NUMBERS / numbers))).astype(int)
        some = np.unique(some)
        named, share = {name: draws[some] for name, draws in named.items()}, len(some) / num_chains
    return tuple(_doubts(named, share))


def _doubts(named: dict[str, np.ndarray], share: float) -> list[str]:
    draws = arviz_base.dict_to_dataset(named)
    with np.errstate(divide="ignore", invalid="ignore"):  # of coordinates that never move
        worst = {"R-hat": _extreme(rhat(draws), np.max)}
        fewest = {
            "bulk": _extreme(ess(draws, method="bulk"), np.min) / share,
            "tail": _extreme(ess(draws, method="tail"), np.min) / share,
        }
    doubts = []
    if np.isnan(worst["R-hat"]):
        doubts.append("R-hat cannot be worked out: some coordinate never moved; try a smaller proposal scale")
    elif worst["R-hat"] > LARGEST_R_HAT:
        doubts.append(
            f"R-hat is up to {worst['R-hat']:.2f} (above {LARGEST_R_HAT}): the chains have not mixed; draw more, with "
            "run.extend(num_samples), or start better"
        )
    for kind, found in fewest.items():
        if not np.isnan(worst["R-hat"]) and not found >= FEWEST_DRAWS:
            what = "estimates are rough" if kind == "bulk" else "quantiles and widths are rough"
            doubts.append(
                f"only {found:.0f} effective draws ({kind}) of some coordinate, below {FEWEST_DRAWS}: {what}; draw "
                "more, with run.extend(num_samples)"
            )
    return doubts


def _extreme(statistic: Any, pick: Callable[[Any], Any]) -> float:
    """The largest or smallest value among all coordinates of all variables; NaN if there is one."""
    return float(pick([pick(values.values) for values in statistic.data_vars.values()]))
