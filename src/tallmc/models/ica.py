"""Independent component analysis: which rotation of whitened recordings makes them independent sources."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Real

from tallmc.models.columns import Numbers
from tallmc.models.ica_bounds import IcaBounds
from tallmc.models.whitening import Whitening
from tallmc.numerics.arithmetic import row_products
from tallmc.posterior import Posterior, RowsInMemory
from tallmc.posterior.orthonormal import OrthonormalColumns


class IcaLikelihood(eqx.Module):
    """Log likelihood of a whitened row: the sum over sources of `-log(4 cosh(w_j x / 2)^2)`, `w_j` being rows of W.

    Args:
        whitening: How the rows were whitened. The likelihood does not need it; whoever wants sources does.
    """

    whitening: Whitening

    def __call__(self, position: Real[Array, "d d"], row: Real[Array, " d"]) -> Real[Array, ""]:
        """In the precision of the position; `log |det W|` is 0 for orthonormal W and left out."""
        if position.shape != (row.shape[0], row.shape[0]):
            raise ValueError(f"W has shape {position.shape} for {row.shape[0]} recordings")
        sources = row_products(position, row.astype(position.dtype))
        # log(4 cosh(s / 2)^2) = 2 log(1 + e^s) - s, which has all its derivatives and does not overflow.
        return jnp.sum(sources - 2 * jax.nn.softplus(sources))


def ica(X: Numbers, temperature: float | Array = 1.0) -> Posterior:
    """Independent component analysis of Korattikara, Chen and Welling (2014, section 6.2).

    A position is the unmixing matrix `W` of whitened rows: square, with orthonormal columns (and rows), on which the
    prior is uniform. Row x has density `prod_j 1 / (4 cosh(w_j x / 2)^2)`, `w_j` being the rows of `W`. The rows are
    whitened here, and how is recorded: `posterior.log_likelihood.whitening` takes new rows to their sources and
    unmixing matrices to the scale of `X`.

    Sources have no order and no sign, so the posterior is the same at `2^d d!` places: `W` with rows in another order
    or of another sign. `tm.amari_distance` does not see that, and `tm.models.aligned` undoes it.

    Only `tm.StiefelWalk` moves such positions. The posterior has bounds, so every acceptance rule can be used.

    Args:
        X: One line a row, one column a recording, as many recordings as sources. Not whitened.
        temperature: Divides the log likelihood.

    Returns:
        The posterior of the unmixing matrix of whitened rows.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> posterior = ica(rng.laplace(size=(1000, 2)) @ np.array([[1.0, 0.5], [0.2, 1.0]]))
        >>> posterior.num_rows, posterior.log_likelihood.whitening.matrix.shape
        (1000, (2, 2))
    """
    whitening = Whitening.of(X)
    rows = RowsInMemory(whitening.apply(X))
    return Posterior(IcaLikelihood(whitening), rows, OrthonormalColumns(), temperature, IcaBounds(rows))
