"""How states travelled along a ladder of temperatures, and the evidence that this gives."""

import dataclasses
import math

import numpy as np
from jaxtyping import Bool, Float, Int

from tallmc.console.progress import few
from tallmc.run.mixing import error_of_mean

_SELDOM = 0.01  # of tried swaps: below that a pair hardly exchanges. A judgement


@dataclasses.dataclass(frozen=True)
class Exchanges:
    """What happened between the rungs of a ladder, warm-up left out.

    Args:
        temperatures: Of the rungs, from the coldest to the hottest.
        tried: Swaps tried by each pair of neighbours, of all chains.
        accepted: And accepted.
        round_trips: Of each chain: how often a state went from the hottest rung to the coldest and back again.
        arrivals: Of each chain: how often a state that came from the hottest rung reached the coldest.
        scans: Of each chain.
        moved: Share of its transitions that moved a rung.
        rows: Rows that a rung's own transitions took in a scan, on average.
        swap_rows: Rows that the test of a swap took, on average.
        log_ratio: Log of the evidence at temperature 1 over that at the hottest; NaN if nobody worked out energies.
        log_ratio_error: Its Monte Carlo standard error.
        levels: Energies between the rings of `tm.EnergyRings`; None for a ladder that swaps.
        occupancy: Share of scans at whose end a rung was in each ring (Li and Wong's Table 2).
    """

    temperatures: Float[np.ndarray, " rungs"]
    tried: Int[np.ndarray, " pairs"]
    accepted: Int[np.ndarray, " pairs"]
    round_trips: Int[np.ndarray, " chains"]
    arrivals: Int[np.ndarray, " chains"]
    scans: int
    moved: Float[np.ndarray, " rungs"]
    rows: Float[np.ndarray, " rungs"]
    swap_rows: Float[np.ndarray, " pairs"]
    log_ratio: float
    log_ratio_error: float
    levels: Float[np.ndarray, " edges"] | None = None
    occupancy: Float[np.ndarray, "rungs rings"] | None = None

    @classmethod
    def of(cls, stats: dict[str, np.ndarray], own_temperature: float, num_rows: int) -> "Exchanges":
        """From the statistics of a run.

        Args:
            stats: Arrays (chain, scan, ...).
            own_temperature: Of the posterior.
            num_rows: Of data.
        """
        temperatures = stats["rung_temperature"][0, -1].astype(float)
        tried, accepted = stats["swap_tried"].sum(axis=(0, 1)), stats["swap_accepted"].sum(axis=(0, 1))
        rings = "rung_ring" in stats
        arrivals, trips = _marked(stats) if rings else _travels(stats["swap_accepted"])
        swap_rows = np.sum(stats["swap_rows"], axis=(0, 1), dtype=float) / np.maximum(tried, 1)
        level = num_rows * stats["energy_level"].astype(float)[..., None]
        energies = stats["rung_energy"].astype(float) + level
        ratio, error = stepping_stones(energies, 1 / (temperatures * own_temperature))
        return cls(
            temperatures=temperatures,
            tried=tried,
            accepted=accepted,
            round_trips=trips,
            arrivals=arrivals,
            scans=stats["swap_tried"].shape[1],
            moved=stats["rung_accepted"].mean(axis=(0, 1)),
            rows=stats["scan_rows"].mean(axis=(0, 1)),
            swap_rows=swap_rows,
            log_ratio=ratio,
            log_ratio_error=error,
            levels=stats["ring_level"][0, -1].astype(float) if rings else None,
            occupancy=_occupancy(stats["rung_ring"], stats["ring_level"].shape[-1] + 1) if rings else None,
        )

    @property
    def acceptance(self) -> Float[np.ndarray, " pairs"]:
        """Share of the swaps of each pair that were accepted."""
        return self.accepted / np.maximum(self.tried, 1)

    @property
    def barrier(self) -> float:
        """The communication barrier: the sum of all pairs' rejection rates (Syed et al., 2022)."""
        return float(np.sum(1 - self.acceptance))

    @property
    def log_evidence(self) -> float:
        """Log of the integral of the likelihood over the prior, whatever constant the prior lacks.

        Raises:
            ValueError: If the ladder does not reach up to the prior.
        """
        self._check_evidence()
        return self.log_ratio

    @property
    def log_evidence_error(self) -> float:
        """Monte Carlo standard error of `log_evidence`."""
        self._check_evidence()
        return self.log_ratio_error

    def _check_evidence(self) -> None:
        if math.isfinite(self.temperatures[-1]):
            raise ValueError(
                f"the hottest rung has temperature {self.temperatures[-1]:,.6g}, so that only log_ratio is known, the "
                "evidence relative to that rung's. If the prior is proper, end the ladder with an infinite "
                "temperature (numpy.inf), whose rung samples the prior"
            )
        if math.isnan(self.log_ratio):
            raise ValueError(
                "swaps were decided on a few rows, so nobody worked out log likelihoods; leave the ladder's swaps out, "
                "which decides them on all rows"
            )

    @property
    def lonely(self) -> tuple[int, ...]:
        """Pairs that never, or hardly ever, exchanged; each by its lower rung."""
        # In a short run a pair may not have had its turn to swap; but jumps take none.
        seldom = (self.acceptance < _SELDOM) & ((self.tried > 0) | (self.levels is not None))
        return tuple(np.flatnonzero(seldom).tolist())

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the ladder did not do its work."""
        heats, swapped, cure = self.temperatures, "swapped", "let tm.parallel_tempering(posterior) place them"
        if self.levels is not None:
            swapped, cure = "exchanged states", "make warm-up longer, in which stores are filled"
        return tuple(
            f"rungs {k} and {k + 1} (temperatures {heats[k]:.4g} and {heats[k + 1]:.4g}) {swapped} "
            f"{self.accepted[k]:,} times in {self.tried[k]:,} attempts: what is above them does not reach the draws. "
            f"Put temperatures between these, or {cure}"
            for k in self.lonely
        )

    def __str__(self) -> str:
        what = "swaps with" if self.levels is None else "jumps to"
        lines = [f"rung  temperature  moved  rows a scan  {what} the next"]
        swaps = [f"{share:.2f}" for share in self.acceptance] + [""]
        for k, (heat, moved, rows, swap) in enumerate(
            zip(self.temperatures, self.moved, self.rows, swaps, strict=True)
        ):
            lines.append(f"{k:4d}  {heat:11.5g}  {moved:5.2f}  {few(rows):>11}  {swap:>{len(what) + 9}}")
        lines += self._rings()
        lines.append(
            f"barrier {self.barrier:.2f}; states from the hottest rung reached the coldest {self.arrivals.sum():,} "
            f"times, {self.round_trips.sum():,} of them came back up (round trips), in {self.scans:,} scans of "
            f"{len(self.arrivals)} chains"
        )
        if not math.isnan(self.log_ratio):
            what = "log evidence" if math.isinf(self.temperatures[-1]) else "log evidence over that of the hottest rung"
            lines.append(f"{what} {self.log_ratio:,.3f} +- {self.log_ratio_error:.2g}")
        return "\n".join(lines)

    def _rings(self) -> list[str]:
        """How often each rung was in each ring, in hundredths."""
        if self.levels is None or self.occupancy is None:
            return []
        heads = [f"< {self.levels[0]:.6g}", *(f"from {level:.6g}" for level in self.levels)]
        rows = [[f"{100 * share:.1f}" for share in shares] for shares in self.occupancy]
        lines = ["energy rings, % of scans", "rung  " + "  ".join(heads)]
        for k, cells in enumerate(rows):
            padded = (f"{cell:>{len(head)}}" for cell, head in zip(cells, heads, strict=True))
            lines.append(f"{k:4d}  " + "  ".join(padded))
        return lines


def stepping_stones(
    energies: Float[np.ndarray, "chains scans rungs"], inverse_temperatures: Float[np.ndarray, " rungs"]
) -> tuple[float, float]:
    """Log ratio of the normalising constants of the first and the last rung, and its standard error (Xie et al., 2011).

    Each pair of neighbours gives the mean, over the hotter one's states, of the likelihood to the power of the
    difference of their inverse temperatures. States of different rungs depend on each other, and so do states of
    different scans: the error is that of the sum, over pairs, of what each scan adds to the logarithm.

    Args:
        energies: Log likelihoods.
        inverse_temperatures: Falling.
    """
    if not np.all(np.isfinite(energies)):
        return math.nan, math.nan
    powers = (inverse_temperatures[:-1] - inverse_temperatures[1:]) * energies[..., 1:]
    most = powers.max(axis=(0, 1))
    weights = np.exp(powers - most)
    means = weights.mean(axis=(0, 1))
    added = np.sum(weights / means, axis=-1)
    return float(np.sum(most + np.log(means))), error_of_mean(added)


def stats_of_rungs(part: int, stats: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Of a ladder's statistics those of one part: of all rungs that it moves the last transition of every scan, or, of
    the exchange, all tests of pairs.

    Args:
        part: Its number; that of the exchange is the last.
        stats: Of a run.
    """
    parts = stats["rung_part"].reshape(-1, stats["rung_part"].shape[-1])[0]
    if part > parts.max():
        pairs = {name: values for name, values in stats.items() if name.startswith("swap_")}
        return {name.removeprefix("swap_"): values[stats["swap_tried"]] for name, values in pairs.items()}
    rungs = {name: values for name, values in stats.items() if name.startswith("rung_")}
    return {name.removeprefix("rung_"): values[..., parts == part] for name, values in rungs.items()}


