"""Tall data on disk: what goes in comes out, in random order; what is wrong is refused with row and column."""

import json
import os
import shutil
import signal
import subprocess
import sys

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import tallmc as tm
from tallmc.cli import app
from tallmc.disk.manifest import FILE
from tallmc.disk.shuffle import keys_of
from tallmc.feed.blocks import BlockTable
from tallmc.feed.weighted import RowWeights
from tallmc.numerics.scratch import on_disk

NUM_ROWS = 20_000


@pytest.fixture(scope="module")
def frame():
    generator = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "dose": generator.normal(1e6, 2.0, NUM_ROWS),
            "visits": generator.integers(0, 9, NUM_ROWS),
            "city": generator.choice(["Rome", "Oslo", "Lima"], NUM_ROWS),
            "y": generator.integers(0, 2, NUM_ROWS),
        }
    )


def ingested(source, path, **options):
    return tm.open_dataset(tm.ingest(source, path, progress=False, **options))


def as_parquet(frame, folder):
    frame.to_parquet(folder / "rows.parquet", row_group_size=3000)
    return folder / "rows.parquet"


def as_csv(frame, folder):
    frame.to_csv(folder / "rows.csv", index=False)
    return folder / "rows.csv"


def as_several(frame, folder):
    (folder / "parts").mkdir()
    frame[:7000].to_parquet(folder / "parts" / "0.parquet")
    frame[7000:].to_parquet(folder / "parts" / "1.parquet")
    return folder / "parts"


def as_arrow(frame, folder):
    feather = pytest.importorskip("pyarrow.feather")
    feather.write_feather(frame, str(folder / "rows.arrow"), compression="uncompressed")
    return folder / "rows.arrow"


def as_url(frame, folder):
    pytest.importorskip("fsspec")
    return f"file://{as_parquet(frame, folder)}"


def as_iterator(frame, folder):
    return (frame[start : start + 777] for start in range(0, NUM_ROWS, 777))


TABLES = [as_parquet, as_csv, as_several, as_arrow, as_url, as_iterator]


@pytest.mark.parametrize("made", TABLES)
def test_every_source_makes_the_same_dataset(made, frame, tmp_path):
    options = {"outcome": "y", "one_hot": ["city"], "standardise": ["dose"], "intercept": True}
    expected = ingested(frame, tmp_path / "expected", **options)
    rows = ingested(made(frame, tmp_path), tmp_path / "rows", **options)
    np.testing.assert_allclose(rows.data["x"], expected.data["x"], atol=1e-6)
    np.testing.assert_array_equal(rows.data["y"], expected.data["y"])
    rows.verify()


def test_columns_are_what_they_were(frame, tmp_path):
    rows = ingested(
        frame, tmp_path / "rows", outcome="y", one_hot=["city"], standardise=["dose"], intercept=True, dtype="float64"
    )
    x, order = rows.data["x"], np.argsort(keys_of(0, NUM_ROWS, seed=0))
    assert rows.columns["x"] == ("(intercept)", "dose", "visits", "city=Lima", "city=Oslo", "city=Rome")
    np.testing.assert_array_equal(x[:, 0], 1)
    dose = frame["dose"].to_numpy()[order]
    np.testing.assert_allclose(x[:, 1], (dose - dose.mean()) / dose.std(), atol=1e-6)
    (leaf, _) = rows.manifest.leaves
    np.testing.assert_allclose(x[:, 1] * leaf.scales[1] + leaf.centres[1], dose, rtol=1e-12)
    np.testing.assert_array_equal(x[:, 2], frame["visits"].to_numpy()[order])
    np.testing.assert_array_equal(x[:, 4], (frame["city"] == "Oslo").to_numpy()[order])
    np.testing.assert_array_equal(rows.data["y"], frame["y"].to_numpy()[order])


