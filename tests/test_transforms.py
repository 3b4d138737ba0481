"""Parameters with limits: the way to unconstrained numbers and back, posteriors in closed form, and what is refused."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import tallmc as tm
from tallmc.diagnostics.moves import moves_of
from tallmc.posterior.block_sums import first_of
from tallmc.posterior.predictors import predictors_of
from tallmc.posterior.unconstrained_start import unconstrained_start
from tallmc.transforms.positions import assigned, constrained_draws, log_jacobian, unconstrain
from tests.registry import real

positive, interval, ordered, simplex = (
    tm.transforms.positive,
    tm.transforms.interval,
    tm.transforms.ordered,
    tm.transforms.simplex,
)
# Each with the shape of its unconstrained numbers.
TRANSFORMS = {
    "positive": (positive, (4,)),
    "interval": (interval(-2.0, 5), (4,)),
    "ordered": (ordered, (4,)),
    "simplex": (simplex, (3,)),
}
each = pytest.mark.parametrize("name", TRANSFORMS)


@pytest.fixture
def _float64():
    with jax.enable_x64(True):
        yield


# Laws of each transform


@each
@pytest.mark.usefixtures("_float64")
@pytest.mark.parametrize("lead", [(), (3,)])
def test_there_and_back(name, lead):
    transform, shape = TRANSFORMS[name]
    start = jnp.asarray(2 * np.random.default_rng(0).normal(size=(*lead, *shape)))
    there = transform.constrain(start)
    assert transform.contains(there)
    assert transform.trouble_with(np.asarray(there)) is None
    assert not transform.contains(-10.0 - there)
    assert transform.trouble_with(np.asarray(-10.0 - there))
    np.testing.assert_allclose(transform.unconstrain(there), start, rtol=1e-10, atol=1e-10)


@each
@pytest.mark.usefixtures("_float64")
@pytest.mark.parametrize("lead", [(), (3,)])
def test_the_jacobian_is_that_of_brute_force(name, lead):
    """The determinant of all derivatives; of a simplex, whose numbers lie on a plane, of all but the last."""
    transform, shape = TRANSFORMS[name]
    start = jnp.asarray(2 * np.random.default_rng(1).normal(size=(*lead, *shape)))
    natural = lambda flat: transform.constrain(flat.reshape(start.shape))[..., : shape[0]].ravel()  # noqa: E731
    _, expected = np.linalg.slogdet(jax.jacfwd(natural)(start.ravel()))
    np.testing.assert_allclose(transform.log_jacobian(start), expected, rtol=1e-10)


@each
def test_precision_stays_what_it_is(name):
    """NumPyro's own arithmetic would make float64 of some float32 under x64."""
    transform, shape = TRANSFORMS[name]
    with jax.enable_x64(True):
        for dtype in (jnp.float32, jnp.float64):
            start = jnp.zeros(shape, dtype)
            natural = transform.constrain(start)
            assert {natural.dtype, transform.unconstrain(natural).dtype, transform.log_jacobian(start).dtype} == {
                jnp.dtype(dtype)
            }


# Which transform belongs to which array


class Place(NamedTuple):
    mean: jax.Array
    scales: dict


def test_transforms_are_found_by_name():
    place = Place(jnp.zeros(2), {"a": jnp.ones(()), "b": jnp.ones(3)})  # leaves: mean, a, b
    assert assigned(Place(None, {"a": positive}), place) == [None, positive, None]
    assert assigned({"scales": {"b": simplex}}, place) == [None, None, simplex]
    assert assigned({"scales": positive, "mean": ordered}, place) == [ordered, positive, positive]
    assert assigned(positive, jnp.ones(3)) == [positive]
    assert assigned([None, ordered], (1.0, jnp.zeros(2))) == [None, ordered]
    with pytest.raises(ValueError, match=r"names \['scales'\]\['c'\].*there is only position\.mean, position\.scales"):
        assigned({"scales": {"c": simplex}}, place)


