import re
import sys

import pytest
from typer.testing import CliRunner

import tallmc as tm
from tallmc.cli import app
from tallmc.commands import doctor

SMALL = ["demo", "--rows", "5000", "--draws", "20", "--warmup", "20", "--chains", "2", "--columns", "3"]


@pytest.fixture
def call():
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "demo.html"
    return CliRunner().invoke(app, [*SMALL, "--seed", "3", "--report", str(path)]), path


def test_demo_compares_both_runs(demo):
    result, _ = demo
    assert result.exit_code == 0, result.output
    for text in (
        "5,000 rows",
        "temperature 1",
        "(MHSS)",
        "tm.sample",
        "all rows",
        "2, 20",
        "steps a second",
        "Agreement:",
    ):
        assert text in result.output
    assert len(re.findall(r"coefficient \[\d\]", result.output)) == 3


def test_demo_writes_a_self_contained_report(demo):
    _, path = demo
    page = path.read_text(encoding="utf-8")
    assert "tm.sample against tests on all rows" in page
    assert not re.search(r"(?:src|href)\s*=\s*['\"]?\s*(?:https?:)?//", page)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["demo", "--rows", "-3"], "--rows"),
        (["demo", "--rows", "many"], "--rows"),
        (["demo", "--draws", "0"], "--draws"),
        (["demo", "--rows", "100", "--temperature", "-1"], "temperature must be a positive number"),
        (["demo", "--rows", "100", "--temperature", "nan"], "temperature must be a positive number"),
        (["demo", "--rows", "100", "--report", "no/such/directory/report.html"], "directory that exists"),
        (["demo", "--no-such-option"], "--no-such-option"),
        (["demo", "surplus"], "surplus"),
        (["dem"], "demo"),
    ],
)
def test_bad_input_gives_one_line_and_code_2(call, arguments, hint):
    result = call(*arguments)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert hint in result.stderr
    assert "Traceback" not in result.output


def test_too_coarse_a_precision_is_bad_input(call):
    result = call("demo", "--rows", "2000", "--columns", "1", "--temperature", "1e-14", "--report", "unused.html")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "too coarse" in result.stderr


def test_version(call):
    result = call("--version")
    assert (result.exit_code, result.output) == (0, f"tallmc {tm.__version__}\n")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["demo", "--help"], ["doctor", "--help"]])
def test_help(call, arguments):
    result = call(*arguments)
    assert result.exit_code == 0
    assert "Usage" in result.output
    if not arguments or arguments == ["--help"]:
        assert "demo" in result.output
        assert "doctor" in result.output


def test_demo_needs_no_plotting_library(call, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "arviz_plots", None)
    path = tmp_path / "report.html"
    result = call(*SMALL, "--seed", "3", "--report", str(path))
    assert result.exit_code == 0
    assert "<svg" in path.read_text()


@pytest.mark.parametrize("sound", [True, False])
def test_doctor_says_ok_or_failed(call, monkeypatch, sound):
    findings = [doctor.Finding(True, "first", "0.1"), doctor.Finding(sound, "second", "0.2 [of 3]")]
    monkeypatch.setattr(doctor, "_findings", lambda: iter(findings))
    result = call("doctor")
    assert result.exit_code == (0 if sound else 1)
    assert f"{'ok    ' if sound else 'FAILED'} second: 0.2 [of 3]" in result.output
    for name in ("python", "jaxlib", "equinox", "arviz-stats", "devices", "cpu cores", "x64", "'highest'"):
        assert name in result.output


def test_a_sound_rule_passes_the_doctor():
    finding = doctor.acceptance_frequency("MHMinibatch", tm.MHMinibatch())
    assert finding.ok, finding.figure


class TenthLess(type(tm.BARKER)):
    def probability(self, log_ratio):
        return 0.9 * tm.BARKER.probability(log_ratio)


class Careless(tm.ExactBarker):
    """Declares a formula that it does not keep."""

    formula = TenthLess()


def test_a_broken_rule_fails_the_doctor():
    finding = doctor.acceptance_frequency("Careless", Careless())
    assert not finding.ok
