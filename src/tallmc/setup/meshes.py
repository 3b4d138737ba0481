"""`mesh=` of `tm.sample`: which devices share the rows."""

import hashlib
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh

from tallmc.feed import Drawn, Needs
from tallmc.kernel import Kernel
from tallmc.numerics.flat import as_device_array
from tallmc.posterior import Posterior, RowBounds, Rows
from tallmc.posterior.rows_on_mesh import RowsOnMesh
from tallmc.run.drivers import Driver, Together

_AXIS = "rows"


def as_mesh(mesh: Mesh | int) -> Mesh:
    """The devices of a mesh in a row, those of a process together; or so many devices.

    Args:
        mesh: As a caller gives it.
    """
    if isinstance(mesh, Mesh):
        devices = list(mesh.devices.flat)
    elif isinstance(mesh, int) and not isinstance(mesh, bool):
        devices = jax.devices()
        if not 1 <= mesh <= len(devices):
            raise ValueError(
                f"mesh={mesh}: there are {len(devices)} devices; pass a number up to that, or on a CPU start Python "
                f"with XLA_FLAGS=--xla_force_host_platform_device_count={mesh}"
            )
        devices = devices[:mesh]
    else:
        raise ValueError(f"mesh must be a jax.sharding.Mesh or a number of devices, not {type(mesh).__name__}")
    counts = np.bincount([device.process_index for device in devices], minlength=jax.process_count())
    if len(set(counts.tolist())) > 1:
        raise ValueError(
            f"mesh has {', '.join(str(count) for count in counts)} devices of the processes; every process needs as "
            "many: leave mesh out to take all devices, or pass jax.sharding.Mesh(jax.devices(), ('rows',))"
        )
    return Mesh(np.asarray(sorted(devices, key=lambda device: (device.process_index, device.id))), (_AXIS,))


def on_mesh(posterior: Posterior, mesh: Mesh) -> Posterior:
    """The posterior with its rows on all devices; of several processes each passes its own rows.

    Args:
        posterior: As the caller gave it.
        mesh: The devices.
    """
    if isinstance(posterior.rows, RowsOnMesh):
        return posterior
    rows = RowsOnMesh(posterior.rows, mesh)
    if rows.team.size > 1 and posterior.design is not None and posterior.design.rescaling is not None:
        raise ValueError(
            "standardise=True goes by the rows of one process, and each process has others; standardise the columns "
            "before they are split, and leave it out"
        )
    return _with_bounds_of_all(posterior, rows).of_rows(rows)


def _with_bounds_of_all(posterior: Posterior, rows: RowsOnMesh) -> Posterior:
    """With bounds whose largest and mean are those of the rows of all processes."""
    bounds = posterior.bounds
    if rows.team.size == 1 or not isinstance(bounds, RowBounds):
        return posterior
    own = np.asarray([bounds.largest, bounds.mean], float)
    largest, mean = rows.team.gathered(own).T
    numbers = np.max(largest), np.average(mean, weights=rows.counts)
    whole = [
        as_device_array(number, old.dtype) for number, old in zip(numbers, (bounds.largest, bounds.mean), strict=True)
    ]
    changed = eqx.tree_at(lambda b: (b.largest, b.mean), bounds, whole)
    return eqx.tree_at(lambda p: p.model.bounds, posterior, changed)


def check_same_call(rows: Rows, **settings: Any) -> None:
    """Raises `ValueError` unless all processes sample alike, for otherwise they would wait for each other for ever.

    Args:
        rows: Of the posterior.
        settings: Of the call; what has a text of its own in each process, such as a function, is left out.
    """
    if not isinstance(rows, RowsOnMesh) or rows.team.size == 1:
        return
    shapes = [str(leaf) for leaf in jax.tree.leaves(rows.like)]
    for name, value in {"rows": shapes, **settings}.items():
        digest = np.frombuffer(hashlib.blake2b(repr(value).encode(), digest_size=16).digest(), np.uint8)
        if len({bytes(one) for one in rows.team.gathered(digest)}) > 1:
            raise ValueError(
                f"processes differ in {name}: it is {value!r} here; all must make the same call, each with its own rows"
            )


def check_kernel_on_mesh(kernel: Kernel, rows: Rows) -> None:
    """Raises `ValueError` if some part of a kernel looks at rows otherwise than by what each says of a move.

    Args:
        kernel: How chains move.
        rows: Of the posterior.
    """
    if not isinstance(rows, RowsOnMesh):
        return
    for part in kernel.parts():
        own = (part.needs,) if isinstance(part.needs, Needs) else part.needs
        if any(Drawn.ALL_AT_ONCE in needs.drawn or needs.to_begin for needs in own):
            raise ValueError(
                f"{part.label} is to follow gradients of rows, and of rows on several devices only log ratios "
                "are worked out; leave mesh out, or move by tm.RandomWalk, tm.CrankNicolson or tm.HMC with a Taylor"
            )


def driver_on_mesh(driver: Driver | None) -> Driver:
    """Moves chains together: each round is then one message, for all of them."""
    if driver is not None and not isinstance(driver, Together):
        raise ValueError(
            f"{type(driver).__name__} moves chains one by one, and devices that share rows move all chains together; "
            "pass driver=tm.Together(), or leave driver out"
        )
    return driver or Together()
