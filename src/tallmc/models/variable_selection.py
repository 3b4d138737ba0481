"""Variable selection: which columns belong into a regression, under a prior that shrinks and counts them."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Real

from tallmc.frames import Table
from tallmc.models.columns import Numbers, check_binary, positive_number
from tallmc.models.logistic_regression import LogisticLink
from tallmc.models.regression import COLUMN, regressors, rows_of
from tallmc.numerics.arithmetic import ordered_sum, rounded
from tallmc.numerics.flat import as_device_array
from tallmc.posterior import Labels, Posterior, Rows
from tallmc.posterior.at_zero import at_zero
from tallmc.posterior.linear_predictor import Link, SelectedPredictor, selected

# What the sum of absolute coefficients counts as at least, where data rule zero out. The draws do not depend on it:
# the posterior has less than _SHARE_AT_ZERO of its mass within a distance of zero at which it could matter.
_TINY_FLOOR = 1e-6
_SHARE_AT_ZERO = 1e-4


class SelectionPrior(eqx.Module):
    """`||beta||_1^(-k) size_penalty^k B(k, D - k + 1)` for `k` of `D` columns, up to a constant.

    That is what is left of a Laplace prior for each coefficient in the model once the scale that they share, with
    density one over itself, is integrated out, and of a truncated Poisson prior for their number.

    Args:
        log_weights: What a model of each size weighs, from no column (never) to all.
        floor: What the sum of absolute coefficients counts as at least.

    Example:
        >>> prior = SelectionPrior.of(num_columns=3, size_penalty=0.5, floor=1e-6)
        >>> position = {"beta": jnp.asarray([0.0, 2.0, 0.0]), "gamma": jnp.asarray([False, True, False])}
        >>> bool(jnp.isclose(prior(position), np.log(0.5 / 3 / 2)))
        True
    """

    log_weights: Real[Array, " sizes"]
    floor: Real[Array, ""]

    @classmethod
    def of(cls, num_columns: int, size_penalty: float, floor: float) -> "SelectionPrior":
        """The prior for so many columns."""
        from scipy.special import betaln  # takes a tenth of a second to load

        size = np.arange(1, num_columns + 1)
        weights = size * math.log(size_penalty) + betaln(size, num_columns - size + 1)
        finest = jnp.result_type(float)
        return cls(as_device_array(np.concatenate([[-np.inf], weights]), finest), as_device_array(floor, finest))

    def __call__(self, position: dict[str, Array]) -> Real[Array, ""]:
        """Log density with respect to the coefficients that are in the model."""
        beta, size = selected(position), jnp.sum(position["gamma"], dtype=jnp.int32)
        length = jnp.maximum(ordered_sum(jnp.abs(beta)), self.floor.astype(beta.dtype))
        return self.log_weights.astype(beta.dtype)[size] - rounded(size.astype(beta.dtype) * jnp.log(length))


def variable_selection(
    X: Table,
    y: Table,
    size_penalty: Numbers,
    *,
    floor: float | None = None,
    link: Link | None = None,
    temperature: float | Array = 1.0,
) -> Posterior:
    """The posterior of which columns are in a regression, and of their coefficients.

    Korattikara, Chen and Welling (2014), section 6.3. A position is `{"beta": coefficients, "gamma": truth values}`,
    one of each a column of `X`; `tm.ReversibleJump` moves it. The posterior of `k` of `D` columns is

        likelihood * ||beta||_1^(-k) * size_penalty^k * B(k, D - k + 1)

    with a density for the coefficients that are in the model, of which there is at least one. Coefficients shrink
    alike, so standardise the columns first; a column of ones for an intercept is selected as any other.

    This posterior is improper: the prior diverges at `beta = 0`, logarithmically for every `k`. Where the rows rule
    zero out, no chain ever comes near, and nothing shows of it; that is worked out in one pass over the rows. Where
    they do not, a `floor` is asked for: the sum of absolute coefficients then counts as at least that, the posterior is
    proper, and what it says of small models depends on the floor.

    Args:
        X: One line a row: an array, or a data frame. Or a formula, and `y` is then the frame. Or a dataset with `x` and
            `y`, and `y` is then None.
        y: For each row: 0 or 1, or what `link` takes; or the name of the frame's column that has it.
        size_penalty: The paper's lambda: a further column costs a factor of that. Far below one for small models (the
            paper has 1e-10). The scale's integral leaves a factor of a half for each column, which lambda has absorbed.
        floor: What the sum of absolute coefficients counts as at least; None where the rows rule zero out.
        link: Log likelihood by the linear predictor; logistic if left out.
        temperature: Divides the log likelihood.

    Returns:
        The posterior.

    Example:
        >>> generator = np.random.default_rng(0)
        >>> X = generator.normal(size=(1000, 10))
        >>> y = generator.random(1000) < 1 / (1 + np.exp(-X[:, 0]))
        >>> variable_selection(X, y, size_penalty=0.01).num_rows
        1000
    """
    found = regressors(X, y)
    columns = found.columns
    if link is None:
        link = LogisticLink()
    if link.binary:
        check_binary(columns["y"], found.outcome)
    penalty = float(positive_number("size_penalty", size_penalty))
    rows = rows_of(columns)
    if floor is None:
        _refuse_zero(link, rows, penalty, float(temperature))
    least = _TINY_FLOOR if floor is None else float(positive_number("floor", floor))
    prior = SelectionPrior.of(columns["x"].shape[1], penalty, least)
    axes = {"beta": (COLUMN,), "gamma": (COLUMN,)}
    labels = None if found.names is None else Labels(axes, {COLUMN: tuple(found.names)})
    return Posterior(SelectedPredictor(link), rows, prior, temperature, labels=labels, design=found.design)


def _refuse_zero(link: Link, rows: Rows, size_penalty: float, temperature: float) -> None:
    """Raises `ValueError` unless the best single column outweighs everything near zero.

    With the largest curvature that a row can have, the log likelihood along one column gains at least
    `slope^2 / (2 curvature)` over that at zero, and the posterior of this column alone has at least the mass of the
    normal that fits there. Models of all sizes near zero have together `exp(2 lambda) - 1` times the likelihood there
    for each factor of e by which `||beta||_1` falls, and there are as many of these as between the width of the
    likelihood and the floor, and one below that; nearer than a width over `sqrt(2 gain)` the likelihood is at most e
    times that at zero.
    """
    found = at_zero(link, rows)
    if found is not None:
        gain = float(np.max(found.gain)) / temperature
        best = math.log(size_penalty / len(found.gain)) + gain + 0.5 * math.log(math.pi / max(gain, 1))
        widest = math.sqrt(temperature / np.min(found.bend, initial=np.inf, where=found.bend > 0))
        near = 1 + _log_expm1(2 * size_penalty) + math.log1p(max(math.log(max(widest, _TINY_FLOOR) / _TINY_FLOOR), 0))
        if not math.isfinite(gain) or best - near > -math.log(_SHARE_AT_ZERO):
            return  # what is not finite is refused where all data is looked at
        why = f"the best column gains {gain:.3g} in log likelihood over it"
    else:
        why = "the link has no largest curvature to judge by"
    raise ValueError(
        f"these rows do not rule beta = 0 out ({why}), and there the posterior is improper; pass floor=0.01 or so: "
        "what the sum of absolute coefficients counts as at least"
    )


def _log_expm1(value: float) -> float:
    return math.log(math.expm1(value)) if value < 30 else value
