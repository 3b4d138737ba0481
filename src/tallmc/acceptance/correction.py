"""Laws that turn normal noise into logistic noise (Seita et al., 2018, section 4).

Barker's test needs the log ratio plus logistic noise; a minibatch gives it plus normal noise of variance sigma^2.
What is missing is a variable X, independent of the rest, with N(0, sigma^2) + X close to logistic.
"""

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

LOGISTIC_SD = float(np.pi / np.sqrt(3))
_REACH = 20.0  # logistic tails beyond this hold 2e-9
_TOO_SMALL_FOR_THE_PROGRAMME = 0.97


class CorrectionLaw(NamedTuple):
    """A discrete law X.

    Args:
        atoms: Its values, in increasing order.
        masses: Their probabilities.
        max_error: Largest distance, over the whole line, of the CDF of N(0, sigma^2) + X from the logistic function.
    """

    atoms: Float[np.ndarray, " k"]
    masses: Float[np.ndarray, " k"]
    max_error: float


class RidgeCorrection(NamedTuple):
    """The paper's construction on its grid.

    Args:
        atoms: Grid points of X.
        masses: Their masses, clipped at zero and not renormalised, as in the paper.
        max_error: Largest CDF error over the paper's grid, as printed in its Table 3.
        renormalised_max_error: The same for what one would really draw from: masses scaled to sum to one.
    """

    atoms: Float[np.ndarray, " k"]
    masses: Float[np.ndarray, " k"]
    max_error: float
    renormalised_max_error: float


def correction_law(sigma: float) -> CorrectionLaw:
    """The best law there is: least largest CDF error over all non-negative laws on a fine grid.

    Found by a linear programme over symmetric laws, and kept for the next call. The optimum is atomic, which is
    fine, because it is only ever used after convolution with a normal law.

    Args:
        sigma: Standard deviation of the normal part; less than that of the logistic law, 1.81.

    Example:
        >>> correction_law(1.0).max_error < 1e-7
        True
    """
    check_sigma(sigma)
    return _optimal_law(float(sigma))


def check_sigma(sigma: float) -> None:
    """A normal part wider than the logistic law leaves nothing to correct."""
    if not 0 < sigma < LOGISTIC_SD:
        raise ValueError(
            f"sigma must lie between 0 and the logistic law's standard deviation, {LOGISTIC_SD:.4f}; got {sigma}. "
            "1.0 is accurate to 1e-7; 1.4 halves the rows and is accurate to 5e-4"
        )


@functools.cache
def _optimal_law(sigma: float) -> CorrectionLaw:
    from scipy.special import expit

    if sigma < _TOO_SMALL_FOR_THE_PROGRAMME:
        atoms, masses = _least_squares_masses(sigma)
    else:
        atoms, masses = _least_largest_error_masses(sigma)
    kept = masses > 0
    atoms, masses = atoms[kept], masses[kept] / masses.sum()
    # The solvers only saw their grid: measure the error on one a hundred times as fine.
    fine = np.linspace(0, 2 * _REACH, 100_001)
    max_error = np.abs(_symmetric_cdf(fine, atoms, sigma) @ masses - expit(fine)).max()
    both_sides, where = np.unique(np.concatenate([-atoms, atoms]), return_inverse=True)
    return CorrectionLaw(both_sides, np.bincount(where, np.tile(masses / 2, 2)), float(max_error))


