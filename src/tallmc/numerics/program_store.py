"""Keeps compiled programs on disk, for the library alone: no setting of JAX is read as a wish or changed.

A file is named for everything that its code depends on, so that none is ever out of date; the ones used longest ago go
when there is no more room. Whatever goes wrong here costs time only: the program is then compiled, as without a folder.
"""

import contextlib
import functools
import hashlib
import itertools
import os
import platform
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental.serialize_executable import deserialize_and_load, serialize

_LARGEST = 512 * 2**20  # bytes of all files: some thousands of programs for a CPU
_STALE = 3600  # seconds after which a half-written file has nobody who writes it
# Seconds of compilation from which a file is worth it. On a CPU small programs compile in 12 to 115 ms and load in 1.1
# to 4.5, a tenth or less; what compiles faster than this (nothing, as a rule) has no time to save.
_SHORTEST = 0.01
_STORES_BETWEEN_LOOKS = 16  # to look at ten thousand files takes longer than to write one
_stores = itertools.count()
_HEADER = b"tallmc program 1\n"


def folder() -> Path | None:
    """Where programs are kept, or None: in TALLMC_CACHE if that is a path, nowhere if it is 0, off, false or empty.

    Otherwise it is where the system keeps what can be made again.
    """
    wish = os.environ.get("TALLMC_CACHE")
    if wish is not None and wish.strip().lower() in ("", "0", "off", "false", "no"):
        return None
    if wish is not None and wish.strip().lower() not in ("1", "on", "true", "yes"):
        return Path(wish).expanduser() / "programs"
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tallmc" / "programs"


def only_device(shapes: Sequence[jax.ShapeDtypeStruct]) -> Any:
    """The device that a program with such arguments runs on; None if there are several."""
    devices = set().union(*(shape.sharding.device_set for shape in shapes if shape.sharding is not None))
    if not devices:
        default = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
        return default if isinstance(default, jax.Device) else jax.local_devices(backend=default)[0]
    return devices.pop() if len(devices) == 1 else None


def digest(
    lowered: jax.stages.Lowered, text: str, shapes: Sequence[jax.ShapeDtypeStruct], options: dict, device: Any
) -> str | None:
    """Names all that an executable depends on; None if it cannot be used by another process, or on one device.

    Its text holds every constant in full and no line numbers. What it leaves out is added: the kinds of random keys,
    weak types, and whether arguments are committed to a device.
    """
    try:
        # JAX drops arguments that are not used: two programs that ignore different ones have the same text. There is
        # no public way to learn which they are; without it, programs are not shared.
        used: Any = sorted(lowered._lowering.compile_args["kept_var_idx"])  # pyright: ignore[reportAttributeAccessIssue]
    except (AttributeError, KeyError, TypeError):
        return None
    opening = text[: text.index("\n")]
    if "num_partitions = 1 " not in opening or "num_replicas = 1 " not in opening:
        return None
    if "callback" in text or "CustomSPMDPartitioning" in text:  # addresses in this process
        return None
    places = [str(shape.sharding) for shape in shapes]
    kinds = [(shape.shape, str(shape.dtype), shape.weak_type) for shape in shapes]
    results = [(one.shape, str(one.dtype)) for one in jax.tree.leaves(lowered.out_info)]
    facts = (kinds, used, places, results, sorted(options.items()), device.id, _settings(), _machine(device))
    return hashlib.sha256(repr(facts).encode() + text.encode()).hexdigest()


def _settings() -> list:
    """What changes how a text is compiled without being in it."""
    names = [name for name in jax.config.values if any(part in name for part in ("optimiz", "fitting", "xla", "pgle"))]
    variables = [name for name in os.environ if name in ("XLA_FLAGS", "NPROC") or name.startswith("TF_XLA")]
    # How many cores there are decides into how many pieces XLA cuts a kernel.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return [
        *((name, repr(getattr(jax.config, name, None))) for name in sorted(names)),
        *((name, os.environ[name]) for name in sorted(variables)),
        cores,
    ]


