"""Posteriors of matrices with orthonormal columns: only a walk that stays on them may move them."""

from tallmc.control_variates import Taylor
from tallmc.kernel import Kernel
from tallmc.metropolis import MetropolisHastings
from tallmc.nuts import NUTS
from tallmc.posterior import Posterior
from tallmc.posterior.orthonormal import OrthonormalColumns
from tallmc.proposals import HMC, MALA, CrankNicolson, RandomWalk

_HOW = "pass tm.MetropolisHastings(tm.StiefelWalk(0.1), rule) as the kernel and an orthonormal init, such as np.eye(d)"
_FREE = (RandomWalk, CrankNicolson, MALA, HMC)


def check_orthonormal(
    posterior: Posterior, kernel: Kernel | None, init: object, control_variate: Taylor | None
) -> None:
    """Raises `ValueError` if matrices with orthonormal columns would be moved as if their numbers were free.

    Args:
        posterior: Any; of interest if its prior is `OrthonormalColumns`.
        kernel: None if it is to be chosen.
        init: None if it is to be found.
        control_variate: An expansion, if there is one.
    """
    if not isinstance(posterior.log_prior, OrthonormalColumns):
        return
    if kernel is None:
        raise ValueError(f"no kernel is chosen automatically for matrices with orthonormal columns; {_HOW}")
    for part in kernel.parts():
        moving = part.proposal if isinstance(part, MetropolisHastings) else part
        if isinstance(moving, (*_FREE, NUTS)):
            raise ValueError(f"{type(moving).__name__} leaves the matrices with orthonormal columns; {_HOW}")
    if init is None:
        raise ValueError(
            "init is missing, and no mode is searched for among matrices with orthonormal columns; pass one, such as "
            "init=np.eye(d)"
        )
    if isinstance(control_variate, Taylor) and control_variate.at is None:
        raise ValueError(
            "no mode is searched for among matrices with orthonormal columns, so tm.Taylor() has nowhere to expand; "
            "pass tm.Taylor(at=init), with the position that chains will be near"
        )