@pytest.mark.parametrize("ending", ["npy", "npz", "arrays"])
def test_arrays_keep_their_shapes_and_kinds(ending, tmp_path):
    arrays = {"x": np.arange(12_000, dtype=np.int16).reshape(2000, 3, 2), "y": np.arange(2000.0)}
    source = arrays
    if ending == "npy":
        source, arrays = tmp_path / "rows.npy", arrays["x"]
        np.save(source, arrays)
    if ending == "npz":
        source = tmp_path / "rows.npz"
        np.savez(source, **arrays)
    rows = ingested(source, tmp_path / "rows", seed=5)
    order = np.argsort(keys_of(0, 2000, seed=5))
    for name, stored in [("", rows.data)] if ending == "npy" else rows.data.items():
        array = arrays[name] if name else arrays
        assert stored.dtype == array.dtype
        np.testing.assert_array_equal(stored, array[order])


def test_the_order_depends_on_the_seed_alone(tmp_path):
    numbers = np.arange(5000.0)
    first = ingested(numbers, tmp_path / "a").data
    others = [
        ingested((numbers[start : start + 100] for start in range(0, 5000, 100)), tmp_path / "b").data,
        ingested(np.repeat(numbers[:, None], 300, 1), tmp_path / "c", memory=2**20).data[:, 0],  # files in parts
    ]
    for other in others:
        np.testing.assert_array_equal(other, first)
    assert not np.array_equal(ingested(numbers, tmp_path / "d", seed=1).data, first)


def test_any_two_places_hold_any_two_rows_equally_often():
    """Of 3,000 orders of five rows: chi-square of all 120, false alarm 1e-4."""
    orders = np.stack([np.argsort(keys_of(0, 5, seed)) for seed in range(3000)])
    counts = np.bincount(np.unique(orders, axis=0, return_inverse=True)[1].ravel(), minlength=120)
    assert len(counts) == 120
    assert np.sum((counts - 25.0) ** 2) / 25 < 183.6  # of 119 degrees of freedom


