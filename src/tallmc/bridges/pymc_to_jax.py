# pyright: reportMissingImports=false
"""From a graph of PyTensor to a function of JAX, in a form of which bounds can be worked out."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import pytensor
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile import mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.scalar import Softplus
from pytensor.scalar.basic import upgrade_to_float
from pytensor.tensor.elemwise import Elemwise


class SmoothSoftplus(Softplus):
    """The same as JAX has it: PyTensor cuts it into four pieces, between which bounds see steps."""


@jax_funcify.register(SmoothSoftplus)
def _smooth_softplus(op: Any, **options: Any) -> Callable[..., Any]:
    del op, options
    return jax.nn.softplus


def jax_function(inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[..., Any]:
    """What PyMC's JAX back end makes of a graph; checks of parameters are left out, as it does itself.

    Args:
        inputs: Variables of the graph that are given.
        outputs: What is wanted; there may be nothing.
    """
    if not outputs:
        return _nothing
    checks = {
        variable: variable.owner.inputs[0]
        for variable in ancestors(outputs)
        if variable.owner is not None and isinstance(variable.owner.op, CheckParameterValue)
    }
    known: Any = {
        variable: pt.constant(variable.get_value(borrow=True))
        for variable in graph_inputs(outputs)
        if isinstance(variable, SharedVariable)
    }
    plain = pytensor.clone_replace(pytensor.clone_replace(list(outputs), checks), known)
    graph = FunctionGraph(inputs=list(inputs), outputs=plain, clone=True)
    mode.JAX.optimizer.rewrite(graph)
    for node in graph.toposort():
        if isinstance(node.op, Elemwise) and type(node.op.scalar_op) is Softplus:
            smooth = Elemwise(SmoothSoftplus(upgrade_to_float, name="softplus"))
            graph.replace(node.outputs[0], smooth(*node.inputs))
    return jax_funcify(graph)


def _nothing(*values: Any) -> list[Any]:
    del values
    return []