def test_draws_of_any_number_are_the_same(monkeypatch):
    from tallmc.transforms import positions

    draws = {"shares": np.random.default_rng(0).normal(size=(3, 50, 2)).astype(np.float32), "x": np.zeros((3, 50))}
    whole = constrained_draws({"shares": simplex}, draws)
    assert whole["shares"].shape == (3, 50, 3)
    np.testing.assert_allclose(whole["shares"].sum(-1), 1, rtol=1e-6)
    monkeypatch.setattr(positions, "_DRAWS", 64)
    parts = constrained_draws({"shares": simplex}, draws)
    np.testing.assert_array_equal(parts["shares"], whole["shares"])
    np.testing.assert_array_equal(parts["x"], 0)


# Posteriors in closed form

NUM_ROWS = 40
generator = np.random.default_rng(0)
ROWS = {
    "count": generator.poisson(2.5, NUM_ROWS).astype(float),
    "success": (generator.random(NUM_ROWS) < 0.8).astype(float),
    "group": generator.choice(3, NUM_ROWS, p=[0.2, 0.3, 0.5]),
    "left": generator.normal(0.1, 1.0, NUM_ROWS),
    "right": generator.normal(0.0, 1.0, NUM_ROWS),
    "height": generator.normal(1.0, 1.0, NUM_ROWS),
}
LIMITS = {
    "rate": positive,
    "chance": interval(0, 1),
    "shares": simplex,
    "means": ordered,
    "height": interval(0.8, 1.3),
    "shift": None,
}
INIT = {"rate": 2, "chance": 0.5, "shares": [0.2, 0.3, 0.5], "means": [-1.0, 1.0], "height": 1.0}
INIT = {**{name: np.asarray(value) for name, value in INIT.items()}, "shift": np.asarray(0.3)}


def log_likelihood(p, row):
    count = row["count"] * jnp.log(p["rate"]) - p["rate"]
    success = row["success"] * jnp.log(p["chance"]) + (1 - row["success"]) * jnp.log1p(-p["chance"])
    errors = jnp.stack([row["left"], row["right"], row["height"]]) - jnp.stack([*p["means"], p["height"]])
    return count + success + jnp.log(p["shares"][row["group"]]) - 0.5 * jnp.sum(errors**2)


def log_prior(p):
    """Gamma(2, 1), Beta(2, 1), Dirichlet(2, 1, 1), a standard normal, and flat inside the limits of the others."""
    shares = jnp.log(p["shares"][0])
    return jnp.log(p["rate"]) - p["rate"] + jnp.log(p["chance"]) + shares - 0.5 * p["shift"] ** 2


def with_the_jacobian(p):
    """A prior that adds what the library adds already."""
    return log_prior(p) + log_jacobian(LIMITS, unconstrain(LIMITS, p))


def rows():
    return {name: np.asarray(column if name == "group" else real(column)) for name, column in ROWS.items()}


def two_means():
    """First and second moments of both ordered means, by a sum over a grid of 1e6 points."""
    centres = [ROWS[name].mean() for name in ("left", "right")]
    grids = [centre + np.linspace(-8, 8, 1000) / np.sqrt(NUM_ROWS) for centre in centres]
    heights = [-0.5 * NUM_ROWS * (grid - centre) ** 2 for grid, centre in zip(grids, centres, strict=True)]
    mass = np.exp(heights[0][:, None] + heights[1][None]) * (grids[0][:, None] < grids[1][None])
    mass /= mass.sum()
    left, right = mass.sum(1), mass.sum(0)
    return [[(m * g**k).sum() for g, m in zip(grids, (left, right), strict=True)] for k in (1, 2)]


