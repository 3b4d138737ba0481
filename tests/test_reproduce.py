"""The runner of the papers' experiments, on small ones; the experiments themselves say whether the papers hold."""

import dataclasses
import gzip
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tallmc.cli import app
from tallmc.reproduce import Expected, Figure, compare, experiment_named, experiments, markdown, read_result, reproduce
from tallmc.reproduce import experiment as experiment_module
from tallmc.reproduce.expected import Difference, Tolerance
from tallmc.reproduce.folder import DataFolder, known_files
from tallmc.reproduce.page import write_page
from tallmc.reproduce.runner import replace_settings
from tallmc.reproduce.svg import Mark, Series, plot

SMALL = {"points": [100], "sigmas": [0.9, 1.0], "ridges": [10.0], "best_sigmas": [1.4]}


def wanted(figure, paper, **others):
    tolerance = others.pop("tolerance", {"digits": True})
    return {"figure": figure, "paper": paper, "source": "Table 3", "tolerance": tolerance, **others}


EXPECTED = (
    wanted("best, sigma 1.4", "4.9e-4"),
    wanted("N 100, sigma 0.9, lambda 10", "9.9e-9"),
    wanted("N 100, sigma 1, lambda 10", "1", tolerance={"at_most": 1.0}),
)


@pytest.fixture
def small():
    return dataclasses.replace(replace_settings(experiment_named("correction-law"), **SMALL), expected=EXPECTED)


@pytest.fixture
def call():
    return lambda *arguments, **options: CliRunner().invoke(app, ["reproduce", *map(str, arguments)], **options)


def silent(text):
    del text


@pytest.mark.parametrize("name", experiments())
@pytest.mark.parametrize("quick", [True, False])
def test_every_experiment_is_whole(name, quick):
    one = experiment_named(name)
    kind = one.measured_by(quick=quick)
    assert kind.parts
    assert len(set(kind.parts)) == len(kind.parts)
    assert set(kind.data_files) <= set(known_files())
    figures = [expected.figure for expected in one.figures(quick=quick)]
    assert figures
    assert len(set(figures)) == len(figures)
    assert all(expected.source for expected in one.figures(quick=quick))
    assert set(one.quick) <= set(one.settings), "quick changes settings, it has none of its own"


@pytest.mark.parametrize(
    ("tolerance", "paper", "ours", "holds"),
    [
        ({"digits": True}, "2.6e-3", 2.55e-3, True),
        ({"digits": True}, "2.6e-3", 2.54e-3, False),
        ({"digits": True}, "13,540.5", 13540.54, True),
        ({"relative": 0.1}, "182.3 ± 11.4", 164.5, True),
        ({"relative": 0.1}, "182.3 ± 11.4", 163.9, False),
        ({"absolute": 0.02}, "14.2 %", 14.23, False),
        ({"factor": 2}, "1.2e-12", 2.3e-12, True),
        ({"factor": 2}, "1.2e-12", 0.5e-12, False),
        ({"at_most": 0.01}, "0.01", 0.011, False),
        ({"at_least": 0.99}, "99 %", 0.995, True),
        ({"between": [1, 2]}, "one to two", 2.5, False),
        ({"relative": 0.1}, "182.3", float("nan"), False),
    ],
)
def test_a_line_holds_within_its_tolerance(tolerance, paper, ours, holds):
    expected = Expected("x", "x", paper, "Table 1", Tolerance.read(tolerance, "here"))
    assert compare(expected, Figure(ours)).holds == holds


def test_standard_errors_are_allowed_for_only_when_asked():
    for extra, holds in (({}, False), ({"standard_errors": 2}, True)):
        tolerance = Tolerance.read({"absolute": 0.1, **extra}, "here")
        assert compare(Expected("x", "x", "1.0", "", tolerance), Figure(1.15, 0.03)).holds == holds


@pytest.mark.parametrize(("ours", "understood"), [(1.0, True), (2.0, True), (3.0, False)])
def test_a_reason_counts_only_if_it_foretells_our_figure(ours, understood):
    known = Difference("2.0", Tolerance.read({"relative": 0.1}, "here"), "The text means twice that.")
    expected = Expected("x", "x", "1.0", "", Tolerance.read({"relative": 0.1}, "here"), known)
    line = compare(expected, Figure(ours))
    assert line.understood == understood
    assert line.holds == (ours == 1.0)
    assert ("twice" in line.reason) == (ours == 2.0)


def test_what_was_not_measured_does_not_hold():
    line = compare(Expected("x", "x", "1.0", "", Tolerance.read({"at_most": 2}, "here")), None)
    assert (line.holds, line.understood) == (False, False)


def test_a_run_writes_what_it_found_and_goes_on_where_it_stopped(small, tmp_path):
    said = []
    whole = reproduce(small, tmp_path, DataFolder(), quick=True, say=said.append)
    assert [line.verdict for line in whole.lines] == ["holds", "differs", "holds"]
    assert not whole.understood
    folder = tmp_path / "correction-law-quick"
    table = json.loads((folder / "result.json").read_text())
    assert table["settings"]["points"] == [100]
    assert {"python", "tallmc", "jax"} <= set(table["versions"])
    assert table["machine"]["cpu_cores"] >= 1
    assert read_result(folder / "result.json").lines == whole.lines
    assert all(ElementTree.fromstring(path.read_text()) is not None for path in (folder / "pictures").glob("*.svg"))

    # As if it had been stopped before the last part, and in the middle of writing the second one.
    (folder / "parts" / "the-best-laws.json").unlink()
    (folder / "parts" / "n-100-sigma-1.json").write_text('{"fingerprint"')
    said.clear()
    assert reproduce(small, tmp_path, DataFolder(), quick=True, say=said.append).lines == whole.lines
    assert ["kept" in text for text in said] == [True, False, False]

    other = replace_settings(small, ridges=[20.0])
    said.clear()
    reproduce(other, tmp_path, DataFolder(), quick=True, say=said.append)
    assert not any("kept" in text for text in said), "other settings are another experiment"


