"""Variable selection from the call to the summary: what is refused, where chains start, and what a run says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import tallmc as tm
from tallmc.control_variates import expand_selection
from tallmc.posterior.at_zero import at_zero
from tests.registry import RULES, real
from tests.selections import small_data


@pytest.fixture(scope="module")
def posterior():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(2000, 6))
    y = generator.random(2000) < 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.0, 0.0, 0.0, 0.0]))
    return tm.models.variable_selection(np.asarray(real(X)), np.asarray(real(y)), size_penalty=0.05)


def selection(*columns, num_columns=6, value=0.5):
    gamma = np.isin(np.arange(num_columns), columns)
    return {"beta": np.asarray(real(np.where(gamma, value, 0.0))), "gamma": gamma}


@pytest.fixture(scope="module")
def run(posterior):
    return tm.sample(posterior, num_samples=3000, num_warmup=500)


def test_without_a_kernel_it_jumps_from_both_ends(run):
    assert isinstance(run.kernel.proposal, tm.ReversibleJump)
    assert isinstance(run.kernel.rule, tm.Exact)
    assert any("one best column and all columns" in reason for reason in run.choices)
    assert run.doubts == ()
    share = run.samples["gamma"].mean(axis=(0, 1))
    assert np.all(share[:2] == 1)
    assert np.all(share[2:] < 0.2)


def test_statistics_and_summary_tell_kinds_of_steps_apart(run):
    birth, death, accepted = (run.stats[name] for name in ("birth", "death", "accepted"))
    assert birth.dtype == death.dtype == np.bool_
    assert not np.any(birth & death)
    sizes = run.samples["gamma"].sum(axis=2)
    grown = np.diff(sizes, axis=1)
    np.testing.assert_array_equal(grown == 1, (birth & accepted)[:, 1:])
    np.testing.assert_array_equal(grown == -1, (death & accepted)[:, 1:])
    text = str(run.summary())
    for name, kind in (("births", birth), ("deaths", death), ("updates", ~birth & ~death)):
        assert f"{100 * kind.mean():.0f} % of the steps were {name}, accepted {accepted[kind].mean():.3f}" in text
    np.testing.assert_allclose(run.summary().table.loc["gamma[3]", "mean"], run.samples["gamma"][..., 3].mean())


def test_updates_alone_are_tuned(run, posterior):
    """To 0.44 by itself, and births stay as wide as they were."""
    updates = ~run.stats["birth"] & ~run.stats["death"]
    assert abs(run.stats["accepted"][updates].mean() - 0.44) < 0.06
    proposal = tm.ReversibleJump(0.1, 0.2).rescaled(jnp.asarray(0.5))
    assert (float(proposal.update_scale), float(proposal.birth_scale)) == pytest.approx((0.05, 0.2))


def elementwise(position, row):
    """Whose sums no compiler reorders."""
    z = row["x"][0] * position["beta"][0] + row["x"][1] * position["beta"][1]
    return -0.5 * (row["y"] - jnp.cos(z)) ** 2


def gaps(position):
    size = jnp.sum(position["gamma"], dtype=jnp.int32).astype(position["beta"].dtype)
    return -0.5 * jnp.sum(position["beta"] ** 2) - size


@pytest.mark.parametrize("name", ["exact", "mh_minibatch", "austere_mh"])
def test_drivers_give_the_same_chains(name):
    """For a posterior of the caller's own; bit for bit, as its likelihood is elementwise."""
    generator = np.random.default_rng(3)
    rows = {"x": np.asarray(real(generator.normal(size=(1500, 2)))), "y": np.asarray(real(generator.normal(size=1500)))}
    posterior = tm.Posterior(elementwise, rows, gaps, temperature=30.0)
    kernel = tm.MetropolisHastings(tm.ReversibleJump(0.3, 0.5), RULES[name]())
    options = {"init": selection(0, num_columns=2), "num_samples": 60, "num_warmup": 40, "num_chains": 3}
    one, other = (
        tm.sample(posterior, kernel, driver=driver, **options) for driver in (tm.ChainByChain(), tm.Together())
    )
    jax.tree.map(np.testing.assert_array_equal, one.samples, other.samples)
    for stat in ("accepted", "rows", "birth", "death"):
        np.testing.assert_array_equal(one.stats[stat], other.stats[stat])
    assert one.stats["accepted"].any()


def test_an_excluded_coefficient_says_nothing(posterior):
    """Whatever stands there: likelihood and prior are those of zero."""
    clean = jax.tree.map(jnp.asarray, selection(0, 2))
    odd = {"beta": clean["beta"].at[1].set(7.0), "gamma": clean["gamma"]}
    assert float(posterior.log_density(clean)) == float(posterior.log_density(odd))


@pytest.mark.parametrize("link", [tm.models.SoftplusLink()])
def test_other_links_select_too(link):
    generator = np.random.default_rng(2)
    X = generator.normal(size=(1000, 3))
    y = generator.poisson(np.log1p(np.exp(1 + X[:, 0]))).astype(float)
    X = np.column_stack([np.ones(1000), X])
    posterior = tm.models.variable_selection(np.asarray(real(X)), np.asarray(real(y)), 0.05, link=link)
    run = tm.sample(posterior, num_samples=2000, num_warmup=500)
    assert np.all(run.samples["gamma"].mean(axis=(0, 1))[:2] == 1)


def test_gains_are_below_the_true_ones(posterior):
    """Along each column alone, by a fine search."""
    found = at_zero(posterior.log_likelihood.link, posterior.rows)
    X, y = (np.asarray(posterior.data[name], float) for name in ("x", "y"))
    for column, gain in enumerate(found.gain):
        signed = (2 * y - 1) * X[:, column]
        search = minimize_scalar(lambda value, signed=signed: np.logaddexp(0, -value * signed).sum())
        best = len(y) * np.log(2) - search.fun
        assert gain <= best + 1e-6
        assert best < 1.3 * gain + 0.5


