import re
import sys

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import tallmc as tm
from tallmc.cli import app
from tallmc.commands.design import read_moves
from tallmc.commands.text_plot import text_plot

NUM_ROWS = 20_000
CLEAR = np.array([2.0, 5.0])
DESIGN = ["design", "--max-error", "0.02", "--rows", str(NUM_ROWS)]


@pytest.fixture
def call():
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


@pytest.fixture(scope="module")
def output():
    result = CliRunner().invoke(app, DESIGN)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def moves():
    generator = np.random.default_rng(1)
    spread = generator.uniform(0.5, 2.0, 20)
    return {"log_ratio": generator.normal(-(spread**2) / 2, spread), "spread": spread}


def save_npz(path, moves):
    np.savez(path, **moves)


def save_csv(path, moves):
    lines = [
        "move, log_ratio, spread",
        *(f"{i}, {a}, {b}" for i, (a, b) in enumerate(zip(*moves.values(), strict=True))),
    ]
    path.write_text("\n".join(lines))


def rule_of(output):
    """Runs the last line, as a reader would."""
    names = {"tm": tm}
    exec(output.rstrip("\n").splitlines()[-1], names)
    return names["rule"]


def settings(rule):
    return rule.epsilon, rule.batch_size, rule.boundary


def table_of(output):
    """Cells of the table, line by line."""
    lines = [line.strip("│|").split("│") for line in output.splitlines() if re.match("│.*│", line)]
    return [[cell.strip() for cell in line] for line in lines]


def test_the_last_line_builds_the_rule_of_worst_case(output):
    assert settings(rule_of(output)) == settings(tm.design.worst_case(0.02, NUM_ROWS))


def test_the_table_has_every_candidate_by_batch_size(output):
    candidates = tm.design.worst_case_candidates(0.02, NUM_ROWS)
    table = table_of(output)
    expected = sorted((candidate.batch_size, candidate.boundary) for candidate in candidates)
    assert [(int(line[1].replace(",", "")), float(line[3].split()[0])) for line in table] == expected
    assert {line[3] for line in table} == {"0.5 Pocock", "0.75", "1 O'Brien-Fleming"}
    by_setting = {(candidate.batch_size, candidate.boundary): candidate for candidate in candidates}
    for line, setting in zip(table, expected, strict=True):
        candidate = by_setting[setting]
        clear = tm.design.sequential_test(CLEAR, setting[0] / NUM_ROWS, candidate.epsilon, setting[1])
        shares = [candidate.data_fraction, *clear.data_fraction]
        assert line[4] == f"{candidate.error:.3g}"
        assert float(line[5].replace(",", "")) == pytest.approx(candidate.data_fraction * NUM_ROWS, abs=0.51)
        assert [float(cell.strip(" %")) for cell in line[6:]] == pytest.approx([100 * x for x in shares], abs=0.051)


def test_one_candidate_is_marked_and_it_is_the_chosen_one(output):
    (marked,) = [line for line in table_of(output) if line[0] == "*"]
    rule = rule_of(output)
    assert (int(marked[1]), float(marked[2]), float(marked[3].split()[0])) == (
        rule.batch_size,
        rule.epsilon,
        rule.boundary,
    )


def test_the_picture_marks_the_hardest_case(output):
    rule = rule_of(output)
    assert f"● hardest case: mu_std 0, error {rule.promise.largest_error(NUM_ROWS):.3g}" in output
    error, share = "error against mu_std", "share of rows against mu_std"
    plots = output[output.index(error) : output.index("● hardest case")]
    assert share in plots
    assert plots.count("│●") == 2
    assert re.search("[\u2801-\u28ff]", plots)


def test_a_narrow_terminal_gets_all_digits_and_the_plots_one_below_the_other(call, monkeypatch):
    monkeypatch.setattr("tallmc.cli._console", lambda: Console(width=80))
    result = call("design", "--max-error", "0.02", "--rows", "40000")
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80
    assert "…" not in result.output
    assert re.search(r"^ \* ", result.output, re.MULTILINE)
    first, axis, second = (result.output.index(text) for text in ("error against", "└", "share of rows against"))
    assert first < axis < second


@pytest.mark.parametrize("log", [False, True])
def test_text_plots_put_values_where_they_belong(log):
    x = np.linspace(0.0, 1.0, 88)
    y = 10 ** (-4 * x) if log else 1 - x
    lines = text_plot("falling", x, y, [(0.5, float(y[44]), "●")], log=log, plain=True).plain.splitlines()
    assert lines[0].strip() == "falling"
    assert [line.split("|")[0].strip() for line in (lines[1], lines[9])] == ["1", "0.0001" if log else "0"]
    curve = [line.split("|")[1] for line in lines[1:10]]
    assert (curve[0][0], curve[-1][-1]) == ("*", "*")
    assert abs(curve[4].index("●") - 22) <= 1
    left_ends = [len(line) - len(line.lstrip()) for line in curve]
    assert left_ends == sorted(left_ends)


def test_text_plots_cut_off_what_is_too_small():
    x = np.linspace(0.0, 1.0, 88)
    lines = text_plot("steep", x, 10 ** (-100 * x), [(1.0, 1e-100, "●")], log=True).plain.splitlines()
    assert lines[9].split("│")[0].strip() == "1e-06"
    assert "●" not in "".join(lines)


@pytest.mark.parametrize(("name", "save"), [("moves.npz", save_npz), ("moves.csv", save_csv)])
def test_moves_give_the_average_design(call, tmp_path, moves, name, save):
    save(tmp_path / name, moves)
    result = call(*DESIGN, "--moves", str(tmp_path / name))
    assert result.exit_code == 0, result.output
    known = read_moves(tmp_path / name)
    np.testing.assert_allclose(known.log_ratio, moves["log_ratio"], rtol=1e-12)
    expected = tm.design.cheapest(tm.design.average_candidates(0.02, NUM_ROWS, known))
    assert settings(rule_of(result.output)) == settings(expected.rule)
    assert "20 moves" in result.output
    assert "◆ median of the moves: mu_std " in result.output


