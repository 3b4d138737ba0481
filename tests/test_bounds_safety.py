"""Bounds that were worked out, where they could go wrong: transforms, an expansion that moves, a false bound."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallmc as tm
from tallmc.bounds import is_concave, why_not_covered
from tallmc.control_variates import covariance_factor
from tallmc.numerics.flat import flatten
from tests import likelihoods
from tests.registry import real
from tests.test_bounds_of import COUNTS, X, own, own_poisson, y


@pytest.fixture(scope="module")
def at_mode():
    posterior = own(own_poisson, COUNTS)
    found = tm.optimise.mode(posterior, init=real(np.zeros(4)), progress=False)
    return posterior, found.position, covariance_factor(found.hessian)


def sampled(posterior, position, factor, expanded_at, **options):
    """By Crank-Nicolson steps, whose stationary distribution is nearly the posterior."""
    kernel = tm.MetropolisHastings(tm.CrankNicolson(position, factor, 0.7), tm.MHSS())
    options = {"num_samples": 1000, "num_warmup": 400, "progress": False} | options
    return tm.sample(posterior, kernel, init=position, control_variate=tm.Taylor(2, at=expanded_at), **options)


def test_a_false_bound_that_calls_itself_proven_ends_as_a_doubt(at_mode):
    """Nobody looks at proven bounds before a run, so the tests themselves must see that they do not hold."""
    posterior, position, factor = at_mode
    bounds = tm.bounds_of(posterior, position, factor)
    false = eqx.tree_at(lambda b: b.third, bounds, 0.02 * bounds.third)
    assert false.proven
    doubted = tm.Posterior(posterior.log_likelihood, posterior.rows, posterior.log_prior, bounds=false)
    with pytest.warns(UserWarning, match="changed by more than posterior.bounds allows"):
        run = sampled(doubted, position, factor, position)
    assert run.stats["violations"].sum() > 0
    assert any("its decisions are not exact" in doubt for doubt in run.doubts)
    assert any("its decisions are not exact" in note for note in run.summary().notes)


def test_an_expansion_that_moves_takes_its_region_along(at_mode):
    """Chains begin where no bound holds, twenty standard deviations from the expansion, and are followed there."""
    posterior, position, factor = at_mode
    far = np.asarray(position) + 20 * factor[:, 0].astype(np.asarray(position).dtype)
    run = sampled(posterior, position, factor, far)
    assert any("it was moved to their middle" in choice for choice in run.choices)
    assert run.stats["violations"].sum() == 0
    assert run.stats["outside"].sum() == 0
    assert run.stats["rows"].mean() < 50
    centre = np.asarray(run.session.model.bounds.centre, float)
    assert np.linalg.norm(np.linalg.solve(factor, centre - np.asarray(position, float))) < 3
    draws = np.asarray(run.samples, float).reshape(-1, 4)
    white = np.linalg.solve(factor, (draws - np.asarray(position, float)).T)
    assert np.all(np.abs(white.mean(axis=1)) < 0.2)  # the mode is not the mean: by 0.1 sd at 2,000 rows


def scaled_normal(position, row):
    return jax.scipy.stats.norm.logpdf(row["y"], row["x"] @ position["beta"], position["scale"])


@pytest.mark.slow
def test_bounds_of_a_parameter_with_limits_are_those_of_unconstrained_numbers():
    """The scale's posterior against that of the log scale, moved by hand: the same bounds, and the same draws."""
    posterior = tm.Posterior(
        scaled_normal, {"x": X, "y": y}, lambda p: -p["scale"], transforms={"scale": tm.transforms.positive}
    )
    free = posterior.unconstrained
    start = {"beta": real(np.zeros(4)), "scale": real(np.asarray(-0.7))}
    found = tm.optimise.mode(free, init=start, progress=False)
    factor = covariance_factor(found.hessian)
    assert factor is not None
    by_hand = tm.Posterior(
        lambda p, row: scaled_normal({"beta": p["beta"], "scale": jnp.exp(p["scale"])}, row), posterior.rows
    )
    ours, theirs = (tm.bounds_of(some, found.position, factor) for some in (free, by_hand))
    for name in ("first", "second", "third"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-5)
    kernel = tm.MetropolisHastings(tm.CrankNicolson(found.position, factor, 0.7), tm.MHSS())
    run = tm.sample(free, kernel, init=found.position, control_variate=tm.Taylor(2, at=found.position), num_samples=500)
    assert run.stats["violations"].sum() == 0
    assert run.stats["rows"].mean() < 50


LIMITS = {
    "interval": (tm.transforms.interval(-1.0, 2.0), 0.5),
    "positive": (tm.transforms.positive, 0.5),
    "ordered": (tm.transforms.ordered, np.array([-0.5, 0.1, 0.6])),
    "simplex": (tm.transforms.simplex, np.array([0.2, 0.3, 0.5])),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("simplex",) else pytest.mark.slow) for name in LIMITS]
)
def test_every_transform_is_covered(name):
    """Third derivatives on the unconstrained scale, against JAX's at random places of the region."""
    transform, natural = LIMITS[name]

    def log_likelihood(position, row):
        return -0.5 * jnp.square(row["y"] - jnp.sum(position["p"] * row["x"][: max(np.size(natural), 1)]))

    rows = {"x": X[:20], "y": y[:20]}
    posterior = tm.Posterior(log_likelihood, rows, lambda p: 0.0, transforms={"p": transform})
    free = posterior.unconstrained
    centre = posterior.unconstrain({"p": real(np.asarray(natural))})
    flat, unravel = flatten(centre)
    assert why_not_covered(free.log_likelihood, unravel, flat.size, free.rows.like) is None
    bounds = tm.bounds_of(free, centre, 0.05 * np.eye(flat.size), radius=3.0)
    generator, worst = np.random.default_rng(0), 0.0
    for _ in range(20):
        z, v = generator.normal(size=(2, flat.size))
        at, along = (jnp.asarray(s * x / np.linalg.norm(x), flat.dtype) for s, x in ((0.15, z), (0.05, v)))

        def third(row, at=at, along=along):
            of_line = lambda t: free.log_likelihood(unravel(flat + at + t * along), row)  # noqa: E731
            return jax.grad(jax.grad(jax.grad(of_line)))(0.0)

        worst = max(worst, np.max(np.abs(jax.vmap(third)(free.data)) / np.maximum(bounds.third, 1e-12)))
    assert 0.05 < worst <= 1 + 1e-3  # derivatives are in float32