def _least_largest_error_masses(sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Linear programme: minimise t subject to |CDF - logistic| <= t on a grid."""
    from scipy.optimize import linprog
    from scipy.special import expit

    atoms = np.arange(0, _REACH, 0.05)
    points = np.concatenate([np.arange(0.04, 14, 0.04), np.linspace(14, 24, 60)])
    # Errors are far below the solver's absolute tolerances, so they are measured in units of 1e-5.
    scale, ones = 1e5, np.ones((len(points), 1))
    smooth, logistic = scale * _symmetric_cdf(points, atoms, sigma), scale * expit(points)
    solution = linprog(
        np.append(np.zeros(len(atoms)), 1.0),
        A_ub=np.block([[smooth, -ones], [-smooth, -ones]]),
        b_ub=np.concatenate([logistic, -logistic]),
        A_eq=np.append(np.ones(len(atoms)), 0.0)[None],
        b_eq=[1.0],
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if solution.x is None:
        raise RuntimeError(f"no correction law found at sigma = {sigma}: {solution.message}")
    return atoms, np.maximum(solution.x[:-1], 0)


def _least_squares_masses(sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Non-negative least squares: for small sigma the error is below what the programme's solver resolves."""
    from scipy.optimize import nnls
    from scipy.special import expit

    atoms = np.arange(0, 28, min(0.1, sigma / 4))
    points = np.arange(0.04, 32, 0.04)
    sum_to_one = 100.0
    matrix = np.vstack([_symmetric_cdf(points, atoms, sigma), np.full(len(atoms), sum_to_one)])
    target = np.append(expit(points), sum_to_one)
    return atoms, nnls(matrix, target, maxiter=20_000)[0]


def _symmetric_cdf(points: np.ndarray, atoms: np.ndarray, sigma: float) -> np.ndarray:
    """CDF at `points` of a normal law around plus or minus each atom."""
    from scipy.special import ndtr

    up = ndtr((points[:, None] - atoms) / sigma)
    return (up + ndtr((points[:, None] + atoms) / sigma)) / 2


@functools.cache
def ridge_correction(sigma: float, num_points: int = 4000, ridge: float = 10.0) -> RidgeCorrection:
    """The paper's own construction: ridge regression for the masses, then negative ones set to zero.

    `correction_law` is better at every setting; this one is here to reproduce the paper's Table 3.

    Args:
        sigma: Standard deviation of the normal part.
        num_points: N of the paper: the law lives on 2N + 1 points between -20 and 20.
        ridge: lambda of the paper's eq. 15.

    Example:
        >>> f"{ridge_correction(0.9, 2000, 10.0).max_error:.1e}"
        '6.4e-04'
    """
    from scipy.linalg import cho_factor, cho_solve
    from scipy.special import expit, ndtr

    check_sigma(sigma)
    if num_points < 1 or ridge <= 0:
        raise ValueError(f"num_points and ridge must be positive, got {num_points} and {ridge}")
    spacing = _REACH / num_points
    size = 2 * num_points + 1
    # M[i, j] = normal[i - j + 2N]: a Toeplitz matrix, so products with it are correlations ...
    normal = ndtr(spacing * np.arange(-3 * num_points, 3 * num_points + 1) / sigma)
    logistic = expit(spacing * np.arange(-2 * num_points, 2 * num_points + 1))

    def columns_dot(values: np.ndarray) -> np.ndarray:
        return np.correlate(normal, values, "valid")[::-1]

    # ... and each entry of M'M differs from its upper left neighbour only by what enters and leaves the column.
    first, last = normal[:size][::-1], normal[-size:][::-1]
    gram = np.empty((size, size))
    gram[0] = columns_dot(normal[2 * num_points : 6 * num_points + 1])
    gram[:, 0] = gram[0]
    for row in range(1, size):
        gram[row, 1:] = gram[row - 1, :-1] + first[row] * first[1:] - last[row - 1] * last[:-1]
    gram[np.diag_indices(size)] += ridge
    factor = cho_factor(gram, overwrite_a=True, check_finite=False)
    masses = np.maximum(cho_solve(factor, columns_dot(logistic)), 0)

    cdf = np.convolve(normal, masses, "valid")
    return RidgeCorrection(
        spacing * np.arange(-num_points, num_points + 1),
        masses,
        float(np.abs(cdf - logistic).max()),
        float(np.abs(cdf / masses.sum() - logistic).max()),
    )
