"""Some sixty posteriors that users write, each under the name of the function that builds it.

`python -m benchmarks range` samples them and compares with NUTS; `tests/test_range.py` keeps a few of them right.
"""

from tests.range import hierarchies, regressions, robust, shapes  # noqa: F401  they enter their posteriors
from tests.range.case import CASES, Case

# A look at many kinds in a few minutes.
SMALL = (
    "linear_unknown_noise",
    "logistic_ready",
    "logistic_separated",
    "negative_binomial_regression",
    "eight_schools_non_centred",
    "mixture_free",
    "spike_in_one_of_twenty",
    "uniform_upper_end",
)

__all__ = ["CASES", "SMALL", "Case"]