@functools.cache
def _machine(device: Any) -> tuple:
    client = device.client
    versions = (jax.__version__, metadata.version("jaxlib"), np.__version__, sys.version)
    kind = (client.platform, client.platform_version, device.device_kind, client.device_count())
    return versions, kind, _processor()


def _processor() -> tuple:
    """The processor with all it can do: code made for another might not run on it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = file.read().split("\n\n")[0].splitlines()
        wanted = [line for line in lines if line.split("\t")[0].strip() in ("flags", "Features", "model name")]
    except OSError:
        wanted = []
    # Where the system does not tell, the name of the machine makes sure that folders shared by several are safe.
    return (platform.machine(), platform.processor(), *(wanted or [platform.node()]))


def load(name: str, lowered: jax.stages.Lowered, device: Any) -> jax.stages.Compiled | None:
    """Takes a program from the folder, if it is there and whole."""
    path = None
    try:
        if (where := folder()) is None or not _is_ours(where):
            return None
        path = where / f"{name}.program"
        content = path.read_bytes()
    except (OSError, RuntimeError):  # nothing to read, or no home
        return None
    try:
        payload = content[len(_HEADER) + hashlib.sha256().digest_size :]
        if content != _sealed(payload):
            raise ValueError("not a whole program")
        compiled = deserialize_and_load(
            payload, lowered.in_tree, lowered.out_tree, backend=device.client, execution_devices=[device]
        )
        if not _agree(compiled, lowered):
            raise ValueError("another program")
    except Exception:  # whatever it was that could not be read, it can be compiled
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return compiled


def _agree(compiled: jax.stages.Compiled, lowered: jax.stages.Lowered) -> bool:
    """Whether results are of the same types: random keys of two implementations may have the same name."""
    pairs = zip(jax.tree.leaves(compiled.out_info), jax.tree.leaves(lowered.out_info), strict=True)
    return all(one.shape == other.shape and one.dtype == other.dtype for one, other in pairs)


def store(name: str, compiled: jax.stages.Compiled, device: Any, seconds: float) -> None:
    """Puts a program into the folder if it took long enough to compile, and makes room."""
    if seconds < _SHORTEST:
        return
    try:
        if (where := folder()) is None:
            return
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(where) or not _runs_on(compiled, device):
            return
        payload, _, _ = serialize(compiled)
        _write(where / f"{name}.program", _sealed(payload))
        if next(_stores) % _STORES_BETWEEN_LOOKS == 0:
            _make_room(where)
    except Exception:  # not every program can be written down, nor every folder written to
        return


def _runs_on(compiled: jax.stages.Compiled, device: Any) -> bool:
    shardings = jax.tree.leaves((compiled.input_shardings, compiled.output_shardings))
    return all(sharding.device_set == {device} for sharding in shardings)


def _sealed(payload: bytes) -> bytes:
    return _HEADER + hashlib.sha256(payload).digest() + payload


def _write(path: Path, content: bytes) -> None:
    """In one piece: a process that reads at the same time sees the whole file or none."""
    handle, temporary = tempfile.mkstemp(suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _is_ours(where: Path) -> bool:
    """Whether nobody else can put files there: what is read from it is run."""
    found = os.lstat(where)
    if not stat.S_ISDIR(found.st_mode):
        return False
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o022)


def _files(where: Path) -> Iterator[tuple[float, int, str]]:
    with os.scandir(where) as found:
        for one in found:
            with contextlib.suppress(OSError):  # gone in the meantime
                known: Any = one.stat(follow_symlinks=False)
                yield known.st_mtime, known.st_size, one.path


def _make_room(where: Path) -> None:
    """Removes what was left half-written, and what was used longest ago."""
    files = sorted(_files(where))
    total = sum(size for _, size, _ in files)
    for when, size, path in files:
        if total > _LARGEST or (path.endswith(".tmp") and when < time.time() - _STALE):
            with contextlib.suppress(OSError):
                os.unlink(path)
                total -= size
