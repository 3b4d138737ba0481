"""Where chains start, and what is worked out before they do."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from tallmc.control_variates import Controlled, Taylor
from tallmc.feed import (
    AllRowsFeed,
    Drawn,
    Feed,
    FeedKind,
    InMemoryFeed,
    Needs,
    RowWeights,
    SeveralFeeds,
    WeightedFeed,
)
from tallmc.kernel import Kernel, rule_feeds, rule_needs
from tallmc.metropolis import MetropolisHastings
from tallmc.numerics.keys import as_key
from tallmc.numerics.programs import program
from tallmc.nuts import NUTS
from tallmc.optimise.mode import default_start
from tallmc.posterior import Model, Posterior, RowBounds, Rows, checks
from tallmc.posterior.derivatives import require_derivatives
from tallmc.posterior.unconstrained_start import unconstrained_start
from tallmc.proposals import Proposal
from tallmc.setup.modes import find_mode
from tallmc.setup.worked_out import with_worked_out_bounds

_FEEDS: dict[Drawn, FeedKind] = {
    Drawn.EACH_ONCE: InMemoryFeed,
    Drawn.BY_WEIGHT: WeightedFeed,
    Drawn.ALL_AT_ONCE: AllRowsFeed,
}
_ROWS_TO_TRY, _MOVES_TO_TRY = 1000, 4  # a bound that is wrong for one row in 300 is found 19 times in 20


class Start(NamedTuple):
    """What a run begins with.

    Args:
        model: What chains are shown: with its expansion, if it has one.
        kernel: How to move.
        positions: Where the chains start.
        rows_read: Rows that it took to get there.
        controlled: The control variate.
        feed: How to draw rows, if that was chosen too.
        weights: How often rows are drawn, if that is known already.
        choices: What was chosen and why, in words.
        doubts: What the caller must be warned of.
        unless_mixed: What besides, unless R-hat and effective draws have nothing against the run.
    """

    model: Model
    kernel: Kernel
    positions: PyTree
    rows_read: int
    controlled: Controlled | None = None
    feed: type[Feed] | None = None
    weights: RowWeights | None = None
    choices: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    unless_mixed: tuple[str, ...] = ()


def find_start(
    posterior: Posterior,
    kernel: Kernel,
    init: PyTree,
    control_variate: Taylor | None,
    num_chains: int,
    *,
    progress: bool,
) -> Start:
    """Finds the mode if it is needed, and expands the posterior if that is wanted."""
    if control_variate is None and (order := _expansion_order(kernel)) is not None:
        control_variate = Taylor(order)
    if control_variate is not None and not isinstance(control_variate, Taylor):
        raise ValueError(f"control_variate must be tm.Taylor(...), not {type(control_variate).__name__}")
    at, rows_read = None if control_variate is None else control_variate.at, 0
    name, choices = "init", ()
    if init is None and at is not None:
        init, name = at, "at"
    positions = None if init is None else checks.one_position_per_chain(posterior, init, num_chains, name)
    like = jax.tree.map(lambda leaf: leaf[0], positions) if positions is not None else default_start(posterior)
    if control_variate is not None or positions is None:
        who = (
            "the search for a mode, where chains start if no init is given," if control_variate is None else "tm.Taylor"
        )
        require_derivatives(posterior, like, who)
    elif any(isinstance(part, NUTS) for part in kernel.parts()):
        require_derivatives(posterior, like, "tm.NUTS", forward=False)
    if positions is None or (control_variate is not None and at is None):
        if positions is not None:
            checks.check_start(posterior, positions)
        first = None if positions is None else jax.tree.map(lambda leaf: leaf[0], positions)
        found = find_mode(posterior, first, progress=progress)
        rows_read = found.rows_read
        at = found.position if at is None else at
        if positions is None:
            place = "the mode" if found.converged else "the best position that the search for a mode came to"
            choices = (f"no init given; starting at {place}, found in {rows_read:,} rows",)
            positions = checks.one_position_per_chain(posterior, found.position, num_chains)
    controlled, model = None, posterior.model
    if control_variate is not None:
        posterior = _bounded(posterior, kernel, like)
        at = jax.tree.map(lambda leaf: leaf[0], checks.one_position_per_chain(posterior, at, 1, "at"))
        controlled = control_variate.expand(posterior, at)
        model, rows_read = controlled.model, rows_read + controlled.rows_read
    return Start(model, kernel, positions, rows_read, controlled, choices=choices)


def _bounded(posterior: Posterior, kernel: Kernel, like: PyTree) -> Posterior:
    """With bounds that are worked out around the expansion, if some rule needs bounds and nobody gave any."""
    for name, part in named_parts(kernel):
        if posterior.bounds is None and rule_needs(part).row_bounds:
            posterior, trouble = with_worked_out_bounds(posterior, like)
            if trouble is not None:
                raise ValueError(
                    f"{name} needs a bound on what each row can say, this posterior has none, and none can be worked "
                    f"out for its likelihood: there is no rule for {trouble}. Write it without that, pass "
                    "tm.Posterior(..., bounds=tm.DerivativeBounds(first=..., second=..., third=...)), or use "
                    "tm.MHMinibatch() or tm.Exact()"
                )
    return posterior


def unconstrained_expansion(posterior: Posterior, control_variate: Taylor | None) -> Taylor | None:
    """A control variate whose place, if it was given one, is that of unconstrained numbers."""
    if posterior.transforms is None or not isinstance(control_variate, Taylor) or control_variate.at is None:
        return control_variate
    return Taylor(control_variate.order, unconstrained_start(posterior, control_variate.at, 1, "at"))


def _expansion_order(kernel: Kernel) -> int | None:
    """The order that the parts of a kernel cannot do without."""
    orders = {}
    for name, part in named_parts(kernel):
        needs = rule_needs(part)
        if needs.expansion_order is not None:
            orders.setdefault(needs.expansion_order, name)
    if len(orders) > 1:
        (one, first), (other, second) = list(orders.items())[:2]
        raise ValueError(
            f"{first} needs a Taylor expansion of order {one}, and {second} one of order {other}; one run has one "
            "expansion, so give them the same order"
        )
    return next(iter(orders), None)


def named_parts(kernel: Kernel) -> list[tuple[str, Kernel]]:
    """The parts of a kernel with a name for messages; a kernel without parts is just 'this rule'."""
    parts = kernel.parts()
    if len(parts) == 1 and parts[0] is kernel:
        return [("this rule", kernel)]
    return [(f"part {number} ({part.label})", part) for number, part in enumerate(parts)]


def feed_kinds(kernel: Kernel, chosen: type[Feed] | None) -> list[FeedKind]:
    """How rows come to each part: as the caller chose, or as its rule likes best."""
    if chosen is not None and not isinstance(chosen, FeedKind):
        raise ValueError(f"{chosen.__name__} is not built for a rule, as it has no class method `of`; leave feed out")
    kinds = []
    for name, part in named_parts(kernel):
        drawn = rule_needs(part).drawn
        kind = chosen or _FEEDS[drawn[0]]
        if kind.drawn not in drawn and Drawn.ALL_AT_ONCE in (kind.drawn, *drawn):
            own = "reads all rows at once" if Drawn.ALL_AT_ONCE in drawn else "does not"
            raise ValueError(f"{name} {own}: {kind.__name__} cannot feed it; leave feed out")
        if kind.drawn not in drawn and drawn == (Drawn.BY_WEIGHT,):
            raise ValueError(f"{name} draws rows by weight; leave feed out, or pass feed=tm.WeightedFeed")
        if kind.drawn not in drawn:
            raise ValueError(
                f"{name} counts on seeing each row once; WeightedFeed is for MHSS, TunaMH, MHMinibatch and AustereMH"
            )
        kinds.append(kind)
    return kinds


def weights_of(controlled: Controlled | None, kinds: list[FeedKind]) -> RowWeights | None:
    """How often rows are drawn by their bounds, if some part wants that and the expansion has worked them out."""
    if controlled is None or controlled.constants is None or WeightedFeed not in kinds:
        return None
    return RowWeights.of(controlled.constants)


def make_feed(
    kernel: Kernel, kinds: list[FeedKind], rows: Rows, model: Model, weights: RowWeights | None = None
) -> Feed:
    """Feeds as the parts of a kernel need them, put together as the kernel is; all that weigh rows share `weights`."""
    left = iter(kinds)

    def build(kind: FeedKind, needs: Needs) -> Feed:
        if kind is WeightedFeed and weights is not None:
            return WeightedFeed(rows.num_rows, needs.batch_size, weights)
        return kind.of(rows, needs, model)

    def of_part(part: Kernel) -> Feed:
        if isinstance(part.needs, Needs):
            return build(next(left), part.needs)
        own, *others = part.needs  # of the rule, and of the proposal
        return SeveralFeeds((build(next(left), own), *(_FEEDS[n.drawn[0]].of(rows, n, model) for n in others)))

    def of_all(kernel: Kernel) -> Feed:
        members = kernel.members()
        return of_part(kernel) if not members else SeveralFeeds(tuple(of_all(member) for member in members))

    return of_all(kernel)


def check_parts(kernel: Kernel, kinds: list[FeedKind], positions: PyTree, model: Model) -> None:
    """Raises `ValueError` if some part cannot do its work, and names it."""
    first = jax.tree.map(lambda leaf: leaf[0], positions)
    for (name, part), kind in zip(named_parts(kernel), kinds, strict=True):
        try:
            part.check(first, model, kind.drawn)
        except ValueError as error:
            raise (ValueError(f"{name}: {error}") if len(kinds) > 1 else error) from error


def check_bounds(
    posterior: Posterior, model: Model, kernel: Kernel, feed: Feed, positions: PyTree, typical: float
) -> int:
    """Tries the bounds that exact rules rely on: some rows, on the way from where chains start to elsewhere.

    Args:
        posterior: With its rows.
        model: With its bounds.
        kernel: Every part whose rule relies on bounds is tried, with its own proposals.
        feed: Knows the constants of the bounds, for it draws rows by them.
        positions: Where the chains start.
        typical: Size of a row's log likelihood, for the rounding of their differences.

    Returns:
        Rows read.
    """
    rows_read = 0
    for (name, part), source in zip(named_parts(kernel), rule_feeds(kernel, feed), strict=True):
        if isinstance(part, MetropolisHastings) and isinstance(source, WeightedFeed) and rule_needs(part).row_bounds:
            rows_read += _check_bounds_of(name, part, source, posterior, model, positions, typical)
    return rows_read


def _check_bounds_of(
    name: str,
    kernel: MetropolisHastings,
    feed: WeightedFeed,
    posterior: Posterior,
    model: Model,
    positions: PyTree,
    typical: float,
) -> int:
    bounds = model.bounds
    assert isinstance(bounds, RowBounds)
    if bounds.proven:
        return 0
    old = jax.tree.map(lambda leaf: leaf[0], positions)
    generator = np.random.default_rng(0)
    which = generator.choice(posterior.num_rows, min(_ROWS_TO_TRY, posterior.num_rows), replace=False)
    constants = float(bounds.mean) * feed.weights[which]
    rounding = 0.0 if model.expanded else 8 * typical / float(model.temperature)
    for seed in range(_MOVES_TO_TRY):
        reach, ratios = _tried_move(kernel.proposal, model, as_key(seed), old, posterior.rows.take(which))
        allowed = constants * float(reach) / float(model.temperature)
        allowed = allowed + rounding * float(jnp.finfo(ratios.dtype).eps)
        change = np.abs(np.asarray(ratios, float))
        if np.any(worse := change > allowed * 1.001):
            row = int(np.argmax(np.where(worse, change / np.maximum(allowed, np.finfo(float).tiny), 0)))
            prefix = "" if name == "this rule" else f"{name}: "
            raise ValueError(
                f"{prefix}row {which[row]} breaks posterior.bounds: between two positions it changes by "
                f"{change[row]:.3g}, and its bound allows {allowed[row]:.3g}. Mend the bounds (a first derivative "
                "bounds the change, a second or third what a Taylor expansion leaves of it), or use tm.MHMinibatch(), "
                "which needs none"
            )
    return _MOVES_TO_TRY * len(which)


@program
def _tried_move(proposal: Proposal, model: Model, key: Array, old: PyTree, rows: PyTree) -> tuple[Array, Array]:
    """The reach of a move, and what rows say of it."""
    new = proposal.propose(key, old, model).position
    with jax.default_matmul_precision("highest"):
        return model.bounds.reach(old, new), model.log_ratios(old, new, rows)