def truth():
    """Means, and means of squares."""
    found = {
        "rate": scipy.stats.gamma(2 + ROWS["count"].sum(), scale=1 / (1 + NUM_ROWS)),
        "chance": scipy.stats.beta(2 + ROWS["success"].sum(), 1 + (1 - ROWS["success"]).sum()),
        "shift": scipy.stats.norm(),
    }
    centre, width = ROWS["height"].mean(), NUM_ROWS**-0.5
    ends = ((0.8 - centre) / width, (1.3 - centre) / width)
    found["height"] = scipy.stats.truncnorm(*ends, loc=centre, scale=width)
    moments = {name: (law.mean(), law.var() + law.mean() ** 2) for name, law in found.items()}
    shares = scipy.stats.dirichlet(np.bincount(ROWS["group"], minlength=3) + np.array([2, 1, 1]))
    moments["shares"] = (shares.mean(), shares.var() + shares.mean() ** 2)
    return moments | {"means": two_means()}


def deviations(run):
    """Of means and means of squares from the truth, in standard errors by the spread between chains."""
    found = {}
    for name, moments in truth().items():
        draws = np.asarray(run.samples[name], float)
        for power, expected in zip((1, 2), moments, strict=True):
            of_chains = np.mean(draws**power, axis=1)
            error = of_chains.std(axis=0, ddof=1) / np.sqrt(len(of_chains))
            found[name, power] = np.max(np.abs((of_chains.mean(axis=0) - np.asarray(expected)) / error))
    return found


KERNELS = {
    "random walk": (lambda: tm.MetropolisHastings(tm.RandomWalk(0.15), tm.Exact()), 6000),
    "automatic": (lambda: None, 6000),
    "nuts": (lambda: tm.NUTS(0.95), 1000),
}


def draw(prior, kernel, num_samples):
    posterior = tm.Posterior(log_likelihood, rows(), prior, transforms=LIMITS)
    return tm.sample(posterior, kernel, init=INIT, num_samples=num_samples, num_chains=32, rng_key=1, progress=False)


@pytest.mark.filterwarnings("ignore:the posterior is")  # far from normal: the automatic run has to say so
@pytest.mark.parametrize("name", KERNELS)
def test_posteriors_in_closed_form(name):
    """18 moments within 5 standard errors of 32 chains (4e-4 false alarms in all; fixed seed)."""
    kernel, num_samples = KERNELS[name]
    run = draw(log_prior, kernel(), num_samples)
    assert run.samples["shares"].shape == (32, num_samples, 3)
    assert run.unconstrained_samples["shares"].shape == (32, num_samples, 2)
    assert max(deviations(run).values()) < 5, deviations(run)


def test_a_wrong_jacobian_would_show():
    """A negative control: every array with a limit is found out, and the one without is not."""
    found = deviations(draw(with_the_jacobian, tm.NUTS(0.95), 1000))
    for name in set(LIMITS) - {"shift"}:
        assert max(found[name, 1], found[name, 2]) > 7, found
    assert found["shift", 1] < 5


# A regression with an unknown scale: what is worked out for all rows stays cheap

X = generator.normal(size=(20_000, 3))
Y = X @ np.array([0.5, -1.0, 0.0]) + 0.7 * generator.normal(size=20_000)


def regression_likelihood(p, row):
    return -0.5 * ((row["y"] - row["x"] @ p["slopes"]) / p["sd"]) ** 2 - jnp.log(p["sd"])


def scale_prior(p):
    return -jnp.log(p["sd"])


@pytest.fixture(scope="module")
def regression():
    data = {"x": np.asarray(real(X)), "y": np.asarray(real(Y))}
    return tm.Posterior(regression_likelihood, data, scale_prior, transforms={"sd": positive})


START = {"slopes": np.zeros(3), "sd": np.asarray(1.0)}


@pytest.fixture(scope="module")
def regression_run(regression):
    return tm.sample(regression, init=START, num_samples=4000, progress=False)


def test_a_limit_hides_no_predictors(regression):
    flat, unravel = jax.flatten_util.ravel_pytree(jax.tree.map(lambda leaf: real(leaf), START))
    found = predictors_of(
        regression.model.log_likelihood, unravel, flat, first_of(jax.tree.map(jnp.asarray, regression.data))
    )
    assert found is not None
    assert (found.count, found.num_shared, found.num_coordinates) == (2, 4, 4)


