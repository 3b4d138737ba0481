"""`tallmc sample`: from a file to a run on disk and a report, or one line that says what is wrong with the file."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import tallmc as tm
from tallmc.cli import app

GENERATOR = np.random.default_rng(0)
ROWS = 3000
FRAME = pd.DataFrame({"distance": GENERATOR.normal(size=ROWS), "hour": GENERATOR.random(ROWS)})
FRAME["late"] = GENERATOR.random(ROWS) < 1 / (1 + np.exp(0.5 - FRAME["distance"]))
SHORT = ["--draws", "200", "--warmup", "200"]


@pytest.fixture
def call():
    return lambda *arguments: CliRunner().invoke(app, ["sample", *map(str, arguments)])


def written(folder, kind, frame=FRAME):
    path = folder / f"flights{kind}"
    if kind == ".npz":
        np.savez(path, x=frame[["distance", "hour"]].to_numpy(), late=frame["late"].to_numpy())
    elif kind == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    return path


@pytest.mark.parametrize("kind", [".parquet", ".csv", ".npz"])
def test_from_a_file_to_a_run_and_a_report(call, tmp_path, kind, monkeypatch):
    if kind == ".parquet":
        pytest.importorskip("pyarrow", reason="reading Parquet needs PyArrow")
    made = []
    monkeypatch.setattr("tallmc.commands.sample.write_report", lambda runs, path, title: made.append((path, title)))
    source, out = written(tmp_path, kind), tmp_path / "run.zarr"
    result = call(source, "--model", "logistic", "--target", "late", "--out", out, *SHORT)
    assert result.exit_code == 0, result.output
    lines = result.output.strip().splitlines()
    assert lines[-1] == f"Report: {tmp_path / 'run.html'}"
    assert made == [(tmp_path / "run.html", f"Logistic regression of late, flights{kind}")]
    names = ["intercept", *(("x0", "x1") if kind == ".npz" else ("distance", "hour"))]
    assert [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in names] == names
    run = tm.load(out)
    assert run.samples.shape == (4, 200, 3)
    assert abs(run.samples.mean((0, 1))[1] - 1) < 0.3


@pytest.mark.slow
@pytest.mark.parametrize("model", ["probit", "linear", "robust", "poisson"])
def test_the_other_models_and_the_report_itself(call, tmp_path, model):
    frame = FRAME.assign(late=FRAME["late"].astype(int))
    out = tmp_path / "run.zarr"
    result = call(
        written(tmp_path, ".csv", frame), "--model", model, "--target", "late", "--out", out, "--no-intercept", *SHORT
    )
    assert result.exit_code == 0, result.output
    assert result.output.strip().splitlines()[-1] == f"Report: {tmp_path / 'run.html'}"
    assert "regression of late" in (tmp_path / "run.html").read_text()


def test_help_has_an_example(call):
    result = call("--help")
    assert result.exit_code == 0
    words = " ".join(result.output.split())
    assert "tallmc sample flights.parquet --model logistic --target late --out run.zarr" in words
    assert "sample" in CliRunner().invoke(app, ["--help"]).output


GOOD = {"--model": "logistic", "--target": "late"}
BAD = [
    ({"--model": "forest"}, FRAME, "'forest' is not one of"),
    ({"--target": "delay"}, FRAME, "flights.csv has no column 'delay'; there are distance, hour, late"),
    ({"--columns": "distance,hours"}, FRAME, "flights.csv has no column 'hours'"),
    ({"--columns": "distance,late"}, FRAME, "column 'late' is the target and among the columns"),
    ({}, FRAME[["late"]], "has no column but the target 'late'"),
    ({}, FRAME.assign(carrier="AA"), "column 'carrier' holds"),
    ({}, FRAME.assign(hour=FRAME["hour"].where(FRAME.index != 7)), "column 'hour' has no value in row 7"),
    ({"--target": "hour"}, FRAME, "column 'hour' must hold only 0 and 1"),
    ({"--model": "poisson", "--target": "hour"}, FRAME, "column 'hour' must hold counts"),
    ({"--out": "no/such/run.zarr"}, FRAME, "cannot write the run to no/such/run.zarr; name a place in a directory"),
    ({"--report": "no/such/run.html"}, FRAME, "cannot write the report to no/such/run.html"),
    ({"--draws": "0"}, FRAME, "--draws"),
    ({"--prior-precision": "-1"}, FRAME, "--prior-precision"),
    ({}, FRAME[:0], "flights.csv has no rows"),
]


@pytest.mark.parametrize(("options", "frame", "said"), BAD)
def test_bad_input_ends_in_one_line(call, tmp_path, options, frame, said):
    given = GOOD | {"--out": tmp_path / "run.zarr"} | options
    result = call(written(tmp_path, ".csv", frame), *(part for pair in given.items() for part in pair))
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert said in result.stderr


@pytest.mark.parametrize(("kind", "said"), [(".txt", "cannot tell what"), (".npz", "cannot read"), (".csv", "cannot")])
def test_files_that_cannot_be_read(call, tmp_path, kind, said):
    path = tmp_path / f"flights{kind}"
    path.write_bytes(b"" if kind == ".csv" else b"nothing of the kind")
    result = call(path, "--model", "logistic", "--target", "late", "--out", tmp_path / "run.zarr")
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_file_that_is_not_there(call, tmp_path):
    result = call(tmp_path / "none.csv", "--model", "logistic", "--target", "late", "--out", tmp_path / "run.zarr")
    assert result.exit_code == 2
    assert "none.csv" in result.stderr
