"""Bad input gets a clear error that names the fix, before anything is compiled."""

import math
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from typer.testing import CliRunner

import tallmc as tm
from tallmc.cli import app
from tests.registry import real


def log_likelihood(position, row):
    return -0.5 * (row - position) ** 2


ROWS = np.linspace(-1, 1, 50)
KERNEL = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.MHMinibatch())


def sample(posterior=None, kernel=KERNEL, **options):
    if posterior is None:
        posterior = tm.Posterior(log_likelihood, np.asarray(real(ROWS)))
    return tm.sample(posterior, kernel, **({"init": 0.0, "num_samples": 2, "num_warmup": 0} | options))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"x": np.zeros(3), "y": np.zeros(4)}, "different lengths"),
        (np.zeros(0), "zero rows"),
        ({"x": np.zeros(3), "y": 2.0}, "one row per first index"),
        ({}, "no arrays"),
        ({"x": np.zeros(3), "y": np.array(["a", "b", "a"])}, r"data\['y'\] holds <U1, not numbers; .* numpy.unique"),
        ({"x": np.zeros(3), "y": np.array([1, 2, None])}, r"data\['y'\] holds object, not numbers; .*astype\(float\)"),
        (np.zeros(3, "datetime64[s]"), "data holds datetime64.*, not numbers"),
        (scipy.sparse.csr_matrix(np.zeros((3, 2))), "not csr_matrix; .* sparse matrices with their .toarray()"),
    ],
)
def test_bad_data(data, message):
    with pytest.raises(ValueError, match=message):
        tm.Posterior(log_likelihood, data)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_data_that_is_not_finite(bad):
    rows = np.asarray(real(ROWS)).copy()
    rows[7] = bad
    with pytest.raises(ValueError, match="NaN or infinity, first in row 7"):
        sample(tm.Posterior(log_likelihood, rows))


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, np.inf])
def test_bad_temperature(temperature):
    with pytest.raises(ValueError, match="temperature must be a positive number"):
        tm.Posterior(log_likelihood, ROWS, temperature=temperature)


def test_missing_start():
    with pytest.raises(ValueError, match="init is missing"):
        sample(init=None)


def test_start_that_is_not_finite():
    with pytest.raises(ValueError, match="start from finite numbers"):
        sample(init=np.nan)


def test_start_outside_the_support():
    posterior = tm.Posterior(log_likelihood, np.asarray(real(ROWS)), lambda p: jnp.where(p > 0, 0.0, -jnp.inf))
    with pytest.raises(ValueError, match="outside the prior's support"):
        sample(posterior, init=-1.0)


def test_likelihood_that_is_no_scalar():
    posterior = tm.Posterior(lambda p, row: jnp.stack([row - p, row]), np.asarray(real(ROWS)))
    with pytest.raises(ValueError, match=r"must return one number .* \(2,\)"):
        sample(posterior)


def test_likelihood_that_fails_is_quoted():
    posterior = tm.Posterior(lambda p, row: row["missing"], np.asarray(real(ROWS)))
    with pytest.raises(ValueError, match="failed on one position and one row"):
        sample(posterior)


def test_likelihood_that_is_nan_at_the_start():
    posterior = tm.Posterior(lambda p, row: jnp.log(row + p), np.asarray(real(ROWS)))
    with pytest.raises(ValueError, match="log_likelihood is nan at the start of chain 0 for row 0"):
        sample(posterior)


def test_prior_that_is_no_scalar():
    posterior = tm.Posterior(log_likelihood, np.asarray(real(ROWS)), lambda p: jnp.stack([p, p]))
    with pytest.raises(ValueError, match="log_prior"):
        sample(posterior)


@pytest.mark.parametrize("rule", [tm.Exact, tm.ExactBarker, tm.MHMinibatch])
@pytest.mark.parametrize("batch_size", [0, -3])
def test_bad_batch_size(rule, batch_size):
    with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1"):
        rule(batch_size=batch_size)


def test_a_batch_above_all_rows_means_all_rows():
    run = sample(kernel=tm.MetropolisHastings(tm.RandomWalk(0.1), tm.MHMinibatch(batch_size=10_000)))
    assert np.all(run.stats["rows"] == 50)


