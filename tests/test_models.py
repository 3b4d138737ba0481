import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import bernoulli, norm

import tallmc as tm
from tallmc.models import gaussian_mixture, generate_logistic, generate_mixture, logistic_regression
from tallmc.run import chain
from tests.registry import real

TOLERANCE = {"float32": 2e-5, "float64": 1e-12}
FLOAT = jnp.result_type(float)
KERNEL = tm.MetropolisHastings(tm.RandomWalk(0.3), tm.MHMinibatch(50))


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=TOLERANCE[FLOAT.name], atol=TOLERANCE[FLOAT.name])


def draw(posterior, init):
    return tm.sample(posterior, KERNEL, init=init, num_samples=20, num_warmup=5, num_chains=2, progress=False)


def test_logistic_likelihood_is_scipys():
    X, y, _ = generate_logistic(200, 4, seed=3)
    position = np.random.default_rng(1).normal(size=4).astype(FLOAT)
    actual = logistic_regression(X, y).log_likelihoods(
        jnp.asarray(position), {"x": jnp.asarray(X), "y": jnp.asarray(y)}
    )
    z = X.astype(float) @ position.astype(float)
    close(actual, bernoulli.logpmf(y.astype(int), 1 / (1 + np.exp(-z))))


@pytest.mark.parametrize("z", [-1e4, -50.0, 50.0, 1e4])
@pytest.mark.parametrize("label", [0, 1])
def test_logistic_likelihood_is_stable_far_out(z, label):
    posterior = logistic_regression(np.asarray([[z]]), [label])
    row = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), posterior.data)
    value, slope = jax.value_and_grad(posterior.log_likelihood)(jnp.ones(1), row)
    close(value, -np.logaddexp(0, -z if label else z))
    assert np.isfinite(slope).all()


def test_logistic_prior_is_normal():
    X, y, _ = generate_logistic(10, 3)
    position = np.asarray([0.3, -1.0, 2.0])
    for precision in (4.0, np.asarray([0.5, 1.0, 2.0])):
        prior = logistic_regression(X, y, prior_precision=precision).log_prior
        change = prior(jnp.asarray(position)) - prior(jnp.zeros(3))
        scale = np.broadcast_to(np.asarray(precision) ** -0.5, 3)
        close(change, norm.logpdf(position, 0, scale).sum() - norm.logpdf(0, 0, scale).sum())


def test_mixture_density_is_scipys_up_to_a_constant():
    x = generate_mixture(100, seed=2)
    posterior = gaussian_mixture(x, component_variance=1.5, prior_variance=(4.0, 3.0))

    def expected(t1, t2):
        parts = [norm.logpdf(x, mean, 1.5**0.5) + np.log(0.5) for mean in (t1, t1 + t2)]
        return logsumexp(parts, axis=0), norm.logpdf(t1, 0, 2) + norm.logpdf(t2, 0, 3**0.5)

    (here, prior_here), (there, prior_there) = expected(0.2, 0.9), expected(-0.5, 1.3)
    first, second = jnp.asarray([0.2, 0.9]), jnp.asarray([-0.5, 1.3])
    close(posterior.log_likelihoods(second, x) - posterior.log_likelihoods(first, x), there - here)
    close(posterior.log_prior(second) - posterior.log_prior(first), prior_there - prior_here)


def test_generated_rows_follow_their_model():
    X, y, coefficients = generate_logistic(50_000, 3, seed=1)
    assert X.dtype == np.float32
    assert (X[:, 0] == 1).all()
    residual = y - 1 / (1 + np.exp(-X.astype(float) @ coefficients))
    # Residuals are uncorrelated with every column: five standard errors of a sum of terms below 1/2 in size.
    assert np.abs(residual @ X).max() < 5 * 0.5 * np.sqrt((X**2).sum(axis=0)).max()
    x = generate_mixture(50_000)
    assert x.dtype == np.float32
    assert abs(x.mean() - 0.5) < 5 * np.sqrt(2.25 / 50_000)
    assert abs(x.var() - 2.25) < 5 * 2.25 * np.sqrt(2 / 50_000)


