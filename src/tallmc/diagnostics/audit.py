"""Were the decisions right? Steps of a run, decided again with all rows."""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from scipy import stats

from tallmc.bounds import RowBounds, WeightedBounds
from tallmc.diagnostics.moves import Moves, log_ratio_blocks
from tallmc.feed import Feed, IndexedFeed, WeightedFeed
from tallmc.kernel import Question
from tallmc.keys import as_key, transition_keys
from tallmc.metropolis import MetropolisHastings, MetropolisState
from tallmc.posterior import Posterior

if TYPE_CHECKING:
    from tallmc.run import Run

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
    """

    error_rate: float
    interval: tuple[float, float]
    measured: str
    log_ratio: np.ndarray
    probability: np.ndarray
    accepted: np.ndarray
    rows_read: int

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"audit of {len(self.accepted)} steps on all rows: {self.measured} {self.error_rate:.2g} "
            f"(95 % interval {low:.2g} to {high:.2g})"
        )


class _Steps(NamedTuple):
    """Steps of a run as they were: the test that had just begun, and what came of it."""

    states: MetropolisState
    questions: Question
    accepted: np.ndarray


def audit(run: "Run", num_steps: int = 64, rng_key: int | Array = 0) -> Audit:
    """Decides randomly chosen steps of a run again, with all rows, and says how often the run was wrong.

    Proposals are drawn again from the keys of the run, so these are the very steps that its chains were asked about.

    Args:
        run: A run of `tm.MetropolisHastings`.
        num_steps: Steps to look at; each costs all rows.
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
    from tallmc.run import Run  # not above: runs hold audits

    if not isinstance(run, Run):
        raise ValueError(f"audit needs a run, as tm.sample gives it, not {type(run).__name__}")
    if not isinstance(run.kernel, MetropolisHastings):
        raise ValueError(f"audit looks at runs of MetropolisHastings, not of {type(run.kernel).__name__}")
    if isinstance(num_steps, bool) or not isinstance(num_steps, int | np.integer) or num_steps < 1:
        raise ValueError(f"num_steps must be a whole number of at least 1, got {num_steps!r}")
    if run.num_draws < 2:
        raise ValueError("audit needs a run with at least 2 draws of each chain")
    steps = _replay(run, num_steps, rng_key)
    moves = Moves(steps.questions.position, steps.questions.proposed, np.asarray(steps.questions.offset, float))
    rule, posterior = run.kernel.rule, run.posterior
    totals, beyond = _on_all_rows(posterior, moves, run.feed if rule.wants_weighted_rows else None)
    tempered = totals * rule.inverse_temperature(posterior.num_rows)
    probability = np.asarray(rule.acceptance_probability(jnp.asarray(tempered + moves.offset)), float)
    possible = np.asarray(steps.states.possible) & np.isfinite(totals)
    probability = np.where(possible, probability, 0.0)
    rows_read = len(totals) * posterior.num_rows
    level = jax.vmap(rule.level)(steps.states.evidence)
    if rule.wants_weighted_rows:
        measured, errors = "share of steps at which a row breaks its bound", beyond
        error_rate, interval = float(np.mean(errors)), _share_interval(errors)
    elif level is not None:
        measured = "share of decisions that all rows would reverse"
        errors = ((totals > np.asarray(level)) & possible) != steps.accepted
        error_rate, interval = float(np.mean(errors)), _share_interval(errors)
    else:
        measured = "root mean square error of the chance to accept"
        frequency, replays, extra = _decide_again(run, steps, rng_key)
        error_rate, interval = _root_mean_square(frequency, probability, replays)
        rows_read += extra
    return Audit(error_rate, interval, measured, tempered + moves.offset, probability, steps.accepted, rows_read)


def _replay(run: "Run", num_steps: int, rng_key: int | Array) -> _Steps:
    """Begins tests of the run again, from the positions and keys that they had."""
    generator = np.random.default_rng(np.asarray(jax.random.key_data(as_key(rng_key))))
    count = run.num_chains * (run.num_draws - 1)
    which = np.sort(generator.choice(count, min(num_steps, count), replace=False))
    chain, draw = which // (run.num_draws - 1), 1 + which % (run.num_draws - 1)
    positions, after = (
        jax.tree.map(lambda leaf, at=at: jnp.asarray(leaf[chain, at]), run.samples) for at in (draw - 1, draw)
    )
    assert run.chains is not None
    keys, tuned = jax.tree.map(lambda leaf: leaf[chain], (run.chains.key, run.chains.state.tuned))
    times = jnp.asarray(run.num_warmup + draw, jnp.int32)
    states, questions = _begin(run.kernel, run.posterior, keys, positions, tuned, times)  # pyright: ignore
    accepted = run.stats["accepted"][chain, draw]
    for before, new, again in zip(
        *(jax.tree.leaves(tree) for tree in (positions, after, states.proposed)), strict=True
    ):
        start, end, replayed = (np.asarray(leaf)[accepted] for leaf in (before, new, again))
        rounding = 64 * float(jnp.finfo(new.dtype).eps) * np.abs(end)
        if not np.all(np.abs(end - replayed) <= 1e-2 * np.max(np.abs(end - start), initial=0.0) + rounding):
            raise ValueError("this run cannot be replayed: its kernel, keys or draws have been changed since")
    return _Steps(states, questions, accepted)


