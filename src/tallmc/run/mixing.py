"""R-hat and effective sample sizes of many coordinates at once (Vehtari et al., 2021).

The figures are those of arviz-stats, which takes one coordinate after the other and loads pandas, xarray and matplotlib
first. `run.summary()` may take that long; the check at the end of every run should not.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Real, Shaped

from tallmc.numerics.flat import as_numbers

_TAIL = 0.89  # arviz-stats looks at the quantiles 0.89 and 0.11
_FEWEST_DRAWS = 4
_NUMBERS_AT_ONCE = 2**18  # a few megabytes for each intermediate array: they stay in the cache


class Mixing(NamedTuple):
    """One number a coordinate; NaN where it cannot be worked out.

    Args:
        r_hat: Spread of all chains over that within each; rank-normalised, of the values and of their distances from
            the median, whichever is larger.
        ess_bulk: Effective draws for the centre.
        ess_tail: Effective draws for the quantiles 0.11 and 0.89, whichever are fewer.
    """

    r_hat: Float[np.ndarray, " coordinates"]
    ess_bulk: Float[np.ndarray, " coordinates"]
    ess_tail: Float[np.ndarray, " coordinates"]


def mixing(draws: Shaped[np.ndarray, "chains draws coordinates"]) -> Mixing:
    """How well at least two chains have mixed, and what their draws are worth.

    Args:
        draws: At least four of each chain, else nothing can be said.

    Example:
        >>> found = mixing(np.random.default_rng(0).normal(size=(4, 1000, 3)))
        >>> found.r_hat.round(2).tolist()
        [1.0, 1.0, 1.0]
    """
    draws = as_numbers(draws)
    num_chains, num_draws, count = draws.shape
    if num_draws < _FEWEST_DRAWS:
        return Mixing(*np.full((3, count), np.nan))
    found, at_once = np.empty((3, count)), max(1, _NUMBERS_AT_ONCE // (num_chains * num_draws))
    for first in range(0, count, at_once):
        some = slice(first, first + at_once)
        found[:, some] = _mixing(np.ascontiguousarray(np.moveaxis(draws[:, :, some], 2, 0)))
    return Mixing(*found)


def ess_of_mean(draws: Real[np.ndarray, "chains draws"]) -> float:
    """Effective draws for the mean of these very numbers, where `mixing` looks at their ranks.

    Args:
        draws: At least four of each chain.

    Example:
        >>> 3000 < ess_of_mean(np.random.default_rng(0).normal(size=(4, 1000))) < 5000
        True
    """
    if draws.shape[1] < _FEWEST_DRAWS:
        return float("nan")
    return float(_ess(_halves(np.asarray(draws, float)[None]))[0])


def error_of_mean(draws: Real[np.ndarray, "chains draws"]) -> float:
    """Monte Carlo standard error of the mean of one number, from its autocorrelations and what chains differ by.

    Args:
        draws: Of each chain; NaN comes of fewer than four.
    """
    return float(draws.std(ddof=1) / np.sqrt(ess_of_mean(draws)))


def _mixing(draws: Real[np.ndarray, "coordinates chains draws"]) -> Mixing:
    halves = _halves(draws)
    together = halves.reshape(len(draws), -1)
    distances = np.abs(together - np.median(together, axis=1, keepdims=True))
    bulk, tail = (_normal_scores(values).reshape(halves.shape) for values in (together, distances))
    of_values, of_distances = _r_hat(bulk), _r_hat(tail)
    r_hat = np.where(of_distances > of_values, of_distances, of_values)  # distances that are all alike say nothing
    ess_tail = np.minimum(*(_ess(_halves(_up_to_quantile(draws, share))) for share in (1 - _TAIL, _TAIL)))
    known = ~np.isnan(together).any(axis=1) & ~np.isnan(draws).any(axis=(1, 2))
    return Mixing(*(np.where(known, figure, np.nan) for figure in (r_hat, _ess(bulk), ess_tail)))


def _halves(draws: np.ndarray) -> np.ndarray:
    """Each chain as two; without its middle draw if their number is odd."""
    half = draws.shape[2] // 2
    return np.concatenate([draws[:, :, :half], draws[:, :, -half:]], axis=1)


def _up_to_quantile(draws: np.ndarray, share: float) -> Float[np.ndarray, "coordinates chains draws"]:
    """Ones and zeros."""
    return (draws <= np.quantile(draws, share, axis=(1, 2), keepdims=True)).astype(float)


def _normal_scores(values: Real[np.ndarray, "coordinates n"]) -> Float[np.ndarray, "coordinates n"]:
    """What a normal sample would have at each value's rank; values that are alike share their mean rank."""
    from scipy.special import ndtri

    size, order = values.shape[1], np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    differs = ordered[:, 1:] != ordered[:, :-1]
    edge, place = np.ones((len(values), 1), bool), np.arange(size)
    first = np.maximum.accumulate(np.where(np.hstack([edge, differs]), place, 0), axis=1)
    last = np.minimum.accumulate(np.where(np.hstack([differs, edge]), place, size)[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (first + last) / 2 + 1, axis=1)
    return ndtri((ranks - 3 / 8) / (size + 1 / 4))


def _r_hat(chains: Float[np.ndarray, "coordinates chains draws"]) -> Float[np.ndarray, " coordinates"]:
    num_draws = chains.shape[2]
    within = chains.var(axis=2, ddof=1).mean(axis=1)
    between = num_draws * chains.mean(axis=2).var(axis=1, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # of coordinates that never move
        return np.sqrt((between / within + num_draws - 1) / num_draws)


def _ess(chains: Float[np.ndarray, "coordinates chains draws"]) -> Float[np.ndarray, " coordinates"]:
    """Effective draws for the mean, from Geyer's initial monotone sequence of autocorrelations."""
    size, num_draws = chains.shape[1] * chains.shape[2], chains.shape[2]
    correlation = _autocorrelation(chains)
    even, odd = correlation[:, 0 : num_draws - 1 : 2], correlation[:, 1::2]
    pairs = even + odd
    # As many pairs count as come before the first that is not positive, but for the last few lags.
    not_positive = ~(pairs > 0)
    not_positive[:, max(0, (num_draws - 3) // 2) :] = True
    count = np.argmax(not_positive, axis=1)[:, None]
    counted = np.arange(pairs.shape[1]) < count
    total = np.sum(np.minimum.accumulate(pairs, axis=1), axis=1, where=counted)
    end_even, end_pair = (np.take_along_axis(values, count, axis=1)[:, 0] for values in (even, pairs))
    time = -1 + 2 * total + np.where((end_even > 0) | (end_pair >= 0), end_even, 0)
    moved = chains.max(axis=(1, 2)) - chains.min(axis=(1, 2)) >= np.finfo(float).resolution
    return np.where(moved, size / np.maximum(time, 1 / np.log10(size)), size)


def _autocorrelation(chains: Float[np.ndarray, "coordinates chains draws"]) -> Float[np.ndarray, "coordinates lags"]:
    """Of all chains together, around the mean of each; what the chains differ by is correlation at every lag."""
    num_draws, mean = chains.shape[2], chains.mean(axis=2, keepdims=True)
    padded = 1 << (2 * num_draws - 1).bit_length()
    spectrum = np.fft.rfft(chains - mean, padded, axis=2)
    power = np.mean(np.square(spectrum.real) + np.square(spectrum.imag), axis=1)
    covariance = np.fft.irfft(power, padded, axis=1)[:, :num_draws] / num_draws
    within = covariance[:, :1] * num_draws / (num_draws - 1)
    whole = covariance[:, :1] + mean.var(axis=1, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = 1 - (within - covariance) / whole
    correlation[:, 0] = 1
    return correlation
