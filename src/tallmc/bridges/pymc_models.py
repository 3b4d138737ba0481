"""`tm.from_pymc` and `tm.from_bambi`: a PyMC model over many rows as a posterior."""

from typing import Any

from tallmc.posterior import Posterior


def from_pymc(model: Any) -> Posterior:
    """The posterior of a PyMC model, through PyMC's own JAX back end. Needs `pip install 'tallmc[pymc]'`.

    The rows are the first axis of what is observed; all data of that length is cut into rows, whether given as
    `pm.Data` or as an array. Everything else is the prior. Positions and draws are dictionaries by the names of the
    model's variables, on the natural scale, and what the model calls deterministic is among the draws, unless it says
    something of rows. That rows are independent given the parameters is checked at random positions.

    Args:
        model: A `pymc.Model` with observed variables.

    Returns:
        The posterior, for `tm.sample`.
    """
    try:
        import pymc  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("tm.from_pymc needs PyMC; pip install 'tallmc[pymc]'") from error
    if not isinstance(model, pymc.Model):
        raise ValueError(f"model must be a pymc.Model, such as with pymc.Model() as model makes, not {_kind(model)}")
    from tallmc.bridges.pymc_posterior import posterior_of

    return posterior_of(model)


def from_bambi(model: Any) -> Posterior:
    """The posterior of a Bambi model, which is a PyMC model inside. Needs `pip install 'tallmc[pymc]' bambi`.

    Args:
        model: A `bambi.Model`; it is built if it is not yet.

    Returns:
        The posterior, for `tm.sample`; see `tm.from_pymc`.
    """
    if not callable(getattr(model, "build", None)):
        raise ValueError(f"model must be a bambi.Model, not {_kind(model)}; for a PyMC model take tm.from_pymc")
    if getattr(model, "backend", None) is None or model.backend.model is None:
        model.build()
    return from_pymc(model.backend.model)


def _kind(model: Any) -> str:
    return model.__name__ if isinstance(model, type) else type(model).__name__