ROW = jax.tree.map(lambda column: column[0], likelihoods.rows(1))
CONCAVE = {"logistic", "logistic by hand", "probit", "softmax", "softmax with a reference", "softmax by hand", "groups"}


@pytest.mark.parametrize("name", likelihoods.CASES)
def test_what_is_called_concave_is(name):
    """Where a mode is the only one nothing is searched for; an eigenvalue above zero anywhere would be an error."""
    case = likelihoods.CASES[name]
    seen = is_concave(case.log_likelihood, real(np.zeros(case.size)), ROW)
    assert seen == (name in CONCAVE)
    assert not seen or not is_concave(lambda p, row: -case.log_likelihood(p, row), real(np.zeros(case.size)), ROW)


@pytest.mark.slow
def test_concave_functions_have_no_positive_eigenvalue():
    places = np.random.default_rng(0).normal(size=(50, 12))
    for name in sorted(CONCAVE):
        case, rows = likelihoods.CASES[name], likelihoods.rows(20)
        of_row = jax.hessian(lambda p, row, case=case: case.log_likelihood(p, row))
        found = jax.jit(jax.vmap(jax.vmap(of_row, (None, 0)), (0, None)))(places[:, : case.size], rows)
        assert np.linalg.eigvalsh(np.asarray(found, float)).max() < 1e-5


@jax.custom_vjp
def with_its_own_slope(z):
    return z**2


with_its_own_slope.defvjp(lambda z: (z**2, z), lambda z, along: (z * along,))


def called_back(z):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(z.shape, z.dtype), z)


UNCOVERED = {
    "sort": lambda p, row: jnp.sort(p)[0],
    "argmax": lambda p, row: row["x"][jnp.argmax(p)],
    "argmin": lambda p, row: row["x"][jnp.argmin(p)],
    "a while loop": lambda p, row: jax.lax.while_loop(lambda z: z < 1, lambda z: z + 0.3, p[0]),
    "a while loop, or a fori_loop whose length": lambda p, row: jax.lax.fori_loop(
        0, row["n"], lambda i, z: z * z, p[0]
    ),
    "a scan of more than 64 steps": lambda p, row: jax.lax.scan(lambda z, _: (z * p[1], None), p[0], length=65)[0],
    "a product of more than 64": lambda p, row: jnp.prod(jnp.tile(p, 17)),
    "a branch that depends on the position": lambda p, row: jax.lax.cond(p[0] > 0, jnp.sin, jnp.cos, p[1]),
    "stop_gradient": lambda p, row: jax.lax.stop_gradient(p[0]) * p[1],
    "pure_callback": lambda p, row: called_back(p[0]),
    "a Cholesky factorisation": lambda p, row: jnp.linalg.cholesky(jnp.outer(p, p) + 9 * jnp.eye(4))[0, 0],
    "a triangular solve": lambda p, row: jax.scipy.linalg.solve_triangular(jnp.outer(p, p), p)[0],
    "lu": lambda p, row: jnp.linalg.slogdet(jnp.outer(p, p) + jnp.eye(4))[1],
    "eigh": lambda p, row: jnp.linalg.eigvalsh(jnp.outer(p, p) + jnp.eye(4))[0],
    "of its own (custom_vjp)": lambda p, row: with_its_own_slope(p[0]),
    "the incomplete gamma function": lambda p, row: jax.scipy.special.gammainc(2.0, p[0]),
    "the incomplete beta function": lambda p, row: jax.scipy.special.betainc(2.0, 3.0, p[0]),
    "erf_inv": lambda p, row: jax.scipy.special.erfinv(p[0]),
    "bessel": lambda p, row: jax.scipy.special.i0e(p[0]),
    "atan2": lambda p, row: jnp.arctan2(p[0], p[1]),
    "tan": lambda p, row: jnp.tan(p[0]),
    "cosh": lambda p, row: jnp.cosh(p[0]),
    "floor": lambda p, row: jnp.floor(p[0]) * p[1],
    "a conversion to int32": lambda p, row: p[0].astype(jnp.int32) * p[1],
    "polygamma": lambda p, row: jax.scipy.special.polygamma(2, p[0]),
    "cbrt": lambda p, row: jnp.cbrt(p[0]),
    "top_k": lambda p, row: jax.lax.top_k(p, 1)[0][0],
}


def test_what_is_not_covered_is_named_with_its_line_and_what_is_done_instead():
    """One message for each kind of operation without a rule; only shapes are worked out."""
    flat, unravel = flatten(real(np.full(4, 0.3)))
    like = {"x": X[0], "n": np.int32(3)}
    wrong = {}
    for name, log_likelihood in UNCOVERED.items():
        trouble = why_not_covered(log_likelihood, unravel, flat.size, like)
        if trouble is None or name not in str(trouble) or not trouble.line.endswith("of test_bounds_safety.py"):
            wrong[name] = str(trouble)
    assert not wrong
