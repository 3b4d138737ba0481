"""One update from as few rows as its direction needs (Korattikara et al., Algorithm 1)."""

import dataclasses
import math

from tallmc.optimise.direction_test import Look
from tallmc.optimise.exact_update import exact_update
from tallmc.optimise.state import Search


def tested_update(search: Search) -> None:
    """Looks at more and more rows until the test accepts an update, and makes it; or goes on to all rows.

    A Newton update brings the search close to the optimum of the rows in use, which is not that of all rows. So the
    next iteration begins with these rows and as many new ones. A gradient step does not, and goes on with its rows.
    """
    if not search.options.test.carries_rows:
        search.size, search.before = search.first_size, None
        search.rows.shuffle()
    more = search.before is not None and search.update.spends_rows
    if more and next_size(search) == 0:
        _take_all_rows(search)
        return
    needed = search.update.needs_curvature
    first, second = (search.sum(search.rows.look(half, 0, search.size), curvature=needed) for half in (0, 1))
    look = Look(search.problem, search.position, search.rows, (first, second), search.size, search.update)
    if search.overshot(look.pooled):
        search.update = search.update.shortened()
        search.record(look.pooled.loss, 2 * look.size)
        return
    if search.before is not None:
        search.update = search.update.lengthened()
    search.update = search.update.fitted(look.pooled, search.problem)
    look = dataclasses.replace(look, kind=search.update)
    if more:
        look = _longer(search, look)
    looks = looks_left(search)
    while not _accepts(search, look, looks):
        if next_size(search) == 0:
            _take_all_rows(search)
            return
        look = _longer(search, look)
    pooled = look.pooled
    search.record(pooled.loss, 2 * look.size)
    search.learn(pooled)
    search.step(pooled.loss, look.update(look.halves[0] + look.halves[1]))


def _take_all_rows(search: Search) -> None:
    search.size = 0
    if search.before is not None:  # the loss on other rows cannot tell whether the last step went too far
        search.before = (search.before[0], math.inf)
    exact_update(search)


def _longer(search: Search, look: Look) -> Look:
    """The same look at more rows; those seen stay summed up."""
    search.size = next_size(search)
    first, second = (
        sums + search.sum(search.rows.look(half, look.size, search.size), curvature=search.update.needs_curvature)
        for half, sums in enumerate(look.halves)
    )
    return dataclasses.replace(look, halves=(first, second), size=search.size)


def _accepts(search: Search, look: Look, looks: int) -> bool:
    # Few rows can be separable when all rows are not, and then agree on running away together.
    if search.problem.separates(look.halves[0].loss + look.halves[1].loss):
        return False
    search.num_tests += 1
    return search.options.test.accepts(look, looks)


def next_size(search: Search) -> int:
    """Rows in each half at the next look; 0 for all rows."""
    increment = search.options.row_increment
    size = 2 * search.size if increment is None else search.size + (increment + 1) // 2
    return size if 2 * size <= search.rows.largest else 0


def looks_left(search: Search) -> int:
    """Tests that an iteration may make, this one included, before it takes all rows."""
    increment, most = search.options.row_increment, search.rows.largest // 2
    if increment is not None:
        return 1 + (most - search.size) // ((increment + 1) // 2)
    return 1 + int(math.log2(most / search.size))
