"""Whether single rows add up to what a model makes of them together; and if not, which part does not."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from tallmc.numerics.double_precision import as_double, double_precision
from tallmc.posterior import Posterior

ALL_ROWS = 2_000  # up to so many the check reads all rows, else as many at random: both take well under a second
_POSITIONS = 4
_RADII = (2.0, 1.0, 0.3, 0.1)  # of the unconstrained numbers, as NumPyro's starts; nearer to zero if nothing is finite
# Of the sizes of what is added up. Both sides are worked out in float64, but a model may say float32 itself.
_TOLERANCE = 1e-5


class NowhereFiniteError(ValueError):
    """There was no position to compare at."""


class Parts(NamedTuple):
    """Log densities of parts of a model at one position, by name.

    Args:
        rows: Of the rows' parts, summed over them.
        others: Of all other parts.
    """

    rows: dict[str, Any]
    others: dict[str, Any]


Both = Callable[[PyTree], tuple[Parts, Parts]]


class Found(NamedTuple):
    """Where whole and parts differ.

    Args:
        part: Its name.
        of_rows: Whether it is one of rows.
        whole: Log density of the rows together.
        apart: The sum over single rows.
    """

    part: str
    of_rows: bool
    whole: float
    apart: float


def some_rows(num_rows: int) -> np.ndarray:
    """Numbers of the rows that the check reads."""
    count = min(num_rows, ALL_ROWS)
    return np.sort(np.random.default_rng(0).choice(num_rows, count, replace=False))


def random_positions(posterior: Posterior, start: PyTree) -> list[PyTree]:
    """Positions on the natural scale, from the wider to the nearer.

    Args:
        posterior: With the transforms.
        start: One unconstrained position.
    """
    generator = np.random.default_rng(1)
    positions = []
    for radius in np.repeat(_RADII, _POSITIONS):
        unconstrained = jax.tree.map(lambda leaf, r=radius: leaf + generator.uniform(-r, r, np.shape(leaf)), start)
        positions.append(posterior.constrain(unconstrained))
    return positions


def disagreement(positions: Sequence[PyTree], both: Both) -> Found | None:
    """The first part of which whole and apart differ; None if they agree.

    Args:
        positions: Natural ones. Those where something is not finite are passed over.
        both: Log densities of the rows together, and as sums over single rows.

    Raises:
        NowhereFiniteError: If the log density is finite at none of them.
    """
    compared = 0
    with double_precision():
        for position in positions:
            found = _first_difference(*map(_numbers, both(as_double(position))))
            if isinstance(found, Found):
                return found
            compared += found
            if compared == _POSITIONS:
                return None
    if not compared:
        raise NowhereFiniteError(
            "the log density is not finite at any of the random positions tried, in the limits of all parameters; mend "
            "the model, or give parameters priors whose support says what values they can have"
        )
    return None


def _numbers(parts: Parts) -> Parts:
    return jax.tree.map(float, parts)


def _first_difference(whole: Parts, apart: Parts) -> Found | bool:
    """A difference; or whether there was something finite to compare."""
    finite = True
    for of_rows in (False, True):
        mine, theirs = (parts.rows if of_rows else parts.others for parts in (apart, whole))
        for name, value in theirs.items():
            if not np.isfinite(value) and not np.isfinite(mine[name]):
                finite = False
            elif not abs(value - mine[name]) <= _TOLERANCE * (1 + abs(value)):
                return Found(name, of_rows, value, mine[name])
    return finite
