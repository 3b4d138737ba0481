"""What to tell a person whose device has no memory left."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

_GROUPS = Path("/sys/fs/cgroup")


def limit_of_process() -> float:
    """Bytes of memory that this process may have: the machine's, or what its control groups allow.

    Example:
        >>> limit_of_process() > 2**20
        True
    """
    limits = [float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))]
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, inside = line.split(":", 2)
            place = _GROUPS / ("memory" if kinds == "memory" else "") / inside.lstrip("/")
            if kinds in ("", "memory"):
                limits += [_limit_in(one) for one in (place, *place.parents) if one.is_relative_to(_GROUPS)]
    return min(limits)


def _limit_in(group: Path) -> float:
    for name in ("memory.max", "memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            return float((group / name).read_text())  # "max" is no number
    return float("inf")


def limit_of_device(device: Any) -> float:
    """Bytes of memory that JAX may have on a device; those of this process for a CPU."""
    if device.platform == "cpu":
        return limit_of_process()
    known = device.memory_stats() or {}
    return float(known.get("bytes_limit", float("inf")))


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
