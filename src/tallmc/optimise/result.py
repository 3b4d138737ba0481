"""What an optimiser hands back."""

import dataclasses
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from tallmc.console.cards import card
from tallmc.optimise.contract import Sums


class FullPass(NamedTuple):
    """A pass over all rows, for whoever wants their sums and not only the optimum.

    Args:
        position: Where.
        sums: Of the loss there, with score and curvature, the prior left out.
    """

    position: np.ndarray
    sums: Sums


@dataclasses.dataclass(frozen=True, repr=False)
class OptimiseResult:
    """Where the optimiser ended, and what that took.

    Args:
        position: The optimum, or the best so far if `converged` is false.
        objective: Loss at the start of each iteration (negative log density, prior included), scaled from the rows
            in use to all rows.
        rows_per_iteration: Rows that each iteration rested on.
        gradient_norm: Euclidean norm of the objective's gradient at `position`.
        gradient_norm_error: Its standard error from not having seen all rows; 0 if all were seen.
        distance: Estimated distance to the optimum in standard deviations of the posterior (the Newton decrement);
            infinite if the search ended before it read all rows.
        hessian: Second derivative of the objective, at `position` or less than one posterior standard deviation
            from it. Iteratively reweighted problems give their `A'A`, prior included.
        converged: Whether `distance` fell below the tolerance on all rows.
        reason: Why it stopped, in words.
        rows_read: Rows read in all, every visit to a row counted.
        num_rows: Rows of data.
        num_tests: Tests made.
        interrupted: Whether Ctrl-C was pressed, be it in the last iteration.
        full_pass: What the last pass over all rows found that worked out a curvature; None if there was none.
    """

    position: PyTree
    objective: np.ndarray
    rows_per_iteration: np.ndarray
    gradient_norm: float
    gradient_norm_error: float
    distance: float
    hessian: np.ndarray
    converged: bool
    reason: str
    rows_read: int
    num_rows: int
    num_tests: int
    interrupted: bool = False
    full_pass: FullPass | None = None

    @property
    def passes(self) -> float:
        """Rows read, in units of all rows."""
        return self.rows_read / self.num_rows

    def __repr__(self) -> str:
        done = "converged" if self.converged else f"NOT converged ({self.reason})"
        shapes = ", ".join(str(np.shape(leaf)) for leaf in jax.tree.leaves(self.position))
        count = len(self.rows_per_iteration)
        return (
            f"<OptimiseResult: {done}, {count} iterations, {self.passes:.2f} passes over the rows; position {shapes}>"
        )

    def _repr_html_(self) -> str:
        first, *lines = str(self).splitlines()
        cells = [tuple(part.strip() for part in line.split("  ", 1)) for line in lines]
        return card("Optimum", [(cell[0], cell[-1]) for cell in cells], () if self.converged else (first,))

    def __str__(self) -> str:
        rows = ", ".join(f"{count:,}" for count in self.rows_per_iteration[-6:])
        dots = "..., " if len(self.rows_per_iteration) > 6 else ""
        error = f" ± {self.gradient_norm_error:.2g}" if self.gradient_norm_error else ""
        known = np.isfinite(self.distance)
        lines = [
            f"{'converged' if self.converged else 'NOT converged'}: {self.reason}",
            f"iterations       {len(self.rows_per_iteration)}, on {dots}{rows} rows",
            f"rows read        {self.rows_read:,} ({self.passes:.2f} passes over {self.num_rows:,})",
            f"tests            {self.num_tests}",
            f"objective        {self.objective[-1]:.8g}",
            f"gradient norm    {self.gradient_norm:.3g}{error}",
            f"to the optimum   {f'{self.distance:.2g} posterior standard deviations' if known else 'not measured'}",
        ]
        return "\n".join(lines)
