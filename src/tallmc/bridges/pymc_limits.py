# pyright: reportMissingImports=false
"""The limits of PyMC's variables, as transforms."""

from typing import Any

import numpy as np
from numpyro.distributions import constraints
from pymc.distributions import transforms as own
from pymc.logprob import transforms as general
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.type import RandomType

from tallmc.bridges.supports import transform_of
from tallmc.transforms import Transform

_FIXED = {
    general.LogTransform: constraints.positive,
    general.LogOddsTransform: constraints.unit_interval,
    general.SimplexTransform: constraints.simplex,
    own.Ordered: constraints.ordered_vector,
}


def limit_of(variable: Any, transform: Any) -> Transform | None:
    """The transform of a free variable; None if it has no limits.

    Args:
        variable: Of a PyMC model.
        transform: PyMC's own, which names the limits.
    """
    if transform is None:
        return None
    if type(transform) in _FIXED:
        return transform_of(_FIXED[type(transform)])
    if not isinstance(transform, general.IntervalTransform):
        raise ValueError(
            f"there is no way yet to move {variable.name}, which PyMC transforms by {type(transform).__name__}; take "
            "another parameterisation: positive, in an interval, ordered and simplex variables can be moved"
        )
    low, high = (_end(variable, end) for end in transform.args_fn(*variable.owner.inputs))
    if low is not None and high is not None:
        return transform_of(constraints.interval(low, high))
    if low is not None:
        return transform_of(constraints.greater_than(low))
    return None if high is None else transform_of(constraints.less_than(high))


def _end(variable: Any, end: Any) -> Any:
    if end is None or isinstance(end, int | float | np.ndarray | np.number):
        return end
    inputs = list(graph_inputs([end]))
    plain = all(isinstance(one, Constant | SharedVariable) and not isinstance(one.type, RandomType) for one in inputs)
    if not plain:
        raise ValueError(
            f"the limits of {variable.name} depend on other parameters; give it fixed ones, and scale it: "
            "pymc.Deterministic(name, scale * pymc.Uniform(...))"
        )
    value = np.asarray(end.eval())
    return None if np.isinf(value).all() else value
