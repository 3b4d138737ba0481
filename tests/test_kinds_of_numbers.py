"""Whole numbers and truth values in a position stay what they are, wherever a run takes them."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.diagnostics.report import write_report
from tallmc.numerics.flat import flatten
from tallmc.run.convergence import convergence_doubts
from tests.registry import real

FAR = 2**24 + 1  # the first whole number that float32 has not


class Step(tm.Proposal):
    """Up or down a level, the flag over or not, a normal step of the shift: symmetric in all."""

    def propose(self, key, position, model):
        key_level, key_flag, key_shift = jax.random.split(key, 3)
        step = 2 * jax.random.bernoulli(key_level).astype(jnp.int32) - 1
        flag = position["flag"] ^ jax.random.bernoulli(key_flag)
        shift = position["shift"] + 0.3 * jax.random.normal(key_shift, (), position["shift"].dtype)
        level = position["level"] + step.astype(position["level"].dtype)
        return tm.Move({"level": level, "flag": flag, "shift": shift}, jnp.zeros_like(shift))


def log_likelihood(position, row):
    """The mean of the rows is the shift, the level from `FAR` on, and half if the flag is set."""
    level = (position["level"] - FAR).astype(row.dtype)
    mean = position["shift"] + 0.1 * level + jnp.where(position["flag"], 0.5, 0.0).astype(row.dtype)
    return -0.5 * (row - mean) ** 2


def log_prior(position):
    level = (position["level"] - FAR).astype(position["shift"].dtype)
    return -0.5 * (position["shift"] ** 2 + level**2)


INIT = {"level": np.asarray(FAR, np.int32), "flag": np.asarray(True), "shift": 0.0}
KINDS = {"level": np.dtype("int32"), "flag": np.dtype(bool), "shift": np.dtype("float32")}
KERNEL = tm.MetropolisHastings(Step(), tm.AustereMH(0.01, 50))


@pytest.fixture(scope="module")
def posterior():
    rows = np.random.default_rng(0).normal(0.5, 1.0, 300)
    return tm.Posterior(log_likelihood, np.asarray(real(rows)), log_prior, temperature=10.0)


@pytest.fixture(scope="module")
def run(posterior):
    return tm.sample(posterior, KERNEL, init=INIT, num_samples=1500, num_warmup=200)


def kinds(samples):
    return {name: np.asarray(leaf).dtype for name, leaf in samples.items()}


@pytest.mark.skipif(jax.config.jax_enable_x64, reason="the shift is then finer")
def test_draws_are_of_the_kinds_of_the_start(run):
    assert kinds(run.samples) == KINDS
    tree = run.to_datatree()
    assert {name: variable.dtype for name, variable in tree["posterior"].dataset.data_vars.items()} == KINDS


def test_large_whole_numbers_are_exact(run):
    """Steps of one from an odd number beyond what float32 can tell apart: both parities are visited."""
    levels = run.samples["level"].astype(int) - FAR
    assert {0, 1} == set(np.unique(levels % 2))
    steps = np.diff(levels, axis=1)
    assert set(np.unique(steps)) == {-1, 0, 1}


def test_shares_of_a_flag_are_those_of_the_posterior(run, posterior):
    """Summed over levels and shifts by hand; R-hat and Monte Carlo error are those of arviz, 5 of which are allowed."""
    shifts, levels = np.linspace(-4, 4, 801), np.arange(-8, 9)
    rows = np.asarray(posterior.data, float)
    mass = []
    for flag in (0.0, 0.5):
        mean = shifts[:, None] + 0.1 * levels[None] + flag
        fit = -0.05 * (len(rows) * mean**2 - 2 * rows.sum() * mean)
        mass.append(np.exp(fit - 0.5 * shifts[:, None] ** 2 - 0.5 * levels[None] ** 2).sum())
    table = run.summary().table
    off = abs(table.loc["flag", "mean"] - mass[1] / sum(mass))
    assert off < 5 * table.loc["flag", "mcse_mean"] + 0.01  # of a t-test with epsilon 0.01
    assert table.loc["flag", "r_hat"] < 1.05


def test_they_survive_saving_extending_and_an_audit(run, tmp_path):
    run.save(tmp_path / "run", rows=True)
    again = tm.load(tmp_path / "run")
    assert kinds(again.samples) == kinds(run.samples)
    longer = again.extend(20)
    assert kinds(longer.samples) == kinds(run.samples)
    jax.tree.map(np.testing.assert_array_equal, longer.samples, run.extend(20).samples)
    assert tm.audit(run, 16).interval[0] < 0.1


def test_a_report_shows_them(run, tmp_path):
    text = write_report({"run": run}, tmp_path / "report.html").read_text()
    assert "flag" in text


@pytest.mark.parametrize("driver", [tm.ChainByChain(), tm.Together()])
def test_both_drivers_keep_them(posterior, driver):
    settings = {"init": INIT, "num_samples": 40, "num_warmup": 20, "num_chains": 2, "driver": driver}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tm.ConvergenceWarning)
        found = tm.sample(posterior, KERNEL, **settings).samples
        alone = tm.sample(posterior, KERNEL, **settings | {"driver": tm.ChainByChain()}).samples
    jax.tree.map(np.testing.assert_array_equal, found, alone)


def test_cycles_hand_them_on(posterior):
    kernel = tm.Cycle([KERNEL, tm.MetropolisHastings(Step(), tm.Exact(256))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tm.ConvergenceWarning)
        run = tm.sample(posterior, kernel, init=INIT, num_samples=40, num_warmup=0, num_chains=2)
    assert kinds(run.samples) == {**KINDS, "shift": real(0.0).dtype}


@pytest.mark.parametrize("proposal", [tm.RandomWalk(0.1), tm.Cycle])
def test_what_moves_real_numbers_refuses_truth_values(posterior, proposal):
    walk = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.Exact())
    kernel = tm.Cycle([KERNEL, walk]) if proposal is tm.Cycle else walk
    with pytest.raises(ValueError, match=r"works with real numbers.*ReversibleJump"):
        tm.sample(posterior, kernel, init=INIT)
    with pytest.raises(ValueError, match="works with real numbers"):
        tm.sample(posterior, KERNEL, init=INIT, control_variate=tm.Taylor(2))
    with pytest.raises(ValueError, match="pass a kernel"):
        tm.sample(posterior, init=INIT)


def test_a_start_of_whole_numbers_is_real_where_nothing_else_is_meant():
    posterior = tm.Posterior(lambda at, row: -0.5 * jnp.sum((row - at) ** 2), np.asarray(real(np.zeros((50, 2)))))
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.Exact())
    run = tm.sample(posterior, kernel, init=np.arange(2), num_samples=4, num_warmup=0, num_chains=1)
    assert run.samples.dtype == real(0.0).dtype


def test_a_vector_of_truth_values_is_refused_and_one_of_whole_numbers_becomes_real():
    flat, unflatten = flatten({"a": np.arange(2), "b": 0.5})
    assert flat.tolist() == [0.0, 1.0, 0.5]
    assert unflatten(flat)["a"].dtype == flat.dtype
    with pytest.raises(ValueError, match=r"position\['g'\] holds truth values"):
        flatten({"g": np.ones(2, bool)})


def test_what_never_changes_is_an_answer_where_it_may_be():
    """A column that is always in or never raises no doubt; chains that disagree do, and a number that is stuck."""
    generator = np.random.default_rng(0)
    gamma = np.zeros((4, 500, 3), bool)
    gamma[:, :, 0] = True
    gamma[:, :, 2] = generator.random((4, 500)) < 0.4
    beta = np.where(gamma, generator.normal(size=gamma.shape), 0.0)
    assert convergence_doubts({"beta": beta, "gamma": gamma}) == ()
    apart = gamma.copy()
    apart[0, :, 1] = True
    assert any("have not mixed" in doubt for doubt in convergence_doubts({"beta": beta, "gamma": apart}))
    stuck = beta.copy()
    stuck[:, :, 0] = 0.3
    assert any("never moved" in doubt for doubt in convergence_doubts({"beta": stuck, "gamma": gamma}))
    assert any("never moved" in doubt for doubt in convergence_doubts({"gamma": gamma[:, :, :1]}))
    assert any("never moved" in doubt for doubt in convergence_doubts({"beta": beta}))
