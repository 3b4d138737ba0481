"""Was the mean of a minibatch normal? What the skewness of the rows in each test has to say about it."""

import numpy as np

_LOPSIDED = 0.6  # of n rows, one outlier gives a skewness of sqrt(n), two 0.7 sqrt(n), three 0.6 sqrt(n)
_TOLERATED_SHARE = 0.01


class NormalityWarning(UserWarning):
    """A rule takes means of rows for normal, and here they are not."""


def lopsided(skewness: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Which tests hung on one or two of their rows."""
    return np.abs(skewness) > _LOPSIDED * np.sqrt(rows)


def skewness_warning(rule: str, stats: dict[str, np.ndarray]) -> list[str]:
    """A warning if too many tests of a run hung on one or two rows, so that the rule could not be trusted."""
    if "skewness" not in stats:
        return []
    import scipy.special

    rows = stats.get("test_rows", stats["rows"])  # some rules read more rows than they decide from
    partial = (rows < stats["rows"]) | ~stats["used_all_rows"]
    if not partial.any():
        return []
    found = lopsided(stats["skewness"], rows)[partial]
    count, share = int(np.sum(found)), float(np.mean(found))
    # One test in ten proves nothing: the share must be too large beyond chance (Clopper and Pearson, one-sided 95 %).
    if count == 0 or scipy.special.betaincinv(count, found.size - count + 1, 0.05) <= _TOLERATED_SHARE:
        return []
    return [
        f"in {100 * share:.2g} % of the tests one or two rows outweighed all others (rare features or heavy tails): "
        f"{rule} takes means of rows for normal and cannot be trusted here. {alternatives(rule)}"
    ]


def alternatives(rule: str) -> str:
    """What to use instead of a rule that trusts the central limit theorem."""
    return (
        f"Use tm.Exact() or, with a bound on a row's log ratio, tm.MHSS(), tm.MHSubLhd() or (unless rows are drawn so "
        f"already) feed=tm.WeightedFeed; or give {rule} a larger batch_size and look again with "
        "tm.check_normality(posterior, kernel, init=...)"
    )