REFUSED = {
    "nan": (lambda f: f.assign(dose=f["dose"].where(f.index != 1234)), {}, "'dose' holds NaN or infinity in row 1234"),
    "text": (lambda f: f, {"one_hot": []}, "'city' holds '(Rome|Oslo|Lima)' in row 0"),
    "missing category": (
        lambda f: f.assign(city=f["city"].where(f.index != 7)),
        {},
        "'city' has no value in row 7",
    ),
    "many categories": (lambda f: f, {"one_hot": ["city", "dose"]}, "more than 1000 categories"),
    "unknown column": (lambda f: f, {"columns": ["dosage"]}, "no column 'dosage'; there are dose, visits"),
    "unknown outcome": (lambda f: f, {"outcome": "z"}, "no column 'z'"),
    "narrow": (lambda f: f, {"columns": ["visits"], "one_hot": [], "outcome": "dose", "dtype": "int8"}, "cannot hold"),
    "objects": (lambda f: f, {"dtype": object}, "dtype must be one of numbers"),
    "one name": (lambda f: f, {"one_hot": "city"}, "put the one name into a list"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_tables_are_refused(name, frame, tmp_path):
    change, options, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        tm.ingest(change(frame), tmp_path / "rows", progress=False, **({"one_hot": ["city"], "outcome": "y"} | options))
    with pytest.raises(ValueError, match="is no dataset"):
        tm.open_dataset(tmp_path / "rows")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3\n", "ragged: row 1 has 1 columns where 2 are expected"),
        ("a,b\n1,2\n3,oops\n", "column 'b' holds 'oops' in row 1, not a number"),
        ("a,b\n" + "1,2\n" * 3_000_000 + "3,oops\n", "column 'b' holds 'oops' in row 3000000, not a number"),
        ("a,b\n1,2\n,4\n", "column 'a' holds NaN or infinity in row 1"),
    ],
)
def test_bad_csv_is_refused_with_row_and_column(text, message, tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        tm.ingest(tmp_path / "rows.csv", tmp_path / "rows", progress=False)


def test_bad_arrays_are_refused(tmp_path):
    np.save(tmp_path / "objects.npy", np.asarray([{}], object), allow_pickle=True)
    np.savez(tmp_path / "objects.npz", x=np.asarray([{}], object))
    for source, message in [
        (tmp_path / "objects.npy", "without running code from it"),
        (tmp_path / "objects.npz", "holds objects"),
        (tmp_path / "nothing.npy", "there is no file"),
        (tmp_path, "of no kind that can be read|several kinds"),
        ({"x": np.ones(3), "y": np.ones(4)}, "different lengths"),
        (iter([{"x": np.ones((3, 2))}, {"x": np.ones((3, 1))}]), "1 numbers in row 3 and 2 in those before"),
        (iter([{"x": np.ones(3)}, {"z": np.ones(3)}]), "'x' is missing from row 3 on"),
        (np.asarray([1.0, 1e300]), "a number too large for float32 in row 1"),
        (iter([]), "no batch"),
        (5, "cannot be ingested"),
    ]:
        with pytest.raises(ValueError, match=message):
            tm.ingest(source, tmp_path / "rows", dtype="float32", progress=False)
        shutil.rmtree(tmp_path / "rows", ignore_errors=True)
    tm.ingest(np.ones(3), tmp_path / "rows", progress=False)
    with pytest.raises(ValueError, match="is a dataset already"):
        tm.ingest(np.ones(3), tmp_path / "rows", progress=False)


HOSTILE = {
    "path outside": (lambda m: m["leaves"][0].update(name="../../etc/passwd"), "an array is called"),
    "absolute path": (lambda m: m["leaves"][0].update(name="/etc/passwd"), "an array is called"),
    "objects": (lambda m: m["leaves"][0].update(dtype="|O"), r"holds '\|O', not one of"),
    "fields": (lambda m: m["leaves"][0].update(dtype=[["a", "O"]]), "not one of|unhashable"),
    "more rows than there are": (lambda m: m.update(num_rows=2000), "checksums|bytes where"),
    "rows without end": (lambda m: m.update(num_rows=10**18), "claims"),
    "rows below zero": (lambda m: m.update(num_rows=-1), "num_rows is -1"),
    "rows of text": (lambda m: m.update(num_rows="1000"), "num_rows is '1000'"),
    "endless rows": (lambda m: m["leaves"][0].update(shape=[2**40]), "rows of shape"),
    "wide rows": (lambda m: m["leaves"][0].update(shape=[7]), "bytes where"),
    "no checksums": (lambda m: m["leaves"][0].update(checksums=[]), "0 checksums for 1 chunks"),
    "repeats": (lambda m: m.update(repeated=10**9), "repeats"),
    "twice": (lambda m: m["leaves"].append(m["leaves"][0]), "its arrays are"),
    "another version": (lambda m: m.update(version=2), "written by another version"),
    "another format": (lambda m: m.update(format="zip"), "of another kind"),
    "nothing": (lambda m: m.pop("leaves"), "'leaves'"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_manifests_are_refused(name, tmp_path):
    path = tm.ingest({"x": np.ones((1000, 2)), "y": np.ones(1000)}, tmp_path / "rows", progress=False)
    change, message = HOSTILE[name]
    manifest = json.loads((path / FILE).read_text())
    change(manifest)
    (path / FILE).write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=message):
        tm.open_dataset(path)


def test_damage_is_found(tmp_path):
    path = tm.ingest(np.arange(200_000.0), tmp_path / "rows", progress=False)
    with open(path / "rows.rows", "r+b") as file:
        file.seek(8 * 70_000)
        file.write(b"\x7f")
    with pytest.raises(ValueError, match=r"rows\.rows is damaged in rows 65536 to 131071"):
        tm.open_dataset(path).verify()
    with open(path / "rows.rows", "r+b") as file:
        file.truncate(8 * 70_000)
    with pytest.raises(ValueError, match="bytes where"):
        tm.open_dataset(path)
    (path / "rows.rows").unlink()
    with pytest.raises(ValueError, match=r"lacks rows\.rows"):
        tm.open_dataset(path)
    os.symlink("/etc/hostname", path / "rows.rows")
    with pytest.raises(ValueError, match="points elsewhere"):
        tm.open_dataset(path)
    (path / FILE).write_text("[" * 100_000)
    with pytest.raises(ValueError, match="not a dataset that can be opened"):
        tm.open_dataset(path)


INTERRUPTED = """
import sys, os, signal, numpy as np, tallmc as tm
from tallmc.disk import ingest as _  # noqa
import tallmc.disk.ingest
module = sys.modules["tallmc.disk.ingest"]
module._SECONDS = 0.0
writes, fatal = 0, int(sys.argv[2])
def counted(path, text, write=module.write_atomically):
    global writes
    write(path, text)
    writes += 1
    if writes == fatal:
        os.kill(os.getpid(), signal.SIGKILL)
module.write_atomically = counted
np_rows = np.arange(600_000, dtype=np.float32).reshape(300_000, 2)
tm.ingest({"x": np_rows}, sys.argv[1], standardise=["x"], progress=False, resume=len(sys.argv) > 3)
"""


def test_a_killed_ingest_goes_on(tmp_path):
    """Killed in either pass; what comes out is what would have come out."""
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    for number, fatal in enumerate((2, 100)):
        command = [sys.executable, str(script), str(tmp_path / "rows"), str(fatal), *(["resume"] if number else [])]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        with pytest.raises(ValueError, match="interrupted; go on with resume=True"):
            tm.ingest(np.ones(3), tmp_path / "rows", progress=False)
        with pytest.raises(ValueError, match="another source, seed or choice"):
            tm.ingest(np.ones(3), tmp_path / "rows", progress=False, resume=True)
    source = {"x": np.arange(600_000, dtype=np.float32).reshape(300_000, 2)}
    rows = ingested(source, tmp_path / "rows", standardise=["x"], resume=True)
    expected = ingested(source, tmp_path / "expected", standardise=["x"])
    assert rows.manifest == expected.manifest
    rows.verify()


def test_rows_are_read_where_they_lie(tmp_path):
    data = {"x": np.arange(6000.0, dtype=np.float32).reshape(3000, 2), "y": np.arange(3000)}
    rows = ingested(data, tmp_path / "rows")
    assert not rows.data["x"].flags.writeable
    assert rows.num_rows == 3000
    assert rows.like["x"].shape == (2,)
    some = np.asarray([5, 2999, 0])
    np.testing.assert_array_equal(rows.take(some)["y"], rows.data["y"][some])
    together = np.concatenate([block["y"] for block in rows.blocks(999)])
    np.testing.assert_array_equal(together, rows.data["y"])
    feed = tm.InMemoryFeed(3000, 100)
    ring = feed.arrange(rows, seed=3)
    np.testing.assert_array_equal(ring["x"], np.concatenate([rows.data["x"], rows.data["x"][:99]]))


def test_a_dataset_is_taken_in_place_of_arrays(tmp_path):
    X, y, _ = tm.models.generate_logistic(num_rows=2000, num_columns=3)
    rows = ingested({"x": X, "y": y}, tmp_path / "rows")
    at = np.asarray([0.1, 0.2, -0.3], np.float32)
    stored, given = tm.models.logistic_regression(rows), tm.models.logistic_regression(X, y)
    np.testing.assert_allclose(stored.log_density(at), given.log_density(at), rtol=1e-5)
    own = tm.Posterior(lambda mean, row: -0.5 * (row["x"][1] - mean) ** 2, rows)
    np.testing.assert_allclose(own.log_density(0.5), -0.5 * np.sum((X[:, 1] - 0.5) ** 2, dtype=float), rtol=1e-5)
    with pytest.raises(ValueError, match="leave y out"):
        tm.models.logistic_regression(rows, y)
    with pytest.raises(ValueError, match="y is missing"):
        tm.models.logistic_regression(X)
    with pytest.raises(ValueError, match="matrix x and a vector y"):
        tm.models.poisson_regression(ingested(X, tmp_path / "bare"))
    with pytest.raises(ValueError, match="only 0 and 1"):
        tm.models.logistic_regression(ingested({"x": X, "y": 2 * y}, tmp_path / "twos"))


def test_rows_are_drawn_by_weights_on_disk_as_often_as_they_weigh():
    """A chi-square of rows near the ends and of those that are never drawn, compiled and on the host: 1e-5 each."""
    generator = np.random.default_rng(1)
    weights = on_disk((1000,), np.float32, "/tmp")
    weights[:] = generator.exponential(size=1000) ** 2
    weights[[0, 63, 64, 500, 999]] = 0
    weights[960:990] = 0
    known = RowWeights.of(weights)
    assert isinstance(known.table, BlockTable)
    np.testing.assert_allclose(np.asarray(known.scales)[5], weights.mean() / weights[5], rtol=1e-6)
    count = 100_000
    high, low = (jnp.asarray(generator.integers(0, 2**32, count, np.uint32)) for _ in range(2))
    for drawn in (np.asarray(eqx.filter_jit(known.table.draw)(high, low)), known.drawn(generator, count)):
        found, expected = np.bincount(drawn, minlength=1000), count * weights / weights.sum(dtype=float)
        assert not found[weights == 0].any()
        often = expected > 5
        chi = np.sum((found[often] - expected[often]) ** 2 / expected[often])
        degrees = often.sum() - 1
        assert abs(chi - degrees) < 4.5 * np.sqrt(2 * degrees)


def test_weights_must_be_weights():
    weights = on_disk((100,), np.float32, "/tmp")
    assert np.asarray(RowWeights.of(weights).scales).tolist() == [1.0] * 100  # nobody can say anything: all alike
    weights[3] = np.nan
    with pytest.raises(ValueError, match="finite and not negative"):
        RowWeights.of(weights)


def test_the_whole_call_is_right(tmp_path):
    """Against the same rows in memory, whose draws others hold to closed forms: six Monte Carlo errors."""
    generator = np.random.default_rng(2)
    X = generator.normal(size=(200_000, 3)).astype(np.float32)
    y = (X @ np.asarray([0.5, -1.0, 2.0]) + generator.normal(size=len(X))).astype(np.float32)
    rows = ingested({"x": X, "y": y}, tmp_path / "rows")
    run = tm.sample(tm.models.linear_regression(rows, noise_sd=1.0), num_samples=1000, progress=False)
    assert run.audit is not None
    precision = X.T.astype(float) @ X + np.eye(3)
    mean, covariance = np.linalg.solve(precision, X.T.astype(float) @ y), np.linalg.inv(precision)
    deviations = np.sqrt(np.diag(covariance))
    draws = run.samples.reshape(-1, 3)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 6 * deviations / np.sqrt(1000))
    np.testing.assert_allclose(draws.std(axis=0), deviations, rtol=0.15)


def test_the_command_ingests_and_refuses_in_one_line(frame, tmp_path):
    source = as_parquet(frame, tmp_path)
    options = ["--outcome", "y", "--column", "dose", "--column", "city", "--one-hot", "city", "--standardise"]
    done = CliRunner().invoke(app, ["ingest", str(source), str(tmp_path / "rows"), *options, "--intercept"])
    assert done.exit_code == 0, done.output
    assert "20,000 rows" in done.output
    rows = tm.open_dataset(tmp_path / "rows")
    assert rows.columns["x"] == ("(intercept)", "dose", "city=Lima", "city=Oslo", "city=Rome")
    for wrong, message in (
        (["--outcome", "z"], "there is no column 'z'"),
        (["--dtype", "float99"], "'float99' is no kind of number"),
        ([], "column 'city' holds"),
    ):
        refused = CliRunner().invoke(app, ["ingest", str(source), str(tmp_path / "others"), *wrong])
        assert refused.exit_code == 2
        assert message in refused.output
        assert refused.output.count("\n") == 1
