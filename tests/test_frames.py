"""Regressions from data frames and formulas: the same numbers as from arrays, under the columns' names."""

import decimal

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import statsmodels.api as sm
from formulaic import model_matrix

import tallmc as tm
from tallmc.frames import Design, Rescaling
from tallmc.frames.frame_coding import ArrayCoding

ROWS = 400
AS = {"pandas": lambda frame: frame, "polars": pl.from_pandas, "pyarrow": pa.Table.from_pandas}
FINEST = jnp.result_type(float)


def make_frame(rows=ROWS):
    generator = np.random.default_rng(7)
    frame = pd.DataFrame(
        {
            "distance": generator.normal(1000, 300, rows),
            "carrier": generator.choice(["AA", "B6", "UA"], rows),
            "hour": generator.integers(5, 9, rows),
            "night": generator.random(rows) < 0.3,
        }
    )
    z = -1 + 0.002 * (frame.distance - 1000) + 0.5 * (frame.carrier == "B6") - 0.3 * frame.night
    frame["late"] = generator.random(rows) < 1 / (1 + np.exp(-z))
    return frame


FRAME = make_frame()


@pytest.mark.parametrize("kind", AS)
def test_every_library_gives_the_same_columns(kind):
    posterior = tm.models.logistic_regression(AS[kind](FRAME), "late", intercept=True)
    names = ("Intercept", "distance", "carrier[B6]", "carrier[UA]", "hour", "night")
    assert posterior.labels.coords["column"] == names
    by_hand = np.column_stack(
        [np.ones(ROWS), FRAME.distance, FRAME.carrier == "B6", FRAME.carrier == "UA", FRAME.hour, FRAME.night]
    )
    np.testing.assert_array_equal(posterior.data["x"], by_hand.astype(FINEST))
    np.testing.assert_array_equal(posterior.data["y"], FRAME.late)


def test_without_an_intercept_the_first_column_of_labels_has_all_its_levels():
    frame = FRAME[["carrier", "late"]].assign(day=FRAME.hour.astype(str))
    found = tm.models.probit_regression(frame, "late")
    assert found.labels.coords["column"] == ("carrier[AA]", "carrier[B6]", "carrier[UA]", "day[6]", "day[7]", "day[8]")


@pytest.mark.parametrize("order", [["UA", "AA", "B6", "unused"], ["B6", "UA", "AA"]])
@pytest.mark.parametrize("ordered", [False, True])
def test_levels_keep_the_order_of_their_categories(order, ordered):
    frame = FRAME.assign(carrier=pd.Categorical(FRAME.carrier, categories=order, ordered=ordered))
    used = [level for level in order if level != "unused"]
    names = tm.models.logistic_regression(frame[["carrier", "late"]], "late").labels.coords["column"]
    assert names == tuple(f"carrier[{level}]" for level in used)


