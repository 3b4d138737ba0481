"""Mistakes with data frames, formulas, labels and new rows: each ends in one line that names the thing and the fix."""

import re

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

import tallmc as tm
from tallmc.models.regression import regressors
from tests.test_report import made_up_run

ROWS = 40
FINEST = jnp.result_type(float)


def make_frame(**columns):
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "distance": generator.normal(size=ROWS),
            "carrier": np.tile(["AA", "B6", "UA", "WN"], ROWS // 4),
            "late": np.tile([True, False], ROWS // 2),
        }
    )
    return frame.assign(**columns)


FRAME = make_frame()
ARRAY, OUTCOMES = FRAME[["distance"]].to_numpy(), FRAME.late.to_numpy()


def with_value(column, row, value):
    values = FRAME[column].to_numpy(object if column == "carrier" else float).copy()
    values[row] = value
    return make_frame(**{column: pd.Series(values).infer_objects()})


def logistic(X, y="late", **options):
    return lambda: tm.models.logistic_regression(X, y, **options)


def formula(text, frame=FRAME):
    return lambda: tm.models.logistic_regression(text, frame)


class Fitted:
    """A run of a regression on the frame, without the sampling."""

    def __init__(self, build, columns):
        self.build, self.columns = build, columns

    def __call__(self):
        samples = np.zeros((2, 60, self.columns), FINEST) + np.random.default_rng(0).normal(size=(2, 60, 1)).astype(
            FINEST
        )
        run = made_up_run(tm.Exact(), 60, ROWS, samples)
        return tm.Run(**{**vars(run), "posterior": self.build()})


BY_FRAME = Fitted(logistic(FRAME, intercept=True), 5)
BY_FORMULA = Fitted(formula("late ~ distance + carrier"), 5)
BY_ARRAY = Fitted(lambda: tm.models.logistic_regression(ARRAY, OUTCOMES), 1)
OWN = Fitted(lambda: tm.Posterior(lambda at, row: -0.5 * (row["y"] - at[0]) ** 2, {"y": np.zeros(ROWS, FINEST)}), 1)


def new(fitted, rows, method="predict", **options):
    return lambda: getattr(fitted(), method)(rows, **options)


def own(dims=None, coords=None):
    return lambda: tm.Posterior(lambda at, row: -0.5 * (row - at) ** 2, np.zeros(5, FINEST), dims=dims, coords=coords)


