"""Reversible jumps for a normal likelihood, as a Numba loop of its own: what rules are compared with."""

import numba
import numpy as np

import tallmc as tm


def inclusion(posterior: tm.Posterior, init: dict[str, np.ndarray], num_steps: int = 100_000_000) -> np.ndarray:
    """Inclusion probabilities of a logistic selection with size penalty 1, if its likelihood is normal.

    At 50,000 rows and the effects of the benchmark its logarithm is so to about a hundredth within the posterior.
    """
    columns = posterior.data
    whole = tm.models.logistic_regression(columns["x"], columns["y"], prior_precision=0.0)
    found = tm.optimise.mode(whole, progress=False)
    precision = np.asarray(tm.Taylor(2).expand(whole, found.position).precision)
    mean = np.asarray(found.position, float)
    start = np.where(init["gamma"], mean, 0.0)
    return _jumps(precision, mean, start, 1 / np.sqrt(np.diag(precision)), 1.0, num_steps, 0)


@numba.njit(cache=False)
def _jumps(precision, mean, beta, widths, penalty, num_steps, seed):
    """Share of the steps that each column is in, for a normal likelihood."""
    np.random.seed(seed)
    most = len(mean)
    inside = beta != 0
    slope = precision @ (beta - mean)
    size, length = inside.sum(), np.abs(beta).sum()
    counts, since = np.zeros(most), np.zeros(most)
    for step in range(num_steps):
        j, kind = np.random.randint(most), np.random.random()
        # Any column may be picked: one that is out is proposed to come in, one that is in to leave or to move.
        leaves = inside[j] and kind < 0.5
        if leaves:
            if size == 1:
                continue
            new = 0.0
        elif inside[j]:
            new = beta[j] + 2.4 * widths[j] * np.random.normal()
        elif kind < 0.5:
            new = 4 * widths[j] * np.random.normal()
        else:
            continue
        change, after = new - beta[j], length + abs(new) - abs(beta[j])
        ratio = -change * slope[j] - change * change * precision[j, j] / 2
        if leaves or not inside[j]:
            # The same column is picked with the same chance on the way back.
            grown = -1 if leaves else 1
            small = size - 1 if leaves else size
            value = beta[j] if leaves else new
            z = value / (4 * widths[j])
            density = -z * z / 2 - np.log(4 * widths[j]) - 0.5 * np.log(2 * np.pi)
            ratio += grown * (np.log(penalty * small / (most - small)) - density)
            ratio += size * np.log(length) - (size + grown) * np.log(after)
        else:
            grown = 0
            ratio += size * (np.log(length) - np.log(after))
        if np.log(np.random.random()) < ratio:
            if inside[j] and grown:
                counts[j] += step - since[j]
            elif grown:
                since[j] = step
            inside[j] = not leaves
            size, length = size + grown, after
            beta[j] = new
            slope += change * precision[:, j]
    for j in range(most):
        if inside[j]:
            counts[j] += num_steps - since[j]
    return counts / num_steps