@pytest.mark.parametrize("sigma", [0.0, -1.0, 1.82, 5.0])
def test_bad_sigma(sigma):
    with pytest.raises(ValueError, match="sigma must lie between"):
        tm.MHMinibatch(sigma=sigma)


def test_an_error_below_the_laws_own_is_out_of_reach():
    with pytest.raises(ValueError, match="out of reach"):
        tm.MHMinibatch(sigma=1.4, max_error=1e-5)


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (-0.1, "must be positive"),
        (0.0, "must be positive"),
        (np.array([0.1, -0.2]), "must be positive"),
        (np.nan, "must be finite"),
        (np.array([[1.0, 0.5], [0.5, 1.0]]), "Cholesky"),
        (np.zeros((2, 2, 2)), "3 axes"),
    ],
)
def test_bad_scale(scale, message):
    with pytest.raises(ValueError, match=message):
        tm.RandomWalk(scale)


def test_scale_of_the_wrong_size():
    with pytest.raises(ValueError, match="for 3 coordinates but a position has 1"):
        sample(kernel=tm.MetropolisHastings(tm.RandomWalk(np.ones(3)), tm.MHMinibatch()))


@pytest.mark.parametrize("name", ["num_samples", "num_chains", "num_warmup"])
def test_bad_counts(name):
    with pytest.raises(ValueError, match=f"{name} must be a whole number"):
        sample(**{name: -1})


def test_unknown_option():
    with pytest.raises(TypeError, match="num_sample"):
        sample(num_sample=10)


