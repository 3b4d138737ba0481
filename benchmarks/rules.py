"""Every acceptance rule on the mixture of a million rows: rows, wrong decisions, speed and accuracy in one run.

As Tables 1 and 2 of Seita et al. (2018), with the settings at which their figures reproduce.
"""

import dataclasses
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from tests.simulate import decisions

import tallmc as tm
from benchmarks import mixture
from tallmc.design import moves_of
from tallmc.posterior.passes import log_ratio_blocks

NUM_CHAINS, NUM_MOVES = 4, 20
COMPILATION_MATTERS = 30.0  # seconds
COLUMNS = (
    "rule",
    "rows read a step",
    "rows the test asked for",
    "published",
    "wrong decisions",
    "error of the acceptance probability",
    "steps/s",
    "total variation",
)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A rule to measure.

    Args:
        name: Name.
        rule: The rule.
        published: Mean rows of a test that Seita et al., or a careful repetition of theirs, found.
        num_draws: Draws; few for rules that read every row.
        num_tests: Tests of each of the moves.
    """

    name: str
    rule: tm.AcceptanceRule
    published: str = ""
    num_draws: int = 100_000
    num_tests: int = 250


ENTRIES = (
    Entry("Exact()", tm.Exact(), "1,000,000", 2000, 10),
    Entry("MHMinibatch(50)", tm.MHMinibatch(50), "182; 167"),
    Entry("MHMinibatch(50, sigma=1.4)", tm.MHMinibatch(50, sigma=1.4), "102"),
    Entry("AustereMHPerStep(0.05, 500)", tm.AustereMHPerStep(0.05, 500), "", 2000, 10),
    Entry("AustereMH(0.005, 50)", tm.AustereMH(0.005, 50), "12,661"),
    Entry("AustereMH(0.005, 500)", tm.AustereMH(0.005, 500), "13,540; 13,066"),
    Entry("MHSubLhd()", tm.MHSubLhd(), "65,759; 65,932"),
    Entry('MHSubLhd(bound="scan")', tm.MHSubLhd(bound="scan"), "65,759; 65,932", 2000, 10),
    Entry("Mint(1000, 0.25)", tm.Mint(1000, 0.25), "1,000"),
)


def run() -> Iterator[tuple[str, ...]]:
    """One line a rule."""
    posterior, binned = mixture.posterior(), mixture.binned_posterior()
    truth = mixture.grid_posterior(binned)
    log_ratios = _moves(posterior)
    exact_speed = _sample(posterior, tm.Exact(), 400)[0]
    exact_distance = {n: _distance(binned, tm.Exact(), truth, n) for n in sorted({e.num_draws for e in ENTRIES})}
    for entry in ENTRIES:
        speed, result = _sample(posterior, entry.rule, entry.num_draws)
        asked = result.stats.get("test_rows", result.stats["rows"])
        if entry.rule.promise.inverse_temperature(posterior.num_rows) < 1:
            distance = "another temperature"
        else:
            found = mixture.total_variation(result.samples, truth)
            distance = f"{found:.3f}; exact test, as many draws: {exact_distance[entry.num_draws]:.3f}"
        yield (
            entry.name,
            f"{result.stats['rows'].mean():,.0f}",
            f"{asked.mean():,.0f}",
            entry.published,
            *_errors(entry, log_ratios),
            f"{speed / exact_speed:,.1f} x Exact ({speed:,.0f})",
            distance,
        )


def _sample(posterior, rule, num_draws) -> tuple[float, tm.Run]:
    """Steps a second, and the run; short runs are repeated, for the first one compiles."""
    settings = {"init": mixture.START, "num_warmup": 0, "num_chains": NUM_CHAINS, "progress": False}
    num_samples = num_draws // NUM_CHAINS
    result = tm.sample(posterior, mixture.kernel(rule), num_samples=num_samples, **settings)
    if result.seconds < COMPILATION_MATTERS:
        result = tm.sample(posterior, mixture.kernel(rule), num_samples=num_samples, **settings)
    return num_draws / result.seconds, result


def _distance(posterior, rule, truth, num_draws) -> float:
    return mixture.total_variation(_sample(posterior, rule, num_draws)[1].samples, truth)


def _moves(posterior) -> np.ndarray:
    """Log ratios of all rows for a few moves of an ordinary chain, prior left out."""
    settings = {"init": mixture.START, "num_samples": 4000, "num_warmup": 0, "num_chains": 1, "progress": False}
    trial = tm.sample(posterior, mixture.kernel(tm.MHMinibatch(50)), **settings)
    moves = moves_of(trial, NUM_MOVES)
    return np.concatenate(list(log_ratio_blocks(posterior.model, posterior.rows, *moves[:2])), axis=1)


def _errors(entry: Entry, log_ratios) -> tuple[str, str]:
    """Share of decisions unlike the exact test's, and mean error of the acceptance probability, over the moves.

    Barker's rules have no single level to compare with; for them there is only the second.
    """
    wrong, errors, rule = [], [], entry.rule
    for line in log_ratios:
        if isinstance(entry.rule, tm.MHSubLhd) and entry.rule.bound is None:
            rule = tm.MHSubLhd(bound=_Constant(jnp.float32(np.abs(line).max())))  # these rows come without positions
        decided, _ = decisions(rule, tm.InMemoryFeed, line, entry.num_tests)
        log_ratio = line.sum() * rule.promise.inverse_temperature(len(line))
        errors.append(abs(decided.mean() - float(rule.promise.formula.probability(log_ratio))))
        if isinstance(rule, tm.Exact | tm.AustereMH | tm.MHSubLhd | tm.AustereMHPerStep):
            wrong.append(np.mean(decided != _exact_decisions(line.sum(), entry.num_tests)))
    share = f"{100 * np.mean(wrong):.2f} % of {len(wrong) * entry.num_tests:,}" if wrong else "-"
    return share, f"{np.mean(errors):.3f}; chance alone {0.8 * 0.4 / np.sqrt(entry.num_tests):.3f}"


class _Constant(eqx.Module):
    """A bound that is known beforehand."""

    value: jax.Array

    def __call__(self, position, proposed):
        return self.value


def _exact_decisions(total: float, num_tests: int) -> np.ndarray:
    """What the Metropolis test decides for the keys that `decisions` uses."""
    return decisions(tm.Exact(1), tm.InMemoryFeed, np.array([total]), num_tests)[0]
