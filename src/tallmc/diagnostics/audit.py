"""Were the decisions right? Steps of a run, decided again with all rows."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from scipy import stats

from tallmc.diagnostics.moves import Moves
from tallmc.feed import Feed, IndexedFeed, WeightedFeed
from tallmc.kernel import Kernel, rule_feeds, rule_needs
from tallmc.metropolis import Asked, MetropolisHastings
from tallmc.numerics.keys import as_key, transition_keys
from tallmc.posterior import Model, RowBounds, Rows
from tallmc.posterior.passes import log_ratio_blocks
from tallmc.run import Run
from tallmc.run.chain import Chain, Problem, observe_until_decided

_REPLAYS = 200
_CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Audit:
    """What became of the steps that were decided again.

    Args:
        error_rate: Depends on what the rule promises. For tests of Metropolis' kind, the share of steps that the same
            test on all rows, with the same random numbers, decides otherwise. For exact subsampling, the share of steps
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

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"audit of {len(self.accepted)} steps on all rows: {self.measured} {self.error_rate:.2g} "
            f"(95 % interval {low:.2g} to {high:.2g})"
        )


class _Steps(NamedTuple):
    """Steps of a run as they were: what the rule was asked, and what came of it."""

    asked: Asked
    accepted: np.ndarray


def audit(run: Run, num_steps: int = 64, rng_key: int | Array = 0) -> Audit:
    """Decides randomly chosen steps of a run again, with all rows, and says how often the run was wrong.

    Proposals are drawn again from the keys of the run, so these are the very steps that its chains were asked about.

    Args:
        run: A run of `tm.MetropolisHastings`, or of kernels made of such.
        num_steps: Steps to look at, shared out among the parts of a kernel; each costs all rows.
        rng_key: Chooses the steps.

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
        if not isinstance(part, MetropolisHastings):
            raise ValueError(f"audit looks at runs of MetropolisHastings, not of {type(part).__name__}")
        if part.proposal.needs is not None:
            raise ValueError(f"audit cannot replay {type(part.proposal).__name__}, which reads rows to propose")
    share = -(-num_steps // len(parts))
    found = [_audit_part(run, number, part, share, rng_key) for number, part in enumerate(parts)]  # pyright: ignore
    if len(found) == 1:
        return found[0]
    worst = max(found, key=lambda one: (one.interval[0], one.error_rate))
    return dataclasses.replace(worst, rows_read=sum(one.rows_read for one in found), parts=tuple(found))


def _audit_part(run: Run, number: int, kernel: MetropolisHastings, num_steps: int, rng_key: int | Array) -> Audit:
    steps = _replay(run, number, num_steps, rng_key)
    question = steps.asked.question
    moves = Moves(question.position, question.proposed, np.asarray(question.offset, float))
    model, rows, promise = run.session.model, run.posterior.rows, kernel.rule.promise
    feed = rule_feeds(run.session.kernel, run.feed)[number]
    by_bounds = rule_needs(kernel).row_bounds
    totals, beyond = _on_all_rows(model, rows, moves, feed if by_bounds else None)
    tempered = totals * promise.inverse_temperature(model.num_rows)
    probability = np.asarray(promise.formula.probability(jnp.asarray(tempered + moves.offset)), float)
    possible = np.asarray(steps.asked.possible) & np.isfinite(totals)
    probability = np.where(possible, probability, 0.0)
    rows_read = len(totals) * model.num_rows
    if by_bounds:
        measured, errors = "share of steps at which a row breaks its bound", beyond
        error_rate, interval = float(np.mean(errors)), _share_interval(errors)
    elif promise.draws_level:
        measured = "share of decisions that all rows would reverse"
        level = jax.vmap(promise.formula.level)(steps.asked.key_rule, question.offset)
        errors = ((totals > np.asarray(level)) & possible) != steps.accepted
        error_rate, interval = float(np.mean(errors)), _share_interval(errors)
    else:
        measured = "root mean square error of the chance to accept"
        frequency, replays, extra = _decide_again(run, number, kernel, feed, steps, rng_key)
        error_rate, interval = _root_mean_square(frequency, probability, replays)
        rows_read += extra
    return Audit(error_rate, interval, measured, tempered + moves.offset, probability, steps.accepted, rows_read)


def _replay(run: Run, number: int, num_steps: int, rng_key: int | Array) -> _Steps:
    """Asks the questions of the run again, from the positions and keys that they had."""
    generator = np.random.default_rng(np.asarray(jax.random.key_data(as_key(rng_key))))
    steps = np.arange(run.num_chains * (run.num_draws - 1))
    if "part" in run.stats:
        steps = steps[run.stats["part"][:, 1:].ravel() == number]
        if not len(steps):
            raise ValueError(f"audit found no step of part {number} of the kernel; draw more")
    which = np.sort(generator.choice(steps, min(num_steps, len(steps)), replace=False))
    chain, draw = which // (run.num_draws - 1), 1 + which % (run.num_draws - 1)
    positions, after = (
        jax.tree.map(lambda leaf, at=at: jnp.asarray(leaf[chain, at]), run.samples) for at in (draw - 1, draw)
    )
    kernel = run.session.kernel
    rests = jax.vmap(kernel.abandon)(run.chains.state)
    keys, rests = jax.tree.map(lambda leaf: leaf[chain], (run.chains.key, rests))
    times = jnp.asarray(run.num_warmup + draw, jnp.int32)
    asked = _ask(kernel, run.session.model, number, keys, positions, rests, times)
    accepted = run.stats["accepted"][chain, draw]
    for before, new, again in zip(
        *(jax.tree.leaves(tree) for tree in (positions, after, asked.question.proposed)), strict=True
    ):
        start, end, replayed = (np.asarray(leaf)[accepted] for leaf in (before, new, again))
        rounding = 64 * float(jnp.finfo(new.dtype).eps) * np.abs(end)
        if not np.all(np.abs(end - replayed) <= 1e-2 * np.max(np.abs(end - start), initial=0.0) + rounding):
            raise ValueError("this run cannot be replayed: its kernel, keys or draws have been changed since")
    return _Steps(asked, accepted)


@eqx.filter_jit
def _ask(
    kernel: Kernel, model: Model, number: int, keys: Array, positions: PyTree, rests: PyTree, times: Array
) -> Asked:
    def one(key: Array, position: PyTree, rest: PyTree, time: Array) -> Asked:
        key_kernel, _ = transition_keys(key, time)
        part, key_part, rest_part = kernel.turn_of(number, key_kernel, kernel.moved(rest, position))
        assert isinstance(part, MetropolisHastings)
        return part.ask(key_part, rest_part, model, time)

    with jax.default_matmul_precision("highest"):
        return jax.vmap(one)(keys, positions, rests, times)


def _on_all_rows(model: Model, rows: Rows, moves: Moves, feed: Feed | None) -> tuple[np.ndarray, np.ndarray]:
    """Log ratio of all rows, and whether some row breaks the bound that the feed draws it by, for each move."""
    totals, worst, start = np.zeros(len(moves.offset)), np.zeros(len(moves.offset)), 0
    constants = None
    if isinstance(feed, WeightedFeed):
        assert isinstance(model.bounds, RowBounds)
        constants = np.maximum(float(model.bounds.mean) * feed.weights, np.finfo(np.float32).tiny)
    for values in log_ratio_blocks(model, rows, moves.position, moves.proposed):
        totals += values.sum(axis=1)
        if constants is not None:
            worst = np.maximum(worst, np.max(np.abs(values) / constants[start : start + values.shape[1]], axis=1))
        start += values.shape[1]
    if constants is None:
        return totals, np.zeros(len(totals), bool)
    reach = jax.vmap(model.bounds.reach)(moves.position, moves.proposed)
    return totals, worst * float(model.temperature) > 1.001 * np.asarray(reach, float)


def _decide_again(
    run: Run, number: int, kernel: MetropolisHastings, feed: Feed, steps: _Steps, rng_key: int | Array
) -> tuple[np.ndarray, int, int]:
    """How often the rule accepts each step in fresh tests; how many tests that are, and the rows that they read."""
    model, rows = run.session.model, run.posterior.rows
    typical = max(float(run.part_stats(number)["rows"].mean()), 1.0)
    replays = int(np.clip(model.num_rows / typical, 2, _REPLAYS))
    if not isinstance(feed, WeightedFeed):  # any other needs its rows shuffled; a fresh order for each test needs not
        feed = IndexedFeed(model.num_rows, rule_needs(kernel).batch_size)
    problem = Problem(kernel, model, feed, feed.arrange(rows, 0), jnp.int32(0))
    count = len(steps.accepted)
    which = jnp.repeat(jnp.arange(count), replays)
    keys = jax.random.split(jax.random.fold_in(as_key(rng_key), 2**31), count * replays)
    accepted, seen = _decide(problem, steps.asked, which, keys)
    return np.asarray(accepted).reshape(count, replays).mean(axis=1), replays, int(np.asarray(seen).sum(dtype=np.int64))


@eqx.filter_jit
def _decide(problem: Problem, asked: Asked, which: Array, keys: Array) -> tuple[Array, Array]:
    kernel = problem.kernel
    assert isinstance(kernel, MetropolisHastings)

    def one(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        index, key = pair
        key_rule, key_feed = jax.random.split(key)
        again = dataclasses.replace(jax.tree.map(lambda leaf: leaf[index], asked), key_rule=key_rule)
        state = kernel.test(kernel.init(again.question.position), again, problem.model)
        chain = Chain(key, again.question.time, jnp.uint32(0), problem.feed.start(key_feed), state)
        chain, _, _ = observe_until_decided(problem, chain, jnp.int32(2**31 - 1))
        return kernel.decide(chain.state), chain.state.rows

    with jax.default_matmul_precision("highest"):
        return jax.lax.map(one, (which, keys), batch_size=256)


def _share_interval(errors: np.ndarray) -> tuple[float, float]:
    """Clopper and Pearson's interval for the share of errors, which holds for few steps and for none wrong."""
    interval = stats.binomtest(int(errors.sum()), len(errors)).proportion_ci(_CONFIDENCE)
    return float(interval.low), float(interval.high)


def _root_mean_square(
    frequency: np.ndarray, probability: np.ndarray, replays: int
) -> tuple[float, tuple[float, float]]:
    """Of the distance between both, less what a frequency of few tests adds by itself."""
    squares = (frequency - probability) ** 2 - frequency * (1 - frequency) / (replays - 1)
    # Squares that happen to lie close together do not prove more than as many frequencies of a perfect rule would.
    by_chance = np.sqrt(2 * np.sum((probability * (1 - probability) / replays) ** 2)) / len(squares)
    mean = max(squares.mean(), 0.0)
    error = max(stats.sem(squares), by_chance) if len(squares) > 1 else 1.0
    low, high = mean + np.asarray(stats.norm.interval(_CONFIDENCE)) * error
    rate, least, most = (float(np.sqrt(max(value, 0.0))) for value in (mean, low, high))
    return rate, (least, most)
