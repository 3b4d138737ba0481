"""Independent components: the paper's likelihood, whitening that can be undone, distances, quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.numerics.keys import as_key
from tests.registry import real

MIXING = np.array([[1.0, 0.4, 0.3], [0.5, 1.0, 0.2], [0.1, 0.6, 1.0]])


def recordings(num_rows=4000, size=3, seed=0):
    sources = np.random.default_rng(seed).laplace(size=(num_rows, size))
    return np.asarray(real(sources @ MIXING[:size, :size].T + 3.0))


def turn(angle):
    return np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])


def test_the_likelihood_is_the_papers():
    """`|det W| prod_j [4 cosh^2(w_j x / 2)]^-1`, in double precision, also where cosh overflows in single."""
    posterior = tm.models.ica(recordings())
    W = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    rows = np.concatenate([np.asarray(posterior.data[:50], float), [[300.0, -200.0, 10.0]]])
    cosh = np.logaddexp(rows @ W.T / 2, -rows @ W.T / 2) - np.log(2)
    wanted = np.log(abs(np.linalg.det(W))) - np.sum(np.log(4) + 2 * cosh, axis=1)
    found = posterior.log_likelihoods(real(W), real(rows))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert float(posterior.log_prior(real(W))) == 0
    assert float(posterior.log_prior(real(1.01 * W))) == -np.inf


def test_whitening_is_recorded_and_undone():
    X = recordings()
    posterior = tm.models.ica(X)
    whitening, white = posterior.log_likelihood.whitening, np.asarray(posterior.data, float)
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(3), atol=1e-4)
    np.testing.assert_allclose(whitening.apply(X[:7]), white[:7], atol=1e-5)
    W = np.linalg.qr(np.random.default_rng(1).normal(size=(2, 4, 3, 3)))[0]  # a run's draws
    of_raw = (np.asarray(X[:7], float) - X.mean(axis=0)) @ np.swapaxes(whitening.unmixing(W), -1, -2)
    np.testing.assert_allclose(of_raw[1, 2], whitening.sources(W[1, 2], X[:7]), atol=1e-4)
    assert posterior.data.dtype == X.dtype


def test_whitening_of_large_numbers_keeps_its_digits():
    """Means far from zero and columns of odd units: worked out in double precision."""
    X = np.random.default_rng(0).normal(size=(100_000, 2)) * np.array([1e-3, 1e4]) + np.array([10.0, -1e6])
    white = tm.models.Whitening.of(X).apply(X)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(2), atol=1e-6)


def amari_by_definition(W, true_W):
    P = np.abs(W @ np.linalg.inv(true_W))
    size, total = len(P), 0.0
    for i in range(size):
        total += sum(P[i, j] for j in range(size)) / max(P[i]) - 1
        total += sum(P[j, i] for j in range(size)) / max(P[:, i]) - 1
    return total / (2 * size)


def test_the_amari_distance_is_its_definition_and_sees_neither_order_nor_sign():
    generator = np.random.default_rng(0)
    draws, true_W = generator.normal(size=(2, 5, 4, 4)), generator.normal(size=(4, 4))
    found = tm.amari_distance(draws, true_W)
    assert found.shape == (2, 5)
    for which in np.ndindex(2, 5):
        assert found[which] == pytest.approx(amari_by_definition(draws[which], true_W))
    shuffled = draws[0, 0][[2, 0, 3, 1]] * np.array([1, -1, -1, 1])[:, None]
    assert float(tm.amari_distance(shuffled, true_W)) == pytest.approx(found[0, 0])
    assert float(tm.amari_distance(-true_W[[1, 0, 3, 2]], true_W)) == pytest.approx(0, abs=1e-12)
    assert float(tm.amari_distance(np.array([[1.0, 1.0], [1.0, -1.0]]), np.eye(2))) == pytest.approx(1.0)


def test_draws_are_brought_to_one_copy():
    generator = np.random.default_rng(0)
    reference = np.linalg.qr(generator.normal(size=(4, 4)))[0]
    left, _, right = np.linalg.svd(reference + 0.05 * generator.normal(size=(20, 4, 4)))
    near = left @ right
    mixed = np.stack([one[generator.permutation(4)] * generator.choice([-1, 1], (4, 1)) for one in near])
    np.testing.assert_allclose(tm.models.aligned(mixed.reshape(2, 10, 4, 4), reference).reshape(20, 4, 4), near)
    np.testing.assert_allclose(tm.models.aligned(mixed, reference), near)


def log_density_by_angle(posterior, angles):
    """Of two sources, at rotations by these angles, in double precision."""
    white = np.asarray(posterior.data, float)
    sources = [white @ turn(angle).T for angle in angles]
    values = np.array([-np.sum(np.logaddexp(y / 2, -y / 2)) * 2 for y in sources]) / float(posterior.temperature)
    return values - values.max()


def test_the_mode_is_where_quadrature_has_it():
    posterior = tm.models.ica(recordings(size=2))
    angles = np.linspace(-np.pi / 4, np.pi / 4, 2001)
    density = np.exp(log_density_by_angle(posterior, angles))
    mean = np.sum(angles * density) / density.sum()
    sd = np.sqrt(np.sum((angles - mean) ** 2 * density) / density.sum())
    mode = tm.models.ica_mode(posterior)
    assert mode.converged
    found = np.arctan2(mode.W[0, 1], mode.W[0, 0])
    assert abs(np.sin(4 * (found - angles[density.argmax()]))) < 4 * 0.1 * sd  # copies are a quarter turn apart
    assert mode.angles[0, 1] == pytest.approx(sd, rel=0.05)
    assert np.all(np.diag(mode.angles) == 0)


def test_the_mode_finds_the_sources_and_begins_anywhere():
    posterior = tm.models.ica(recordings(20_000))
    true_W = np.linalg.inv(posterior.log_likelihood.whitening.matrix @ MIXING)
    for seed in range(3):
        mode = tm.models.ica_mode(posterior, np.random.default_rng(seed).normal(size=(3, 3)))
        assert mode.converged
        assert mode.rows_read < 100 * 20_000
        assert float(tm.amari_distance(mode.W, true_W)) < 0.05


def test_a_posterior_of_two_sources_is_that_of_quadrature():
    """Rotations that are hot enough to be wide: shares of eight arcs within 5 standard errors over 256 chains.

    Also the copies and the reflections: every quarter turn, and both signs of the determinant, weigh the same.
    """
    posterior = tm.models.ica(recordings(1000, size=2), temperature=20.0)
    kernel = tm.MetropolisHastings(tm.StiefelWalk(0.7), tm.Exact(1000))
    run = tm.sample(posterior, kernel, init=np.asarray(real(np.eye(2))), num_samples=300, num_warmup=50, num_chains=256)
    draws = np.asarray(run.samples, float)
    angle = np.arctan2(draws[..., 0, 1], draws[..., 0, 0])  # of the first row; the second has one of two signs
    grid = (np.arange(1600) + 0.5) / 1600 * 2 * np.pi - np.pi
    density = np.exp(log_density_by_angle(posterior, grid))
    wanted = density.reshape(16, -1).sum(axis=1) / density.sum()
    assert wanted.max() / wanted.min() > 1.5
    arcs = np.clip(((angle + np.pi) / (2 * np.pi) * 16).astype(int), 0, 15)
    shares = np.stack([(arcs == arc).mean(axis=1) for arc in range(16)], axis=1)
    shares = np.concatenate([shares, (np.linalg.det(draws) > 0).mean(axis=1)[:, None]], axis=1)
    wanted = np.append(wanted, 0.5)
    assert np.all(np.abs(shares.mean(axis=0) - wanted) < 5 * shares.std(axis=0, ddof=1) / 16)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_no_row_says_more_than_its_bound(order):
    """The derivative along the worst of many directions, by jets; also in other coordinates. No slack to speak of."""
    posterior = tm.models.ica(5 * recordings(50) ** 3)
    generator, rows = np.random.default_rng(0), jnp.asarray(posterior.data)
    stretch = 0.2 * generator.normal(size=(9, 9))
    for coordinates in (None, stretch):
        bounds = posterior.bounds.derivative_bounds(order, posterior.rows, coordinates)
        nearest = np.zeros(50)
        for which in range(300):
            W = np.linalg.qr(generator.normal(size=(3, 3)))[0] * generator.choice([0.05, 0.5, 1.0])
            along = generator.normal(size=9)
            if which % 2:  # towards one row: the worst direction of that row, or near it
                along = np.outer(generator.normal(size=3), rows[which % 50]).ravel()
            step = along if coordinates is None else coordinates @ (along := coordinates.T @ along)
            step = (step / np.linalg.norm(along)).reshape(3, 3)
            slopes = derivatives(posterior, real(W), real(step), rows)[order]
            nearest = np.maximum(nearest, np.abs(np.asarray(slopes)) / bounds)
        assert np.all(nearest <= 1)
        assert np.max(nearest) > (0.3 if coordinates is None else 0.001)


@jax.jit
def derivatives(posterior, W, step, rows):
    """Of every row along a step: orders 0 to 3."""

    def of_row(row):
        line = [lambda t: posterior.log_likelihood(W + t * step, row)]
        for _ in range(3):
            line.append(jax.grad(line[-1]))
        return [function(jnp.zeros((), W.dtype)) for function in line]

    return jax.vmap(of_row)(rows)


@pytest.fixture(scope="module")
def expanded_run():
    posterior = tm.models.ica(recordings(20_000))
    mode = tm.models.ica_mode(posterior)
    kernel = tm.MetropolisHastings(tm.StiefelWalk(mode.angles, reflections=0.0), tm.MHSS())
    return mode, tm.sample(
        posterior, kernel, init=mode.W, control_variate=tm.Taylor(at=mode.W), num_samples=2000, num_warmup=500
    )


def test_an_expansion_leaves_few_rows_and_the_right_widths(expanded_run):
    """Widths of the three angles against the curvature, which the posterior's are near to with so many rows."""
    mode, run = expanded_run
    assert run.stats["rows"].mean() < 0.05 * 20_000
    assert not [doubt for doubt in run.doubts if "R-hat" in doubt]
    turned = np.asarray(run.samples, float) @ mode.W.T.astype(float)
    above = np.triu_indices(3, 1)
    angles = ((turned - np.swapaxes(turned, -1, -2)) / 2)[..., *above].reshape(-1, 3)
    np.testing.assert_allclose(angles.std(axis=0) / mode.angles[above], 1, atol=0.15)
    error = np.swapaxes(run.samples, -1, -2) @ run.samples - np.eye(3)
    assert np.max(np.abs(error)) < 16 * jnp.finfo(run.samples.dtype).eps