def test_wrong_types_name_the_right_ones():
    """In a fresh interpreter: here, beartype would be quicker than our own message."""
    program = """
import numpy as np, scipy.sparse, tallmc as tm
from tallmc.feed import SeveralFeeds
posterior = tm.Posterior(lambda p, row: -0.5 * (row - p) ** 2, np.zeros(9))
kernel = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.MHMinibatch())
for call in (
    lambda: tm.MetropolisHastings(tm.MHMinibatch(), tm.RandomWalk(0.1)),
    lambda: tm.MetropolisHastings(tm.RandomWalk(0.1), tm.RandomWalk(0.1)),
    lambda: tm.sample(posterior, tm.RandomWalk(0.1), init=0.0),
    lambda: tm.sample(np.zeros(9), init=0.0),
    lambda: tm.Posterior(posterior.log_likelihood, np.zeros(9), 1.0),
    lambda: tm.Posterior(1.0, np.zeros(9)),
    lambda: tm.Posterior(np.zeros(9), posterior.log_likelihood),
    lambda: tm.models.logistic_regression(scipy.sparse.csr_matrix(np.ones((9, 2))), np.zeros(9)),
    lambda: tm.optimise.logistic(scipy.sparse.csr_array(np.ones((9, 2))), np.zeros(9)),
    lambda: tm.sample(posterior, kernel, init=0.0, feed=tm.IndexedFeed(9, 2)),
    lambda: tm.sample(posterior, kernel, init=0.0, feed=SeveralFeeds),
    lambda: tm.audit(3),
    lambda: tm.MHMinibatch(batch_size=1.5),
    lambda: tm.sample(posterior, kernel, init=0.0, num_samples=1.5),
):
    try:
        call()
    except ValueError as error:
        print(error)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = result.stdout.splitlines()
    for line, words in zip(
        lines,
        (
            "proposal must be a Proposal",
            "rule must be an AcceptanceRule",
            "kernel must be a Kernel",
            "must be a tm.Posterior",
            "log_prior must be a function of the position, not float; leave it out",
            "log_likelihood must be a function of a position and a row, not float; pass tm.Posterior(",
            "the arguments may be swapped, pass tm.Posterior(log_likelihood, data)",
            "X is sparse; pass X.toarray()",
            "X is sparse; pass X.toarray()",
            "pass feed=tm.IndexedFeed, without arguments",
            "SeveralFeeds is not built for a rule, as it has no class method `of`; leave feed out",
            "audit needs a run, as tm.sample gives it, not int",
            "batch_size must be a whole number",
            "num_samples must be a whole number",
        ),
        strict=True,
    ):
        assert words in line


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: tm.AustereMH(epsilon=1.0), r"epsilon must lie in \[0, 1\)"),
        (lambda: tm.AustereMH(epsilon=-0.1), r"epsilon must lie in \[0, 1\)"),
        (lambda: tm.AustereMH(epsilon=tm.schedule.power(5.0)), r"epsilon must lie in \[0, 1\)"),
        (lambda: tm.AustereMH(boundary=0.2), "boundary must lie between 0.5"),
        (lambda: tm.AustereMH(batch_size=0), "batch_size"),
        (lambda: tm.AustereMHPerStep(max_error=0.7), "max_error must lie between 0 and 0.5"),
        (lambda: tm.AustereMHPerStep(max_error=0.1, epsilons=()), "epsilons is empty"),
        (lambda: tm.AustereMHPerStep(max_error=0.1, batch_size=()), "batch_size is empty"),
        (lambda: tm.AustereMHPerStep(max_error=0.1, batch_size=(50, 0)), "batch_size must be a whole number"),
        (lambda: tm.MHSubLhd(delta=0.0), "delta must lie between 0 and 1"),
        (lambda: tm.MHSubLhd(p=1.0), "p must be above 1"),
        (lambda: tm.MHSubLhd(gamma=1.0), "gamma must be above 1"),
        (lambda: tm.MHSubLhd(bound="all"), 'bound must be None, "scan" or a function'),
        (lambda: tm.MHSubLhd(inequality="hoeffding"), "inequality must be"),
        (lambda: tm.Mint(100, -0.1), "exponent must not be negative|exponent must lie"),
        (lambda: tm.MHMinibatch(sigma=1.82), "sigma must lie between 0 and"),
        (lambda: tm.schedule.linear(0.1, -1.0, 10.0), "end must not be negative"),
        (lambda: tm.design.sequential_test(0.0, 2.0, 0.1), "first_fraction must lie in"),
        (lambda: tm.design.worst_case(0.6, 1000), "max_error must lie between 0 and 0.5"),
        (lambda: tm.design.stationary_error(0.1, 1.0), "contraction must lie in"),
    ],
)
def test_bad_settings_of_rules_and_designs(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (tm.MHSubLhd(), 'bounds=tm.Lipschitz.*bound="scan"'),
        (tm.Mint(batch_size=10, exponent=0.6), r"below log\(batch_size\) / log\(rows\) = 0.5886. Lower it"),
    ],
)
def test_rules_that_cannot_decide_about_this_posterior(rule, message):
    with pytest.raises(ValueError, match=message):
        sample(kernel=tm.MetropolisHastings(tm.RandomWalk(0.1), rule))


REGRESSION = tm.models.logistic_regression(*map(real, tm.models.generate_logistic(50, 3)[:2]))


def of_columns(likelihood, log_prior=lambda position: 0.0):
    return tm.Posterior(likelihood, REGRESSION.data, log_prior)


def linear(position, row):
    return -0.5 * (row["x"] @ position - row["y"]) ** 2


@pytest.mark.parametrize("kernel", [None, KERNEL])
def test_an_assumed_vector_that_does_not_fit(kernel):
    posterior = of_columns(lambda position, row: linear(position["beta"], row))
    with pytest.raises(ValueError, match=r"no init was given, so a vector of 3 numbers .* pass an init shaped like"):
        sample(posterior, kernel, init=None)


@pytest.mark.parametrize("kernel", [None, KERNEL])
@pytest.mark.parametrize(
    ("posterior", "init", "message"),
    [
        (REGRESSION, np.zeros(5), r"init has shape \(5,\), but x has 3 columns; pass 3 numbers in one array$"),
        (REGRESSION, [0.0, 0.0, 0.0], "init is a list, but x has 3 columns; pass 3 numbers in one array"),
        (REGRESSION, np.zeros((2, 3)), "make the leading axis of init, now 2 long, num_chains=4 long"),
        (of_columns(linear), np.zeros(5), r"given position of shape \(5,\), .* pass an init of the shape that"),
        (of_columns(linear), np.zeros((2, 3)), "make the leading axis of init, now 2 long, num_chains=4 long"),
        (REGRESSION, "zeros", "init must hold numbers, not 'zeros'; pass an array"),
        (REGRESSION, {"beta": "zeros"}, r"init\['beta'\] must hold numbers, not 'zeros'; pass an array"),
    ],
)
def test_start_of_the_wrong_shape(kernel, posterior, init, message):
    with pytest.raises(ValueError, match=message):
        sample(posterior, kernel, init=real(init) if isinstance(init, np.ndarray) else init)


def test_expansion_of_the_wrong_shape():
    with pytest.raises(ValueError, match=r"at has shape \(5,\), but x has 3 columns"):
        sample(REGRESSION, init=jnp.zeros(3), control_variate=tm.Taylor(at=jnp.zeros(5)))


def test_prior_that_is_a_vector():
    posterior = of_columns(linear, lambda position: -(position**2))
    with pytest.raises(ValueError, match=r"log_prior\(position\) must return one number .* with jnp.sum$"):
        sample(posterior, init=jnp.zeros(3))


@pytest.mark.parametrize("init", [None, jnp.zeros(3), jnp.zeros((4, 3))])
def test_a_column_that_is_not_there(init):
    posterior = of_columns(lambda position, row: row["X"] @ position)
    with pytest.raises(ValueError, match=r"asks for 'X', but there is only position, row\['x'\], row\['y'\]"):
        sample(posterior, init=init)


def test_a_parameter_that_is_not_there():
    posterior = of_columns(linear, lambda position: position["sigma"])
    with pytest.raises(ValueError, match="failed on one position: TypeError"):
        sample(posterior, init=jnp.zeros(3))
    posterior = of_columns(lambda position, row: linear(position["sigma"], row))
    with pytest.raises(ValueError, match=r"asks for 'sigma', but there is only position\['beta'\], row"):
        sample(posterior, init={"beta": jnp.zeros(3)})


@pytest.mark.parametrize("init", [None, jnp.zeros(3), jnp.zeros((4, 3))])
@pytest.mark.parametrize(
    "likelihood",
    [
        lambda position, row: jnp.sum(position) if row["y"] > 0 else -jnp.sum(position),
        lambda position, row: float(row["y"]) * jnp.sum(position),
        lambda position, row: math.exp(jnp.sum(position)),
        lambda position, row: np.log(row["y"]) * jnp.sum(position),
        lambda position, row: sum(range(row["y"].astype(int))),
    ],
)
def test_likelihood_that_is_not_written_with_jax(likelihood, init):
    with pytest.raises(ValueError, match=r"write it with jax\.numpy: jnp\.where instead of if") as caught:
        sample(of_columns(likelihood), init=init)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: tm.models.logistic_regression(np.zeros((0, 3)), np.zeros(0)), "X has no rows; pass at least one"),
        (lambda: tm.models.linear_regression([], []), "X has no rows; pass at least one"),
        (lambda: tm.models.gaussian_mixture([]), "x has no rows; pass at least one"),
        (lambda: tm.optimise.logistic(np.zeros((0, 3)), np.zeros(0)), "X has no rows; pass at least one"),
        (lambda: tm.models.logistic_regression(np.ones((3, 1)), [0, 1, np.nan]), "row 2 is NaN; drop or fill"),
        (lambda: tm.models.poisson_regression(np.ones((3, 1)), [0, np.nan, 7]), "row 1 is NaN; drop or fill"),
    ],
)
def test_bad_columns_of_models(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("arguments", "page"),
    [
        (["design"], "tallmc design --help"),
        (["design", "--no-such-option"], "tallmc design --help"),
        (["demo", "--rows", "many"], "tallmc demo --help"),
        (["no-such-command"], "tallmc --help"),
        (["--no-such-option"], "tallmc --help"),
    ],
)
def test_bad_arguments_name_the_page_that_helps(arguments, page):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert f"(see {page})" in result.stderr


def test_the_package_runs_as_the_command():
    result = subprocess.run([sys.executable, "-m", "tallmc", "design"], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "tallmc: Missing option '--max-error'. (see tallmc design --help)\n"


def test_starts_that_can_be_read_in_two_ways_are_refused():
    """A likelihood that broadcasts would sample a position of twelve numbers."""
    posterior = tm.Posterior(lambda mean, row: -0.5 * jnp.sum((row - mean) ** 2), np.asarray(real(np.zeros((50, 3)))))
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.Exact())
    with jax.numpy_rank_promotion("allow"):  # as it is for users
        with pytest.raises(ValueError, match="read in two ways"):
            tm.sample(posterior, kernel, init=np.zeros((4, 3)), num_samples=5)
        run = tm.sample(posterior, kernel, init=np.zeros(3), num_samples=5, num_warmup=0)
    assert run.samples.shape == (4, 5, 3)


def test_a_guarded_index_beyond_the_end_is_warned_of_and_no_more():
    groups = np.arange(60) % 4
    posterior = tm.Posterior(lambda effects, row: jnp.where(row < 3, effects[row], 0.0) - jnp.sum(effects**2), groups)
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.Exact())
    with pytest.warns(UserWarning, match="for some rows"):
        tm.sample(posterior, kernel, init=np.zeros(3), num_samples=5, num_warmup=0)


@jax.custom_vjp
def own_square(x):
    return x**2


own_square.defvjp(lambda x: (own_square(x), x), lambda x, slope: (2 * x * slope,))


def by_loop(position, row):
    square = jax.lax.while_loop(lambda x: x < 0, lambda x: -x, (row - position) ** 2)
    return -0.5 * square


def by_callback(position, row):
    kind = jax.ShapeDtypeStruct((), jnp.result_type(float))
    return jax.pure_callback(lambda x: -0.5 * x * x, kind, row - position, vmap_method="expand_dims")


def by_own_rule(position, row):
    return -0.5 * own_square(row - position)


NO_DERIVATIVES = {
    by_loop: r"log_likelihood has no gradient, because it uses jax\.lax\.while_loop .*jax\.lax\.scan",
    by_callback: r"log_likelihood has no gradient, because it uses jax\.pure_callback",
    by_own_rule: r"log_likelihood has no second derivatives, because it calls own_square, a jax\.custom_vjp",
}


@pytest.mark.parametrize("likelihood", NO_DERIVATIVES)
@pytest.mark.parametrize(
    ("call", "who"),
    [
        (lambda posterior: tm.optimise.mode(posterior, 0.0), r"tm\.optimise\.mode"),
        (lambda posterior: sample(posterior, control_variate=tm.Taylor()), r"tm\.Taylor"),
        (lambda posterior: sample(posterior, tm.MetropolisHastings(tm.RandomWalk(0.1), tm.MHSS())), r"tm\.Taylor"),
        (
            lambda posterior: sample(
                posterior, tm.MetropolisHastings(tm.MALA(0.1), tm.Exact()), control_variate=tm.Taylor()
            ),
            r"tm\.Taylor",
        ),
    ],
)
def test_likelihoods_without_derivatives_are_named(likelihood, call, who):
    posterior = tm.Posterior(likelihood, np.asarray(real(ROWS)))
    works = r".*there is still tm\.MetropolisHastings\(tm\.RandomWalk"
    with pytest.raises(ValueError, match=f"{who} needs derivatives, but {NO_DERIVATIVES[likelihood]}{works}") as caught:
        call(posterior)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("likelihood", [by_loop, by_callback])
def test_nuts_needs_gradients_only(likelihood):
    with pytest.raises(ValueError, match=rf"tm\.NUTS needs derivatives, but {NO_DERIVATIVES[likelihood]}"):
        sample(tm.Posterior(likelihood, np.asarray(real(ROWS))), tm.NUTS())
    run = sample(tm.Posterior(by_own_rule, np.asarray(real(ROWS))), tm.NUTS())
    assert np.all(np.isfinite(run.samples))


@pytest.mark.parametrize("likelihood", NO_DERIVATIVES)
def test_without_derivatives_a_random_walk_is_chosen_and_said(likelihood):
    """Means of 4 x 2,000 draws of N(0, 1 / 50), worth 500 at least: within five standard errors."""
    posterior = tm.Posterior(likelihood, np.asarray(real(ROWS)))
    run = tm.sample(posterior, init=0.5, num_samples=2000, num_warmup=500)
    assert re.search(NO_DERIVATIVES[likelihood], run.choices[0])
    assert isinstance(run.kernel.proposal, tm.RandomWalk)
    assert "every test reads all 50 rows" in " ".join(run.choices)
    assert abs(np.mean(run.samples)) < 5 / np.sqrt(50 * 500)


def test_a_prior_without_derivatives_is_named_too():
    posterior = tm.Posterior(log_likelihood, np.asarray(real(ROWS)), lambda position: by_loop(position, 0.0 * position))
    with pytest.raises(ValueError, match="log_prior has no gradient"):
        tm.optimise.mode(posterior, 0.0)
