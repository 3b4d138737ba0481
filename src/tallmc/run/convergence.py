"""Have the chains mixed, and are there draws enough? Asked of every run."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Shaped

from tallmc.run.mixing import mixing

LARGEST_R_HAT = 1.05  # chance alone gives up to about 1.03 where there are 100 effective draws
FEWEST_DRAWS = 100  # effective ones, below which neither an estimate nor its diagnostics mean much
_MOST_NUMBERS = 1_000_000  # beyond that some chains stand for all: ranks of so many numbers take a fifth of a second


class ConvergenceWarning(UserWarning):
    """The chains of a run have not mixed, or there are too few effective draws."""


def convergence_doubts(named: dict[str, Shaped[np.ndarray, "chains draws ..."]]) -> tuple[str, ...]:
    """What R-hat and effective sample sizes say against a run, in words.

    Args:
        named: Draws of each variable.
    """
    num_chains, num_draws = next(iter(named.values())).shape[:2]
    if num_draws < 4:
        return (f"{num_draws} draws of each chain are too few to judge whether they have mixed",)
    named = _that_can_move(named)
    share, of_all = 1.0, 0.0
    if num_chains == 1:  # the halves of one chain must agree as two chains must
        half = num_draws // 2
        named = {name: draws[:, : 2 * half].reshape(2, half, *draws.shape[2:]) for name, draws in named.items()}
    elif (numbers := sum(draws.size for draws in named.values())) > _MOST_NUMBERS:
        some = np.linspace(0, num_chains - 1, max(64, int(num_chains * _MOST_NUMBERS / numbers))).astype(int)
        some = np.unique(some)
        of_all = max(_plain_r_hat(draws) for draws in named.values())
        named, share = {name: draws[some] for name, draws in named.items()}, len(some) / num_chains
    return tuple(_doubts(named, share, of_all))


def _that_can_move(named: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Draws without coordinates of which it is no trouble that they are the same throughout; all, if no other is left.

    A column that every chain keeps in its model at every draw, or out of it, is an answer: a truth value or whole
    number that never changed, and beside such a real number that is zero throughout. Chains that differ are none.
    """
    if all(np.issubdtype(draws.dtype, np.floating) for draws in named.values()):
        return named
    left = {}
    for name, draws in named.items():
        columns = draws.reshape(*draws.shape[:2], -1)
        first = columns[0, 0]
        settled = np.all(columns == first, axis=(0, 1))
        if np.issubdtype(draws.dtype, np.floating):
            settled &= first == 0
        if not settled.all():
            left[name] = columns[:, :, ~settled]
    return left or named


def _plain_r_hat(draws: np.ndarray) -> float:
    """The largest of all coordinates, of the values as they are: every chain counts, and no ranks are needed."""

    def of_some(chains: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return chains.mean(axis=1, dtype=float), chains.var(axis=1, ddof=1, dtype=float)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = list(pool.map(of_some, np.array_split(draws, min(len(draws), 4 * (os.cpu_count() or 1)))))
    means, variances = (np.concatenate(column) for column in zip(*parts, strict=True))
    within, between = variances.mean(axis=0), means.var(axis=0, ddof=1)
    return float(np.max(np.sqrt(1 - 1 / draws.shape[1] + between / np.where(within > 0, within, 1))))


def _doubts(named: dict[str, np.ndarray], share: float, of_all: float) -> list[str]:
    variables = [mixing(draws.reshape(*draws.shape[:2], -1)) for draws in named.values()]
    r_hat = np.max([variable.r_hat.max() for variable in variables])
    if np.isnan(r_hat):
        return ["R-hat cannot be worked out: some coordinate never moved; try a smaller proposal scale"]
    doubts, r_hat = [], max(r_hat, of_all)
    if r_hat > LARGEST_R_HAT:
        doubts.append(
            f"R-hat is up to {r_hat:.2f} (above {LARGEST_R_HAT}): the chains have not mixed; draw more, with "
            "run.extend(num_samples), or start better"
        )
    bulk = np.min([variable.ess_bulk.min() for variable in variables]) / share
    tail = np.min([variable.ess_tail.min() for variable in variables]) / share
    for kind, found, rough in (("bulk", bulk, "estimates"), ("tail", tail, "quantiles and widths")):
        if not found >= FEWEST_DRAWS:
            doubts.append(
                f"only {found:.0f} effective draws ({kind}) of some coordinate, below {FEWEST_DRAWS}: {rough} are "
                "rough; draw more, with run.extend(num_samples)"
            )
    return doubts