@pytest.mark.parametrize(
    "formula",
    [
        "late ~ distance + C(carrier)",
        "late ~ distance * carrier",
        "late ~ 0 + carrier + night",
        "late ~ C(hour) + log(distance + 1000) - 1",
        "late ~ scale(distance) + poly(hour, 2)",
        "late ~ hour + C(hour)",
        "late ~ np.sqrt(distance ** 2) + C(hour > 6)",
    ],
)
@pytest.mark.parametrize("kind", AS)
def test_formulas_are_those_of_formulaic(formula, kind):
    posterior = tm.models.logistic_regression(formula, AS[kind](FRAME))
    wanted = model_matrix(formula.split("~")[1], FRAME.assign(night=FRAME.night.astype(float)))
    assert posterior.labels.coords["column"] == tuple(wanted.columns)
    np.testing.assert_allclose(posterior.data["x"], wanted.to_numpy(float), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(posterior.data["y"], FRAME.late)


@pytest.mark.parametrize("formula", ["late ~ scale(distance) + poly(hour, 2) + C(carrier)", "late ~ hour + C(hour)"])
def test_blocks_change_nothing_and_new_rows_use_what_was_learned(formula, monkeypatch):
    """Means, spreads and levels are those of the first rows, whatever is in the new ones."""
    whole = tm.models.logistic_regression(formula, FRAME)
    monkeypatch.setattr("tallmc.frames.formula._ROWS_AT_A_TIME", 37)
    cut = tm.models.logistic_regression(formula, FRAME)
    np.testing.assert_allclose(cut.data["x"], whole.data["x"], rtol=1e-6, atol=1e-6)
    some = FRAME[FRAME.hour == 6][:9]
    np.testing.assert_allclose(
        whole.design.columns(some, FINEST)["x"], whole.data["x"][some.index], rtol=1e-6, atol=1e-6
    )


def test_new_rows_are_coded_by_the_recorded_levels_whatever_their_order():
    posterior = tm.models.logistic_regression(FRAME, "late", intercept=True)
    one = FRAME[FRAME.carrier == "UA"][:2]
    for new in (one, one[one.columns[::-1]], one.drop(columns="late"), pl.from_pandas(one)):
        np.testing.assert_array_equal(posterior.design.columns(new, FINEST)["x"], posterior.data["x"][one.index])


def test_nullable_and_odd_kinds_of_numbers():
    frame = pd.DataFrame(
        {
            "a": pd.array([1, 2, 3], dtype="Int64"),
            "b": pd.array([True, False, True], dtype="boolean"),
            "c": pd.array([1.5, 2.5, 3.5], dtype="Float32"),
            "d": pd.array([1, 2, 3], dtype="uint8"),
            "e": pd.Series([1.0, 2.0, 4.0], dtype=pd.ArrowDtype(pa.float64())),
        }
    )
    posterior = tm.models.linear_regression(frame, [0.0, 1.0, 2.0])
    wanted = [[1, 1, 1.5, 1, 1], [2, 0, 2.5, 2, 2], [3, 1, 3.5, 3, 4]]
    np.testing.assert_array_equal(posterior.data["x"], np.asarray(wanted, FINEST))
    exact = pl.DataFrame({"price": [decimal.Decimal("1.50"), decimal.Decimal("2.25")]})
    np.testing.assert_array_equal(tm.models.linear_regression(exact, [0, 1]).data["x"], [[1.5], [2.25]])


def test_outcomes_by_themselves():
    X = FRAME[["distance"]]
    for y in (FRAME.late, FRAME[["late"]], FRAME.late.to_numpy(), pl.Series(FRAME.late.to_numpy()), list(FRAME.late)):
        np.testing.assert_array_equal(tm.models.logistic_regression(X, y).data["y"], FRAME.late)


def test_arrays_are_not_copied():
    X, y = np.ones((100, 3), np.float32), np.zeros(100, np.float32)
    posterior = tm.models.logistic_regression(X, y)
    assert posterior.data["x"] is X
    assert posterior.data["y"] is y
    assert posterior.labels is None
    assert tm.models.logistic_regression(X, y, intercept=True).data["x"] is not X


@pytest.mark.parametrize("given", ["frame", "formula", "array", "ones"])
def test_standardised_columns_leave_the_likelihood_as_it_is(given):
    """At coefficients of the columns as they came, every row has the log likelihood that it has without."""
    numbers = FRAME[["distance", "hour", "late"]]
    matrix = numbers[["distance", "hour"]].to_numpy()
    X, y, options = {
        "frame": (numbers, "late", {"intercept": True}),
        "formula": ("late ~ distance + hour", FRAME, {}),
        "array": (matrix, numbers.late, {"intercept": True}),
        "ones": (np.column_stack([np.full(ROWS, 2.0), matrix]), numbers.late, {}),
    }[given]
    plain, scaled = (
        tm.models.logistic_regression(X, y, prior_precision=0.0, standardise=which, **options)
        for which in (False, True)
    )
    np.testing.assert_allclose(np.mean(scaled.data["x"], axis=0)[1:], 0, atol=1e-5)
    np.testing.assert_allclose(np.std(scaled.data["x"], axis=0)[1:], 1, rtol=1e-5)
    at = np.asarray([-0.7, 0.001, -0.05], FINEST)
    np.testing.assert_allclose(float(scaled.log_density(at)), float(plain.log_density(at)), rtol=1e-5)
    np.testing.assert_allclose(scaled.constrain(scaled.unconstrain(at)), at, rtol=1e-4)
    mode = sm.Logit(numbers.late.to_numpy(float), np.asarray(plain.data["x"], float)).fit(disp=0).params
    np.testing.assert_allclose(tm.optimise.mode(scaled, progress=False).position, mode, rtol=2e-3, atol=2e-4)


def test_without_an_intercept_nothing_is_subtracted():
    posterior = tm.models.linear_regression(FRAME[["distance", "hour"]], FRAME.late, standardise=True)
    ratio = posterior.data["x"][:, 0] / FRAME.distance.to_numpy()
    np.testing.assert_allclose(ratio, 1 / FRAME.distance.std(ddof=0), rtol=1e-5)


def test_the_way_back_is_the_inverse():
    generator = np.random.default_rng(1)
    rescaling = Rescaling((3.0, 0.0, -2.0), (1.5, 1.0, 7.0), 1, 4.0)
    X, b = generator.normal(size=(20, 3)), generator.normal(size=3)
    X[:, 1] = 4.0
    scaled = (X - rescaling.centre) / rescaling.scale
    np.testing.assert_allclose(X @ rescaling.outward(b), scaled @ b, rtol=1e-12)
    np.testing.assert_allclose(rescaling.inward(rescaling.outward(b)), b, rtol=1e-12)
    assert Design(ArrayCoding(3, False)).rescaling is None


@pytest.fixture(scope="module")
def run():
    formula = "late ~ distance + C(carrier)"
    posterior = tm.models.logistic_regression(formula, make_frame(5000), prior_precision=0.0, standardise=True)
    return tm.sample(posterior, init=np.asarray([-1.0, 0.0, 0.0, 0.0], FINEST), num_samples=300, progress=False)


def test_draws_are_of_the_columns_as_they_came(run):
    frame = make_frame(5000)
    X = model_matrix("distance + C(carrier)", frame)
    exact = sm.Logit(frame.late.to_numpy(float), X.to_numpy(float)).fit(disp=0)
    table = run.summary().table
    assert list(table.index) == [f"beta[{name}]" for name in X.columns]
    # The posterior is normal to within a twentieth of a standard deviation here; 1,200 draws add a thirtieth.
    assert np.all(np.abs(table["mean"] - exact.params) < 0.25 * exact.bse)
    np.testing.assert_allclose(table["sd"], exact.bse, rtol=0.2)


def test_names_are_everywhere(run, tmp_path):
    tree = run.to_datatree()
    assert list(tree.posterior["column"].values) == ["Intercept", "distance", "C(carrier)[T.B6]", "C(carrier)[T.UA]"]
    assert tree.posterior["beta"].dims == ("chain", "draw", "column")
    assert "beta[distance]" in str(run.summary())
    run.save(tmp_path / "run.zarr")
    again = tm.load(tmp_path / "run.zarr")
    new = make_frame(5)
    np.testing.assert_array_equal(
        again.posterior.design.columns(new, FINEST)["x"], run.posterior.design.columns(new, FINEST)["x"]
    )
    np.testing.assert_array_equal(again.samples, run.samples)
    np.testing.assert_allclose(again.extend(20, progress=False).samples[:, :300], run.samples)


def test_own_likelihoods_have_dims_and_coords():
    schools = ["A", "B", "C"]
    data = {"school": np.arange(300) % 3, "y": np.random.default_rng(0).normal(size=300).astype(FINEST)}

    def log_likelihood(position, row):
        return -0.5 * (row["y"] - position["effect"][row["school"]]) ** 2

    posterior = tm.Posterior(log_likelihood, data, dims={"effect": ["school"]}, coords={"school": schools})
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.Exact())
    init = {"effect": jnp.zeros(3)}
    run = tm.sample(posterior, kernel, init=init, num_samples=50, num_warmup=0, progress=False)
    assert list(run.summary().table.index) == ["effect[A]", "effect[B]", "effect[C]"]
    assert list(run.to_datatree().posterior["school"].values) == schools
    with pytest.raises(ValueError, match="coords of 'school' are 3, but 'effect' has 4"):
        tm.sample(posterior, kernel, init={"effect": jnp.zeros(4)}, num_samples=2)


def test_variable_selection_has_names():
    posterior = tm.models.variable_selection(FRAME[["distance", "hour", "late"]], "late", 0.1, floor=0.01)
    assert posterior.labels.dims == {"beta": ("column",), "gamma": ("column",)}
    assert posterior.labels.coords == {"column": ("distance", "hour")}
