"""`tm.from_numpyro`: a NumPyro model over a plate of rows as a posterior."""

from typing import Any

from tallmc.posterior import Posterior


def from_numpyro(model: Any, *args: Any, **kwargs: Any) -> Posterior:
    """The posterior of a NumPyro model whose data is a plate of rows.

    The plate is found by its length, which must be that of the first axis of the arguments that hold the data. What is
    observed in it is the likelihood, a row at a time; all other sites are the prior. Positions and draws are
    dictionaries by the names of sites, on the natural scale; chains move where NumPyro's own bijections lead.
    What the model calls deterministic is among the draws, unless it says something of rows.

    That rows are independent given the parameters is checked at random positions: the sum over single rows must be what
    NumPyro makes of them together.

    Args:
        model: A function with NumPyro's `sample` statements, written with `jax.numpy`.
        *args: Its arguments, data among them: arrays with a row for each index along their first axis.
        **kwargs: Its arguments by name.

    Returns:
        The posterior, for `tm.sample`.

    Example:
        >>> import numpy as np, numpyro, numpyro.distributions as dist, tallmc as tm
        >>> def model(x, y):
        ...     mean = numpyro.sample("mean", dist.Normal(0, 10))
        ...     sd = numpyro.sample("sd", dist.HalfNormal(5))
        ...     with numpyro.plate("rows", len(x)):
        ...         numpyro.sample("y", dist.Normal(mean * x, sd), obs=y)
        >>> x = np.linspace(-1, 1, 1000, dtype=np.float32)
        >>> posterior = tm.from_numpyro(model, x, 3 * x)
        >>> posterior.num_rows, posterior.constrain({"mean": 0.0, "sd": 0.0})["sd"].item()
        (1000, 1.0)
    """
    from tallmc.bridges.numpyro_posterior import posterior_of  # NumPyro is loaded when it is used

    return posterior_of(model, args, kwargs)
