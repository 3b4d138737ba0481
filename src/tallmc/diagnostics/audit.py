"""Were the decisions right? Steps of a run, decided again with all rows."""

import dataclasses
import math
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from tallmc.acceptance.contract import Guarantee
from tallmc.console.cards import card
from tallmc.diagnostics.audit_programs import (
    AT_ONCE,
    STEPS,
    Key,
    ask_again,
    by_formula,
    decide_afresh,
    num_replays,
    replayed,
    totals_on_all_rows,
)
from tallmc.feed import Drawn, Feed, WeightedFeed
from tallmc.feed.contract import begins_with_rows
from tallmc.kernel_parts import rule_feeds, rule_needs
from tallmc.metropolis import Asked, MetropolisHastings
from tallmc.numerics.flat import is_real
from tallmc.numerics.keys import as_key, part_of
from tallmc.numerics.programs import programs_ledger
from tallmc.posterior import Model, Rows
from tallmc.posterior.passes import in_parts
from tallmc.run import Run
from tallmc.run.chain import Problem

_CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True, repr=False)
class Audit:
    """What became of the steps that were decided again.

    Args:
        error_rate: Depends on what the rule promises. For tests of Metropolis' kind, the share of steps that the same
            test on all rows, with the same random numbers, decides otherwise (without any test, the share of moves that
            Metropolis' on all rows would have refused). For exact subsampling, the share of steps
            at which some row breaks its bound. For Barker's kind, the root mean square error of the chance to accept.
        interval: A 95 % confidence interval of it.
        measured: Which of these it is, in words.
        log_ratio: Log acceptance ratio of each step on all rows.
        probability: Chance to accept it that follows.
        accepted: What the chain did.
        rows_read: Rows that the audit took.
        parts: For a kernel made of kernels, the audit of each part; the figures above are those of the worst.
    """

    error_rate: float
    interval: tuple[float, float]
    measured: str
    log_ratio: np.ndarray
    probability: np.ndarray
    accepted: np.ndarray
    rows_read: int
    parts: "tuple[Audit, ...]" = ()

    def __repr__(self) -> str:
        return f"<Audit: {self}>"

    def _repr_html_(self) -> str:
        low, high = self.interval
        lines = [
            ("steps decided again on all rows", f"{len(self.accepted):,}"),
            (self.measured, f"{self.error_rate:.2g} (95 % interval {low:.2g} to {high:.2g})"),
            ("rows read", f"{self.rows_read:,}"),
        ]
        return card("Audit", lines, rest="".join(part._repr_html_() for part in self.parts))

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"audit of {len(self.accepted)} steps on all rows: {self.measured} {self.error_rate:.2g} "
            f"(95 % interval {low:.2g} to {high:.2g})"
        )


class _Steps(NamedTuple):
    """Steps of a run as they were: what the rule was asked, and what came of it.

    Where the temperature changed, all rows are asked at the one that it ended at, and `colder` makes up for that.
    """

    asked: Asked
    accepted: np.ndarray
    colder: np.ndarray


