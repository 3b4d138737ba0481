"""Where chains start, and what is worked out before they do."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from tallmc.control_variates import Controlled, Taylor, expand_selection
from tallmc.feed import (
    AllRowsFeed,
    Drawn,
    Feed,
    FeedKind,
    InMemoryFeed,
    Needs,
    RowWeights,
    SeveralFeeds,
    StreamedFeed,
    WeightedFeed,
)
from tallmc.kernel import Kernel, Part
from tallmc.kernel_parts import rule_feeds, rule_needs
from tallmc.metropolis import MetropolisHastings
from tallmc.numerics.flat import require_reals
from tallmc.numerics.keys import as_key
from tallmc.numerics.programs import program
from tallmc.nuts import NUTS
from tallmc.optimise.mode import default_start
from tallmc.posterior import Model, Posterior, RowBounds, Rows, checks
from tallmc.posterior.derivatives import require_derivatives
from tallmc.posterior.linear_predictor import SelectedPredictor
from tallmc.posterior.unconstrained_start import unconstrained_start
from tallmc.proposals import SGLD, Proposal
from tallmc.proposals.apart import ProposalSource, proposal_source, proposed_from
from tallmc.setup.modes import find_mode
from tallmc.setup.selection import mode_of_all_columns, selection_start
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
    if isinstance(posterior.log_likelihood, SelectedPredictor):
        return _selection(posterior, kernel, init, control_variate, num_chains, progress=progress)
    real_only = control_variate is not None or moves_reals_only(kernel)
    positions = None
    if init is not None:
        positions = checks.one_position_per_chain(posterior, init, num_chains, name, real_only=real_only)
    if positions is not None and real_only:
        require_reals("tm.Taylor" if control_variate is not None else kernel.label, positions)
    like = jax.tree.map(lambda leaf: leaf[0], positions) if positions is not None else default_start(posterior)
    if control_variate is not None or positions is None:
        who = (
            "the search for a mode, where chains start if no init is given," if control_variate is None else "tm.Taylor"
        )
        require_derivatives(posterior, like, who)
    else:
        for part in kernel.parts():
            if (name := _follows_rows(part)) is not None:
                require_derivatives(posterior, like, name, forward=False)
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
        at = jax.tree.map(lambda leaf: leaf[0], checks.one_position_per_chain(posterior, at, 1, "at", real_only=True))
        controlled = control_variate.expand(posterior, at)
        model, rows_read = controlled.model, rows_read + controlled.rows_read
    return Start(model, kernel, positions, rows_read, controlled, choices=choices)


def _selection(
    posterior: Posterior,
    kernel: Kernel,
    init: PyTree,
    control_variate: Taylor | None,
    num_chains: int,
    *,
    progress: bool,
) -> Start:
    """Of columns: chains start far from each other, and an expansion is made where all columns are in."""
    rows_read, choices = 0, ()
    if init is None:
        start = selection_start(posterior, num_chains, progress=progress)
        init, rows_read, choices = start.positions, start.rows_read, (f"no init given; {start.reason}",)
    positions = checks.one_position_per_chain(posterior, init, num_chains)
    if control_variate is None:
        return Start(posterior.model, kernel, positions, rows_read, choices=choices)
    at = control_variate.at
    if at is None:
        found = mode_of_all_columns(posterior, progress=progress)
        at, rows_read = found.position, rows_read + found.rows_read
    model, more_rows = expand_selection(control_variate, posterior, at)
    return Start(model, kernel, positions, rows_read + more_rows, choices=choices)


def moves_reals_only(kernel: Kernel) -> bool:
    """Whether no part has a use for whole numbers, so that a start that is given as such is meant as real."""
    return all(
        isinstance(part, NUTS) or (isinstance(part, MetropolisHastings) and part.proposal.real_only)
        for part in kernel.parts()
    )


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
    if not posterior.moves_elsewhere or not isinstance(control_variate, Taylor) or control_variate.at is None:
        return control_variate
    return Taylor(control_variate.order, unconstrained_start(posterior, control_variate.at, 1, "at"))


def _follows_rows(part: Part) -> str | None:
    """What follows the gradient of rows, as a user calls it."""
    if isinstance(part, NUTS):
        return "tm.NUTS"
    return "tm.SGLD" if isinstance(part, MetropolisHastings) and isinstance(part.proposal, SGLD) else None


def needs_expansion(kernel: Kernel) -> bool:
    """Whether some part cannot do without an expansion."""
    return _expansion_order(kernel) is not None


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


def named_parts(kernel: Part) -> list[tuple[str, Part]]:
    """The parts of a kernel with a name for messages; a kernel without parts is just 'this rule'."""
    parts = kernel.parts()
    if len(parts) == 1 and parts[0] is kernel:
        return [("this rule", kernel)]
    return [(f"part {number} ({part.label})", part) for number, part in enumerate(parts)]


def doubts_of_parts(kernel: Kernel) -> tuple[str, ...]:
    """What is known against the parts of a kernel, by the names of these if there are several."""
    named = named_parts(kernel)
    return tuple(
        f"{name}: {said}" if len(named) > 1 else said
        for name, part in named
        if isinstance(part, MetropolisHastings)
        for said in part.rule.doubts()
    )


def feed_kinds(kernel: Kernel, chosen: type[Feed] | None, rows: Rows | None = None) -> list[FeedKind]:
    """How rows come to each part: as the caller chose, or as its rule likes best and the rows allow."""
    if chosen is None and rows is not None and rows.want_stream and _can_stream(kernel, rows):
        chosen = StreamedFeed
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


def _can_stream(kernel: Kernel, rows: Rows) -> bool:
    """Whether it is one rule that takes each row once, and there are windows enough."""
    needs = kernel.needs
    alone = isinstance(needs, Needs) and not kernel.members()
    return alone and needs.drawn[0] is Drawn.EACH_ONCE and (needs.every_row or StreamedFeed.suits(rows, needs))


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

    def of_part(part: Part) -> Feed:
        if isinstance(part.needs, Needs):
            return build(next(left), part.needs)
        own, *others = part.needs  # of the rule, and of the proposal
        return SeveralFeeds((build(next(left), own), *(_FEEDS[n.drawn[0]].of(rows, n, model) for n in others)))

    def of_all(kernel: Part) -> Feed:
        members = kernel.members()
        return of_part(kernel) if not members else SeveralFeeds(tuple(of_all(member) for member in members))

    return of_all(kernel)


def check_parts(kernel: Kernel, kinds: list[FeedKind], positions: PyTree, model: Model) -> None:
    """Raises `ValueError` if some part cannot do its work, and names it."""
    first = jax.tree.map(lambda leaf: leaf[0], positions)
    others = _other_than_first(positions)
    for (name, part), kind in zip(named_parts(kernel), kinds, strict=True):
        try:
            part.check(first, model, kind.drawn)
            if isinstance(part, MetropolisHastings):
                for position in others:
                    part.proposal.check(position, model)
        except ValueError as error:
            raise (ValueError(f"{name}: {error}") if len(kinds) > 1 else error) from error


def _other_than_first(positions: PyTree) -> list[PyTree]:
    """Where other chains start than the first does, if not all start there."""
    leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, positions))
    count = len(leaves[0]) if leaves else 0
    return [
        jax.tree.unflatten(structure, [leaf[chain] for leaf in leaves])
        for chain in range(1, count)
        if any(not np.array_equal(leaf[chain], leaf[0]) for leaf in leaves)
    ]


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
    source = proposal_source(kernel.proposal.needs, posterior.rows, model)
    for seed in range(_MOVES_TO_TRY):
        reach, ratios = _tried_move(kernel.proposal, model, source, as_key(seed), old, posterior.rows.take(which))
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
    return _MOVES_TO_TRY * (len(which) + (0 if source is None else source.feed.batch_size))


@program
def _tried_move(
    proposal: Proposal, model: Model, source: ProposalSource | None, key: Array, old: PyTree, rows: PyTree
) -> tuple[Array, Array]:
    """The reach of a move, and what rows say of it."""
    new = proposed_from(source, proposal, key, old, model).position
    with jax.default_matmul_precision("highest"):
        return model.bounds.reach(old, new), model.log_ratios(old, new, rows)
