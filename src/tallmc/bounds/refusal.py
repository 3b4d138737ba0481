"""What the reader of a likelihood does not understand, by the name and the line that its author knows it by."""

import sysconfig
from pathlib import Path
from typing import Any

_WRITTEN = {
    "while": "a while loop, or a fori_loop whose length is not known beforehand",
    "sort": "sort",
    "argmax": "argmax",
    "argmin": "argmin",
    "stop_gradient": "stop_gradient",
    "pure_callback": "pure_callback",
    "cholesky": "a Cholesky factorisation",
    "triangular_solve": "a triangular solve",
    "custom_vjp_call": "a function with a derivative of its own (custom_vjp)",
    "custom_jvp_call": "a function with a derivative of its own (custom_jvp)",
    "custom_vjp_call_jaxpr": "a function with a derivative of its own (custom_vjp)",
    "igamma": "the incomplete gamma function",
    "igammac": "the incomplete gamma function",
    "regularized_incomplete_beta": "the incomplete beta function",
}
_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("purelib", "platlib", "stdlib", "platstdlib")})
_OURS = str(Path(__file__).parents[1])


class NotCoveredError(Exception):
    """An operation for which there is no rule.

    Args:
        operation: As its author would call it.
        line: Where it is in the author's file, or nothing.
    """

    def __init__(self, operation: str, line: str = ""):
        super().__init__(f"{operation}{f' ({line})' if line else ''}")
        self.operation, self.line = operation, line


def not_covered(equation: Any, what: str | None = None) -> NotCoveredError:
    """The error for one of JAX's operations.

    Args:
        equation: As JAX records it.
        what: What is the matter with it, if not the operation itself.
    """
    name = equation.primitive.name
    return NotCoveredError(what or str(_WRITTEN.get(name, name)), line_of(equation))


def line_of(equation: Any) -> str:
    """File and line of the code that asked for an operation; nothing if it cannot be told."""
    traceback = getattr(equation.source_info, "traceback", None)
    for frame in getattr(traceback, "frames", ()):
        if not frame.file_name.startswith((*_LIBRARIES, _OURS, "<frozen")):
            return f"line {frame.line_num} of {Path(frame.file_name).name}"
    return ""
