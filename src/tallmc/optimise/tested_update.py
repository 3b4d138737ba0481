"""One update from as few rows as its direction needs (Korattikara et al., Algorithm 1)."""

import dataclasses
import math

from tallmc.optimise.direction_test import Look
from tallmc.optimise.exact_update import exact_update
from tallmc.optimise.state import Search

_UPDATES_ON_SAME_ROWS = 4


def tested_update(search: Search) -> None:
    """Looks at more and more rows until the test accepts an update, and makes it; or goes on to all rows."""
    if not search.options.test.carries_rows:
        search.size, search.before = search.first_size, None
        search.rows.shuffle()
    first, second = (search.sum(search.rows.look(half, 0, search.size)) for half in (0, 1))
    look = Look(search.problem, search.position, search.rows, (first, second), search.size, looks_left(search))
    if search.overshot(look.pooled):
        search.record(look.pooled.loss, 2 * look.size)
        return
    while not _accepts(search, look):
        search.size, search.updates_on_same_rows = next_size(search), 0
        if search.size == 0:
            search.before = None
            exact_update(search)
            return
        look = _longer(search, look)
    search.updates_on_same_rows += 1
    pooled = look.pooled
    search.record(pooled.loss, 2 * look.size)
    search.learn(pooled)
    search.step(pooled.loss, look.update(look.halves[0] + look.halves[1]))


def _longer(search: Search, look: Look) -> Look:
    """The same look at more rows; those seen stay summed up."""
    first, second = (
        sums + search.sum(search.rows.look(half, look.size, search.size)) for half, sums in enumerate(look.halves)
    )
    return dataclasses.replace(look, halves=(first, second), size=search.size)


def _accepts(search: Search, look: Look) -> bool:
    test = search.options.test
    # Few rows can be separable when all rows are not, and then agree on running away together.
    separable = search.problem.separates(look.halves[0].loss + look.halves[1].loss)
    if separable or (test.carries_rows and search.updates_on_same_rows >= _UPDATES_ON_SAME_ROWS):
        return False
    search.num_tests += 1
    return test.accepts(look)


def next_size(search: Search) -> int:
    """Rows in each half at the next look; 0 for all rows."""
    increment = search.options.row_increment
    size = 2 * search.size if increment is None else search.size + (increment + 1) // 2
    return size if 2 * size <= search.rows.largest else 0


def looks_left(search: Search) -> int:
    """Tests that an iteration may make before it takes all rows."""
    increment, most = search.options.row_increment, search.rows.largest // 2
    if increment is not None:
        return 1 + (most - search.size) // ((increment + 1) // 2)
    return 1 + int(math.log2(most / search.size))