def test_an_automatic_run_is_right(regression_run):
    """The scale by its marginal, a scaled inverse chi: mean and sd within 4.5 Monte Carlo errors (1e-5 alarms)."""
    run = regression_run
    assert run.doubts == ()
    residuals = Y - X @ np.linalg.lstsq(X, Y)[0]
    freedom = len(Y) - 3
    law = scipy.stats.invgamma(freedom / 2, scale=np.sum(residuals**2) / 2)  # of the variance
    sd = np.sqrt(law.rvs(200_000, random_state=0))
    line = run.summary().table.loc["sd"]
    assert abs(line["mean"] - sd.mean()) < 4.5 * line["mcse_mean"]
    assert abs(line["sd"] - sd.std()) < 4.5 * line["mcse_sd"]
    assert run.to_datatree()["posterior"]["sd"].values.min() > 0.5


def test_the_mode_is_that_of_the_density_of_unconstrained_numbers(regression):
    found = tm.optimise.mode(regression, START, progress=False)
    residuals = Y - X @ np.asarray(found.position["slopes"], float)
    # exp(-n log sd - S / (2 sd^2)): prior and Jacobian cancel.
    assert float(found.position["sd"]) == pytest.approx(np.sqrt(np.mean(residuals**2)), rel=1e-4)


def test_densities_on_both_scales(regression):
    place = {"slopes": jnp.asarray([0.4, -0.9, 0.1]), "sd": jnp.asarray(0.8)}
    unconstrained = regression.unconstrain(place)
    assert float(unconstrained["sd"]) == pytest.approx(np.log(0.8), rel=1e-6)
    np.testing.assert_allclose(regression.constrain(unconstrained)["sd"], 0.8, rtol=1e-6)
    natural = float(regression.log_density(place))
    by_hand = np.sum(scipy.stats.norm(X @ [0.4, -0.9, 0.1], 0.8).logpdf(Y)) + len(Y) / 2 * np.log(2 * np.pi)
    assert natural == pytest.approx(by_hand - np.log(0.8), rel=1e-5)
    jacobian = float(regression.unconstrained.log_density(unconstrained)) - natural
    assert jacobian == pytest.approx(np.log(0.8), abs=1e-5 * abs(natural))
    assert float(regression.log_density(place | {"sd": -0.8})) == -np.inf
    assert float(jax.jit(lambda p: regression.log_density(p))(place)) == pytest.approx(natural, rel=1e-4)
    assert float(regression.log_prior(place)) == pytest.approx(-np.log(0.8), rel=1e-6)
    assert regression.at_temperature(3.0).transforms == {"sd": positive}


def test_audits_and_moves_follow_the_chains(regression):
    """They replay steps, for which the natural scale would be the wrong one. Rows are few: 0.7 is its sd."""
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.003), tm.MHMinibatch())
    options = {"num_samples": 500, "num_warmup": 500, "progress": False}
    run = tm.sample(regression, kernel, init=START, control_variate=tm.Taylor(), **options)
    assert run.stats["rows"].mean() < 300
    assert tm.audit(run).error_rate < 0.05
    moves = moves_of(run, 50)
    away = np.asarray(moves.position["sd"]) - np.log(0.7)
    assert np.all(np.abs(away) < 0.05)
    report = tm.check_normality(regression, kernel, init=START)
    assert report.rule == "MHMinibatch"


def test_an_expansion_is_placed_on_the_natural_scale(regression):
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.005), tm.MHMinibatch())
    at = {"slopes": np.array([0.5, -1.0, 0.0]), "sd": np.asarray(0.7)}
    options = {"num_samples": 50, "num_warmup": 50, "progress": False}
    run = tm.sample(regression, kernel, init=at, control_variate=tm.Taylor(at=at), **options)
    assert float(run.session.model.expansion.centre[0]) == pytest.approx(np.log(0.7), rel=1e-5)
    with pytest.raises(ValueError, match=r"at\['sd'\] must be positive"):
        tm.sample(regression, kernel, init=at, control_variate=tm.Taylor(at=at | {"sd": -1.0}), **options)


# Saved runs

FEW = {"num_warmup": 30, "num_chains": 2, "progress": False}


