"""What a package index and a type checker see: metadata, links that lead somewhere, a README that is short."""

import itertools
import re
import runpy
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
TABLE = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = TABLE["project"]
README = (ROOT / "README.md").read_text()
BUILD = runpy.run_path(str(ROOT / "setup.py"), run_name="not_run")
REPOSITORY = "https://host.invalid/owner/name"
TARGET = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def test_the_readme_is_short():
    assert len(README.split()) <= 700


def test_links_on_an_index_are_absolute_and_lead_to_files():
    shown = BUILD["on_an_index"](README, REPOSITORY + "/", PROJECT["version"])
    before, after = TARGET.findall(README), TARGET.findall(shown)
    assert len(before) == len(after) > 10
    for relative, absolute in zip(before, after, strict=True):
        kind = "raw" if relative.endswith(".svg") else "blob"
        assert absolute == f"{REPOSITORY}/{kind}/v{PROJECT['version']}/{relative}"
        assert (ROOT / relative.partition("#")[0]).is_file()


def test_without_an_address_there_are_no_dead_links():
    shown = BUILD["on_an_index"](
        "A ![picture](docs/a.svg) and [a page](docs/b.md#c), [out](https://d.invalid).", "", "1"
    )
    assert shown == "A  and a page, [out](https://d.invalid)."
    assert not TARGET.search(BUILD["on_an_index"](README, "", "1"))
    assert BUILD["addresses"]("", "1") == {}


def test_project_urls_lead_into_the_repository():
    found = BUILD["addresses"](REPOSITORY, "0.1.0")
    assert set(found) == {"Repository", "Documentation", "Changelog", "Issues"}
    for url in found.values():
        assert url.startswith(REPOSITORY)
        if "/blob/v0.1.0/" in url:
            assert (ROOT / url.partition("/blob/v0.1.0/")[2]).is_file()


def test_authors_version_and_licence_are_those_of_the_citation():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert PROJECT["authors"] == [{"name": author["name"]} for author in citation["authors"]]
    assert (PROJECT["version"], PROJECT["license"]) == (citation["version"], citation["license"])


def test_the_wheel_says_that_it_is_typed():
    assert (ROOT / "src/tallmc/py.typed").is_file()
    assert "py.typed" in TABLE["tool"]["setuptools"]["package-data"]["tallmc"]
    assert "Typing :: Typed" in PROJECT["classifiers"]


@pytest.fixture(scope="module")
def matrix():
    return yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["test"]["strategy"]["matrix"]


def test_every_python_that_is_claimed_is_tested(matrix):
    claimed = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", name)]
    assert matrix["python"] == claimed == ["3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == f">={claimed[0]}"


def test_both_versions_of_jax_are_tested(matrix):
    assert matrix["jax"] == ["0.10", "0.11"]
    assert f"jax>={matrix['jax'][0]}" in PROJECT["dependencies"]
    left = [pair for pair in itertools.product(matrix["python"], matrix["jax"]) if list(pair) != ["3.11", "0.11"]]
    assert len(left) == 5
    assert matrix["exclude"] == [{"python": "3.11", "jax": "0.11"}]