def states_on_rungs(accepted: Bool[np.ndarray, "chains scans pairs"]) -> Int[np.ndarray, "chains scans rungs"]:
    """Which state is on each rung after each scan; states are numbered by the rungs on which they began."""
    num_chains, num_scans, num_pairs = accepted.shape
    found = np.empty((num_chains, num_scans, num_pairs + 1), np.int32)
    states = np.tile(np.arange(num_pairs + 1), (num_chains, 1))
    rungs = np.arange(num_pairs + 1)
    for scan, swaps in enumerate(np.moveaxis(accepted, 1, 0)):
        from_above, from_below = np.pad(swaps, ((0, 0), (0, 1))), np.pad(swaps, ((0, 0), (1, 0)))
        states = np.take_along_axis(states, rungs + from_above - from_below, axis=1)
        found[:, scan] = states
    return found


def _travels(accepted: Bool[np.ndarray, "chains scans pairs"]) -> tuple[np.ndarray, np.ndarray]:
    """Of each chain: arrivals of states from the hottest rung at the coldest, and arrivals back at the hottest."""
    states = states_on_rungs(accepted)
    chains = np.arange(len(states))
    seen = np.zeros((len(states), states.shape[2]), int)  # of each state: 0 nothing yet, 1 was hot, 2 then came down
    arrivals, trips = np.zeros(len(states), int), np.zeros(len(states), int)
    for hot, cold in zip(states[..., -1].T, states[..., 0].T, strict=True):
        trips += seen[chains, hot] == 2
        seen[chains, hot] = 1
        came = seen[chains, cold] == 1
        arrivals += came
        seen[chains, cold] = np.where(came, 2, seen[chains, cold])
    return arrivals, trips


def _marked(stats: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The same where states wait in stores: chains have counted themselves."""
    return stats["arrived"].sum(axis=1), stats["came_back"].sum(axis=1)


def _occupancy(rings: Int[np.ndarray, "chains scans rungs"], num_rings: int) -> Float[np.ndarray, "rungs rings"]:
    """Of the scans in which a rung's energy was known, the share in each ring."""
    counts = np.stack([(rings == ring).sum(axis=(0, 1)) for ring in range(num_rings)], axis=-1)
    return counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1)