@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.filterwarnings("ignore:the posterior is")
def test_a_saved_run_goes_on_as_one_long_run(automatic, tmp_path):
    posterior = tm.Posterior(log_likelihood, rows(), log_prior, transforms=LIMITS)
    kernel = None if automatic else tm.MetropolisHastings(tm.RandomWalk(0.1), tm.Exact())
    run = tm.sample(posterior, kernel, init=INIT, num_samples=40, **FEW)
    run.save(tmp_path / "run")
    again = tm.load(tmp_path / "run")
    whole = tm.sample(posterior, kernel, init=INIT, num_samples=65, **FEW)
    for longer in (run.extend(25, progress=False), again.extend(25, progress=False)):
        assert jax.tree.structure(longer.samples) == jax.tree.structure(whole.samples)
        jax.tree.map(np.testing.assert_array_equal, longer.samples, whole.samples)
        jax.tree.map(np.testing.assert_array_equal, longer.unconstrained_samples, whole.unconstrained_samples)
    assert str(again.summary()) == str(run.summary())
    assert again.posterior.transforms == LIMITS


def test_a_run_is_taken_up_with_its_own_transforms(tmp_path):
    posterior = tm.Posterior(lambda p, row: log_likelihood(p, row), rows(), log_prior, transforms=LIMITS)
    run = tm.sample(posterior, tm.MetropolisHastings(tm.RandomWalk(0.1), tm.Exact()), init=INIT, num_samples=5, **FEW)
    run.save(tmp_path / "run", rows=False)
    jax.tree.map(np.testing.assert_array_equal, tm.load(tmp_path / "run").samples, run.samples)
    for limits in (None, LIMITS | {"chance": interval(0, 2)}):
        with pytest.raises(ValueError, match=r"this posterior has transforms .* were sampled with: pass the same"):
            tm.load(tmp_path / "run", tm.Posterior(log_likelihood, rows(), log_prior, transforms=limits))
    again = tm.load(tmp_path / "run", posterior).extend(5, progress=False)
    jax.tree.map(np.testing.assert_array_equal, again.samples, run.extend(5, progress=False).samples)


# Starts, and what is refused


def test_chains_start_where_they_are_put():
    posterior = tm.Posterior(log_likelihood, rows(), log_prior, transforms=LIMITS)
    one = unconstrained_start(posterior, INIT, 4)
    assert {name: leaf.shape for name, leaf in one.items()} == {name: () for name in INIT} | {
        "shares": (2,),
        "means": (2,),
    }
    assert float(one["rate"]) == pytest.approx(np.log(2))  # a whole number will do
    several = jax.tree.map(lambda leaf: np.stack([leaf] * 4), INIT)
    several["rate"] = np.array([1, 2, 3, 4])
    found = unconstrained_start(posterior, several, 4)
    assert found["shares"].shape == (4, 2)
    np.testing.assert_allclose(found["rate"], np.log([1, 2, 3, 4]), rtol=1e-6)


def test_without_a_start_unconstrained_zeros_are_the_start():
    counts = np.random.default_rng(0).poisson(np.exp(X[:500] @ [0.2, 0.3, 0.4])).astype(float)
    data = {"x": np.asarray(real(np.abs(X[:500]))), "y": np.asarray(real(counts))}

    def likelihood(slopes, row):
        mean = row["x"] @ slopes
        return row["y"] * jnp.log(mean) - mean

    posterior = tm.Posterior(likelihood, data, lambda slopes: -jnp.sum(slopes), transforms=positive)
    assert np.all(np.asarray(tm.optimise.mode(posterior, progress=False).position) > 0)


