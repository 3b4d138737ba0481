"""Reversible jump: columns come into a model and leave it, one at a time (Green, 1995)."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, Real

from tallmc.numerics.arithmetic import rounded
from tallmc.numerics.flat import as_device_array
from tallmc.posterior import Model
from tallmc.posterior.linear_predictor import check_selection
from tallmc.proposals.contract import Move, Proposal
from tallmc.proposals.tuning import Outcome, TowardsAcceptance, Tuning

# Steps along one coordinate explore fastest when 0.44 of them are accepted, where steps along many want 0.234
# (Roberts and Rosenthal, 2001); other rules in proportion. Korattikara et al. kept theirs at about a half.
_ALONG_ONE, _ALONG_MANY = 0.44, 0.234


class ReversibleJump(Proposal):
    """Adds a column to a model, takes one away, or changes the coefficient of one that is in it.

    Korattikara, Chen and Welling (2014), section 6.3 and supplement E, after Chen, Wang and McKeown (2011). A position
    is `{"beta": coefficients, "gamma": truth values}`, both with one entry a column: `gamma` says which columns are in
    the model, of which there is always at least one, and `beta` is zero where it is false. A step is

    - with chance `jumps / 2` a *birth*, unless all columns are in: one of the others, each as likely, comes in with a
      coefficient drawn from a normal with standard deviation `birth_scale`;
    - with chance `jumps / 2` a *death*, unless only one column is in: one of those in, each as likely, leaves;
    - otherwise an *update*: the coefficient of one of those in, each as likely, takes a normal step.

    Birth and death at the same place have the same chance, so what remains of the ratio of both proposals is the
    choice of the column and the density of the coefficient; the new coefficient is taken as it is drawn, so the
    Jacobian is one. Warm-up tunes the length of updates; births stay as they are.

    Args:
        update_scale: Standard deviation of an update: one number, or one for each column. The default is the paper's,
            for standardised columns.
        birth_scale: Standard deviation of a coefficient that comes in: one number, or one for each column.
        jumps: Share of the steps that are births and deaths.

    Example:
        >>> proposal = ReversibleJump(update_scale=0.02)
        >>> float(proposal.birth_scale), proposal.jumps
        (0.10000000149011612, 0.5)
    """

    update_scale: Real[Array, "..."]
    birth_scale: Real[Array, "..."]
    jumps: float = eqx.field(static=True)

    def __init__(self, update_scale: Any = 0.01, birth_scale: Any = 0.1, jumps: float = 0.5):
        self.update_scale = _positive("update_scale", update_scale)
        self.birth_scale = _positive("birth_scale", birth_scale)
        if not 0 < jumps < 1:
            raise ValueError(f"jumps is the share of births and deaths among the steps, between 0 and 1; got {jumps!r}")
        self.jumps = float(jumps)

    def propose(self, key: Array, position: PyTree, model: Model) -> Move:
        """Draws the kind of step, then the column, then the coefficient."""
        del model
        beta, gamma = position["beta"], position["gamma"]
        key_kind, key_column, key_value = jax.random.split(key, 3)
        size, most = jnp.sum(gamma, dtype=jnp.int32), gamma.size
        kind = jax.random.uniform(key_kind, (), beta.dtype)
        birth = (kind < self.jumps / 2) & (size < most)
        death = (kind > 1 - self.jumps / 2) & (size > 1)
        column = _one_of(key_column, jnp.where(birth, ~gamma, gamma))
        update_scale, birth_scale = (
            jnp.broadcast_to(scale.astype(beta.dtype), (most,))[column]
            for scale in (self.update_scale, self.birth_scale)
        )
        # Rounded, or scale and noise are multiplied in another order for one chain than for many.
        noise = rounded(jax.random.normal(key_value, (), beta.dtype))
        old = beta[column]
        new = jnp.where(birth, rounded(birth_scale * noise), old + rounded(update_scale * noise))
        new = jnp.where(death, jnp.zeros_like(new), new)
        proposed = {"beta": beta.at[column].set(new), "gamma": gamma.at[column].set(~death)}
        # The model that the move is between has `smaller` columns, or one more.
        smaller = jnp.where(death, size - 1, size).astype(beta.dtype)
        z = jnp.where(birth, noise, rounded(old * rounded(1 / birth_scale)))
        density = -rounded(z * z / 2) - jnp.log(birth_scale) - 0.5 * math.log(2 * math.pi)
        forth = density - jnp.log(jnp.maximum(most - smaller, 1))
        back = -jnp.log(smaller + 1)
        of_birth = back - forth
        log_ratio = jnp.where(birth, of_birth, jnp.where(death, -of_birth, jnp.zeros_like(of_birth)))
        return Move(proposed, log_ratio)

    def rescaled(self, step_size: Real[Array, ""]) -> "ReversibleJump":
        """The same proposal with updates `step_size` times as long; births stay as they are."""
        return eqx.tree_at(lambda p: p.update_scale, self, self.update_scale * step_size)

    def tuning(self, target_acceptance: float) -> Tuning:
        """Learns from updates alone."""
        return TuningOfUpdates(TowardsAcceptance(min(_ALONG_ONE * target_acceptance / _ALONG_MANY, 0.8)))

    def stats(self, position: PyTree, proposed: PyTree) -> dict[str, Array]:
        """Whether a step was a birth, and whether it was a death; else it was an update."""
        before, after = (jnp.sum(end["gamma"], dtype=jnp.int32) for end in (position, proposed))
        return {"birth": after > before, "death": after < before}

    def notes(self, stats: dict[str, np.ndarray]) -> list[str]:
        """How often each kind of step was proposed, and accepted."""
        birth, death = (np.asarray(stats[name], bool) for name in ("birth", "death"))
        kinds = {"updates": ~birth & ~death, "births": birth, "deaths": death}
        return ["; ".join(_line(name, kind, stats["accepted"]) for name, kind in kinds.items())]

    def check(self, position: PyTree, model: Model) -> None:
        """A position must be coefficients and truth values, one a column, with at least one that is true."""
        del model
        check_selection("tm.ReversibleJump", position)
        num_columns = position["gamma"].size
        for name, scale in (("update_scale", self.update_scale), ("birth_scale", self.birth_scale)):
            if scale.shape not in ((), (num_columns,)):
                raise ValueError(
                    f"ReversibleJump's {name} has shape {scale.shape} but a position has {num_columns} columns; pass "
                    f"one number, or {num_columns} of them"
                )


class TuningOfUpdates(Tuning):
    """Tunes the length of updates, and learns nothing from births and deaths.

    Args:
        of_steps: How to learn from an update.
    """

    of_steps: TowardsAcceptance

    def init(self, position: PyTree) -> Real[Array, ""]:
        """Begins with the proposal's own steps."""
        return self.of_steps.init(position)

    def factor(self, tuned: Real[Array, ""]) -> Real[Array, ""]:
        """What updates are multiplied by."""
        return self.of_steps.factor(tuned)

    def update(self, tuned: Real[Array, ""], outcome: Outcome, gain: Real[Array, ""]) -> Real[Array, ""]:
        """Learns from a step that left the columns as they were."""
        same = jnp.all(outcome.before["gamma"] == outcome.proposed["gamma"])
        return jnp.where(same, self.of_steps.update(tuned, outcome, gain), tuned)


def _one_of(key: Array, eligible: Bool[Array, " columns"]) -> Int[Array, ""]:
    """A column among those that are eligible, each as likely."""
    count = jnp.sum(eligible, dtype=jnp.int32)
    wanted = jax.random.randint(key, (), 0, jnp.maximum(count, 1), jnp.int32)
    return jnp.argmax(jnp.cumsum(eligible, dtype=jnp.int32) > wanted).astype(jnp.int32)


def _line(name: str, kind: np.ndarray, accepted: np.ndarray) -> str:
    share = f"{100 * kind.mean():.0f} % of the steps were {name}"
    return f"{share}, accepted {accepted[kind].mean():.3f}" if kind.any() else f"no steps were {name}"


def _positive(name: str, value: Any) -> Real[Array, "..."]:
    array = np.asarray(value, float)
    if array.ndim > 1 or not np.all(np.isfinite(array) & (array > 0)):
        raise ValueError(
            f"ReversibleJump's {name} is a standard deviation: one positive number, or one for each column"
        )
    return as_device_array(array, jnp.result_type(float))
