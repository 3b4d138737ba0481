"""Was the mean of a minibatch normal? What the skewness of the rows in each test has to say about it."""

from typing import Any

import numpy as np

_LOPSIDED = 0.6  # of n rows, one outlier gives a skewness of sqrt(n), two 0.7 sqrt(n), three 0.6 sqrt(n)
_TOLERATED_SHARE = 0.01
_BATCHES = 10  # of a chain's draws: neighbouring tests are alike, so it is batches that tell what is chance
_SURE = 2.33  # standard errors: one false alarm in a hundred runs whose share is just what is tolerated


class NormalityWarning(UserWarning):
    """A rule takes means of rows for normal, and here they are not."""


def lopsided(skewness: Any, rows: Any) -> Any:
    """Which tests hung on one or two of their rows."""
    return abs(skewness) > _LOPSIDED * rows**0.5


def skewness_warning(rule: str, stats: dict[str, np.ndarray]) -> list[str]:
    """A warning if too many tests of a run hung on one or two rows, so that the rule could not be trusted."""
    if "skewness" not in stats:
        return []
    import scipy.special

    rows = stats.get("test_rows", stats["rows"])  # some rules read more rows than they decide from
    partial = (rows < stats["rows"]) | ~stats["used_all_rows"]
    if not partial.any():
        return []
    found = lopsided(stats["skewness"], rows) & partial
    count, tests = int(np.sum(found)), int(np.sum(partial))
    share = count / tests
    # One test in ten proves nothing: the share must be too large beyond chance (Clopper and Pearson, one-sided 99 %).
    if count == 0 or scipy.special.betaincinv(count, tests - count + 1, 0.01) <= _TOLERATED_SHARE:
        return []
    if share - _SURE * _standard_error(found, partial, share) <= _TOLERATED_SHARE:
        return []
    return [
        f"in {100 * share:.2g} % of the tests one or two rows outweighed all others (rare features or heavy tails): "
        f"{rule} takes means of rows for normal and cannot be trusted here. {alternatives(rule)}"
    ]


def _standard_error(found: np.ndarray, tests: np.ndarray, share: float) -> float:
    """Of a share of tests, from how batches of draws that follow one another differ."""
    excess = np.atleast_2d(found - share * tests)
    batches = np.array_split(excess, min(_BATCHES, excess.shape[1]), axis=1)
    sums = np.concatenate([np.sum(batch, axis=1) for batch in batches])
    return float(np.sqrt(np.sum(sums**2) * len(sums) / max(len(sums) - 1, 1)) / np.sum(tests))


def alternatives(rule: str) -> str:
    """What to use instead of a rule that trusts the central limit theorem."""
    return (
        f"Use tm.Exact() or, with a bound on a row's log ratio, tm.MHSS(), tm.MHSubLhd() or (unless rows are drawn so "
        f"already) feed=tm.WeightedFeed; or give {rule} a larger batch_size and look again with "
        "tm.check_normality(posterior, kernel, init=...)"
    )