def audit(run: Run, num_steps: int = STEPS, rng_key: int | Array = 0, *, seconds: float = math.inf) -> Audit:
    """Decides randomly chosen steps of a run again, with all rows, and says how often the run was wrong.

    Proposals are drawn again from the keys of the run, so these are the very steps that its chains were asked about.

    Args:
        run: A run of `tm.MetropolisHastings`, or of kernels made of such.
        num_steps: Steps to look at, shared out among the parts of a kernel. One pass over all rows looks at eight.
        rng_key: Chooses the steps.
        seconds: After which no further pass is begun: the audit then rests on the steps so far. Steps are looked at in
            random order, so those are as good a sample.

    Returns:
        The error with an interval, and what it rests on.

    Example:
        >>> import jax.numpy as jnp, tallmc as tm
        >>> X, y, _ = tm.models.generate_logistic(num_rows=5000, num_columns=3)
        >>> kernel = tm.MetropolisHastings(tm.RandomWalk(0.05), tm.AustereMH(0.01))
        >>> run = tm.sample(tm.models.logistic_regression(X, y), kernel, init=jnp.zeros(3), num_samples=200)
        >>> tm.audit(run).error_rate < 0.2
        True
    """
    if not isinstance(run, Run):
        raise ValueError(f"audit needs a run, as tm.sample gives it, not {type(run).__name__}")
    if isinstance(num_steps, bool) or not isinstance(num_steps, int | np.integer) or num_steps < 1:
        raise ValueError(f"num_steps must be a whole number of at least 1, got {num_steps!r}")
    if run.num_draws < 2:
        raise ValueError("audit needs a run with at least 2 draws of each chain")
    parts = run.session.kernel.parts()
    for part in parts:
        if rule_needs(part).drawn == (Drawn.ALL_AT_ONCE,):
            raise ValueError(
                f"there is nothing to audit: {part.label} reads all rows in every transition, so no decision of it "
                "rests on a part of them. Look at R-hat and at run.summary() instead"
            )
        if not isinstance(part, MetropolisHastings):
            raise ValueError(f"audit looks at runs of MetropolisHastings, not of {type(part).__name__}")
    share, until = -(-num_steps // len(parts)), _clock() + seconds
    source = None
    if begins_with_rows(run.session.kernel.needs):
        source = run.feed, run.feed.arrange(run.posterior.rows, run.shuffle_seed)
    found = [_audit_part(run, number, share, rng_key, until, source) for number in range(len(parts))]
    if len(found) == 1:
        return found[0]
    worst = max(found, key=lambda one: (one.interval[0], one.error_rate))
    return dataclasses.replace(worst, rows_read=sum(one.rows_read for one in found), parts=tuple(found))


def _clock() -> float:
    """Seconds that are not spent on compiling, which is paid once."""
    return time.perf_counter() - programs_ledger().elapsed


class _Found(NamedTuple):
    """Of steps that were decided again, an array each.

    Args:
        log_ratio: Acceptance ratio by all rows, without what makes a step impossible.
        probability: Chance to accept that follows.
        error: Whether the step was wrong, or for Barker's kind the frequency in fresh tests.
    """

    log_ratio: np.ndarray
    probability: np.ndarray
    error: np.ndarray


def _audit_part(
    run: Run, number: int, num_steps: int, rng_key: int | Array, until: float, source: tuple[Feed, PyTree] | None
) -> Audit:
    steps, kernel = _replay(run, number, num_steps, rng_key, source), run.session.kernel.parts()[number]
    assert isinstance(kernel, MetropolisHastings)
    count, parts = len(steps.accepted), []
    rows_read = 0 if steps.asked.rows is None else int(np.asarray(steps.asked.rows).sum(dtype=np.int64))
    replays = num_replays(kernel, run.session.model.num_rows)
    for first in range(0, count, AT_ONCE):
        some = part_of(steps, slice(first, first + AT_ONCE))
        found, rows = _look(run, number, kernel, some, replays, (as_key(rng_key), np.asarray(2**31 + first, np.uint32)))
        parts.append(found)
        rows_read += rows
        if _clock() > until:
            break
    ratios, probability, errors = (np.concatenate(column) for column in zip(*parts, strict=True))
    promise = kernel.rule.promise
    if rule_needs(kernel).row_bounds:
        measured = "share of steps at which a row breaks its bound"
    elif promise.guarantee is Guarantee.NONE:
        measured = "share of moves that a test on all rows would have refused"
    elif promise.draws_level:
        measured = "share of decisions that all rows would reverse"
    else:
        measured = "root mean square error of the chance to accept"
        rate, interval = _root_mean_square(errors, probability, replays)
        return Audit(rate, interval, measured, ratios, probability, steps.accepted[: len(errors)], rows_read)
    interval = _share_interval(errors)
    return Audit(
        float(np.mean(errors)), interval, measured, ratios, probability, steps.accepted[: len(errors)], rows_read
    )


def _look(
    run: Run, number: int, kernel: MetropolisHastings, steps: _Steps, replays: int, key: Key
) -> tuple[_Found, int]:
    """Decides a few steps again, and counts the rows that it took."""
    model, promise, question = run.session.model, kernel.rule.promise, steps.asked.question
    feed = rule_feeds(run.session.kernel, run.feed)[number]
    by_bounds = rule_needs(kernel).row_bounds
    totals, beyond = _on_all_rows(model, run.posterior.rows, steps, feed if by_bounds else None)
    totals = totals * steps.colder
    rows_read = len(totals) * model.num_rows
    ratio = totals * promise.inverse_temperature(model.num_rows) + np.asarray(question.offset, float)
    probability, level = (np.asarray(part, float) for part in by_formula(promise.formula, ratio, steps.asked))
    possible = np.asarray(steps.asked.possible) & np.isfinite(totals)
    if by_bounds:
        error = beyond
    elif promise.draws_level:
        error = ((totals > level) & possible) != steps.accepted
    else:
        error, extra = _decide_again(run, number, kernel, feed, steps, replays, key)
        rows_read += extra
    return _Found(ratio, np.where(possible, probability, 0.0), error), rows_read


def _replay(run: Run, number: int, num_steps: int, rng_key: int | Array, source: tuple[Feed, PyTree] | None) -> _Steps:
    """Asks the questions of the run again, from the positions and keys that they had, in random order."""
    generator = np.random.default_rng(np.asarray(jax.random.key_data(as_key(rng_key))))
    if "part" in run.stats:
        steps = np.flatnonzero(run.stats["part"][:, 1:].ravel() == number)
        if not len(steps):
            raise ValueError(f"audit found no step of part {number} of the kernel; draw more")
        which = generator.choice(steps, min(num_steps, len(steps)), replace=False)
    else:
        count = run.num_chains * (run.num_draws - 1)  # a list of them all would take more memory than the draws may
        which = generator.choice(count, min(num_steps, count), replace=False)
    chain, draw = which // (run.num_draws - 1), 1 + which % (run.num_draws - 1)
    positions, after = (run.draws_at(chain, at) for at in (draw - 1, draw))
    kernel, (keys, states) = run.session.kernel, part_of((run.chains.key, run.chains.state), chain)
    times = np.asarray(run.num_warmup + draw, np.int32)
    asked = ask_again(kernel, run.session.model, number, keys, positions, states, times, source)
    accepted = run.stats_at("accepted", chain, draw)
    for before, new, again in zip(
        *(jax.tree.leaves(tree) for tree in (positions, after, asked.question.proposed)), strict=True
    ):
        if not _alike(*(np.asarray(leaf)[accepted] for leaf in (before, new, again))):
            raise ValueError("this run cannot be replayed: its kernel, keys or draws have been changed since")
    colder = np.ones(len(accepted))
    if "temperature" in run.stats:
        colder = float(run.posterior.temperature) / np.asarray(run.stats_at("temperature", chain, draw), float)
    return _Steps(asked, accepted, colder)


def _alike(start: np.ndarray, end: np.ndarray, replayed: np.ndarray) -> bool:
    """Whether accepted steps end where they did: exactly there, but for the rounding of real numbers."""
    if not is_real(end):
        return np.array_equal(end, replayed)
    rounding = 64 * float(jnp.finfo(end.dtype).eps) * np.abs(end)
    return bool(np.all(np.abs(end - replayed) <= 1e-2 * np.max(np.abs(end - start), initial=0.0) + rounding))


def _on_all_rows(model: Model, rows: Rows, steps: _Steps, feed: Feed | None) -> tuple[np.ndarray, np.ndarray]:
    """Log ratio of all rows, and whether some row breaks the bound that the feed draws it by, for each step."""
    question = steps.asked.question
    scales, reach = None, np.zeros(len(steps.accepted), np.float32)
    if isinstance(feed, WeightedFeed):
        scales, reach = feed.scales, question.reach
    pass_ = partial(totals_on_all_rows, model, question.position, question.proposed, reach)
    totals, broken = in_parts(pass_, rows, beside=scales)
    return totals, broken > 0


def _decide_again(
    run: Run,
    number: int,
    kernel: MetropolisHastings,
    feed: Feed,
    steps: _Steps,
    replays: int,
    key: Key,
) -> tuple[np.ndarray, int]:
    """How often the rule accepts each step in fresh tests, and the rows that they read."""
    problem = replayed(Problem(kernel, run.session.model, feed, None, np.int32(0)), kernel, run.posterior.rows)
    count = len(steps.accepted)
    accepted, seen = decide_afresh(problem, steps.asked, key, count, replays)
    return np.asarray(accepted).reshape(count, replays).mean(axis=1), int(np.asarray(seen).sum(dtype=np.int64))


def _share_interval(errors: np.ndarray) -> tuple[float, float]:
    """Clopper and Pearson's interval for the share of errors, which holds for few steps and for none wrong."""
    from scipy.special import betaincinv

    wrong, count, tail = int(errors.sum()), len(errors), (1 - _CONFIDENCE) / 2
    low = betaincinv(wrong, count - wrong + 1, tail) if wrong > 0 else 0.0
    high = betaincinv(wrong + 1, count - wrong, 1 - tail) if wrong < count else 1.0
    return float(low), float(high)


def _root_mean_square(
    frequency: np.ndarray, probability: np.ndarray, replays: int
) -> tuple[float, tuple[float, float]]:
    """Of the distance between both, less what a frequency of few tests adds by itself."""
    from scipy.special import ndtri

    squares = (frequency - probability) ** 2 - frequency * (1 - frequency) / (replays - 1)
    # Squares that happen to lie close together do not prove more than as many frequencies of a perfect rule would.
    by_chance = np.sqrt(2 * np.sum((probability * (1 - probability) / replays) ** 2)) / len(squares)
    mean = max(squares.mean(), 0.0)
    standard_error = np.std(squares, ddof=1) / np.sqrt(len(squares)) if len(squares) > 1 else 1.0
    margin = ndtri((1 + _CONFIDENCE) / 2) * max(standard_error, by_chance)
    rate, least, most = (float(np.sqrt(max(value, 0.0))) for value in (mean, mean - margin, mean + margin))
    return rate, (least, most)