def test_rows_that_do_not_rule_zero_out_want_a_floor():
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(500, 3)), generator.random(500) < 0.5
    with pytest.raises(ValueError, match="improper; pass floor"):
        tm.models.variable_selection(X, y, 0.1)
    assert tm.models.variable_selection(X, y, 0.1, floor=0.01).num_rows == 500
    with pytest.raises(ValueError, match="no largest curvature"):
        tm.models.variable_selection(X, generator.poisson(1.0, 500), 0.1, link=tm.models.LogLink())
    with pytest.raises(ValueError, match="do not rule"):  # the same rows, thinly believed
        tm.models.variable_selection(*small_data(), 1.0, temperature=10.0)
    with pytest.raises(ValueError, match="do not rule"):  # so many columns are wanted that many small ones outweigh one
        tm.models.variable_selection(*small_data(), 50.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size_penalty": 0.0}, "size_penalty must be one positive"),
        ({"size_penalty": np.ones(2)}, "size_penalty must be one positive"),
        ({"floor": -1.0}, "floor must be one positive"),
        ({"y": np.full(150, 2.0)}, "only 0 and 1"),
        ({"X": np.ones((3, 2))}, "150"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    X, y = small_data()
    with pytest.raises(ValueError, match=message):
        tm.models.variable_selection(**({"X": X, "y": y, "size_penalty": 1.0} | change))


@pytest.mark.parametrize(
    ("init", "message"),
    [
        (np.zeros(6, np.float32), r"beta.*gamma"),
        ({"beta": np.zeros(6, np.float32), "gamma": np.zeros(6, np.float32)}, r"beta.*gamma"),
        (selection(), "at least one column"),
        ({**selection(0), "beta": np.full(6, 0.5, np.float32)}, "zero where gamma is false"),
    ],
)
def test_bad_starts_are_refused(posterior, init, message):
    with pytest.raises(ValueError, match=message):
        tm.sample(posterior, tm.MetropolisHastings(tm.ReversibleJump(), tm.Exact()), init=init)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"update_scale": 0.0}, "update_scale is a standard deviation"),
        ({"birth_scale": [0.1, -1.0]}, "birth_scale is a standard deviation"),
        ({"jumps": 1.0}, "between 0 and 1"),
    ],
)
def test_bad_proposals_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tm.ReversibleJump(**arguments)


def test_a_scale_must_fit(posterior):
    kernel = tm.MetropolisHastings(tm.ReversibleJump([0.1] * 5), tm.Exact())
    with pytest.raises(ValueError, match="pass one number, or 6"):
        tm.sample(posterior, kernel, init=selection(0))


def test_other_truth_values_want_a_kernel():
    posterior = tm.Posterior(lambda at, row: -0.5 * (row - at["flag"].astype(row.dtype)) ** 2, np.zeros(9, np.float32))
    with pytest.raises(ValueError, match="pass a kernel"):
        tm.sample(posterior, init={"flag": np.asarray(True)})


def test_what_is_known_and_what_rows_add_make_the_log_ratio_of_an_expanded_selection(posterior):
    """Between any two models, near the mode of all columns and far from it."""
    whole = tm.models.logistic_regression(posterior.data["x"], posterior.data["y"], prior_precision=0.0)
    mode = np.asarray(tm.optimise.mode(whole, progress=False).position)
    for at in (mode, {"beta": real(mode), "gamma": jnp.ones(6, bool)}):
        model, rows_read = expand_selection(tm.Taylor(2), posterior, at)
        assert rows_read == posterior.num_rows
    pairs = [(selection(0, 1, value=0.9), selection(0, 1, 3, value=0.7)), (selection(2), selection(0, 1, 2, 4, 5))]
    for old, new in (jax.tree.map(jnp.asarray, pair) for pair in pairs):
        moved = float(posterior.log_density(new) - posterior.log_density(old))
        residuals = np.asarray(model.log_ratios(old, new, posterior.data), float)
        known = float(model.known_change(old, new).offset)
        assert known + residuals.sum() == pytest.approx(moved, rel=2e-4, abs=2e-2)
        stacked = (jax.tree.map(lambda leaf: leaf[None], end) for end in (old, new))
        np.testing.assert_allclose(
            model.log_ratios_of_moves(*stacked, posterior.data)[0], residuals, rtol=1e-3, atol=1e-5
        )


def test_an_expansion_reads_few_rows_and_finds_the_same_inclusions(posterior, run, tmp_path):
    kernel = tm.MetropolisHastings(run.kernel.proposal, tm.AustereMH(0.01, 500))
    start = selection(0, 1, value=0.8)
    quick = tm.sample(posterior, kernel, init=start, num_samples=6000, num_warmup=500, control_variate=tm.Taylor(2))
    assert quick.stats["rows"].mean() < 0.4 * posterior.num_rows
    tables = [one.summary().table.loc["gamma[2]":] for one in (run, quick)]
    error = np.hypot(*(table["mcse_mean"].fillna(0) for table in tables))
    assert np.all(np.abs(tables[0]["mean"] - tables[1]["mean"]) < 5 * error + 0.005)
    quick.save(tmp_path / "run")
    again = tm.load(tmp_path / "run", posterior)
    jax.tree.map(np.testing.assert_array_equal, again.extend(5).samples, quick.extend(5).samples)
    assert tm.audit(quick, 16).interval[0] < 0.1
