"""Every rule and proposal that the laws are checked on. A new one is one more line here."""

import jax.numpy as jnp
import numpy as np

import tallmc as tm


def largest_change(position: object, proposed: object) -> jnp.ndarray:
    """Above every row's log ratio in the laws: none of their rows is larger than 0.2."""
    return real(0.2)


RULES = {
    "exact": lambda: tm.Exact(batch_size=256),
    "exact_barker": lambda: tm.ExactBarker(batch_size=256),
    "mh_minibatch": lambda: tm.MHMinibatch(batch_size=100),
    "mh_minibatch_small_windows": lambda: tm.MHMinibatch(batch_size=50),
    "mh_minibatch_wide": lambda: tm.MHMinibatch(batch_size=100, sigma=1.4),
    "mh_minibatch_max_error": lambda: tm.MHMinibatch(batch_size=100, max_error=1e-3),
    "austere_mh": lambda: tm.AustereMH(epsilon=0.05, batch_size=100),
    "austere_mh_stricter_early": lambda: tm.AustereMH(epsilon=0.1, batch_size=50, boundary=1.0),
    "austere_mh_schedule": lambda: tm.AustereMH(tm.schedule.power(0.05, delay=100.0), batch_size=100),
    "austere_mh_per_step": lambda: tm.AustereMHPerStep(max_error=0.05, batch_size=100),
    "austere_mh_per_step_grid": lambda: tm.AustereMHPerStep(max_error=0.05, batch_size=range(50, 501, 50)),
    "mh_sub_lhd": lambda: tm.MHSubLhd(bound=largest_change),
    "mh_sub_lhd_scan": lambda: tm.MHSubLhd(bound="scan", inequality="serfling"),
    "mint": lambda: tm.Mint(batch_size=100, exponent=0.3),
}

# Rules whose chance to accept depends on more than the log ratio; exact all the same.
SUBSAMPLING_RULES = {
    "tuna_mh": lambda: tm.TunaMH(chi=1e-2, batch_size=8),
    "tuna_mh_few_rows": lambda: tm.TunaMH(chi=0.0, batch_size=32),
    "mhss": lambda: tm.MHSS(batch_size=8),
}

# For laws that are slow: every class once, at its least ordinary settings.
ONE_OF_EACH = (
    "exact",
    "exact_barker",
    "mh_minibatch_small_windows",
    "austere_mh_stricter_early",
    "austere_mh_schedule",
    "austere_mh_per_step",
    "mh_sub_lhd_scan",
    "mint",
)

PROPOSALS = {
    "random_walk": lambda: tm.RandomWalk(0.5),
    "random_walk_per_coordinate": lambda: tm.RandomWalk(np.array([0.5, 0.1])),
    "random_walk_cholesky": lambda: tm.RandomWalk(np.array([[0.5, 0.0], [0.3, 0.1]])),
    "sgld": lambda: tm.SGLD(0.1, 100),
    "sgld_cholesky": lambda: tm.SGLD(0.1, 100, np.array([[1.0, 0.0], [0.3, 0.5]])),
    "crank_nicolson": lambda: tm.CrankNicolson(np.array([0.2, 0.0]), np.array([[0.5, 0.0], [0.3, 0.4]]), 0.6),
}


def _part(proposal: tm.Proposal, rule: tm.AcceptanceRule) -> tm.MetropolisHastings:
    return tm.MetropolisHastings(proposal, rule)


# Kernels made of kernels, given a proposal: parts of different batch sizes, rules, and ways to draw rows.
COMPOSITES = {
    "cycle": lambda p: tm.Cycle([_part(p, tm.Exact(256)), _part(p, tm.MHMinibatch(50))]),
    "cycle_by_weight": lambda p: tm.Cycle([_part(p, tm.MHSS(batch_size=8)), _part(p, tm.Exact(256))]),
    "mixture": lambda p: tm.Mixture([_part(p, tm.TunaMH(1e-2, 8)), _part(p, tm.MHMinibatch(50))], weights=[1, 3]),
    "nested": lambda p: tm.Cycle(
        [
            tm.Mixture([_part(p, tm.MHSS(batch_size=8)), _part(p, tm.AustereMH(0.0, 100))]),
            _part(p, tm.ExactBarker(256)),
        ]
    ),
}

FEEDS = {"in_memory": tm.InMemoryFeed, "indexed": tm.IndexedFeed}


def chance_to_accept(rule: tm.AcceptanceRule, log_ratio: float, spread: float, num_rows: int, time: int = 0) -> float:
    """What a rule should do with a move: its formula, or what the design of its t-test makes of that.

    `log_ratio` is that of all rows, prior and proposal; `spread` the standard deviation of a row's, times the square
    root of their number.
    """
    chance = float(rule.promise.formula.probability(log_ratio))
    if isinstance(rule, tm.AustereMH):
        epsilon = rule.epsilon if isinstance(rule.epsilon, float) else float(rule.epsilon(jnp.int32(time)))
        chance += tm.design.acceptance_error(
            log_ratio, spread, min(1.0, rule.batch_size / num_rows), epsilon, rule.boundary
        ).error
    return chance


def allowed_error(rule: tm.AcceptanceRule, num_rows: int) -> float:
    """How far from that chance a rule may be: by its guarantee; or 0.005, what a mean of 50 rows is not normal by."""
    by_the_central_limit = rule.promise.guarantee is tm.Guarantee.ASYMPTOTIC or isinstance(rule, tm.AustereMH)
    return 0.005 if by_the_central_limit else rule.promise.largest_error(num_rows)


def real(values: object) -> jnp.ndarray:
    """An array of the precision that the tests run at."""
    return jnp.asarray(values, jnp.result_type(float))
