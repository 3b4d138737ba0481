"""Where chains of a variable selection start, and how they move if nobody says."""

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Real

from tallmc.acceptance import Exact
from tallmc.metropolis import MetropolisHastings
from tallmc.optimise.result import OptimiseResult
from tallmc.posterior import Posterior, checks
from tallmc.posterior.at_zero import at_zero
from tallmc.posterior.linear_predictor import LinearPredictor, SelectedPredictor, is_selection
from tallmc.proposals import ReversibleJump
from tallmc.setup.modes import find_mode

# Widths of the likelihood along a column. Effective draws of the rarest inclusion, of 60,000 draws (4,000 rows, 50
# columns): 84 at half a width, 96 at one, 309 at two, 580 at four.
_WIDTHS_OF_BIRTH = 4.0
_WIDTHS_OF_UPDATE = 2.4  # the best random walk along one coordinate (Roberts and Rosenthal, 2001); warm-up goes on


class SelectionStart(NamedTuple):
    """Where chains start.

    Args:
        positions: One a chain.
        rows_read: Rows that it took.
        reason: Why there, in words.
        widths: Of the likelihood along each column, the others fixed; None if that is not known.
    """

    positions: PyTree
    rows_read: int
    reason: str
    widths: np.ndarray | None


def selection_start(posterior: Posterior, num_chains: int, *, progress: bool) -> SelectionStart:
    """Chains start in turn with the one best column and with all columns at the mode, far from each other.

    Reversible jumps may stay in different models for longer than a run lasts, depending on where they start
    (Korattikara et al., 2014, section 6.3, end). Chains that started from both ends and agree have not.
    """
    likelihood, rows = posterior.log_likelihood, posterior.rows
    num_columns, finest = rows.like["x"].shape[0], jnp.result_type(float)
    found, temperature = at_zero(likelihood.link, rows), float(posterior.temperature)
    best = 0 if found is None else int(np.argmax(found.gain))
    one = np.zeros(num_columns, finest)
    one[best] = 1e-3 if found is None else found.slope[best] / found.bend[best]
    ends, where = [(one, np.arange(num_columns) == best)], "the one best column"
    rows_read = rows.num_rows
    if num_chains > 1:
        mode = mode_of_all_columns(posterior, progress=progress)
        rows_read += mode.rows_read
        if np.all(np.isfinite(mode.position)):
            ends.append((np.asarray(mode.position), np.ones(num_columns, bool)))
            where = "the one best column and all columns at their mode, in turn"
    beta, gamma = (np.stack([ends[chain % len(ends)][part] for chain in range(num_chains)]) for part in (0, 1))
    widths = None if found is None else np.sqrt(temperature / np.where(found.bend > 0, found.bend, 1))
    return SelectionStart({"beta": beta, "gamma": gamma}, rows_read, f"chains start with {where}", widths)


def mode_of_all_columns(posterior: Posterior, *, progress: bool) -> OptimiseResult:
    """Where the regression with all columns has its mode, under a weak prior: rows of two classes can be separable."""
    rows, temperature = posterior.rows, posterior.temperature
    full = Posterior(LinearPredictor(posterior.log_likelihood.link), rows, _weak_prior, temperature)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # chains may start anywhere, and expansions be made
        return find_mode(full, np.zeros(rows.like["x"].shape[0], jnp.result_type(float)), progress=progress)


def _weak_prior(beta: Real[Array, " d"]) -> Real[Array, ""]:
    return -0.005 * jnp.sum(beta**2)


def selection_kernel(widths: np.ndarray | None) -> MetropolisHastings:
    """Reversible jumps with tests on all rows.

    Args:
        widths: Of the likelihood along each column, if they are known.
    """
    if widths is None:
        return MetropolisHastings(ReversibleJump(), Exact())
    return MetropolisHastings(ReversibleJump(_WIDTHS_OF_UPDATE * widths, _WIDTHS_OF_BIRTH * widths), Exact())


def choose_to_select(
    posterior: Posterior, init: PyTree, num_chains: int, *, progress: bool
) -> tuple[SelectionStart, MetropolisHastings]:
    """Positions and kernel for a posterior whose positions have truth values.

    Raises:
        ValueError: If it is no selection of columns.
    """
    if isinstance(posterior.log_likelihood, SelectedPredictor):
        start = selection_start(posterior, num_chains, progress=progress)
        if init is not None:
            positions = checks.one_position_per_chain(posterior, init, num_chains)
            start = start._replace(positions=positions, reason="chains start where init says")
        return start, selection_kernel(start.widths)
    positions = checks.one_position_per_chain(posterior, init, num_chains)
    if not is_selection(jax.tree.map(lambda leaf: leaf[0], positions)):
        raise ValueError(
            "init holds truth values, and tm.sample chooses kernels for real numbers and selections of columns only; "
            "pass a kernel, such as tm.MetropolisHastings(proposal, tm.Exact()) with a proposal of your own, or name "
            'the parts of a selection {"beta": coefficients, "gamma": truth values} for tm.ReversibleJump'
        )
    return SelectionStart(positions, 0, "chains start where init says", None), selection_kernel(None)


def has_truth_values(position: PyTree) -> bool:
    """Whether some part of a position says yes or no."""
    return any(np.asarray(leaf).dtype == np.bool_ for leaf in jax.tree.leaves(position))
