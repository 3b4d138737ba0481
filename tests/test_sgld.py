"""Proposals that read rows: under every rule and both drivers, counted, audited, tuned; and no test at all."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tests.registry import real
from tests.test_drivers import assert_same_run

NUM_ROWS = 900


def log_likelihood(mean, row):
    return -0.5 * (row - mean) ** 2


@pytest.fixture(scope="module")
def posterior():
    rows = np.asarray(real(np.random.default_rng(2).normal(0.4, 1.0, size=NUM_ROWS)))
    return tm.Posterior(log_likelihood, rows, lambda mean: -0.5 * mean**2, temperature=30.0)


def smooth_log_likelihood(position, row):
    return row["y"] * position - jax.nn.softplus(position)


@pytest.fixture(scope="module")
def bounded():
    """Logistic with one coefficient, and bounds: the mode is at -1.1, the standard deviation 0.16."""
    bounds = tm.DerivativeBounds(first=np.ones(1000), second=np.full(1000, 0.25), third=np.full(1000, 0.0963))
    return tm.Posterior(
        smooth_log_likelihood, {"y": np.asarray(real(np.arange(1000) % 4 == 0))}, temperature=5.0, bounds=bounds
    )


def step(rule, batch_size=64, step_size=0.03):
    return tm.MetropolisHastings(tm.SGLD(step_size, batch_size), rule)


def draw(posterior, kernel, **options):
    return tm.sample(
        posterior, kernel, **{"init": 0.4, "num_samples": 60, "num_warmup": 30, "num_chains": 3, "rng_key": 2} | options
    )


KERNELS = {
    "alone": lambda: step(tm.MHMinibatch(20)),
    "mixture": lambda: tm.Mixture(
        [step(tm.Exact(300)), tm.MetropolisHastings(tm.RandomWalk(0.2), tm.MHMinibatch(50))], [1, 2]
    ),
    "nested": lambda: tm.Cycle([tm.Cycle([step(tm.MHMinibatch(50), 32), step(tm.AustereMH(0.0, 100))])]),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "nested" else ()) for name in KERNELS]
)
def test_both_drivers_give_the_same_chains(posterior, name):
    """Bit for bit; blocks of three rounds end in the middle of tests, and of waiting for others."""
    runs = [draw(posterior, KERNELS[name](), driver=d) for d in (tm.ChainByChain(), tm.Together(rounds=3))]
    assert_same_run(*runs)


@pytest.mark.parametrize(
    "rule",
    [pytest.param(tm.MHSS(batch_size=8), marks=pytest.mark.slow), tm.MHMinibatch(20)],
    ids=["mhss", "mh_minibatch"],
)
def test_both_drivers_agree_with_an_expansion(bounded, rule):
    runs = [
        draw(bounded, step(rule), init=-1.1, control_variate=tm.Taylor(2, at=-0.9), driver=driver)
        for driver in (tm.ChainByChain(), tm.Together(rounds=32))
    ]
    assert_same_run(*runs)
    assert runs[0].stats["accepted"].mean() > 0.3
    assert tm.audit(runs[0]).rows_read > 64 * 1000


@pytest.mark.parametrize("rule", [tm.AustereMH(0.0, 100), tm.Exact(128)], ids=["few_windows", "exact"])
def test_a_test_that_wants_all_rows_gets_them_and_the_others_are_counted(posterior, rule):
    """The proposal's window is not one of the test's; a test on few windows would otherwise miss one and never end."""
    run = draw(posterior, step(rule))
    assert np.all(run.stats["rows"] == NUM_ROWS + 64)
    assert np.all(run.stats["proposal_rows"] == 64)
    assert np.all(run.stats["used_all_rows"])
    assert any("64 of the 964 rows of a step" in note for note in run.summary().notes)


def test_rows_of_the_proposal_are_not_taken_for_rows_of_the_test(posterior):
    run = draw(posterior, step(tm.MHMinibatch(50), batch_size=NUM_ROWS - 50))
    assert np.all(run.stats["rows"] >= NUM_ROWS)
    assert not run.stats["used_all_rows"].any()


def test_warmup_tunes_the_step_as_that_of_a_langevin_step(posterior):
    """From steps far too long, to the rate that is wanted; 3 % is what 12,000 draws leave open, and more."""
    run = draw(posterior, step(tm.Exact(450), 450, 3.0), num_samples=3000, num_warmup=1000, num_chains=4)
    assert np.all(run.step_size < 0.7)
    assert run.stats["accepted"].mean() == pytest.approx(0.574, abs=0.05)


@pytest.mark.parametrize("name", KERNELS)
def test_an_audit_replays_the_very_windows(posterior, name):
    """Accepted proposals are the draws, to rounding, or the audit refuses; and an exact test is never wrong."""
    run = draw(posterior, KERNELS[name](), num_samples=100)
    found = tm.audit(run, 60)
    parts = found.parts or (found,)
    assert len(parts) == len(run.kernel.parts())
    for part, audited in zip(run.kernel.parts(), parts, strict=True):
        assert len(audited.accepted) >= 20
        if isinstance(part.rule, tm.Exact | tm.AustereMH):
            assert audited.error_rate == 0


def test_an_audit_of_other_windows_is_refused(posterior):
    """Negative control: the same keys with another shuffle lead to other rows."""
    run = draw(posterior, step(tm.Exact(300)), num_samples=100).extend(20)
    assert tm.audit(run).error_rate == 0
    other = dataclasses.replace(run, session=run.session._replace(shuffle_seed=run.shuffle_seed + 1))
    with pytest.raises(ValueError, match="cannot be replayed"):
        tm.audit(other)


def test_trajectories_on_all_rows_are_audited(posterior):
    run = draw(posterior, tm.MetropolisHastings(tm.HMC(0.1, 3, mass=np.ones(1)), tm.Exact(300)))
    assert np.all(run.stats["proposal_rows"] == NUM_ROWS)
    assert tm.audit(run, 16).error_rate == 0


class CountedWalk(tm.RandomWalk):
    """Tells how often it is asked, chain by chain; what is computed in vain counts too."""

    said: list = eqx.field(static=True)

    def __init__(self, scale, said):
        super().__init__(scale)
        self.said = said

    @property
    def dear(self):
        return True

    def propose(self, key, position, model):
        jax.debug.callback(lambda _: self.said.append(1), position)
        return super().propose(key, position, model)


def test_dear_proposals_are_made_for_chains_that_begin(posterior):
    """Tests of fifteen rounds: where all chains were computed in every round, each would propose fifteen times for a
    test. It is twice at most while all chains run, and a little more when some are through; and the chains are those
    of the other driver."""
    said: list = []
    kernel = tm.MetropolisHastings(CountedWalk(0.3, said), tm.MHMinibatch(10))
    options = {"num_samples": 200, "num_warmup": 0, "num_chains": 16}
    run = draw(posterior, kernel, driver=tm.Together(rounds=256), **options)
    jax.effects_barrier()
    assert np.ceil(run.stats["rows"] / 10).mean() > 14
    assert 16 * 201 <= len(said) <= 3 * 16 * 201
    plain = draw(posterior, tm.MetropolisHastings(tm.RandomWalk(0.3), tm.MHMinibatch(10)), **options)
    assert_same_run(run, plain)


def walk(rule):
    return tm.MetropolisHastings(tm.RandomWalk(0.3), rule)


def test_no_test_reads_no_rows_and_says_that_it_is_none(posterior):
    with pytest.warns(UserWarning, match="AlwaysAccept makes no test"):
        run = draw(posterior, walk(tm.AlwaysAccept()), num_samples=400)
    assert np.all(run.stats["accepted"])
    assert not run.stats["rows"].any()
    assert np.all(run.step_size == 1)
    assert "makes no test" in run.doubts[0]
    assert "makes no test" in str(run.summary())
    promise = tm.AlwaysAccept().promise
    assert (promise.guarantee, promise.largest_error(NUM_ROWS)) == (tm.Guarantee.NONE, 1.0)
    with pytest.warns(UserWarning, match=r"part 1 \(AlwaysAccept\): AlwaysAccept makes no test"):
        draw(posterior, tm.Cycle([walk(tm.Exact()), walk(tm.AlwaysAccept())]))


def test_no_test_stays_where_the_prior_allows(posterior):
    limited = tm.Posterior(log_likelihood, posterior.data, lambda mean: jnp.where(mean > 0.3, 0.0, -jnp.inf), 30.0)
    with pytest.warns(UserWarning, match="AlwaysAccept makes no test"):
        run = draw(limited, walk(tm.AlwaysAccept()), num_samples=200)
    assert run.samples.min() > 0.3
    assert 0.2 < run.stats["accepted"].mean() < 1


def test_an_audit_says_how_often_a_test_would_have_refused(posterior):
    """Against the mean chance to refuse of the same steps; 4 standard errors."""
    with pytest.warns(UserWarning, match="AlwaysAccept makes no test"):
        run = draw(posterior, step(tm.AlwaysAccept(), 64, 0.1), num_samples=200)
    found = tm.audit(run, 300)
    assert found.measured == "share of moves that a test on all rows would have refused"
    refused = 1 - np.minimum(1, np.exp(found.log_ratio))
    assert found.probability == pytest.approx(1 - refused)
    assert abs(found.error_rate - refused.mean()) < 4 * np.sqrt(np.sum(refused * (1 - refused))) / 300
    assert refused.mean() > 0.05


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tm.SGLD(0.0, 10), "step_size must be positive, got 0.0; it is the variance"),
        (lambda: tm.SGLD(0.1, 0), "batch_size must be a whole number of at least 1, got 0"),
        (lambda: tm.SGLD(0.1, 10, np.ones((2, 2))), "lower Cholesky factor"),
    ],
)
def test_what_it_cannot_be_given(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_what_does_not_go_together_is_named(posterior):
    kernel = tm.MetropolisHastings(tm.SGLD(0.1, 10, np.eye(2)), tm.Exact())
    with pytest.raises(ValueError, match="cholesky is for 2 coordinates but a position has 1"):
        draw(posterior, kernel)
    with pytest.raises(ValueError, match=r"holds int32, which has none; move such coordinates by tm\.RandomWalk"):
        tm.SGLD(0.1, 10).check({"a": jnp.zeros(2), "b": jnp.zeros(2, jnp.int32)}, posterior.model)

    def stepwise(mean, row):
        return jax.lax.while_loop(lambda x: x < 0, lambda x: x + 1.0, mean * row)

    with pytest.raises(ValueError, match=r"tm\.SGLD needs derivatives"):
        draw(tm.Posterior(stepwise, posterior.data), step(tm.Exact()))