KERNEL = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.Exact())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": -1.0}, r"init\['rate'\] must be positive \(tm.transforms.positive\), but is -1.; start above 0"),
        ({"rate": 0}, r"init\['rate'\] must be positive .*but is 0.; start above 0"),
        ({"chance": 1.0}, r"init\['chance'\] must be between 0 and 1 .*but is 1.; start inside, not at an end"),
        ({"means": np.array([1.0, 1.0])}, r"'means'\] must be in increasing order .*; sort them, with no two alike"),
        ({"shares": np.array([0.2, 0.3, 0.4])}, r"'shares'\] must be positive numbers that add up to one .*by their"),
        ({"shares": np.array([0.5, 0.5, 0.0])}, r"'shares'\] must be positive numbers that add up to one"),
        ({"rate": np.nan}, "start from finite numbers"),
        ({"rate": "two"}, r"init\['rate'\] must hold numbers"),
    ],
)
@pytest.mark.parametrize("kernel", [KERNEL, None], ids=["kernel", "automatic"])
def test_a_start_outside_the_limits(change, message, kernel):
    posterior = tm.Posterior(log_likelihood, rows(), log_prior, transforms=LIMITS)
    with pytest.raises(ValueError, match=message) as refused:
        tm.sample(posterior, kernel, init=INIT | change, num_samples=2)
    assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match=message):
        tm.optimise.mode(posterior, INIT | change)


def test_a_chain_that_starts_outside_is_named():
    posterior = tm.Posterior(log_likelihood, rows(), log_prior, transforms=LIMITS)
    several = jax.tree.map(lambda leaf: np.stack([leaf] * 4), INIT)
    several["rate"] = np.array([1.0, 2.0, -3.0, 4.0])
    with pytest.raises(ValueError, match=r"init\['rate'\] of chain 2 must be positive .*but is -3"):
        tm.sample(posterior, KERNEL, init=several, num_samples=2)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"sd": positive}, r"transforms names \['sd'\], but there is only position\['chance'\].*mend the name"),
        ([positive], r"transforms names \[0\], but there is only .*transforms shaped like the position"),
        ({"rate": {"a": positive}}, r"transforms names \['rate'\]\['a'\], but there is only"),
        (
            {"rate": ordered},
            r"init\['rate'\]: tm.transforms.ordered needs a last axis of 1 or more, but it is a single",
        ),
        ({"rate": 3}, r"transforms\['rate'\] must be a transform such as tm.transforms.positive, or None, not 3"),
        ({"rate": "positive"}, r"transforms\['rate'\] must be a transform .*not 'positive'; take one of positive"),
        ({"rate": interval}, r"transforms\['rate'\] must be .*interval wants its ends: interval\(0, 1\)"),
    ],
)
def test_transforms_that_do_not_fit(limits, message):
    with pytest.raises(ValueError, match=message):
        tm.sample(tm.Posterior(log_likelihood, rows(), log_prior, transforms=limits), KERNEL, init=INIT, num_samples=2)


def test_a_simplex_of_one_number():
    posterior = tm.Posterior(lambda p, row: -(row["left"] ** 2) * p[0], rows(), transforms=simplex)
    with pytest.raises(ValueError, match=r"init: tm.transforms.simplex needs a last axis of 2 .*has shape \(1,\)"):
        tm.sample(posterior, KERNEL, init=np.ones(1), num_samples=2)


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ((1, 1), "interval needs low < high, got 1 and 1"),
        ((2.0, 1.0), r"interval needs low < high, got 2.0 and 1.0; pass interval\(low, high\) in this order"),
        ((0, np.inf), "finite ends, .* for positive numbers take tm.transforms.positive"),
        ((np.nan, 1), "finite ends"),
        (("a", 1), "interval needs two numbers, not 'a' and 1"),
    ],
)
def test_intervals_that_are_none(ends, message):
    with pytest.raises(ValueError, match=message):
        interval(*ends)


def test_bounds_are_refused():
    with pytest.raises(ValueError, match="leave out bounds, or transforms"):
        tm.Posterior(log_likelihood, rows(), bounds=tm.Lipschitz(1.0), transforms=LIMITS)


def test_no_transforms_are_none_at_all():
    posterior = tm.Posterior(log_likelihood, rows(), transforms={"rate": None})
    assert posterior.transforms is None
    assert posterior.model.log_likelihood is log_likelihood
    assert posterior.unconstrained is posterior.natural is posterior
