"""The documents keep their word: code blocks run, links lead somewhere, public names are explained."""

import inspect
import re
import sys
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks import picture

import tallmc as tm

ROOT = Path(__file__).parents[1]
PAGES = {str(path.relative_to(ROOT)): path for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]}
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def blocks(path):
    """Python blocks of a page, each moved down to its own line numbers so that a traceback points into the page."""
    text = path.read_text()
    return ["\n" * text[: match.start(1)].count("\n") + match[1] for match in BLOCK.finditer(text)]


def anchors(path):
    """Names under which a page's headings can be linked to."""
    headings = HEADING.findall(FENCED.sub("", path.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def write_flights(folder):
    """What the pages read as flights.parquet: made up, with the columns that they name."""
    generator, rows = np.random.default_rng(0), 20_000
    frame = pd.DataFrame({"distance": generator.gamma(3.0, 350.0, rows)})
    frame["carrier"] = generator.choice(["AA", "B6", "DL", "UA", "WN"], rows, p=[0.2, 0.2, 0.25, 0.2, 0.15])
    frame["hour"] = generator.integers(5, 24, rows)
    z = -2.4 + 0.0002 * frame.distance + 0.08 * frame.hour + 0.3 * (frame.carrier == "B6")
    frame["late"] = generator.random(rows) < 1 / (1 + np.exp(-z))
    frame.to_parquet(folder / "flights.parquet")


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of arviz-stats 0.8 with pandas 3.1
@pytest.mark.parametrize("name", [name for name, path in PAGES.items() if blocks(path)])
def test_code_blocks_run_in_order(name, monkeypatch, tmp_path):
    if "flights.parquet" in PAGES[name].read_text():
        write_flights(tmp_path)
        monkeypatch.chdir(tmp_path)
    # A module of its own, because classes are looked up in the module that they name.
    module = types.ModuleType("page_" + re.sub(r"\W", "_", name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in blocks(PAGES[name]):
        exec(compile(block, str(PAGES[name]), "exec"), vars(module))


def test_the_first_example_is_short():
    assert len(blocks(PAGES["README.md"])[0].strip().splitlines()) <= 15


def test_from_a_file_to_a_posterior_are_five_lines():
    first, second = (block.strip().splitlines() for block in blocks(PAGES["README.md"]))
    assert "import tallmc as tm" in first
    assert len([line for line in second if line]) + 1 <= 5


@pytest.mark.parametrize("name", PAGES)
def test_relative_links_lead_somewhere(name):
    for link in LINK.findall(FENCED.sub("", PAGES[name].read_text())):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (PAGES[name].parent / file).resolve() if file else PAGES[name]
        assert target.is_file(), f"{name} links to {link}, which does not exist"
        assert not anchor or anchor in anchors(target), f"{name} links to {link}: no such heading"


@pytest.mark.parametrize("name", tm.__all__)
def test_public_names_are_explained(name):
    assert (getattr(tm, name).__doc__ or "").strip()


def test_every_page_is_in_the_index():
    linked = LINK.findall((ROOT / "docs/index.md").read_text())
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"} <= set(linked)


def test_the_picture_shows_the_figures_of_the_benchmarks():
    lines = PAGES["docs/benchmarks.md"].read_text().splitlines()
    for rows, rate in picture.TALLMC.items():
        power = f"| 10^{len(str(rows)) - 1} rows | {rate:,} |"
        assert any(line.startswith(power) for line in lines), power
    for rows, rate in picture.NUTS.items():
        heading = next(
            i for i, line in enumerate(lines) if line.startswith(f"| 10^{len(str(rows)) - 1} rows | effective")
        )
        of_nuts = next(line for line in lines[heading:] if line.startswith("| NumPyro NUTS"))
        assert of_nuts.split("|")[2].strip() == f"{rate:,}"
    assert picture.TARGET.is_file()


def is_part(value, kind):
    return isinstance(value, type) and issubclass(value, kind) and not inspect.isabstract(value)


@pytest.mark.parametrize("kind", [tm.AcceptanceRule, tm.Proposal])
def test_how_to_choose_names_every_rule_and_proposal(kind):
    text = PAGES["docs/how-to-choose.md"].read_text()
    for name in tm.__all__:
        assert not is_part(getattr(tm, name), kind) or f"| `{name}` |" in text, f"{name} is missing from the table"
