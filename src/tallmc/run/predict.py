"""What draws say of rows: expected outcomes, outcomes drawn, and log likelihoods."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Real

from tallmc.frames import Table
from tallmc.numerics.keys import as_key
from tallmc.numerics.programs import program
from tallmc.posterior import Posterior
from tallmc.posterior.drawn_prior import DrawnPrior
from tallmc.posterior.linear_predictor import Link, selected
from tallmc.run.draws import (
    Rows,
    design_of,
    link_of,
    num_draws_of,
    over_blocks,
    over_rows,
    positions_of,
    rows_of,
    thinned,
)

if TYPE_CHECKING:
    import pandas

_EVALUATIONS_AT_ONCE = 2**22  # of a log likelihood, of some draws at some rows: 16 megabytes


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A quantity at each draw and each row.

    Args:
        draws: (draw, row, ...): draws of all chains, one chain after the other.
        what: In words.
    """

    draws: np.ndarray
    what: str

    @property
    def mean(self) -> np.ndarray:
        """Over draws, for each row."""
        return self.draws.mean(axis=0, dtype=float)

    @property
    def sd(self) -> np.ndarray:
        """Over draws, for each row."""
        return self.draws.std(axis=0, dtype=float)

    def interval(self, mass: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the central interval with so much of the mass, for each row."""
        if not 0 < mass < 1:
            raise ValueError(f"mass must lie between 0 and 1, got {mass}; pass 0.9 for the central 90 %")
        low, high = np.quantile(self.draws, [(1 - mass) / 2, (1 + mass) / 2], axis=0)
        return low, high

    def summary(self) -> "pandas.DataFrame":
        """Mean, sd and the central 90 % of each row, as a table."""
        import pandas

        if self.draws.ndim != 2:
            raise ValueError("a table needs one number a row; use .mean, .sd and .interval() for arrays")
        low, high = self.interval()
        return pandas.DataFrame({"mean": self.mean, "sd": self.sd, "5%": low, "95%": high})

    def __repr__(self) -> str:
        draws, rows = self.draws.shape[:2]
        return f"<{self.what}: {draws:,} draws of {rows:,} rows; .mean, .sd, .interval(), .summary(), .draws>"

    def _repr_html_(self) -> str:
        if self.draws.ndim != 2:
            return f"<pre>{repr(self)[1:-1]}</pre>"
        some = dataclasses.replace(self, draws=self.draws[:, :10])
        more = self.draws.shape[1] - 10
        tail = f"<p>and {more:,} more rows</p>" if more > 0 else ""
        return (
            f"<p>{self.what}, {len(self.draws):,} draws</p>{some.summary().to_html(float_format='{:.4g}'.format)}{tail}"
        )


class ExpectedOutcome(eqx.Module):
    """The mean of a row's outcome, by the model's link.

    Args:
        link: Of the regression.
    """

    link: Link

    def __call__(self, position: PyTree, row: dict[str, Array]) -> Real[Array, ""]:
        """At one position."""
        return self.link.mean(linear_predictor(position, row))


class DrawnOutcome(eqx.Module):
    """An outcome drawn for a row.

    Args:
        link: Of the regression.
    """

    link: Link

    def __call__(self, key: Array, position: PyTree, row: dict[str, Array]) -> Real[Array, ""]:
        """At one position."""
        return self.link.draw(key, linear_predictor(position, row))


def linear_predictor(position: PyTree, row: dict[str, Array]) -> Real[Array, ""]:
    """Of a regression's coefficients, or of those that a selection has taken in."""
    beta = selected(position) if isinstance(position, dict) else position
    return row["x"].astype(beta.dtype) @ beta


class _WithoutNumber(eqx.Module):
    """For functions that do not ask which row it is."""

    function: Callable

    def __call__(self, position: PyTree, row: PyTree, number: Array) -> Any:
        del number
        return jnp.asarray(self.function(position, row))


class _WithKey(eqx.Module):
    """For functions that draw: a key of its own for each draw and each row."""

    function: Callable

    def __call__(self, position: PyTree, row: PyTree, number: Array, words: Array) -> Any:
        at, own = position
        key = jax.random.fold_in(jax.random.wrap_key_data(words, impl="threefry2x32"), own)
        return jnp.asarray(self.function(jax.random.fold_in(key, number), at, row))


def predict(run: Any, rows: Table, function: Callable | None, num_draws: int | None) -> Prediction:
    """See `Run.predict`."""
    if function is None:
        if (link := link_of(run.posterior)) is None:
            raise ValueError(
                "this likelihood does not say what to predict; pass function(position, row), such as "
                'lambda position, row: row["x"] @ position["slope"]'
            )
        function, what = ExpectedOutcome(link), "expected outcomes"
    else:
        function, what = _checked(function), "predictions"
    found = rows_of(run.posterior, rows, outcomes=False)
    positions, _ = positions_of(run, found, num_draws)
    return Prediction(over_rows(_WithoutNumber(function), positions, found), what)


def posterior_predictive(
    run: Any, rows: Table, rng_key: int | Array, function: Callable | None, num_draws: int | None
) -> Prediction:
    """See `Run.posterior_predictive`."""
    function = _drawing(run.posterior, function)
    found = rows_of(run.posterior, rows, outcomes=False)
    positions, _ = positions_of(run, found, num_draws)
    return _drawn(function, positions, found, rng_key, "outcomes drawn from the posterior")


def prior_predictive(
    posterior: Posterior,
    rows: Table = None,
    rng_key: int | Array = 0,
    *,
    num_draws: int = 200,
    draw_position: Callable[[Array], PyTree] | None = None,
    function: Callable | None = None,
) -> Prediction:
    """Draws outcomes as the model expects them before it has seen any: a check of priors.

    Args:
        posterior: Of which prior and likelihood are used.
        rows: A frame, a matrix or arrays as in the posterior's data; left out, the posterior's own rows, of which only
            what outcomes depend on is looked at.
        rng_key: Int or JAX key.
        num_draws: Positions to draw from the prior.
        draw_position: `draw_position(key) -> position`, on the natural scale; the ready regressions have their own.
        function: `function(key, position, row) -> outcome`; the ready regressions have their own.

    Returns:
        The outcomes, a `Prediction`.

    Example:
        >>> import tallmc as tm
        >>> X, y, _ = tm.models.generate_logistic(num_rows=1000, num_columns=3)
        >>> tm.prior_predictive(tm.models.logistic_regression(X, y), X[:5]).draws.shape
        (200, 5)
    """
    if not isinstance(posterior, Posterior):
        raise ValueError(f"posterior must be a tm.Posterior, not {type(posterior).__name__}")
    draw_outcome = _drawing(posterior, function)
    found = rows_of(posterior, rows, outcomes=False)
    count = num_draws_of(2**31, found.count, num_draws)
    if draw_position is None:
        prior = posterior.log_prior
        if not isinstance(prior, DrawnPrior) or design_of(posterior) is None:
            raise ValueError("this prior is a density only; pass draw_position=function(key), which draws from it")
        like = jax.ShapeDtypeStruct((posterior.rows.like["x"].shape[0],), jnp.result_type(float))
        draw_position = lambda key: prior.draw(key, like)  # noqa: E731
        if not found.as_sampled:
            inner = draw_position
            draw_position = lambda key: posterior.constrain(inner(key))  # noqa: E731
    key_positions, key_outcomes = jax.random.split(
        jax.random.wrap_key_data(jnp.asarray(words_of(rng_key)), impl="threefry2x32")
    )
    positions = jax.tree.map(np.asarray, jax.vmap(draw_position)(jax.random.split(key_positions, count)))
    return _drawn(draw_outcome, positions, found, key_outcomes, "outcomes drawn from the prior")


def log_likelihood(run: Any, rows: Table, num_draws: int | None) -> np.ndarray:
    """See `Run.log_likelihood`."""
    return log_likelihood_at(run, rows_of(run.posterior, rows, outcomes=True), num_draws)


def log_density(run: Any) -> np.ndarray:
    """See `Run.log_density`."""
    model, size = run.posterior.unconstrained.model, run.posterior.num_rows
    everything = rows_of(run.posterior, None, outcomes=True)
    positions, shape = thinned(run.unconstrained_samples, 1, None)
    total = np.array(_log_priors(model.log_prior, positions), float)  # a copy, to be written to
    per_look = max(1, _EVALUATIONS_AT_ONCE // min(size, 1024))
    for start in range(0, len(total), per_look):
        some = jax.tree.map(lambda leaf, start=start: leaf[start : start + per_look], positions)
        for values in over_blocks(_WithoutNumber(model.log_likelihood), some, everything):
            total[start : start + per_look] += values.sum(axis=1, dtype=float) / float(model.temperature)
    return total.reshape(shape)


def log_likelihood_at(run: Any, found: Rows, num_draws: int | None) -> np.ndarray:
    """Of rows that were looked up already."""
    positions, shape = positions_of(run, found, num_draws)
    likelihood = run.posterior.log_likelihood
    values = over_rows(_WithoutNumber(likelihood), positions, found)
    link = link_of(run.posterior)
    if link is not None:
        left_out = [np.broadcast_to(link.left_out(block["y"]), len(block["y"])) for block in found.blocks(65_536)]
        values = values + np.concatenate(left_out).astype(values.dtype)
    return values.reshape(*shape, found.count)


@program
def _log_priors(log_prior: Callable, positions: PyTree) -> Array:
    return jax.vmap(lambda position: jnp.asarray(log_prior(position), jnp.result_type(float)))(positions)


def _drawn(function: Callable, positions: PyTree, found: Any, rng_key: int | Array, what: str) -> Prediction:
    count = len(jax.tree.leaves(positions)[0])
    numbered = (positions, np.arange(count, dtype=np.int32))
    return Prediction(over_rows(_WithKey(function), numbered, found, words_of(rng_key)), what)


def words_of(rng_key: int | Array) -> np.ndarray:
    """Of a key of JAX's own generator: draws of counts need that."""
    words = np.asarray(jax.random.key_data(as_key(rng_key))).ravel()
    return words[:2] if len(words) >= 2 else np.asarray([0, words[0]], np.uint32)


def _drawing(posterior: Posterior, function: Callable | None) -> Callable:
    if function is not None:
        return _checked(function)
    if (link := link_of(posterior)) is None:
        raise ValueError(
            "this likelihood does not say how to draw an outcome; pass function(key, position, row), such as "
            "lambda key, mean, row: mean + jax.random.normal(key)"
        )
    return DrawnOutcome(link)


def _checked(function: Any) -> Callable:
    if not callable(function):
        raise ValueError(f"function must be a function of a position and a row, not {type(function).__name__}")
    return function