@eqx.filter_jit
def _begin(
    kernel: MetropolisHastings, posterior: Posterior, keys: Array, positions: PyTree, tuned: PyTree, times: Array
) -> tuple[MetropolisState, Question]:
    model = eqx.tree_at(lambda p: p.data, posterior, None)

    def one(key: Array, position: PyTree, tuned: PyTree, time: Array) -> tuple[MetropolisState, Question]:
        key_kernel, _ = transition_keys(key, time)
        return kernel.begin(key_kernel, position, tuned, model, time)

    with jax.default_matmul_precision("highest"):
        return jax.vmap(one)(keys, positions, tuned, times)


def _on_all_rows(posterior: Posterior, moves: Moves, feed: Feed | None) -> tuple[np.ndarray, np.ndarray]:
    """Log ratio of all rows, and whether some row breaks the bound that the feed draws it by, for each move."""
    totals, worst, start = np.zeros(len(moves.offset)), np.zeros(len(moves.offset)), 0
    constants = None
    if isinstance(feed, WeightedFeed):
        assert isinstance(posterior.bounds, RowBounds)
        constants = np.maximum(float(posterior.bounds.mean) * feed.weights, np.finfo(np.float32).tiny)
    for values in log_ratio_blocks(posterior, moves):
        totals += values.sum(axis=1)
        if constants is not None:
            worst = np.maximum(worst, np.max(np.abs(values) / constants[start : start + values.shape[1]], axis=1))
        start += values.shape[1]
    if constants is None:
        return totals, np.zeros(len(totals), bool)
    reach = jax.vmap(posterior.bounds.reach)(moves.position, moves.proposed)
    return totals, worst * float(posterior.temperature) > 1.001 * np.asarray(reach, float)


def _decide_again(run: "Run", steps: _Steps, rng_key: int | Array) -> tuple[np.ndarray, int, int]:
    """How often the rule accepts each step in fresh tests; how many tests that are, and the rows that they read."""
    posterior, kernel = run.posterior, run.kernel
    typical = max(float(run.stats["rows"].mean()), 1.0)
    replays = int(np.clip(posterior.num_rows / typical, 2, _REPLAYS))
    feed = run.feed
    if not isinstance(feed, WeightedFeed):  # any other needs its rows shuffled; a fresh order for each test needs not
        feed = IndexedFeed(posterior.num_rows, kernel.batch_size)
    data = jax.tree.map(jnp.asarray, posterior.data)
    arranged = eqx.tree_at(lambda p: p.data, posterior, data)
    if isinstance(feed, WeightedFeed):
        arranged = eqx.tree_at(lambda p: p.bounds, arranged, WeightedBounds(arranged.bounds))
    count = len(steps.accepted)
    which = jnp.repeat(jnp.arange(count), replays)
    keys = jax.random.split(jax.random.fold_in(as_key(rng_key), 2**31), count * replays)
    accepted, rows = _decide(kernel, arranged, feed, steps.states, steps.questions, which, keys)
    return np.asarray(accepted).reshape(count, replays).mean(axis=1), replays, int(np.asarray(rows).sum(dtype=np.int64))


@eqx.filter_jit
def _decide(
    kernel: Any, posterior: Posterior, feed: Feed, states: PyTree, questions: Question, which: Array, keys: Array
) -> tuple[Array, Array]:
    def one(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        index, key = pair
        key_rule, key_feed = jax.random.split(key)
        state, question = jax.tree.map(lambda leaf: leaf[index], (states, questions))
        state = eqx.tree_at(lambda s: s.evidence, state, kernel.rule.init(key_rule, question, posterior))

        def look(carry):
            state, cursor, _ = carry
            state, done = kernel.observe(state, posterior, feed.read(posterior.data, cursor))
            return state, feed.advance(cursor), done

        start = (state, feed.start(key_feed), jnp.bool_(False))
        state, _, _ = jax.lax.while_loop(lambda carry: ~carry[2], look, start)
        return kernel.rule.verdict(state.evidence).accept & state.finite & state.possible, state.rows

    with jax.default_matmul_precision("highest"):
        return jax.lax.map(one, (which, keys), batch_size=256)


def _share_interval(errors: np.ndarray) -> tuple[float, float]:
    """Clopper and Pearson's."""
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
