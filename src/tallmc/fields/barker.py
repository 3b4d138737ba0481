"""How a rule of Metropolis' formula is made to decide by Barker's."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Real

from tallmc.acceptance.contract import AcceptanceRule
from tallmc.acceptance.formulas import BARKER
from tallmc.feed import Drawn


def barker_offset(rule: AcceptanceRule, key: Array) -> Real[Array, ""]:
    """What to tell a rule as the known part of the log ratio so that its level is Barker's, a logistic number.

    A rule that draws its level compares the sum over rows with `formula.level(key, offset)`, which is a random number
    less the offset. The offset of an update is zero; so the offset can be that number less a logistic one, and what is
    left is the logistic level log(u / (1 - u)) (Korattikara et al., 2014, equations 40 and 41, as they are meant).

    Args:
        rule: Draws its level, or decides by Barker's formula by itself.
        key: That the rule will be given.
    """
    zero = jnp.zeros((), jnp.result_type(float))
    formula = rule.promise.formula
    if formula == BARKER:
        return zero
    return formula.level(key, zero) - BARKER.level(jax.random.fold_in(key, 1), zero)


def check_rule(rule: AcceptanceRule) -> None:
    """Raises `ValueError` unless the rule can decide by Barker's formula from rows that come once each."""
    if not isinstance(rule, AcceptanceRule):
        raise ValueError(f"rule must be an AcceptanceRule such as tm.AustereMH(0.05), not {type(rule).__name__}")
    name, promise = type(rule).__name__, rule.promise
    if Drawn.EACH_ONCE not in rule.needs.drawn:
        raise ValueError(
            f"{name} draws rows by weight, and the factors of a variable come once each; use tm.AustereMH(0.05), "
            "tm.MHMinibatch() or tm.ExactBarker()"
        )
    if promise.formula != BARKER and not promise.draws_level:
        raise ValueError(
            f"{name} does not compare the log ratio with a level, so it cannot decide by Barker's formula as Gibbs "
            "sampling must; use tm.AustereMH(0.05), tm.MHMinibatch() or tm.ExactBarker()"
        )
