"""What people see of results and of progress: at a prompt, in a log, and in an executed notebook."""

import dataclasses
import io
import re

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

import tallmc as tm
from tallmc.console import displays
from tallmc.console.displays import LogLines, NotebookBar
from tallmc.console.progress import Bar
from tests.test_report import made_up_run


@pytest.fixture(scope="module")
def run():
    return dataclasses.replace(made_up_run(tm.MHMinibatch(), 60, 3000), known_doubts=("first <doubt>", "second"))


def test_a_run_is_one_line_at_a_prompt(run):
    text = repr(run)
    assert "\n" not in text
    assert text.startswith("<Run: 2 chains of 60 draws of mean (2), offset; MHMinibatch, 4")
    assert text.endswith("of 3,000 rows a step; 2 doubts, see .doubts>")
    assert len(text) < 200


def test_a_run_in_a_notebook_has_its_doubts_before_its_table(run):
    page = run._repr_html_()
    assert page.index("first &lt;doubt&gt;") < page.index("mean[0]")
    assert "ess_bulk" in page


def test_results_of_optimisers_and_audits_are_short():
    X, y, _ = tm.models.generate_logistic(2000, 3)
    found = tm.optimise.logistic(X, y, progress=False)
    assert repr(found).startswith("<OptimiseResult: converged, ")
    assert repr(found).count("\n") == 0
    assert "gradient norm" in found._repr_html_()
    audit = tm.Audit(0.1, (0.05, 0.2), "share < of", np.zeros(64), np.zeros(64), np.zeros(64, bool), 640)
    assert repr(audit) == f"<Audit: {audit}>"
    assert "share &lt; of" in audit._repr_html_()


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_a_log_has_a_line_every_few_seconds():
    clock, lines = Clock(), []
    bar = Bar(LogLines(every=5.0, clock=clock, write=lines.append), total=1000, num_warmup=300)
    for done in range(0, 1001, 10):
        clock.now = done / 50  # 20 seconds in all
        if bar.due():
            bar(done, {"accepted": np.asarray([True, False]), "rows": np.asarray([3, 5])})
    assert len(lines) == 4
    assert lines[0] == "tallmc: warm-up  250 of 1,000 (25 %), accepted 0.50  rows/step 4; 5 s, about 15 s to go"
    assert lines[-1].startswith("tallmc: sampling 1,000 of 1,000 (100 %)")
    assert "to go" not in lines[-1]


def test_what_is_quick_leaves_no_line(capsys, monkeypatch):
    monkeypatch.setattr(displays, "is_terminal", lambda: False)
    place = displays.display("", 10, stays=True)
    assert isinstance(place, LogLines)
    for done in range(10):
        place.show("sampling", done, 10, "")
    place.close()
    assert capsys.readouterr() == ("", "")


def test_a_notebook_has_a_bar_that_is_drawn_anew():
    shown = []

    def publish(bundle):
        shown.append(bundle)
        return shown.append

    bar = NotebookBar(stays=True, publish=publish)
    for done in (1, 2, 3):
        bar.show("sampling", done, 3, "a < b")
    bar.close()
    assert len(shown) == 2  # at once, and when it was over
    assert "value='3' max='3'" in shown[-1]["text/html"]
    assert "a &lt; b" in shown[-1]["text/html"]
    assert shown[-1]["text/plain"].startswith("sampling  3 of 3  a < b")
    passing = NotebookBar(stays=False, publish=publish)
    passing.show("looking", 1, 2, "")
    passing.close()
    assert shown[-1] == {"text/html": "", "text/plain": ""}


def test_a_report_is_a_page(run, tmp_path):
    assert run.report(tmp_path / "run.html", title="A title") == tmp_path / "run.html"
    assert "A title" in (tmp_path / "run.html").read_text()
    with pytest.raises(ValueError, match="must end in"):
        run.report(tmp_path / "run.pdf")
    with pytest.raises(ValueError, match="there is no folder"):
        run.report(tmp_path / "nowhere" / "run.html")


CELLS = [
    "import numpy as np, pandas as pd, tallmc as tm\n"
    "generator = np.random.default_rng(0)\n"
    'distance, carrier = generator.normal(size=20_000), generator.choice(["AA", "B6"], 20_000)\n'
    'frame = pd.DataFrame({"distance": distance, "carrier": carrier})\n'
    'frame["late"] = generator.random(20_000) < 1 / (1 + np.exp(-frame.distance))',
    'run = tm.sample(tm.models.logistic_regression("late ~ distance + C(carrier)", frame))\nrun',
    "run.summary()",
    "run.predict(frame[:3])",
    "tm.optimise.mode(run.posterior)",
    "run.audit",
]


@pytest.mark.slow
def test_an_executed_notebook_shows_progress_and_results():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    outputs = [cell.outputs for cell in notebook.cells]
    assert not outputs[0]
    pages = ["".join(str(out.get("data", {}).get("text/html", "")) for out in cell) for cell in outputs]
    assert re.search(r"<progress value='2000' max='2000'", pages[1])  # the bar as it ended
    assert "beta[C(carrier)[T.B6]]" in pages[1]
    assert all(word in pages[1] for word in ("4 chains of 1,000", "MHSS", "audit"))
    assert "rows per step" in pages[2]
    assert "expected outcomes, 4,000 draws" in pages[3]
    assert "gradient norm" in pages[4]
    assert "steps decided again" in pages[5]
    said = "".join(out.text for cell in outputs for out in cell if out.output_type == "stream")
    assert "found the mode" in said
    assert "Traceback" not in said
    assert "ipywidgets" not in said


def test_rich_is_left_alone_at_a_terminal():
    from rich.console import Console

    console = Console(force_terminal=True, width=120, file=io.StringIO(), record=True)
    bar = displays.display("looking", None, stays=False, console=console)
    bar.show("looking", 1, 4, "")
    bar.close()
    assert "looking" in console.export_text()
