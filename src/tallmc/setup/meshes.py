"""`mesh=` of `tm.sample`: which devices share the rows."""

import jax
import numpy as np
from jax.sharding import Mesh

from tallmc.posterior import Posterior
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
    return posterior.of_rows(RowsOnMesh(posterior.rows, mesh))


def driver_on_mesh(driver: Driver | None) -> Driver:
    """Moves chains together: each round is then one message, for all of them."""
    if driver is not None and not isinstance(driver, Together):
        raise ValueError(
            f"{type(driver).__name__} moves chains one by one, and devices that share rows move all chains together; "
            "pass driver=tm.Together(), or leave driver out"
        )
    return driver or Together()