def test_moves_of_a_posterior_can_be_saved_for_the_command(call, tmp_path):
    rows = np.random.default_rng(0).normal(size=2000).astype(np.float32)
    posterior = tm.Posterior(lambda mean, row: -0.5 * (row - mean) ** 2, rows)
    positions = np.linspace(-0.05, 0.05, 11, dtype=np.float32)
    tried = positions, positions[::-1] + np.float32(0.01)
    moments = tm.design.trial_moments(posterior, tried)
    save_npz(tmp_path / "moves.npz", {"log_ratio": moments.log_ratio, "spread": moments.spread})
    result = call("design", "--max-error", "0.02", "--rows", "2000", "--moves", str(tmp_path / "moves.npz"))
    assert result.exit_code == 0, result.output
    assert settings(rule_of(result.output)) == settings(tm.design.average(0.02, posterior, tried))


def test_few_rows_are_all_read(call):
    result = call("design", "--max-error", "0.02", "--rows", "300")
    assert result.exit_code == 0, result.output
    assert "hardest case: mu_std 0, error 0, 100.0 % of the rows" in result.output
    assert rule_of(result.output).batch_size == 300


def test_picture(call, tmp_path):
    for rows in ("300", "20000"):
        path = tmp_path / f"{rows}.png"
        result = call("design", "--max-error", "0.02", "--rows", rows, "--picture", str(path))
        assert result.exit_code == 0, result.output
        assert path.read_bytes().startswith(b"\x89PNG")
        assert f"Picture: {path}" in result.output


def test_a_picture_without_matplotlib_names_the_fix(call, monkeypatch, tmp_path):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    result = call(*DESIGN, "--picture", str(tmp_path / "design.png"))
    assert result.exit_code == 2
    assert result.stderr == "tallmc: a picture needs matplotlib; run: pip install 'tallmc[plots]'\n"


def assert_one_line(result, hint):
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    assert hint in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--max-error", "0", "--rows", "1000"], "max_error must lie between 0 and 0.5"),
        (["--max-error", "0.5", "--rows", "1000"], "max_error must lie between 0 and 0.5"),
        (["--max-error", "nan", "--rows", "1000"], "max_error must lie between 0 and 0.5"),
        (["--max-error", "small", "--rows", "1000"], "--max-error"),
        (["--max-error", "0.01", "--rows", "0"], "--rows"),
        (["--max-error", "0.01"], "--rows"),
        (["--max-error", "0.01", "--rows", "1000", "--moves", "no-such-file.npz"], "no-such-file.npz"),
        (
            ["--max-error", "0.01", "--rows", "1000", "--picture", "no/such/directory/design.png"],
            "directory that exists",
        ),
        (["--max-error", "0.01", "--rows", "1000", "--picture", "design.txt"], "name a .png file"),
    ],
)
def test_bad_input_gives_one_line_and_code_2(call, arguments, hint):
    assert_one_line(call("design", *arguments), hint)


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("moves.npz", {"log_ratio": np.zeros(3)}, "there is no spread"),
        ("moves.npz", {"log_ratio": np.zeros(3), "spread": np.ones(2)}, "the shapes are (3,) and (2,)"),
        ("moves.npz", {"log_ratio": np.zeros((3, 1)), "spread": np.ones((3, 1))}, "the shapes are"),
        ("moves.npz", {"log_ratio": np.zeros(0), "spread": np.ones(0)}, "the shapes are"),
        ("moves.npz", {"log_ratio": np.zeros(2), "spread": np.array([1.0, -1.0])}, "negative spreads"),
        ("moves.npz", {"log_ratio": np.array([0.0, np.nan]), "spread": np.ones(2)}, "missing, infinite"),
        ("moves.npz", {"log_ratio": np.array([{}]), "spread": np.ones(1)}, "pickle"),
        ("moves.npz", b"", "cannot take moves"),
        ("moves.npz", b"PK\x03\x04 and no more", "cannot take moves"),
        ("moves.npz", b"\x93NUMPY", "cannot take moves"),
        ("moves.npz", b"text", "cannot take moves"),
        ("moves.csv", b"", "cannot take moves"),
        ("moves.csv", b"\xff\xfe\x00", "cannot take moves"),
        ("moves.csv", b"a,b\n1,2\n", "there is no log_ratio and no spread"),
        ("moves.csv", b"log_ratio,spread\n1,much\n", "cannot take moves"),
        ("moves.csv", b"log_ratio,spread\n1,\n", "missing, infinite"),
        ("moves.csv", b"log_ratio,spread\n1,2\n1,2,3,4\n", "cannot take moves"),
        ("moves.txt", b"1 2\n", "its name ends in '.txt'"),
    ],
)
def test_bad_files_of_moves_give_one_line_and_code_2(call, tmp_path, name, content, hint):
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        save_npz(path, content)
    assert_one_line(call(*DESIGN, "--moves", str(path)), hint)


def test_a_plain_array_is_no_file_of_moves(call, tmp_path):
    with (tmp_path / "moves.npz").open("wb") as file:
        np.save(file, np.zeros((3, 2)))
    assert_one_line(call(*DESIGN, "--moves", str(tmp_path / "moves.npz")), "cannot take moves")


def test_help_explains_the_options(call):
    result = call("design", "--help")
    assert result.exit_code == 0
    for text in ("--max-error", "--rows", "--moves", "--picture", "mu_std"):
        assert text in result.output
