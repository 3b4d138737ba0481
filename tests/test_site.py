"""The documentation site: its links, its reference of all public names, and notebooks that run."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import tallmc as tm

ROOT = Path(__file__).parents[1]
GATHER = runpy.run_path(str(ROOT / "docs/site/gather.py"), run_name="not_run")
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))


def test_links_are_turned_to_where_the_site_has_the_target():
    text = "[a](index.md#limits) [b](../CHANGELOG.md) [c](../tests/registry.py) [d](https://x.invalid) [e](#here)"
    turned = GATHER["turned"](text, ROOT / "docs/feeds.md")
    assert turned == "[a](overview.md#limits) [b](changelog.md) [c] [d](https://x.invalid) [e](#here)"
    assert GATHER["turned"]("[a](../mint.md)", ROOT / "docs/notebooks/x.ipynb") == "[a](../mint.md)"


@pytest.mark.parametrize("name", tm.__all__)
def test_every_public_name_has_a_home(name):
    value = getattr(tm, name)
    where = GATHER["home"](name, value)
    module, _, inner = where.rpartition(".")
    found = sys.modules[where] if where in sys.modules else getattr(sys.modules[module], inner)
    assert found is value


def test_a_name_without_a_home_is_an_error():
    with pytest.raises(ValueError, match="assigned nowhere"):
        GATHER["home"]("NOBODY", 4711)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_have_outputs_without_trouble(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert any("Run: 4 chains" in str(output.get("data", {}).get("text/plain", "")) for output in outputs)
    said = path.read_text()
    for trouble in ("Traceback", "Warning:", "site-packages", "/tmp", "/home"):
        assert trouble not in said
    page = GATHER["as_markdown"](notebook)
    assert page.startswith("# ")
    assert page.count("```python") == len(cells)


def test_outputs_of_notebooks_are_shown_and_escaped():
    stream = {"output_type": "stream", "name": "stdout", "text": ["a < b\n", "\n", "c\n"]}
    table = {
        "output_type": "execute_result",
        "data": {"text/html": ["<table>\n", "\n", "</table>"], "text/plain": ["x"]},
    }
    cells = [{"cell_type": "code", "source": ["1 < 2"], "outputs": [stream, table]}]
    page = GATHER["as_markdown"]({"cells": cells})
    assert "```python\n1 < 2\n```" in page
    assert '<div class="output"><pre>a &lt; b&#10;&#10;c</pre></div>' in page
    assert '<div class="output"><table>  </table></div>' in page


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path):
    fresh = runpy.run_path(str(ROOT / "docs/site/execute.py"), run_name="not_run")["executed"](path)
    kept = nbformat.read(path, as_version=4)
    assert [cell.source for cell in fresh.cells] == [cell.source for cell in kept.cells]
    for ours, theirs in zip(fresh.cells, kept.cells, strict=True):
        kinds = [[output.output_type for output in cell.get("outputs", [])] for cell in (ours, theirs)]
        assert kinds[0] == kinds[1]
    assert "Traceback" not in str(fresh)


@pytest.mark.slow
def test_the_site_is_built_and_needs_nothing_else():
    for command in ([sys.executable, "docs/site/gather.py"], ["mkdocs", "build", "--config-file", "build/mkdocs.yml"]):
        program = Path(sys.executable).parent / command[0]
        made = subprocess.run([program, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        assert "WARNING -" not in made.stderr
    pages = {
        page.relative_to(ROOT / "build/site").as_posix(): page.read_text() for page in ROOT.glob("build/site/**/*.html")
    }
    for name, text in pages.items():
        assert not re.findall(r"<(?:script|img|iframe)[^>]*src=\"?(?:https?:)?//", text), name
        assert not re.findall(r"<link[^>]*stylesheet[^>]*href=\"?(?:https?:)?//", text), name
    reference = "".join(text for name, text in pages.items() if name.startswith("reference/"))
    for name in tm.__all__:
        home = GATHER["home"](name, getattr(tm, name))
        assert f'id="{home}"' in reference or f"reference/{name}.html" in pages, name
