"""Draws docs/mint.svg: what Mint samples beside its stated target, and how much hotter it is as the exponent grows."""

from pathlib import Path

import numpy as np

import tallmc as tm
from benchmarks import mint
from tallmc.acceptance.mint import noise_slope

_PLACE = Path(__file__).parents[1] / "docs" / "mint.svg"
_SHARES = (0.5, 0.7, 0.9, 0.98)  # of the largest exponent, log(batch) / log(rows)


def spread(masses: np.ndarray) -> float:
    """Variance of t2 in the mode above zero, by a table of masses: how the modes share draws does not matter."""
    centres = mint.EDGES[1][:-1] + 0.125
    share = masses.sum(axis=0) * (centres > 0)
    share /= share.sum()
    return float(share @ centres**2 - (share @ centres) ** 2)


def measured(share: float, num_draws: int) -> tuple[tm.Run, np.ndarray, float, float]:
    """Draws at a share of the largest exponent, the grid's masses, and by how much the draws are hotter.

    Returns:
        The run, the masses, the ratio of variances of t2 in a mode, and what the noise of the batches foretells.
    """
    full, binned = mint.posteriors()
    rule = tm.Mint(mint.BATCH_SIZE, 2 * mint.EXPONENT * share)
    stated = binned.at_temperature(mint.NUM_ROWS ** (1 - rule.exponent))
    found = mint.draws(full, rule, num_draws)
    masses = mint.grid_masses(stated)
    first, second = np.asarray(found.samples).reshape(-1, 2).T
    counts = np.histogram2d(first, second, mint.EDGES)[0]
    noise = found.stats["noise"][found.stats["accepted"]]
    return found, masses, spread(counts / counts.sum()) / spread(masses), 1 / float(np.mean(noise_slope(noise)))


def main() -> None:
    """Draws the picture, and prints its figures."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tallmc"
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8))
    wider, foretold = [], []
    for share in _SHARES:
        run, masses, ratio, noise = measured(share, 4_000)
        wider.append(ratio)
        foretold.append(noise)
        seen = np.histogram(run.samples[..., 1], mint.EDGES[1])[0]
        apart = np.mean(mint.distances(run.samples, masses))
        print(f"{share:.2f} {run.stats['accepted'].mean():.2f} {apart:.3f} {ratio:.3f} {noise:.3f}", flush=True)
        if share in (0.5, 0.9):
            colour = "#08306b" if share == 0.5 else "#d94801"
            centres = mint.EDGES[1][:-1] + 0.125
            left.plot(centres, masses.sum(axis=0) / 0.25, color=colour, label=f"stated, {share:.0%} of the largest")
            left.plot(centres, seen / seen.sum() / 0.25, ".", color=colour, label="draws")
    left.set(xlim=(-3.5, 3.5), xlabel="t2", ylabel="density")
    left.legend(frameon=False, fontsize=8)
    right.plot(_SHARES, wider, "o-", color="#08306b", label="variance of t2 in a mode, draws over stated")
    right.plot(_SHARES, foretold, "--", color="#d94801", label="largest heat that the noise can add")
    right.axhline(1, color="grey", linewidth=0.8)
    right.set(xlabel="exponent, as a share of log(batch) / log(rows)", ylabel="factor")
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(_PLACE, metadata={"Date": None})


if __name__ == "__main__":
    main()