def test_whatever_looks_at_runs_takes_matrices(expanded_run, tmp_path):
    _, run = expanded_run
    table = run.summary().table
    assert list(table.index[:2]) == ["position[0, 0]", "position[0, 1]"]
    assert table["r_hat"].max() < 1.1
    found = tm.audit(run, 16)
    assert 0 <= found.interval[0] <= found.interval[1] < 0.6
    run.save(tmp_path / "run")
    again = tm.load(tmp_path / "run")
    W = run.samples[0, 0]
    np.testing.assert_array_equal(
        again.posterior.log_likelihood.whitening.unmixing(W), run.posterior.log_likelihood.whitening.unmixing(W)
    )
    assert tm.design.moves_of(run, 10).position.shape == (10, 3, 3)


@pytest.mark.slow
def test_a_saved_run_goes_on(expanded_run, tmp_path):
    _, run = expanded_run
    run.save(tmp_path / "run")
    np.testing.assert_array_equal(tm.load(tmp_path / "run").extend(5).samples, run.extend(5).samples)


@pytest.mark.slow
def test_both_drivers_agree_on_independent_components():
    """To rounding: sums over sources are fused as a compiler likes, so a decision may turn, but not early."""
    posterior = tm.models.ica(recordings(), temperature=20.0)
    kernel = tm.MetropolisHastings(tm.StiefelWalk(0.1), tm.Exact(256))
    settings = {"init": np.asarray(real(np.eye(3))), "num_samples": 400, "num_warmup": 0, "rng_key": as_key(3)}
    one, other = (
        tm.sample(posterior, kernel, driver=driver, **settings) for driver in (tm.ChainByChain(), tm.Together())
    )
    np.testing.assert_allclose(one.samples[:, :100], other.samples[:, :100], atol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tm.models.ica(np.ones((10, 2))), "does not vary"),
        (lambda: tm.models.ica(recordings()[:, [0, 1, 1]]), "does not vary"),
        (lambda: tm.models.ica(np.full((10, 2), np.nan)), "NaN"),
        (lambda: tm.models.ica(np.ones(10)), "one line a row"),
        (lambda: tm.models.Whitening.of(recordings()).apply(np.ones((3, 2))), "2 columns but was whitened with 3"),
        (lambda: tm.amari_distance(np.eye(3), np.eye(2)), "cannot be compared"),
        (lambda: tm.amari_distance(np.eye(3), np.ones((3, 2))), "square"),
        (lambda: tm.models.ica_mode(tm.models.linear_regression(np.eye(3), np.ones(3))), r"tm.models.ica"),
        (lambda: tm.optimise.mode(tm.models.ica(recordings())), "init"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
