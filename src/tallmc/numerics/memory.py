"""What to tell a person whose device has no memory left."""

import contextlib
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def must_fit(what: str, fix: str) -> Iterator[None]:
    """Turns an accelerator's complaint about memory into one that names what did not fit, and what helps.

    Args:
        what: That is put on the device in the `with` block.
        fix: What the caller can do about it.

    Example:
        >>> with must_fit("the data", "use fewer rows"):
        ...     raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        Traceback (most recent call last):
        MemoryError: the data did not fit into the memory of the device (Out of memory); use fewer rows
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        kind, _, details = str(error).partition(": ")
        if kind != "RESOURCE_EXHAUSTED":
            raise
        first = details.splitlines()[0].rstrip(".") if details else "no details"
        raise MemoryError(f"{what} did not fit into the memory of the device ({first}); {fix}") from error