def test_the_page_needs_nothing_else(small, tmp_path):
    result = reproduce(small, tmp_path, DataFolder(), quick=True, say=silent)
    page = write_page([result], tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<svg") == len(result.pictures) == 1
    assert not re.search(r"(?:src|href)\s*=\s*['\"]?\s*(?:https?:)?//|@import|url\(", page)
    for text in ("name='viewport'", "prefers-color-scheme: dark", "@media print", "differs", "4.9e-4"):
        assert text in page
    assert page.count("<tr>") == 1 + len(result.lines)


def test_pictures_are_sound():
    series = [
        Series("a < b", [1, 10, 100], [1e-3, float("nan"), 1.0]),
        Series("points", [2.0, 20.0], [0.0, 0.5], Mark.POINTS, 1),
        Series("", [], [], Mark.DASHED, 2),
    ]
    tree = ElementTree.fromstring(plot("title & more", series, "x", "y", log_x=True, log_y=True))
    assert "nan" not in ElementTree.tostring(tree, encoding="unicode")
    bars = plot("bars", [Series("rows", [1, 2, 3], [3, 2, 5], Mark.BARS)], "x", "y")
    assert ElementTree.fromstring(bars).attrib["viewBox"]


def test_the_list_names_every_experiment(call):
    result = call()
    assert result.exit_code == 0
    assert all(name in result.output for name in experiments())


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["no-such"], "there is no experiment"),
        (["--all", "correction-law"], "not both"),
        (["--report", "page.html"], "--report needs"),
        (["correction-law", "--report", "no/such/folder/page.html"], "directory that exists"),
        (["correction-law", "--data-dir", "no/such/folder"], "no/such/folder does not exist"),
        (["correction-law", "--out", __file__], "name a folder by --out"),
    ],
)
def test_bad_input_gives_one_line_and_code_2(call, arguments, hint):
    result = call(*arguments)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert hint in result.stderr


def test_data_are_checked(tmp_path):
    (tmp_path / "letor4.npz").write_bytes(b"not this")
    with pytest.raises(ValueError, match="checksum"):
        DataFolder(tmp_path).find("letor4.npz")
    (tmp_path / "letor4.npz").unlink()
    with pytest.raises(ValueError, match=r"not in .*--data-dir"):
        DataFolder(tmp_path).find("letor4.npz")


def test_what_is_fetched_is_checked_and_no_network_is_said(tmp_path, monkeypatch):
    from tallmc.reproduce import fetch

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(fetch, "_MNIST", "http://127.0.0.1:9/")
    with pytest.raises(ValueError, match=r"cannot fetch .* without a network"):
        DataFolder().find("mnist_7v9.npz")
    monkeypatch.setattr(fetch, "download", lambda address, say: gzip.compress(b"something else"))
    with pytest.raises(ValueError, match="another checksum"):
        DataFolder().find("mnist_7v9.npz")


def test_fetched_digits_are_the_described_ones():
    from tallmc.reproduce import fetch

    arrays = {"X_train": np.arange(12).reshape(6, 2), "y_train": np.array([7, 1, 9, 7, 3, 9])}
    arrays |= {"X_test": np.arange(4).reshape(2, 2), "y_test": np.array([9, 0])}
    found = fetch._of_digits(arrays, "mnist_7v9.npz")
    assert found["index_train"].tolist() == [0, 2, 3, 5]
    assert found["X_test"].tolist() == [[0, 1]]
    images = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (2, 1, 2)) + bytes([1, 2, 3, 4])
    assert fetch._read_idx(images).tolist() == [[1, 2], [3, 4]]


def test_broken_data_of_an_experiment_are_named(tmp_path):
    path = tmp_path / "broken" / "experiment.toml"
    path.parent.mkdir()
    path.write_text('title = "no more than that"')
    with pytest.raises(ValueError, match=r"cannot read broken/experiment\.toml"):
        experiment_module._read(path)
    with pytest.raises(ValueError, match="a tolerance needs one of"):
        Tolerance.read({"near": 1}, "here")


def test_the_page_of_the_documentation_shows_what_was_measured():
    path = Path(__file__).parents[1] / "docs" / "reproductions.md"
    text = path.read_text(encoding="utf-8")
    assert markdown.page(text, path.parent) == text
    assert any(markdown.kept_results(name) for name in experiments())


@pytest.mark.parametrize("name", experiments())
def test_kept_results_are_of_these_expectations(name):
    """What was measured is compared anew, so that no verdict outlives a change of what is expected."""
    for path in markdown.kept_results(name):
        kept = read_result(path)
        figures = {key: figure for part in kept.parts.values() for key, figure in part.figures.items()}
        expected = experiment_named(name).figures(quick=kept.quick)
        assert tuple(compare(one, figures.get(one.figure)) for one in expected) == kept.lines
        assert kept.about["settings"] == experiment_named(name).settings_of(quick=kept.quick)