MISTAKES = {
    # Columns.
    "missing column": (logistic(FRAME, "lat"), "column 'lat', but X has no such column; did you mean 'late'"),
    "number missing": (logistic(with_value("distance", 7, np.nan)), "column 'distance' is missing 1 value.* row 7"),
    "null": (
        logistic(pl.DataFrame({"a": [1.0, None, None], "late": [0, 1, 0]})),
        "column 'a' is missing 2 values, first in row 1; drop or fill",
    ),
    "label missing": (logistic(with_value("carrier", 3, None)), "column 'carrier' is missing 1 value, first in row 3"),
    "nullable number missing": (
        logistic(make_frame(n=pd.array([1, None] * (ROWS // 2), dtype="Int64"))),
        "column 'n' is missing 20 values, first in row 1",
    ),
    "outcome missing": (logistic(with_value("late", 4, np.nan)), "column 'late' is missing 1 value.*row 4"),
    "infinity": (logistic(with_value("distance", 9, -np.inf)), "column 'distance' is infinite in row 9"),
    "both infinities": (
        logistic(make_frame(distance=np.tile([np.inf, -np.inf], ROWS // 2))),
        "column 'distance' is infinite in row 0",
    ),
    "date": (
        logistic(make_frame(day=pd.Timestamp("2026-01-01"))),
        r"column 'day' holds datetime; make a number of it first, such as frame\['day'\]",
    ),
    "duration": (logistic(make_frame(took=pd.Timedelta("3h"))), "column 'took' holds duration; .*total_seconds"),
    "mixed kinds": (
        logistic(make_frame(mix=[1, "a"] * (ROWS // 2))),
        r"column 'mix' holds object; it is a mix of kinds; .*astype\(float\)",
    ),
    "lists": (
        logistic(pl.DataFrame({"a": [[1], [2]], "late": [0, 1]})),
        "column 'a' holds list; drop it, or make a column of numbers",
    ),
    "a key": (
        logistic(pd.DataFrame({"id": [f"n{i}" for i in range(600)], "late": [0, 1] * 300})),
        "column 'id' has 600 different labels, too many",
    ),
    "one level": (logistic(make_frame(year="2013")), "column 'year' has one level only, '2013'"),
    "duplicate names": (
        logistic(pd.DataFrame(np.zeros((4, 3)), columns=["a", "a", "late"])),
        "two columns of one name.*'a'.*rename",
    ),
    "duplicate names in a table": (
        logistic(pa.table([[1.0], [2.0], [0]], names=["a", "a", "late"])),
        "two columns of one name.*'a'.*rename",
    ),
    "empty frame": (logistic(FRAME[:0]), "X has no rows; pass at least one"),
    "no columns": (logistic(FRAME[["late"]]), "no columns beside the outcome; pass some, or intercept=True"),
    "lazy frame": (logistic(pl.LazyFrame({"a": [1.0], "late": [0]})), "LazyFrame has not been computed.*collect"),
    "constant column": (
        logistic(make_frame(one=1.0), intercept=True, standardise=True),
        "column 'one' has the same value in every row",
    ),
    # Outcomes.
    "labels as outcome": (
        logistic(FRAME, "carrier"),
        r"column 'carrier' holds labels, not numbers; .* frame\['carrier'\] == 'yes'",
    ),
    "not binary": (logistic(FRAME[["distance", "late"]], "distance"), "distance must hold only 0 and 1; recode it"),
    "two outcomes": (logistic(FRAME[["distance"]], FRAME[["late", "distance"]]), "y must be one outcome.*2 columns"),
    "wrong length": (logistic(FRAME[["distance"]], OUTCOMES[:-1]), "X has 40 rows but y has 39"),
    "other index": (
        logistic(FRAME[["distance"]], FRAME.late[::-1]),
        r"X and y have different labels of rows.*y.loc\[X.index\]",
    ),
    "name without a frame": (logistic(ARRAY, "late"), "y is the name of a column, 'late', so X must be a frame"),
    "counts below zero": (
        lambda: tm.models.poisson_regression(FRAME[["late", "distance"]], "distance"),
        "distance must hold only whole numbers of at least 0",
    ),
    # Options and arrays.
    "option is no truth value": (
        lambda: regressors(FRAME, "late", intercept="yes"),
        "intercept must be True or False, not 'yes'",
    ),
    "prior of other length": (
        logistic(FRAME, prior_precision=np.ones(3)),
        r"prior_precision has shape \(3,\); pass one number, or 5 of them.*distance, carrier\[AA\]",
    ),
    "sparse matrix": (logistic(scipy.sparse.eye(4), np.zeros(4)), r"X is sparse; pass X.toarray\(\)"),
    "a dict": (logistic({"a": [1.0]}, [1]), "X must be a matrix|X must hold numbers"),
    "text in an array": (logistic(np.array([["a"], ["b"]]), [0, 1]), "X must hold numbers, not <U1"),
    # Formulas.
    "formula typo": (formula("late ~ distanc"), "names column 'distanc'.*did you mean 'distance'"),
    "typo in a function": (formula("late ~ log(distanc)"), "names column 'distanc'.*did you mean 'distance'"),
    "unknown function": (
        formula("late ~ logg(distance)"),
        "calls logg, which formulas do not know; did you mean 'log'",
    ),
    "two targets": (formula("late + distance ~ carrier"), "must have one outcome before the ~.*'late', 'distance'"),
    "no target": (formula("~ distance"), "has no outcome before the ~"),
    "no tilde": (formula("late distance"), "must have one ~, with the outcome before it"),
    "two tildes": (formula("late ~ distance ~ carrier"), "must have one ~"),
    "syntax": (formula("late ~ distance +* carrier"), "cannot be read"),
    "bracket": (formula("late ~ log(distance"), "cannot be read"),
    "several parts": (formula("late ~ distance | carrier"), "has several parts"),
    "dot": (formula("late ~ ."), "has a dot; write the columns out"),
    "no terms": (formula("late ~ 0"), "has no terms; write at least 1"),
    "logarithm below zero": (formula("late ~ log(distance)"), r"column 'log\(distance\)' is not finite in row"),
    "builtin": (formula("late ~ eval(distance)"), "calls eval, which formulas do not know"),
    "attribute": (formula("late ~ distance.to_numpy()"), r"uses distance.to_numpy; of NumPy it may call"),
    "NumPy beyond arithmetic": (formula("late ~ np.load(distance)"), "of NumPy it may call np.sqrt and the like only"),
    "formula with an array": (formula("late ~ distance", ARRAY), r"pass \(formula, frame\), not ndarray"),
    "intercept left out and asked for": (
        lambda: tm.models.logistic_regression("late ~ 0 + distance", FRAME, intercept=True),
        "leaves the intercept out, and intercept=True asks for it",
    ),
    # New rows.
    "unseen level": (
        new(BY_FRAME, FRAME.replace({"carrier": {"UA": "ZZ"}})),
        "column 'carrier' has the level 'ZZ' in row 2, which the model has not seen.*'AA', 'B6', 'UA', 'WN'",
    ),
    "unseen level of a formula": (
        new(BY_FORMULA, FRAME.replace({"carrier": {"UA": "ZZ"}})),
        "column 'carrier' has the level 'ZZ' in row 2",
    ),
    "new rows lack a column": (
        new(BY_FRAME, FRAME[["distance"]]),
        "the model needs column 'carrier', but new rows have no such column",
    ),
    "new rows lack a column of a formula": (new(BY_FORMULA, FRAME[["distance"]]), "the model needs column 'carrier'"),
    "labels where numbers were": (
        new(BY_FRAME, FRAME.assign(distance="far")),
        "column 'distance' holds labels here, but numbers in the model's rows",
    ),
    "new rows as an array": (new(BY_FRAME, ARRAY), "new rows must be a frame with the columns distance, carrier"),
    "new rows as a frame": (new(BY_ARRAY, FRAME), "made from an array, so it knows no names of columns"),
    "new rows of other width": (new(BY_ARRAY, np.zeros((3, 4))), r"new rows have shape \(3, 4\); .* 1 columns"),
    "new rows missing": (new(BY_ARRAY, np.array([[np.nan]])), "new rows hold NaN or infinity, first in row 0"),
    "new rows without outcomes": (
        new(BY_FRAME, FRAME.drop(columns="late"), "log_likelihood"),
        "the outcome is column 'late', but new rows have no such column",
    ),
    "outcomes of another length": (
        new(BY_ARRAY, {"x": ARRAY, "y": OUTCOMES[:3]}, "log_likelihood"),
        r"new rows are 40, but y has shape \(3,\)",
    ),
    "nothing to predict": (new(OWN, None), r"does not say what to predict; pass function\(position, row\)"),
    "rows of another shape": (
        new(OWN, {"y": np.zeros((3, 2))}, function=lambda at, row: row["y"]),
        r"rows\['y'\] has rows of shape \(2,\)",
    ),
    "no draws": (new(BY_ARRAY, ARRAY, num_draws=0), "num_draws must be a whole number of at least 1"),
    "too many numbers": (
        new(BY_ARRAY, np.zeros((3_000_000, 1), np.float32), num_draws=120),
        "are too many numbers for one array; pass num_draws=44",
    ),
    "interval of nothing": (
        lambda: BY_ARRAY().predict(ARRAY).interval(90.0),
        "mass must lie between 0 and 1, got 90.0",
    ),
    "leave-one-out of one row": (new(BY_ARRAY, 1, "loo"), "num_rows must be a whole number of at least 2"),
    # Names of own parameters.
    "coords without dims": (own(coords={"school": ["A"]}), "no axis has these names; pass dims as well"),
    "coords of no axis": (own(["school"], {"scool": ["A"]}), "coords name the axis 'scool', which dims do not have"),
    "dims as text": (own({"at": "school"}), r"dims of 'at' must be a list of names, such as \['school'\]"),
    "dims that are taken": (own(["draw"]), "each name may be there once, and not chain or draw"),
    "coords twice": (own(["school"], {"school": ["A", "A"]}), "coords of 'school' have 'A' twice"),
    "coords as text": (own(["school"], {"school": "AB"}), "coords of 'school' must be a list of names"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_fix_in_one_line(name):
    make, message = MISTAKES[name]
    with pytest.raises(ValueError, match=message) as caught:
        make()
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 300
    assert re.search(r"; |\bpass\b|\bdrop\b|\bmust\b", text), f"no fix in: {text}"


def test_the_list_is_long_enough():
    assert len(MISTAKES) >= 60


@pytest.mark.parametrize(
    ("dims", "init", "message"),
    [
        ({"b": ["school"]}, {"a": 0.0}, "dims name 'b', but a position has a"),
        ({"a": ["school"]}, {"a": 0.0}, r"dims of 'a' are \['school'\], but it has 0 axes"),
    ],
)
def test_names_that_fit_no_position(dims, init, message):
    posterior = tm.Posterior(lambda at, row: -0.5 * (row - at["a"]) ** 2, np.zeros(5, FINEST), dims=dims)
    kernel = tm.MetropolisHastings(tm.RandomWalk(0.1), tm.Exact())
    with pytest.raises(ValueError, match=message):
        tm.sample(posterior, kernel, init=init, num_samples=2, progress=False)


def test_a_start_of_another_length_names_what_it_is_for():
    posterior = tm.models.logistic_regression(FRAME, "late", intercept=True, standardise=True)
    with pytest.raises(ValueError, match="init"):
        tm.sample(posterior, init=np.zeros(3), num_samples=2, progress=False)
