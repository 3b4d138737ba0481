"""From a start on the natural scale, as a user gives it, to one of unconstrained numbers, as chains have it."""

import jax
import numpy as np
from jaxtyping import PyTree

from tallmc.posterior import checks
from tallmc.posterior.posterior import Posterior
from tallmc.transforms.positions import check_start, unconstrained_position


def unconstrained_start(
    posterior: Posterior, init: PyTree, num_chains: int, name: str = "init", *, real_only: bool = True
) -> PyTree:
    """One position or one a chain, whichever was given; what is wrong with it is said in its own terms.

    Args:
        posterior: Perhaps with transforms; without, what was given is handed back as it is.
        init: On the natural scale; None stays None.
        num_chains: How many chains there will be.
        name: What the caller calls it.
        real_only: Whether whole numbers are meant as real ones.
    """
    if init is None or not posterior.moves_elsewhere:
        return init
    if posterior.transforms is None:  # standardised columns: every coefficient is allowed, on either scale
        positions = checks.one_position_per_chain(posterior.unconstrained, init, num_chains, name, real_only=real_only)
        given = np.shape(init)
        return np.asarray(posterior.unconstrain(positions if given == positions.shape else positions[0]))
    positions = checks.one_position_per_chain(posterior.natural, init, num_chains, name, real_only=real_only)
    given = [np.shape(leaf) for leaf in jax.tree.leaves(init)]
    alike = given != [leaf.shape for leaf in jax.tree.leaves(positions)]
    check_start(posterior.transforms, positions, name, alike=alike)
    if alike:
        positions = jax.tree.map(lambda leaf: leaf[0], positions)
    return jax.tree.map(np.asarray, unconstrained_position(posterior.transforms, positions))