def test_same_seed_same_rows():
    np.testing.assert_array_equal(generate_mixture(10, seed=4), generate_mixture(10, seed=4))
    assert (generate_mixture(10, seed=4) != generate_mixture(10, seed=5)).any()


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((3, 2)), [0, 1, 2], "only 0 and 1"),
        (np.ones((3, 2)), [-1, 1, 1], "only 0 and 1"),
        (np.ones((3, 2)), [0.0, 1.0, np.nan], "only 0 and 1"),
        (np.ones((3, 2)), [0, 1], "X has 3 rows but y has 2"),
        (np.ones(3), [0, 1, 1], "X must be a matrix"),
        (np.ones((3, 2)), np.zeros((3, 1)), "y must be a vector"),
        (np.ones((3, 0)), [0, 1, 1], "no columns"),
        (np.ones((3, 2)), np.asarray(["a", "b", "c"]), "y must hold numbers"),
    ],
)
def test_bad_regression_data_is_refused(X, y, message):
    with pytest.raises(ValueError, match=message):
        logistic_regression(X, y)


@pytest.mark.parametrize("precision", [-1.0, np.inf, [1.0, 2.0, 3.0]])
def test_bad_prior_precision_is_refused(precision):
    with pytest.raises(ValueError, match="precision"):
        logistic_regression(np.ones((3, 2)), [0, 1, 1], prior_precision=precision)


def test_bad_mixture_arguments_are_refused():
    for arguments in ({"component_variance": 0.0}, {"prior_variance": (1.0, -1.0)}, {"prior_variance": (1.0,)}):
        with pytest.raises(ValueError, match="variance"):
            gaussian_mixture(np.ones(3), **arguments)
    with pytest.raises(ValueError, match="x must be a vector"):
        gaussian_mixture(np.ones((3, 2)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, bool])
def test_any_number_type_can_be_sampled(dtype):
    generator = np.random.default_rng(0)
    X, y = generator.integers(0, 2, (500, 2)).astype(dtype), generator.integers(0, 2, 500).astype(dtype)
    run = draw(logistic_regression(X, y, temperature=20.0), jnp.zeros(2))
    assert run.samples.dtype == FLOAT


def build_logistic(scale):
    X, y, _ = generate_logistic(501, 2)
    return logistic_regression(X, y, prior_precision=scale, temperature=10 * scale)


def build_mixture(scale):
    return gaussian_mixture(generate_mixture(501), component_variance=2 * scale, temperature=10 * scale)


@pytest.mark.parametrize("build", [build_logistic, build_mixture])
def test_building_twice_compiles_once(build, monkeypatch):
    traces = []

    def counted(*arguments):
        traces.append(1)
        return observe(*arguments)

    observe = chain.observe_window
    monkeypatch.setattr(chain, "observe_window", counted)
    draw(build(1.0), jnp.zeros(2))
    once = len(traces)
    assert once > 0
    draw(build(1.5), jnp.zeros(2))
    assert len(traces) == once


@pytest.mark.parametrize("model", ["logistic", "mixture"])
def test_bounds_hold_for_every_row_and_are_not_idle(model):
    generator = np.random.default_rng(0)
    if model == "logistic":
        X, y, _ = tm.models.generate_logistic(2000, 3)
        posterior, size = tm.models.logistic_regression(X, y), 3
    else:
        posterior, size = tm.models.gaussian_mixture(tm.models.generate_mixture(2000)), 2
    ratios = []
    for _ in range(50):
        position = real(generator.normal(size=size))
        proposed = position + real(generator.normal(size=size) * generator.choice([0.05, 0.5]))
        largest = np.max(np.abs(posterior.log_ratios(position, proposed, jax.tree.map(jnp.asarray, posterior.data))))
        ratios.append(float(largest / posterior.bounds.largest_change(position, proposed)))
    assert max(ratios) <= 1
    assert max(ratios) > 0.3
